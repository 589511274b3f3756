"""A spine as a timeline: one row for each event, with what it cost and how long it took.

Reads events of any release: a kind that it does not know is shown with its plain facts, so that nothing is hidden.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from pydantic import JsonValue
from rich.table import Table
from rich.text import Text

from heinzelwerk.mail import Mail
from workers.show import figures
from workers.show.screen import ink, line, table

Facts = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Entry:
    """An event as readers need it; `seq` is None for mail that no commit has taken yet."""

    seq: int | None
    at: datetime | None
    kind: str
    turn: int | None
    data: Facts


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a timeline; what an event does not say is None."""

    at: datetime | None
    what: str
    detail: str
    turn: int | None = None
    duration_ms: int | None = None
    tokens: str = ""
    cost_micros: int | None = None


def read(lines: Iterable[bytes]) -> tuple[Entry, ...]:
    """Spine lines as entries; a line that is no event is shown as damaged and hides nothing behind it."""
    return tuple(_entry(raw) for raw in lines)


def _entry(raw: bytes) -> Entry:
    try:
        document = json.loads(raw)
        at = datetime.fromisoformat(document["ts"])
        data = document.get("data") or {}
        turn = str(document.get("turn") or "").rpartition("/")[2]
        return Entry(document["seq"], at, document["kind"], int(turn) if turn.isdigit() else None, data)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Entry(None, None, "spine.damaged", None, {"bytes": len(raw)})


def unread(mail: Iterable[Mail]) -> tuple[Entry, ...]:
    """Mail on its way as entries: what people are shown is spine and mail."""
    return tuple(
        Entry(
            None, None, f"mail.{entry.kind.value}", entry.turn, {**entry.data, **({"by": entry.by} if entry.by else {})}
        )
        for entry in mail
    )


def of_turn(entries: Iterable[Entry], number: int) -> tuple[Entry, ...]:
    """The entries of one turn."""
    return tuple(entry for entry in entries if entry.turn == number)


def rows(entries: Iterable[Entry]) -> tuple[Row, ...]:
    """The rows of a timeline, in the order of the spine."""
    return tuple(_row(entry) for entry in entries)


def _row(entry: Entry) -> Row:
    data = entry.data
    given, made = _whole(data, "input_tokens") or 0, _whole(data, "output_tokens") or 0
    describe = _DETAILS.get(entry.kind, _plain)
    cost = _whole(data, "cost_micros")
    took = _whole(data, "duration_ms")
    return Row(
        entry.at,
        _WORDS.get(entry.kind, entry.kind.replace(".", " ").replace("_", " ")),
        describe(data),
        entry.turn,
        took if took is not None else _whole(data, "active_ms"),
        figures.tokens(given, made),
        cost if cost or entry.kind in ("step.model", "turn.ended") else None,
    )


def as_table(entries: Iterable[Entry], *, zone: tzinfo = UTC, headings: bool = True) -> Table:
    """The timeline as people read it; without headings for pieces that follow each other."""
    return table(
        ("time", "turn", "what", "took", "tokens", "cost", "details"),
        (
            (
                ink(row.at.astimezone(zone).strftime("%m-%d %H:%M:%S") if row.at else "on its way", "dim"),
                str(row.turn or ""),
                _styled(row.what),
                figures.duration(row.duration_ms) if row.duration_ms is not None else "",
                row.tokens,
                figures.money(row.cost_micros) if row.cost_micros is not None else "",
                row.detail,
            )
            for row in rows(entries)
        ),
        right=(1, 3, 4, 5),
        least=(14, 4, 16, 8, 16, 7),
        headings=headings,
    )


def as_data(entries: Iterable[Entry]) -> list[dict[str, JsonValue]]:
    """The events for programs."""
    return [
        {
            "seq": entry.seq,
            "ts": entry.at.isoformat() if entry.at else None,
            "turn": entry.turn,
            "kind": entry.kind,
            "data": dict(entry.data),
        }
        for entry in entries
    ]


