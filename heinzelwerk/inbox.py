"""What waits for a person, as pure rules over effects and sessions: drafts, questions, caps, unknown ends, failures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from heinzelwerk import amending
from heinzelwerk.effect import EffectRecord, EffectState
from heinzelwerk.session import POISON_CLAIMS, QUARANTINE, Overview
from heinzelwerk.turn import TurnRecord, WaitKind


class Waiting(StrEnum):
    """What kind of attention an entry asks for."""

    DRAFT = "draft"
    QUESTION = "question"
    BUDGET = "budget"
    UNKNOWN = "unknown"
    FAILED = "failed"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of the inbox. Times are server milliseconds; `next` is the command that takes it out of the inbox."""

    kind: Waiting
    id: str
    heinzel: str
    turn: int
    what: str
    since_ms: int
    until_ms: int | None
    next: str


def items(
    *, undecided: Iterable[EffectRecord], recent: Iterable[EffectRecord], sessions: Iterable[Overview]
) -> tuple[Item, ...]:
    """All that waits for a person, oldest first, each once; a failure until there is a newer draft for its place."""
    effects = tuple(recent)
    found = [_draft(effect) for effect in undecided]
    found += [_trouble(effect) for effect in effects if effect.state is EffectState.UNKNOWN]
    found += [_trouble(effect) for effect in _newest_of_each_place(effects) if effect.state is EffectState.FAILED]
    for seen in sessions:
        found += [item for turn in seen.turns for item in _waits(turn)]
        found += _quarantine(seen)
    return tuple(sorted({item.id: item for item in found}.values(), key=lambda item: (item.since_ms, item.id)))


def _newest_of_each_place(effects: Iterable[EffectRecord]) -> Iterable[EffectRecord]:
    by_age = sorted(effects, key=lambda effect: (effect.created_ms, effect.turn))
    return {(effect.heinzel, effect.action, effect.target): effect for effect in by_age}.values()


def _draft(effect: EffectRecord) -> Item:
    return Item(
        Waiting.DRAFT,
        effect.id,
        effect.heinzel,
        effect.turn,
        _wanted(effect),
        effect.created_ms,
        effect.expires_ms,
        f"heinzelwerk approve {effect.id}",
    )


def _wanted(effect: EffectRecord) -> str:
    reason = effect.arguments.get("reason", "")
    return (
        f"change {effect.target}: {reason}"
        if effect.action == amending.ACTION
        else f"{effect.action} to {effect.target}"
    )


def _trouble(effect: EffectRecord) -> Item:
    unknown = effect.state is EffectState.UNKNOWN
    said = effect.reason or effect.seen or "no reason was stored"
    return Item(
        Waiting.UNKNOWN if unknown else Waiting.FAILED,
        effect.id,
        effect.heinzel,
        effect.turn,
        f"{effect.action} to {effect.target}: {said}",
        effect.ended_ms or effect.started_ms or effect.created_ms,
        None,
        f"heinzelwerk resolve {effect.id} --as completed|failed|retry"
        if unknown
        else f"heinzelwerk wake {effect.heinzel}",
    )


def _waits(turn: TurnRecord) -> Iterator[Item]:
    name, at = turn.wake.heinzel, f"{turn.wake.heinzel}/{turn.number}"
    answer = f"heinzelwerk answer {name} --turn {turn.number}"
    told = {
        WaitKind.QUESTION: (Waiting.QUESTION, at, turn.report or "a question", f'{answer} "..."'),
        WaitKind.BUDGET: (Waiting.BUDGET, f"{at}/budget", turn.reason or "a cap is reached", f"{answer} --raise"),
    }
    for item in turn.waits:
        if item.open and item.kind in told:
            waiting, ident, what, command = told[item.kind]
            yield Item(waiting, ident, name, turn.number, what, turn.started_ms, item.deadline_ms, command)


def _quarantine(seen: Overview) -> Iterator[Item]:
    why = seen.memo.get(QUARANTINE)
    if why or seen.dead_claims >= POISON_CLAIMS:
        name = seen.session.heinzel
        what = why or f"killed its worker {seen.dead_claims} times"
        command = f"heinzelwerk resume {name}" if why else f"heinzelwerk log {name}"
        yield Item(Waiting.QUARANTINE, f"{name}/quarantine", name, seen.last_turn, what, 0, None, command)
