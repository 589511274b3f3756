"""Reading exported spine lines and checking their chain: how much of it holds, and where and why the rest does not.

Lines come from files that other programs may have written, so reading is lenient where the chain still proves the content:
missing optional fields, carriage returns, NaN, repeated and reordered keys pass. Source: the spine format, section 2.1.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from heinzelwerk.event import LONGEST_LINE, Chain, Event, line_digest


class Why(StrEnum):
    """Why a line is bad: no whole line of at most 64 KiB, no event, or not the next link of the chain."""

    LINE = "line"
    ENVELOPE = "envelope"
    CHAIN = "chain"

    @property
    def words(self) -> str:
        """The reason as people read it, after `line 7: `."""
        return _REASONS[self]


_REASONS = {
    Why.LINE: "it is no whole line of at most 64 KiB",
    Why.ENVELOPE: "it is no spine event",
    Why.CHAIN: "it does not follow the line before it: something was changed, removed or inserted",
}


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


@dataclass(frozen=True, slots=True)
class Damage:
    """A bad line of a stored spine, by the number of the event that belongs there."""

    seq: int
    why: Why

    def __str__(self) -> str:
        return f"spine line {self.seq}: {self.why.words}"


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


def sealed_end(line: bytes) -> Chain | None:
    """Where the lines ended that a seal stands for; None where the line is no seal."""
    if b"spine.sealed" not in line:
        return None
    try:
        document = json.loads(line)
        sealed = document["kind"] == "spine.sealed"
        return Chain(int(document["data"]["to"]), str(document["data"]["last"])) if sealed else None
    except (ValueError, KeyError, TypeError):
        return None


def ends(chain: Chain, last: bytes) -> bool:
    """Whether the last stored line (or seal) is the one that the chain's head and number name; cheap, no other line is read."""
    if not last:
        return chain.seq == 0
    sealed = sealed_end(last)
    if sealed is not None:
        return sealed == chain
    return line_digest(last) == chain.head and json.loads(last)["seq"] == chain.seq


def verify_stored(lines: Sequence[bytes], begin: Chain | int) -> Damage | None:
    """The first bad one of a store's lines, None where all hold. They follow `begin`: an event's number and digest, or only
    its number, where what lies before is taken on trust. A seal may stand first.
    """
    sealed = sealed_end(lines[0]) if lines else None
    if sealed is not None:
        begin, lines = sealed, lines[1:]
    if not lines:
        return None
    if isinstance(begin, int):
        first = _event(lines[0])
        begin = Chain(begin, first.prev if isinstance(first, Event) else None)
    found = verify_lines(lines, seq=begin.seq, head=begin.head)
    if found.why is None or found.bad_line is None:
        return None
    newer = found.why is Why.ENVELOPE and _newer(lines[found.bad_line - 1])
    return None if newer else Damage(begin.seq + found.bad_line, found.why)


def _newer(line: bytes) -> bool:
    """Whether a line is a newer release's, whose events this one cannot judge."""
    try:
        document = json.loads(line)
    except ValueError:
        return False
    return isinstance(document, dict) and isinstance(document.get("v"), int) and document["v"] > 1


def _event(line: bytes) -> Event | Why:
    if len(line) > LONGEST_LINE or not line.endswith(b"\n"):
        return Why.LINE
    try:
        read = _Envelope.model_validate_json(line)
        stamp = read.ts.astimezone(UTC)
    except (ValidationError, OverflowError):
        return Why.ENVELOPE
    return Event(read.seq, stamp, read.prev, read.kind, read.data, read.turn, read.key, read.v)
