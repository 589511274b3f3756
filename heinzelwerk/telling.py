"""Telling people what waits for them: beside the path, at its own pace, so that no mail server can hold a turn up.

What waits is read from the store, where it stays until somebody decides: a notice that could not be told is told later,
by whichever process looks next. Each is told once per messenger: who is about to tell it takes a turn for it in the
store, and marks it as told afterwards. A process that dies in between tells it again, under the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from heinzelwerk import errors, inbox, notice
from heinzelwerk.client import Client
from heinzelwerk.generation import ContractEntry
from heinzelwerk.inbox import Waiting
from heinzelwerk.notice import Notice
from heinzelwerk.session import Overview
from heinzelwerk.turn import TurnRecord, TurnState

if TYPE_CHECKING:
    from heinzelwerk.ports import Messenger, Works

log = structlog.get_logger("heinzelwerk.telling")

TOLD_MS = 60 * 86_400_000
"""How long the store remembers that it was told: longer than anything waits."""
FRESH_MS = 86_400_000
"""A turn that failed longer ago is no news."""
AT_ONCE = 20
"""So many in one pass: a new webhook is not flooded with a month's backlog."""
_LOOK_BACK = 5
"""Turns of a session that a process looks at when it has not looked before."""
_NO_RESULT = (TurnState.FAILED, TurnState.TIMEOUT, TurnState.BUDGET)


@dataclass(slots=True)
class Memory:
    """What this process need not ask the store again; losing it costs a few reads."""

    told: set[str] = field(default_factory=set)
    looked: dict[str, int] = field(default_factory=dict)  # session -> the newest turn that was looked at
    failed: dict[str, Notice] = field(default_factory=dict)


async def tell(
    team: str, messengers: Sequence[Messenger], works: Works, memory: Memory, *, link: str | None = None
) -> int:
    """Tell what waits in one team and was not told yet; answers how many notices went out."""
    now = await works.store.now_ms()
    waiting = await _waiting(team, works, memory, now=now, link=link)
    memory.told &= {f"{one.id}:{messenger.name}" for one in waiting for messenger in messengers}
    told = 0
    for one in waiting:
        for messenger in messengers:
            if told < AT_ONCE and f"{one.id}:{messenger.name}" not in memory.told:
                told += await _tell(one, messenger, works, memory, now=now)
    return told


async def _tell(one: Notice, messenger: Messenger, works: Works, memory: Memory, *, now: int) -> int:
    name, store = f"{one.id}:{messenger.name}", works.store
    if await store.is_taken(f"told:{name}"):
        memory.told.add(name)
        return 0
    if not await store.take_turns(f"telling:{name}", ttl_ms=notice.retry_ms(max(0, now - one.since_ms))):
        return 0
    try:
        await messenger.tell(one)
    except errors.HeinzelwerkError as error:
        log.warning("notice not told", team=one.team, notice=one.id, messenger=messenger.name, reason=str(error))
        return 0
    await store.take_turns(f"told:{name}", ttl_ms=TOLD_MS)
    memory.told.add(name)
    log.info("notice told", team=one.team, notice=one.id, kind=one.kind, messenger=messenger.name)
    return 1


async def _waiting(team: str, works: Works, memory: Memory, *, now: int, link: str | None) -> tuple[Notice, ...]:
    """All that waits for people of the team, and the turns that failed lately, oldest first."""
    client = Client(works, team, rings=False)
    undecided, recent, seen, entries = await asyncio.gather(
        client.waiting(), client.troubled(), client.overviews(), client.contracts()
    )
    targets = {effect.id: effect.target for effect in (*recent, *undecided)}
    found = inbox.items(undecided=undecided, recent=recent, sessions=seen.values())
    waiting = [_of(item, team, targets.get(item.id, ""), entries, link) for item in found if _lately(item, now)]
    await _look_at_turns(team, seen, works, memory, now=now, entries=entries, link=link)
    return tuple(sorted((*waiting, *memory.failed.values()), key=lambda one: (one.since_ms, one.id)))


def _lately(item: inbox.Item, now: int) -> bool:
    """An effect's failure stays in the inbox's list for long; as news it grows old."""
    return item.kind is not Waiting.FAILED or item.since_ms > now - FRESH_MS


def _of(item: inbox.Item, team: str, target: str, entries: Mapping[str, ContractEntry], template: str | None) -> Notice:
    stamp = item.until_ms or item.since_ms or item.turn
    return Notice(
        id=notice.notice_id(team, item.kind.value, item.id, stamp),
        team=team,
        kind=item.kind.value,
        heinzel=item.heinzel,
        turn=item.turn,
        title=_title(item.heinzel, entries),
        target=target,
        next=f"{item.next} --team {team}",
        since_ms=item.since_ms,
        link=notice.link(template, team=team, heinzel=item.heinzel, turn=item.turn, id=item.id),
    )


async def _look_at_turns(
    team: str,
    seen: Mapping[str, Overview],
    works: Works,
    memory: Memory,
    *,
    now: int,
    entries: Mapping[str, ContractEntry],
    link: str | None,
) -> None:
    """Remember the turns that ended without a result since the last look; forget those that are no news any more."""
    memory.failed = {name: one for name, one in memory.failed.items() if one.since_ms > now - FRESH_MS}
    for one in seen.values():
        # An open turn may still fail: it is looked at again.
        settled = min((turn.number - 1 for turn in one.turns), default=one.last_turn)
        after = memory.looked.get(str(one.session), max(0, one.last_turn - _LOOK_BACK))
        if one.last_turn > after:
            newest = await works.store.turns(one.session, before=one.last_turn + 1, limit=one.last_turn - after)
            for turn in newest:
                if turn.state in _NO_RESULT and (turn.ended_ms or 0) > now - FRESH_MS:
                    found = _of_turn(turn, entries, link)
                    memory.failed[found.id] = found
        memory.looked[str(one.session)] = min(settled, one.last_turn)


def _of_turn(turn: TurnRecord, entries: Mapping[str, ContractEntry], template: str | None) -> Notice:
    team, heinzel, ended = turn.wake.team, turn.wake.heinzel, turn.ended_ms or 0
    return Notice(
        id=notice.notice_id(team, "turn-failed", turn.id(), ended),
        team=team,
        kind="turn-failed",
        heinzel=heinzel,
        turn=turn.number,
        title=_title(heinzel, entries),
        target="",
        next=f"heinzelwerk log {heinzel} --turn {turn.number} --team {team}",
        since_ms=ended,
        link=notice.link(template, team=team, heinzel=heinzel, turn=turn.number, id=turn.id()),
    )


def _title(heinzel: str, entries: Mapping[str, ContractEntry]) -> str:
    entry = entries.get(heinzel)
    return entry.title if entry is not None else ""
