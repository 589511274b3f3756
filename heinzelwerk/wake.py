"""A wake: one reason to start a turn, with a key that makes it one however often it is delivered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from heinzelwerk import ids
from heinzelwerk.ids import SessionId

LONGEST_CHAIN = 8
"""A wake that other turns' outputs caused carries how many came before it; at this length it ends `skipped: loop`."""


class Cause(StrEnum):
    """Why somebody wakes."""

    SCHEDULED = "scheduled"
    ASKED = "asked"
    EVENT = "event"
    INPUTS = "inputs"
    MANUAL = "manual"


class WhenBusy(StrEnum):
    """What becomes of a wake whose session is working: queue, join the newest of its kind, or steer the running turn."""

    FOLLOW_UP = "follow_up"
    MERGE = "merge"
    STEER = "steer"


class Wake(BaseModel):
    """One reason to start a turn.

    `key` begins with cause and source (`scheduled/<heinzel>/<slot in UTC>`, `asked/<channel>/<message id>`,
    `event/<source>/<delivery id>`, `inputs/<producer session>/<turn number>/<output>`, `manual/...`); the store
    accepts each key once. `text` (a message, at most 32,000 characters) and `data` (an event's payload) go to the
    turn's body and never to the spine.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    team: str
    heinzel: str
    key: str = Field(min_length=1, max_length=512)
    cause: Cause
    when_busy: WhenBusy = WhenBusy.FOLLOW_UP
    slot: datetime | None = None
    text: str | None = Field(default=None, max_length=32_000)
    data: JsonValue = None
    by: str | None = Field(default=None, max_length=200)
    channel: str | None = Field(default=None, max_length=64)
    conversation: str | None = Field(default=None, max_length=128)
    producer: str | None = Field(default=None, max_length=200)
    chain: int = Field(default=0, ge=0)

    @property
    def session(self) -> SessionId:
        """The session that it wakes."""
        return SessionId(self.team, self.heinzel)

    @property
    def id(self) -> str:
        """Its short name."""
        return ids.wake_id(self.key)


class Disposition(StrEnum):
    """What the store did with a wake that somebody brought."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The store's answer to a wake: `turn` is the number of the turn that worked or works it off, once there is one."""

    disposition: Disposition
    reason: str = ""
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class QueuedWake:
    """A wake in a session's inbox. `raw` is the stored entry (its identity for removal), `accepted_ms` server time."""

    wake: Wake
    accepted_ms: int
    raw: str

    @classmethod
    def read(cls, raw: str) -> QueuedWake:
        """Read a stored entry: `<accepted ms> <wake as JSON>`."""
        accepted, _, document = raw.partition(" ")
        return cls(Wake.model_validate_json(document), int(accepted), raw)


def scheduled_key(heinzel: str, slot_utc: datetime) -> str:
    """The key of a schedule's slot; `slot_utc` must be timezone-aware UTC."""
    return f"scheduled/{heinzel}/{slot_utc.strftime('%Y%m%dT%H%M%SZ')}"


def inputs_key(producer: SessionId, number: int, output: str) -> str:
    """The key of the wake that a producer's approved output causes."""
    return f"inputs/{producer}/{number}/{output}"
