"""Contracts and their Heinzelmännchen as people read them: diagnostics, the list, one of them."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, tzinfo
from typing import TypedDict

from rich.console import Group, RenderableType
from rich.text import Text

from heinzelwerk.contract import Diagnostic, Reading, SetReport, Severity
from heinzelwerk.generation import ContractEntry
from heinzelwerk.schedule import Schedule
from heinzelwerk.session import QUARANTINE, Overview
from heinzelwerk.turn import TurnRecord
from workers.repositories import TeamLoad
from workers.show import figures
from workers.show.screen import ink, line, table


class Row(TypedDict):
    """One Heinzelmännchen in the list; times are server milliseconds."""

    name: str
    title: str
    state: str
    how: str
    zone: str
    next_ms: int | None
    now: str
    queued: int
    last_turn: int
    last_state: str
    last_report: str
    last_ms: int | None
    broken: tuple[str, ...]


def row(name: str, entry: ContractEntry | None, seen: Overview | None, last: TurnRecord | None, *, now: int) -> Row:
    """What the list says of one: `state` is broken, revoked, paused, quarantined, scheduled, event or manual."""
    return Row(
        name=name,
        title=entry.title if entry else "",
        state=_state(entry, seen),
        how=_how(entry),
        zone=(entry.timezone or "") if entry and entry.schedule else "",
        next_ms=(seen.next_slot_ms if seen else None) or _next_slot(entry, now),
        now=_now(seen),
        queued=len(seen.inbox) if seen else 0,
        last_turn=last.number if last else 0,
        last_state=last.state.value if last else "",
        last_report=(last.report or last.reason) if last else "",
        last_ms=(last.ended_ms or last.started_ms) if last else None,
        broken=entry.broken if entry else (),
    )


def rows(
    entries: Mapping[str, ContractEntry], seen: Mapping[str, Overview], last: Mapping[str, TurnRecord], *, now: int
) -> list[Row]:
    """The whole list by name: what is loaded, and what left a record; `last` are the newest turns."""
    names = sorted({*entries, *seen})
    return [row(name, entries.get(name), seen.get(name), last.get(name), now=now) for name in names]


def _next_slot(entry: ContractEntry | None, now: int) -> int | None:
    """The next slot by the contract's own schedule, for one that has not woken yet."""
    if entry is None or entry.schedule is None or not entry.acts:
        return None
    following = Schedule.parse(entry.schedule, timezone=entry.timezone or "UTC").next_slot(
        datetime.fromtimestamp(now / 1000, UTC)
    )
    return int(following.timestamp() * 1000) if following else None


def _state(entry: ContractEntry | None, seen: Overview | None) -> str:
    if entry is None:
        return "revoked"
    if entry.broken:
        return "broken"
    if seen and seen.paused:
        return "paused"
    if seen and seen.memo.get(QUARANTINE):
        return "quarantined"
    if entry.schedule:
        return "scheduled"
    return "event" if entry.on else "manual"


def _how(entry: ContractEntry | None) -> str:
    if entry is None:
        return ""
    return ", ".join(filter(None, (entry.schedule, *entry.on))) or "by hand"


def _now(seen: Overview | None) -> str:
    if seen is None:
        return "asleep"
    for turn in reversed(seen.turns):
        waits = sorted({item.kind.value for item in turn.waits if item.open})
        if waits:
            return f"turn {turn.number} waits: {', '.join(waits)}"
        return f"turn {turn.number} runs" if seen.held else f"turn {turn.number} goes on soon"
    return f"{len(seen.inbox)} queued" if seen.inbox else "asleep"


_STATES = {"broken": "bold red", "quarantined": "bold red", "paused": "yellow", "revoked": "dim"}
_VERDICTS = {"completed": "green", "skipped": "cyan", "failed": "red", "budget": "red", "timeout": "red"}


