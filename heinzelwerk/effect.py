"""An effect: a change in the world that code performs at most once, under its key, in the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from heinzelwerk import ids
from heinzelwerk.ids import SessionId

MOST_ATTEMPTS = 5
"""Attempts that provably changed nothing go back to planned this often; then the effect is failed, in the inbox."""


class EffectState(StrEnum):
    """Where an effect is in the ledger. `planned` waits for a decision or for its turn; see docs/state-machine.md."""

    PLANNED = "planned"
    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"
    REFUSED = "refused"
    UNKNOWN = "unknown_after_crash"

    @property
    def ended(self) -> bool:
        """Whether code will do nothing more about it. Unknown is no end: read-back or a person resolves it."""
        return self in (EffectState.COMPLETED, EffectState.FAILED, EffectState.REFUSED)


class Decision(StrEnum):
    """What was decided about an effect. The first decision wins."""

    PENDING = "pending"
    APPROVED = "approved"
    DECLINED = "declined"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    UNATTENDED = "unattended"  # an operator's policy lets this publisher and target go without a person

    @property
    def may_start(self) -> bool:
        """Whether code may place it."""
        return self in (Decision.APPROVED, Decision.UNATTENDED)


class EffectRecord(BaseModel):
    """The ledger's record of one effect. Times are server milliseconds.

    `target` names what must not be written by two at once (`documents:docs/changes.md#weekly`); `shown` is the
    fingerprint of the target's section as the person saw it ("" for absent or empty); `text_sha256` is of the text to
    place and `digest` of text, target and shown together: that is what an approval approves.
    `version` counts transitions: a write names the one that it read and is refused where it moved on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    key: str
    team: str
    heinzel: str
    turn: int
    output: str
    action: str
    arguments: dict[str, str] = Field(default_factory=dict)
    target: str
    shown: str = ""
    text_sha256: str
    digest: str
    contract: str = ""
    state: EffectState = EffectState.PLANNED
    decision: Decision = Decision.PENDING
    decided_by: str = ""
    decided_ms: int | None = None
    edited: bool = False
    created_ms: int = 0
    expires_ms: int | None = None
    attempts: int = 0
    not_before_ms: int = 0
    started_ms: int | None = None
    deadline_ms: int | None = None
    ended_ms: int | None = None
    reason: str = ""
    seen: str = ""  # what a read-back found, and when
    revision: str = ""  # the target's own word for what we placed
    call: str | None = None  # a chat proposal: the tool call that waits for this effect's end
    ask: int = 1
    version: int = 1

    @property
    def session(self) -> SessionId:
        """The session whose turn asked for it."""
        return SessionId(self.team, self.heinzel)

    @property
    def undecided(self) -> bool:
        """Whether it waits for a person."""
        return self.state is EffectState.PLANNED and self.decision is Decision.PENDING


def effect_key(session: SessionId, wake_key: str, output: str, index: int, *, ask: int = 1) -> str:
    """`<session>/<wake key>/<output>/<index in publishes>/<ask>`."""
    return f"{session}/{wake_key}/{output}/{index}/{ask}"


def approval_digest(text: str, target: str, shown: str) -> str:
    """What an approval approves: this text, at this target, over this section."""
    return ids.digest("\0".join((ids.digest(text), target, shown)))


class Moved(StrEnum):
    """The ledger's answer to a transition."""

    DONE = "done"
    NOT_FOUND = "not_found"
    ALREADY_DECIDED = "already_decided"
    ALREADY_ENDED = "already_ended"
    DIGEST_DIFFERS = "digest_differs"
    NOT_DUE = "not_due"
    TARGET_BUSY = "target_busy"
    REFUSED = "refused"
    HELD_ELSEWHERE = "held_elsewhere"
    STALE = "stale"


class Which(StrEnum):
    """Which of a team's effects are asked for; the values are the names of their lists in the store."""

    ALL = "effects"
    UNDECIDED = "undecided"
    UNKNOWN = "unknown"

    def has(self, record: EffectRecord) -> bool:
        """Whether the effect is one of them."""
        return {
            Which.ALL: True,
            Which.UNDECIDED: record.undecided,
            Which.UNKNOWN: record.state is EffectState.UNKNOWN,
        }[self]


@dataclass(frozen=True, slots=True)
class MoveReply:
    """What a transition did, with the record as it stands now."""

    moved: Moved
    record: EffectRecord | None = None
    detail: str = ""
