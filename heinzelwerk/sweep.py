"""The sweep: rings what is due, fills the slots of schedules. Beat starts it, and so does every worker; once suffices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from heinzelwerk import admission, errors
from heinzelwerk.generation import ContractEntry
from heinzelwerk.schedule import Schedule
from heinzelwerk.session import Due
from heinzelwerk.wake import Cause, Wake, WhenBusy, scheduled_key

if TYPE_CHECKING:
    from heinzelwerk.ports import Works

log = structlog.get_logger("heinzelwerk.sweep")

SLOTS_AT_ONCE = 200
"""Missed slots of one schedule that one pass fills; it stays due for the rest, so that a long downtime is no storm."""
SCHEDULES_AT_ONCE = 2_000
"""Schedules of one team that one pass looks at: a full hour is everybody's hour."""
_SIDE_BY_SIDE = 50


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did: doorbells rung and slots filled."""

    rung: int = 0
    slots: int = 0


async def sweep(works: Works, *, start: int = 0) -> Swept:
    """One pass over all teams, beginning with another one each time (`start` counts the passes)."""
    teams = await works.store.teams()
    rung = slots = 0
    for index in range(len(teams)):
        team = teams[(start + index) % len(teams)]
        try:
            did = await sweep_team(team, works)
        except errors.StoreUnavailable:
            raise
        except errors.HeinzelwerkError as error:
            # One team's trouble must not keep the others asleep.
            log.warning("sweep failed", team=team, reason=str(error))
            continue
        rung, slots = rung + did.rung, slots + did.slots
    return Swept(rung, slots)


async def sweep_team(team: str, works: Works) -> Swept:
    """One team: fill its due slots, then ring what is due."""
    slots = 0
    due_slots = await works.store.due(team, kind="slot", limit=SCHEDULES_AT_ONCE)
    for at in range(0, len(due_slots), _SIDE_BY_SIDE):
        slots += await _fill_some(team, due_slots[at : at + _SIDE_BY_SIDE], works)
    rung = await works.store.ring(team)
    if rung:
        await works.bell.ring(rung)
    return Swept(len(rung), slots)


async def _fill_some(team: str, due_slots: Sequence[Due], works: Works) -> int:
    entries = await works.store.entries(team, [due.name for due in due_slots])
    now = await works.store.now_ms()
    filled = await asyncio.gather(
        *(_fill(due, entries.get(due.name), now, works) for due in due_slots), return_exceptions=True
    )
    for entry in filled:
        if isinstance(entry, BaseException):
            raise entry
    return sum(entry for entry in filled if isinstance(entry, int))


async def _fill(due: Due, entry: ContractEntry | None, now_ms: int, works: Works) -> int:
    """Accept the wakes of all slots up to now, and move the schedule to the next one."""
    if entry is None or entry.schedule is None or not entry.acts:
        await works.store.fill_slot(due.team, due.name, expected_ms=due.due_ms, next_ms=None, wakes=())
        return 0
    try:
        schedule = Schedule.parse(entry.schedule, timezone=entry.timezone or str(works.timezone))
    except ValueError as error:
        # A host without this zone's data: the slot stays due for one that has it, and everybody else's are filled.
        log.error("schedule not read", team=due.team, session=f"{due.team}/{due.name}", reason=str(error))
        return 0
    wakes, next_ms = _slots(schedule, due, now_ms)
    while not await works.store.fill_slot(due.team, due.name, expected_ms=due.due_ms, next_ms=next_ms, wakes=wakes):
        half = len(wakes) // 2
        if not half:
            return 0  # the queue is full, or another sweep was here
        # More than fits into what is free of the queue: a part of it may.
        wakes, next_ms = wakes[:half], _ms(wakes[half])
    log.info("slots filled", team=due.team, session=f"{due.team}/{due.name}", slots=len(wakes), next_ms=next_ms)
    return len(wakes)


def _ms(wake: Wake) -> int | None:
    return int(wake.slot.timestamp() * 1000) if wake.slot else None


def _slots(schedule: Schedule, due: Due, now_ms: int) -> tuple[Sequence[Wake], int | None]:
    """The wakes from the due slot up to now, at most a batch, and the slot after them."""
    first = admission.at(due.due_ms)
    slots = [first]
    while len(slots) < SLOTS_AT_ONCE:
        following = schedule.next_slot(slots[-1])
        if following is None or int(following.timestamp() * 1000) > now_ms:
            break
        slots.append(following)
    following = schedule.next_slot(slots[-1])
    wakes = [
        Wake(
            team=due.team,
            heinzel=due.name,
            key=scheduled_key(due.name, slot.astimezone(first.tzinfo)),
            cause=Cause.SCHEDULED,
            when_busy=WhenBusy.MERGE,
            slot=slot.astimezone(first.tzinfo),
        )
        for slot in slots
    ]
    return wakes, int(following.timestamp() * 1000) if following else None
