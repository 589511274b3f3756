"""Mail: what others send to a turn that exists. The lease holder moves it onto the spine with its next commit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class MailKind(StrEnum):
    """What a piece of mail brings."""

    STEER = "steer"
    STOP = "stop"
    ANSWER = "answer"
    DECISION = "decision"
    REPORT = "report"
    JOB_ENDED = "job_ended"
    EFFECT_MOVED = "effect_moved"
    BUDGET_RAISED = "budget_raised"


class Mail(BaseModel):
    """One message to one turn (`turn` is its number; None: to the session).

    `id` makes it idempotent: the same id gets the first answer. `fills` names the wait item that it fills with
    `value`. `text` (a steer's or answer's words) goes to the body, never to the spine; `data` may: ids, hashes, verdicts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1, max_length=128)
    kind: MailKind
    turn: int | None = None
    fills: str | None = None
    value: str | None = None
    text: str | None = Field(default=None, max_length=32_000)
    by: str | None = Field(default=None, max_length=200)
    data: dict[str, str | int | bool | None] = Field(default_factory=dict)


class Posting(StrEnum):
    """What became of a piece of mail."""

    DELIVERED = "delivered"
    TURN_ENDED = "turn_ended"
    ALREADY_FILLED = "already_filled"
    UNKNOWN_TURN = "unknown_turn"
    UNKNOWN_ITEM = "unknown_item"
    EXPIRED = "expired"  # the item's deadline has passed by the server's clock; nothing was filled


@dataclass(frozen=True, slots=True)
class PostReply:
    """The store's answer; `detail` is what the item had been filled with, where it was filled before."""

    posting: Posting
    detail: str = ""
