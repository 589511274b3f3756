"""A spine as a timeline: one row for each event, with what it cost and how long it took.

Reads events of any release: a kind that it does not know is shown with its plain facts, so that nothing is hidden.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from pydantic import JsonValue
from rich.text import Text

from heinzelwerk.mail import Mail
from workers.show import details, figures
from workers.show.details import Facts, whole
from workers.show.screen import Fitted, ink, table


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
    given, made = whole(data, "input_tokens") or 0, whole(data, "output_tokens") or 0
    cost = whole(data, "cost_micros")
    return Row(
        entry.at,
        _WORDS.get(entry.kind, entry.kind.replace(".", " ").replace("_", " ")),
        details.describe(entry.kind, data),
        entry.turn,
        next((found for name in _TOOK if (found := whole(data, name)) is not None), None),
        figures.tokens(given, made),
        cost if cost or entry.kind in _PRICED else None,
    )


def as_table(entries: Iterable[Entry], *, zone: tzinfo = UTC, headings: bool = True) -> Fitted:
    """The timeline as people read it; without headings for pieces that follow each other. Days are named where there are two."""
    shown = rows(entries)
    days = {row.at.astimezone(zone).date() for row in shown if row.at}
    stamp = "%m-%d %H:%M:%S" if len(days) > 1 else "%H:%M:%S"
    return table(
        ("time", "turn", "what", "took", "tokens", "cost", "details"),
        (
            (
                ink(row.at.astimezone(zone).strftime(stamp) if row.at else "unread", "dim"),
                str(row.turn or ""),
                _styled(row.what),
                figures.duration(row.duration_ms) if row.duration_ms is not None else "",
                row.tokens,
                figures.money(row.cost_micros) if row.cost_micros is not None else "",
                row.detail,
            )
            for row in shown
        ),
        right=(1, 3, 4, 5),
        least=() if headings else (8, 4, 14, 7, 16, 7),
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


_TOOK = ("ms", "duration_ms", "active_ms")
_PRICED = ("step.model", "turn.ended")
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


def _styled(what: str) -> Text:
    lower = what.lower()
    return ink(what, next((style for word, style in _STYLES if word in lower), "bold"))
