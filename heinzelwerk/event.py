"""Spine events: canonical lines in a SHA-256 chain. A line that is hashed is built here and nowhere else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import JsonValue

LONGEST_LINE = 65_536
"""Bytes of one line, its line feed included. Spines hold ids, hashes, verdicts and costs; words live in bodies."""


@dataclass(frozen=True, slots=True)
class Note:
    """An event before it has its place in the chain: what happened, in which turn, under which key."""

    kind: str
    data: Mapping[str, JsonValue] = field(default_factory=dict)
    turn: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a spine. `seq` counts from 1 without a gap; `prev` is the digest of the line before, None on the first."""

    seq: int
    ts: datetime
    prev: str | None
    kind: str
    data: Mapping[str, JsonValue]
    turn: str | None = None
    key: str | None = None
    v: int = 1

    def line(self) -> bytes:
        """The canonical line: JSON, sorted keys, no blanks, non-ASCII as it is, one line feed at the end."""
        stamp = self.ts.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        document = {
            "v": self.v,
            "seq": self.seq,
            "ts": stamp,
            "prev": self.prev,
            "turn": self.turn,
            "kind": self.kind,
            "key": self.key,
            "data": dict(self.data),
        }
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode("utf-8", "surrogatepass") + b"\n"


def line_digest(line: bytes) -> str:
    """The hash that the next line carries as `prev`: over the whole line, its line feed included."""
    return hashlib.sha256(line).hexdigest()


@dataclass(frozen=True, slots=True)
class Chain:
    """Where a spine ends: the last sequence number (0: empty) and the last line's digest."""

    seq: int = 0
    head: str | None = None

    def extend(self, notes: Iterable[Note], *, at: datetime) -> tuple[tuple[bytes, ...], Chain]:
        """The lines for these notes, in order, and the chain after them. ValueError where a line is over 64 KiB."""
        seq, head, lines = self.seq, self.head, []
        for note in notes:
            seq += 1
            line = Event(seq, at, head, note.kind, note.data, note.turn, note.key).line()
            if len(line) > LONGEST_LINE:
                raise ValueError(f"event {note.kind} has {len(line)} bytes; a spine line holds at most {LONGEST_LINE}")
            head = line_digest(line)
            lines.append(line)
        return tuple(lines), Chain(seq, head)
