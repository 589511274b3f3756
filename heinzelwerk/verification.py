"""Reading exported spine lines and checking their chain: how much of it holds, and where and why the rest does not.

Lines come from files that other programs may have written, so reading is lenient where the chain still proves the content:
missing optional fields, carriage returns, NaN, repeated and reordered keys pass. Source: the spine format, section 2.1.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from heinzelwerk.event import LONGEST_LINE, Event, line_digest


class Why(StrEnum):
    """Why a line is bad: no whole line of at most 64 KiB, no event, or not the next link of the chain."""

    LINE = "line"
    ENVELOPE = "envelope"
    CHAIN = "chain"


@dataclass(frozen=True, slots=True)
class Verified:
    """The good prefix of a spine: its events, the digest of each line, and the first bad line (from 1) with the reason."""

    events: tuple[Event, ...]
    hashes: tuple[str, ...]
    bad_line: int | None = None
    why: Why | None = None

    @property
    def ok(self) -> bool:
        """Whether every line holds."""
        return self.bad_line is None


def _text_only(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("a time is text: ISO 8601 with an offset")
    return value


class _Envelope(BaseModel):
    """The fields of a spine event, and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    v: Annotated[int, Field(strict=True, ge=1, le=1)] = 1
    seq: Annotated[int, Field(strict=True, gt=0)]
    ts: Annotated[AwareDatetime, BeforeValidator(_text_only)]
    prev: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None
    turn: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None
    kind: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.-]{0,127}$")]
    key: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None
    data: dict[str, Any] = Field(default_factory=dict)


def verify(exported: bytes, *, seq: int = 0, head: str | None = None) -> Verified:
    """Check a whole export. `seq` and `head` are the last sealed event's, for an export that begins after a seal."""
    *whole, rest = exported.split(b"\n")
    lines = [line + b"\n" for line in whole] + ([rest] if rest else [])
    return verify_lines(lines, seq=seq, head=head)


def verify_lines(lines: Iterable[bytes], *, seq: int = 0, head: str | None = None) -> Verified:
    """Check lines one by one, each with its line feed; stops at the first bad one and keeps what came before."""
    events: list[Event] = []
    hashes: list[str] = []
    for number, line in enumerate(lines, start=1):
        event = _event(line)
        if isinstance(event, Event) and (event.seq != seq + 1 or event.prev != head):
            event = Why.CHAIN
        if isinstance(event, Why):
            return Verified(tuple(events), tuple(hashes), number, event)
        seq, head = event.seq, line_digest(line)
        events.append(event)
        hashes.append(head)
    return Verified(tuple(events), tuple(hashes))


def _event(line: bytes) -> Event | Why:
    if len(line) > LONGEST_LINE or not line.endswith(b"\n"):
        return Why.LINE
    try:
        read = _Envelope.model_validate_json(line)
        stamp = read.ts.astimezone(UTC)
    except (ValidationError, OverflowError):
        return Why.ENVELOPE
    return Event(read.seq, stamp, read.prev, read.kind, read.data, read.turn, read.key, read.v)
