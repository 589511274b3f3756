"""What a turn must return: one pydantic model, checked against the contract before anything acts on it."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field, model_validator

_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)


class DoneItem(BaseModel):
    """One item of the contract's `### Done when`, as the turn checked it."""

    model_config = _STRICT

    item: str = Field(min_length=1, max_length=2_000, description="The item, word for word as in the contract.")
    met: bool
    evidence: str = Field(min_length=1, max_length=4_000, description="What in the inputs or the text shows it.")


class Draft(BaseModel):
    """Text meant for one output of the contract."""

    model_config = _STRICT

    text: str = Field(min_length=1, max_length=100_000)
    output: str = Field(min_length=1, max_length=128, description="The output's name as the contract declares it.")
    contract_version: str = Field(min_length=1, max_length=128, description="The version given in the instructions.")
    done_when: list[DoneItem] = Field(min_length=1)


class Lesson(BaseModel):
    """Something worth knowing next time; offered to later turns only after a person accepted it."""

    model_config = _STRICT

    sentence: str = Field(min_length=1, max_length=4_000)
    hunks: list[str] = Field(default_factory=list, max_length=32)


class Amendment(BaseModel):
    """A proposal to change the contract itself; a person decides."""

    model_config = _STRICT

    text: str = Field(min_length=1, max_length=262_144, description="The whole proposed contract file.")
    reason: str = Field(min_length=1, max_length=4_000)


class Outcome(BaseModel):
    """The structured end of a turn (ADR 0050 statement 4)."""

    model_config = _STRICT

    report: str = Field(min_length=1, max_length=2_000, description="One sentence: what this turn did.")
    draft: Draft | None = None
    lessons: list[Lesson] = Field(default_factory=list, max_length=16)
    amendment: Amendment | None = None
    question: str | None = Field(default=None, min_length=1, max_length=8_000)
    summary: str | None = Field(default=None, min_length=1, max_length=8_000)
    nothing_to_do: bool = False
    reason: str | None = Field(default=None, min_length=1, max_length=4_000)

    @model_validator(mode="after")
    def _a_no_op_says_why_and_does_nothing(self) -> Outcome:
        if self.nothing_to_do and not self.reason:
            raise ValueError("nothing_to_do needs a reason")
        if self.nothing_to_do and (self.draft or self.amendment or self.question):
            raise ValueError("nothing_to_do excludes draft, amendment and question")
        return self


def faults(outcome: Outcome, *, version: str, outputs: Iterable[str], done_when: Iterable[str]) -> str | None:
    """Why this outcome does not fit its contract, or None: wrong version, undeclared output, wrong set of items."""
    draft = outcome.draft
    if draft is None:
        return None
    if draft.contract_version != version:
        return f"the draft names contract version {draft.contract_version}, the turn runs {version}"
    if draft.output not in set(outputs):
        return f"the draft is for output {draft.output!r}, which the contract does not declare"
    said, wanted = sorted(entry.item.strip() for entry in draft.done_when), sorted(item.strip() for item in done_when)
    if said != wanted:
        return "the draft's Done-when items are not exactly the contract's: each once, word for word"
    return None


def unmet(outcome: Outcome) -> tuple[str, ...]:
    """The Done-when items that the turn itself found unmet; a draft with any is not placed."""
    return tuple(entry.item for entry in outcome.draft.done_when if not entry.met) if outcome.draft else ()