def as_table(rows: Iterable[Row], *, now: int, zone: tzinfo, team: str) -> RenderableType:
    """The list; an empty one says how to fill it."""
    rows = list(rows)
    if not rows:
        return ink(
            f"Team {team} has no contracts.\nNext: heinzelwerk new NAME, then heinzelwerk load\n"
            "      writes a first one and brings it to the workers."
        )
    return table(
        ("heinzel", "state", "woken", "next", "now", "last turn", "when", "what"),
        (
            (
                ink(each["name"], "bold"),
                ink(each["state"], _STATES.get(each["state"], "")),
                each["how"],
                figures.instant(each["next_ms"], zone)[5:16] or "-",
                each["now"],
                ink(f"{each['last_turn']} {each['last_state']}", _VERDICTS.get(each["last_state"], ""))
                if each["last_turn"]
                else "never",
                figures.away(each["last_ms"], now=now),
                each["broken"][0] if each["broken"] else each["last_report"] or each["title"],
            )
            for each in rows
        ),
        folds=(2, 7),
    )


def one(each: Row, entry: ContractEntry, reading: Reading, *, zone: tzinfo) -> RenderableType:
    """One Heinzelmännchen at length."""
    facts = [
        ("state", each["state"]),
        ("file", f"{entry.file} ({figures.short(entry.sha256)})"),
        ("woken", f"{each['how']} {each['zone']}".strip()),
    ]
    if each["next_ms"]:
        facts.append(("next", figures.instant(each["next_ms"], zone)))
    facts.append(("now", each["now"]))
    found = reading.definition
    if found is not None:
        facts.append(("about", found.description))
        for name, spec in found.inputs.items():
            arguments = " ".join(f"{key}={value}" for key, value in spec.args.items())
            facts.append((f"reads {name}", f"{spec.read} {arguments}{f' over {spec.window}' if spec.window else ''}"))
        for publish in found.publishes:
            where = " ".join(f"{key}={value}" for key, value in publish.args.items())
            facts.append((f"places {publish.output}", f"{publish.action} {where}"))
        facts += [("done when", item) for item in found.done_when]
        facts.append(("limits", f"{figures.duration(found.timeout_s * 1000)}, retries {found.retries}"))
    if each["last_turn"]:
        facts.append(("last turn", f"{each['last_turn']} {each['last_state']}: {each['last_report']}"))
    head = ink(f"{each['name']}  {each['title']}", "bold")
    grid = table(("", ""), ((ink(name, "dim"), value) for name, value in facts), headings=False)
    broken = [ink(line(word), "red") for word in entry.broken]
    after = ink(f"Next: heinzelwerk wake {each['name']}   (or: log {each['name']})", "dim")
    return Group(head, grid, *broken, after)


def diagnostics(report: SetReport) -> RenderableType:
    """The result of a check: two lines for each finding, then the count."""
    lines: list[RenderableType] = [_diagnostic(found) for found in report.diagnostics]
    if lines:
        lines.append(Text())
    checked = figures.counted(len(report.readings), "contract")
    errors, warnings = figures.counted(report.errors, "error"), figures.counted(report.warnings, "warning")
    lines.append(ink(f"{checked} checked: {errors}, {warnings}", "red" if report.errors else "green"))
    return Group(*lines)


def _diagnostic(found: Diagnostic) -> Text:
    if found.severity is Severity.ERROR:
        text = ink(line(str(found)), "red")
    else:
        text = ink(line(f"{found.file}:{found.line} {found.code} {found.field} warning: {found.message}"), "yellow")
    if found.hint:
        text.append_text(ink(f"\n  hint: {line(found.hint)}"))
    return text


def load_data(team: str, done: TeamLoad) -> dict[str, object]:
    """A load for programs."""
    reply = done.loaded.reply
    return {
        "team": team,
        "generation": reply.number,
        "added": reply.added,
        "changed": reply.changed,
        "removed": reply.removed,
        **done.loaded.report.as_dict(),
        "refused_skills": [str(refusal) for refusal in done.refused],
    }


def loaded(team: str, done: TeamLoad) -> RenderableType:
    """A load: what came, changed and went, then everything that is wrong."""
    reply = done.loaded.reply
    moves = (("new", reply.added), ("changed", reply.changed), ("gone", reply.removed))
    words = "; ".join(f"{word}: {', '.join(names)}" for word, names in moves if names) or "nothing changed"
    head = ink(f"team {team}, generation {reply.number}: {line(words)}", "bold")
    refused = [ink(line(str(refusal)), "red") for refusal in done.refused]
    return Group(head, *refused, diagnostics(done.loaded.report))