_WORDS = {
    "turn.started": "turn started",
    "step.model": "model",
    "step.tools": "tools",
    "step.handoff": "handoff",
    "spine.sealed": "older events sealed",
    "spine.damaged": "DAMAGED LINE",
}
_STYLES = (
    ("failed", "red"),
    ("damaged", "bold red"),
    ("unknown", "bold yellow"),
    ("refused", "yellow"),
    ("expired", "yellow"),
    ("waiting", "yellow"),
    ("skipped", "cyan"),
    ("ended", "green"),
    ("completed", "green"),
)
_QUIET = frozenset(
    ("duration_ms", "input_tokens", "output_tokens", "cost_micros", "mail", "key", "v", "wake_id", "digest", "version")
)
"""Fields that have a column of their own, or that only programs compare."""


def _styled(what: str) -> Text:
    lower = what.lower()
    return ink(what, next((style for word, style in _STYLES if word in lower), "bold"))


def _plain(data: Facts) -> str:
    """Every fact that has no column, `name value`, hashes shortened, empty ones left out."""
    return " · ".join(
        f"{name.replace('_', ' ')} {shown}"
        for name, value in data.items()
        if name not in _QUIET and (shown := _shown(name, value))
    )


def _shown(name: str, value: JsonValue) -> str:
    if value is None or value == "" or value == [] or value == {} or value is False or value == 0:
        return ""
    if isinstance(value, list):
        return line(", ".join(_shown(name, item) for item in value))
    if isinstance(value, dict):
        return line(", ".join(f"{key} {_shown(key, item)}".strip() for key, item in value.items()))
    if name.endswith("_micros") and isinstance(value, int):
        return figures.money(value)
    if name.endswith("_ms") and isinstance(value, int) and value > 10**11:
        return figures.instant(value)
    text = line(str(value))
    return figures.short(text) if text.startswith("sha256:") or name.endswith("sha256") else text


def _whole(data: Facts, name: str) -> int | None:
    value = data.get(name)
    if value is None:
        usage = data.get("usage")
        value = usage.get(name) if isinstance(usage, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return round(value)


def _started(data: Facts) -> str:
    pins, inputs = data.get("pins"), data.get("inputs")
    parts = [_shown("cause", data.get("cause")), f"by {by}" if (by := _shown("by", data.get("by"))) else ""]
    parts.append(f"as of {as_of[:19]}" if (as_of := _shown("as_of", data.get("as_of"))) else "")
    if isinstance(pins, dict):
        parts += [f"model {_shown('model', pins.get('model'))}", f"contract {_shown('sha256', pins.get('contract'))}"]
    if isinstance(inputs, dict) and inputs:
        parts.append(f"inputs {', '.join(inputs)}")
    if merged := _whole(data, "merged"):
        parts.append(f"took {figures.counted(merged, 'waiting wake')} along")
    return line(" · ".join(filter(None, parts)))


def _ended(data: Facts) -> str:
    verdict, reason, report = (_shown(name, data.get(name)) for name in ("verdict", "reason", "report"))
    requests, calls = _whole(data, "requests") or 0, _whole(data, "tool_calls") or 0
    spent = f"{figures.counted(requests, 'request')}, {figures.counted(calls, 'tool call')}"
    head = f"{verdict}: {reason}" if reason else verdict
    return line(" · ".join(filter(None, (head, report, spent))))


def _waiting(data: Facts) -> str:
    items = data.get("items")
    until = ""
    if isinstance(items, list):
        deadlines = [found for item in items if isinstance(item, dict) and (found := _whole(item, "deadline_ms"))]
        until = f" until {figures.instant(min(deadlines))} UTC" if deadlines else ""
    return line(f"for {_shown('for', data.get('for'))}{until}")


def _effect(data: Facts) -> str:
    name = _shown("effect", data.get("effect"))
    words = filter(None, (_shown(field, data.get(field)) for field in ("state", "decision")))
    by, reason = _shown("by", data.get("by")), _shown("reason", data.get("reason"))
    target = " to ".join(filter(None, (_shown("action", data.get("action")), _shown("target", data.get("target")))))
    tail = f" by {by}" if by else ""
    return line(" · ".join(filter(None, (name, target, ", ".join(words) + tail, reason))))


_DETAILS: dict[str, Callable[[Facts], str]] = {
    "turn.started": _started,
    "turn.ended": _ended,
    "turn.waiting": _waiting,
    "effect.planned": _effect,
    "effect.moved": _effect,
    "effect.failed": _effect,
}
