"""What a segment starts from: the turn, its pinned contract, its inputs as fetched, and what was stored before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, JsonValue

from heinzelwerk.mail import Mail
from heinzelwerk.turn import CallRecord, TurnRecord

if TYPE_CHECKING:
    from heinzelwerk.contract import Contract


class FetchedInput(BaseModel):
    """One declared input as it was fetched for this wake, cleaned and redacted; never fetched again for the turn.

    `gap` says why there is nothing (a contract input that nobody has approved yet); `data` is then null.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    read: str
    arguments: dict[str, str] = {}
    since: str | None = None
    until: str | None = None
    data: JsonValue = None
    sha256: str = ""
    fingerprint: str = ""
    gap: str | None = None


@dataclass(frozen=True, slots=True)
class EarlierTurn:
    """One line of what happened before: date (ISO), verdict, and the turn's own summary or report."""

    number: int
    date: str
    verdict: str
    words: str
    cause: str = ""
    asked: str | None = None  # chat turns only: what was asked and answered, verbatim
    answered: str | None = None


@dataclass(frozen=True, slots=True)
class SkillText:
    """A skill that applies to this turn: its name, description, instructions and fingerprint."""

    name: str
    description: str
    text: str
    fingerprint: str
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Opening:
    """Everything that an engine needs for one segment.

    `version` is what a draft must name as its contract version. `history` are the stored messages (one JSON each),
    `calls` the ledger by `<ordinal>:<call id>`, `answers` what filled the turn's waits by the tool call they answer.
    `steers` are messages that arrived for this turn and are already on the spine. `model` is the configured model
    string that this turn is pinned to. `message` and `data` are the words and the payload of the wake (the turn's own
    record keeps neither).
    """

    turn: TurnRecord
    contract: Contract
    version: str
    model: str
    inputs: Mapping[str, FetchedInput]
    message: str | None = None
    data: JsonValue = None
    skills: tuple[SkillText, ...] = ()
    lessons: tuple[str, ...] = ()
    earlier: tuple[EarlierTurn, ...] = ()
    approved: Mapping[str, tuple[int, str]] = field(default_factory=dict)  # output -> (turn number, text)
    history: tuple[bytes, ...] = ()
    calls: Mapping[str, CallRecord] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    question_answer: str | None = None
    steers: tuple[Mail, ...] = ()
