"""The six invariants, read from spine, ledger, budget, targets and logs after every row.

I1 each accepted wake ends exactly once; I2 no effect key is executed twice; I3 spines are whole, one writer at a time;
I4 money adds up and stays under its caps; I5 a secret comes out nowhere; I6 what people are shown is the spine. And a
SCAN of the server against the key table.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import redis

from heinzelwerk import verification
from heinzelwerk.effect import EffectState
from heinzelwerk.ids import SessionId, wake_id
from heinzelwerk.store import keys
from heinzelwerk.turn import TurnRecord, TurnState
from tests.faults import targets
from tests.faults.world import CANARY, TEAM, House

ENDS = ("turn.ended", "wake.skipped", "wake.merged", "wake.steered", "turn.steered")


async def check(house: House, *, resting: bool = True, parked: tuple[str, ...] = ()) -> None:
    """Assert all of them. `resting`: wait first until nothing runs any more; `parked` are sessions whose turns may wait."""
    if resting:
        await quiet(house, parked)
    names = list(await house.names())
    turns = {name: await _turns(house, name) for name in names}
    events = {name: await _whole(house, name) for name in names}
    _wakes_end_once(house, events, parked)
    await _effects_once(house)
    for name in names:
        _one_writer(name, events[name], turns[name])
        await _shown_is_the_spine(house, name, events[name], turns[name])
    await _money(house, turns)
    no_secret(house)
    assert audit(house) == []


async def quiet(house: House, parked: tuple[str, ...] = ()) -> None:
    """Wait until every session has nothing queued, unread, running or held; what waits for a person may."""

    async def look() -> bool:
        for name in await house.names():
            seen = await house.store.overview(SessionId(TEAM, name))
            if seen is None or seen.held or (seen.inbox and name not in parked) or seen.mail:
                return False
            if any(turn.state is not TurnState.WAITING or not _for_people(turn, name, parked) for turn in seen.turns):
                return False
        return all(
            one.state.ended or one.state is EffectState.UNKNOWN or one.undecided
            for one in await house.store.effects(TEAM, limit=10_000)
        )

    await house.world.until(look, "rest")


def _for_people(turn: TurnRecord, name: str, parked: tuple[str, ...]) -> bool:
    return name in parked or all(not item.kind.holds_session for item in turn.waits)


async def _turns(house: House, name: str) -> list[TurnRecord]:
    seen = await house.store.overview(SessionId(TEAM, name))
    assert seen is not None
    found = await house.store.turns(SessionId(TEAM, name), before=seen.last_turn + 1, limit=10_000)
    return sorted(found, key=lambda turn: turn.number)


async def _whole(house: House, name: str) -> list[dict[str, Any]]:
    """I3: the chain, by the verification that people use on exports, and by the head that the store keeps."""
    lines = await house.store.spine(SessionId(TEAM, name))
    found = verification.verify_lines(lines)
    assert found.ok, f"{name}: line {found.bad_line} is bad: {found.why}"
    return [json.loads(line) for line in lines]


def _wakes_end_once(house: House, events: dict[str, list[dict[str, Any]]], parked: tuple[str, ...]) -> None:
    """I1."""
    for name, key in house.world.accepted:
        ends = Counter(
            event["kind"]
            for event in events.get(name, ())
            if event["kind"] in ENDS[:4] and (event["key"] == key or event["data"].get("wake") == wake_id(key))
        )
        if name in parked and not ends:
            continue
        assert sum(ends.values()) == 1, f"wake {key} of {name} ended {dict(ends)}"


async def _effects_once(house: House) -> None:
    """I2: counted at the targets, against the ledger."""
    counts = Counter(line["key"] for line in targets.placed(house.control))
    assert not [key for key, count in counts.items() if count > 1], counts
    known = {effect.key: effect for effect in await house.store.effects(TEAM, limit=10_000)}
    for key in counts:
        assert key in known, f"{key} was placed and is in no ledger"
        assert known[key].state not in (EffectState.PLANNED, EffectState.REFUSED), known[key]
    for key, effect in known.items():
        if effect.state is EffectState.COMPLETED and effect.action.endswith(".place"):
            resolved = effect.reason.startswith("resolved")
            assert counts[key] == 1 or resolved, f"{key} is completed and was placed {counts[key]} times"


def _one_writer(name: str, events: list[dict[str, Any]], turns: list[TurnRecord]) -> None:
    """I3: each turn starts once, ends at most once, in that order, and its steps only grow."""
    by_turn: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event["turn"] is not None:
            by_turn.setdefault(event["turn"], []).append(event)
    for turn in turns:
        mine = by_turn.get(turn.id(), [])
        kinds = [event["kind"] for event in mine]
        poisoned = turn.reason == "poison" and turn.pins is None
        assert kinds.count("turn.started") == (0 if poisoned else 1), f"{turn.id()}: {kinds}"
        assert kinds.count("turn.ended") == (1 if turn.state.ended else 0), f"{turn.id()}: {kinds}"
        steps = [
            event["data"]["step"]
            for event in mine
            if event["kind"] in ("step.model", "step.tools") and "failed" not in event["data"]
        ]
        if "turn.retried" not in kinds:
            assert steps == sorted(set(steps)), f"{turn.id()}: steps {steps}"


async def _shown_is_the_spine(house: House, name: str, events: list[dict[str, Any]], turns: list[TurnRecord]) -> None:
    """I6: the records that people are shown say what the spine says."""
    log = await house.client.log(name)
    assert [json.loads(line) for line in log.lines][: len(events)] == events
    verdicts = {event["turn"]: event["data"] for event in events if event["kind"] == "turn.ended"}
    for turn in turns:
        if turn.state.ended:
            said = verdicts[turn.id()]
            assert (said["verdict"], said["reason"]) == (turn.state.value, turn.reason)
            assert said["cost_micros"] == turn.usage.cost_micros
            assert said["possible_micros"] == turn.usage.possible_micros


async def _money(house: House, turns: dict[str, list[TurnRecord]]) -> None:
    """I4: what the days' books say is what the turns say, nothing stays reserved, caps hold."""
    team = await house.store.spent(TEAM)
    open_turns = [turn for found in turns.values() for turn in found if not turn.state.ended]
    cost = sum(turn.usage.cost_micros for found in turns.values() for turn in found)
    possible = sum(turn.usage.possible_micros for found in turns.values() for turn in found)
    assert team.spent == cost, f"the books say {team.spent}, the turns {cost}"
    assert team.possible == possible, f"the books say {team.possible} possible, the turns {possible}"
    if not open_turns:
        assert team.reserved == 0, team
    caps = house.runtime.works_of(TEAM).policy.caps
    if caps.team_day is not None:
        assert team.spent + team.possible + team.reserved <= caps.team_day, team


def no_secret(house: House) -> None:
    """I5: in no log, on no spine, in no record of a turn or an effect, in no message of the broker. Bodies hold words."""
    needle = CANARY.encode()
    for path in house.world.directory.glob("*.log"):
        assert needle not in path.read_bytes(), path
    with redis.Redis.from_url(house.world.server.url) as client:
        for raw in client.scan_iter(count=1000):
            key, kind = raw.decode(), client.type(raw)
            if kind == b"list" and (key.endswith(":spine") or key.startswith("mq:")):
                assert not [line for line in client.lrange(raw, 0, -1) if needle in line], key
            elif kind == b"hash" and (key.endswith((":turns", ":memo")) or key.startswith("mq:")):
                assert not [value for value in client.hvals(raw) if needle in value], key


def audit(house: House) -> list[str]:
    """What a SCAN finds outside the key table; the broker's keys are Celery's own."""
    found = []
    with redis.Redis.from_url(house.world.server.url) as client:
        for raw in client.scan_iter(count=1000):
            key = raw.decode()
            if not key.startswith("mq:"):
                kind, ttl = client.type(raw).decode(), int(client.pttl(raw))
                if kind != "none" and (wrong := keys.audit(key, kind, ttl)):
                    found.append(wrong)
    return found
