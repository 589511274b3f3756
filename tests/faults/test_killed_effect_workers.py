"""Rows 8 and 9: SIGKILL of an effect worker around the external call. Placed at most once; what nobody knows is read back."""

from __future__ import annotations

import pytest

from heinzelwerk.effect import EffectState
from tests.faults import targets
from tests.faults.conftest import Record
from tests.faults.control import Failpoint
from tests.faults.world import House


def count(house: House, key: str) -> int:
    """How often the target took a write under this key, as the target counted."""
    return sum(line["key"] == key for line in targets.placed(house.control))


async def killed_at(house: House, name: str, point: str, place: str) -> tuple[str, Failpoint]:
    """A turn's draft is approved and its effect worker dies at a point; a replacement starts."""
    await house.add(name, place=place)
    armed = house.control.arm(point, "kill", of=name)
    await house.wake(name)
    effect = await house.draft(name)
    await house.client.approve(effect.id, by="ada")
    await house.world.death(armed)
    house.world.staff("turns", "turns", "upkeep")
    return effect.id, armed


async def test_before_the_call_where_the_target_compares(house: House, row: Record):
    """Started and not sent, at a target that refuses late requests: read back as absent, then placed again, once."""
    row.covers(8, injected="SIGKILL between `started` and the call (conditional target)")
    effect_id, point = await killed_at(house, "before-shelf", "place.before", "shelf.place")
    row.shot(point)
    effect = await house.settled(await house.client.effect(effect_id))
    row.came_to(f"{effect.state}, attempts {effect.attempts}, placed {count(house, effect.key)}x")
    assert effect.state is EffectState.COMPLETED
    assert effect.attempts == 2
    assert count(house, effect.key) == 1


@pytest.mark.parametrize("how", ["retry", "failed"])
async def test_before_the_call_elsewhere(house: House, row: Record, how: str):
    """Started and not sent, at a target that cannot refuse a late request: unknown until a person closes it."""
    row.covers(8, injected="SIGKILL between `started` and the call (plain target)")
    name = f"before-wall-{how}"
    effect_id, point = await killed_at(house, name, "place.before", "wall.place")
    row.shot(point)
    effect = await house.settled(await house.client.effect(effect_id))
    assert effect.state is EffectState.UNKNOWN
    assert "not there when read back" in effect.seen
    assert count(house, effect.key) == 0
    await house.client.resolve(effect_id, how, by="ada")  # type: ignore[arg-type]
    closed = await house.settled(effect)
    row.came_to(f"unknown, absent when read back; `resolve --as {how}`: {closed.state}")
    assert closed.state is (EffectState.COMPLETED if how == "retry" else EffectState.FAILED)
    assert count(house, effect.key) == (1 if how == "retry" else 0)


@pytest.mark.parametrize("place", ["shelf.place", "wall.place"])
async def test_after_the_call(house: House, row: Record, place: str):
    """Sent and not recorded: found by reading back, completed without a second call, by nobody's word."""
    row.covers(9, injected=f"SIGKILL between the call and `completed` ({place})")
    effect_id, point = await killed_at(house, f"after-{place.partition('.')[0]}", "place.after", place)
    row.shot(point)
    effect = await house.settled(await house.client.effect(effect_id))
    row.came_to(f"{effect.state}, {effect.seen}, placed {count(house, effect.key)}x")
    assert effect.state is EffectState.COMPLETED
    assert effect.attempts == 1
    assert count(house, effect.key) == 1


async def test_before_started_is_stored(house: House, row: Record):
    """Killed before and right after the ledger's `started`: nothing was called, nothing is called twice."""
    row.covers(8, injected="SIGKILL before and after the script `start_effect`")
    await house.add("started", place="shelf.place")
    before = house.control.arm("start_effect.before", "kill")
    await house.wake("started")
    effect = await house.draft("started")
    await house.client.approve(effect.id, by="ada")
    await house.world.death(before)
    after = house.control.arm("start_effect.after", "kill")
    house.world.staff("turns", "turns", "upkeep")
    await house.world.death(after)
    house.world.staff("turns", "turns", "upkeep")
    row.shot(after)
    closed = await house.settled(effect)
    row.came_to(f"{closed.state}, attempts {closed.attempts}, placed {count(house, effect.key)}x")
    assert closed.state is EffectState.COMPLETED
    assert count(house, effect.key) == 1
