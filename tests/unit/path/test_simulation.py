"""The path under every interleaving of crash points up to a depth, and under seeded random ones beyond it."""

from __future__ import annotations

import random

import pytest

from tests.support.simulator import World, assert_invariants, plans

MUTATIONS_OF_ONE_TURN = 24


async def played(crashes: dict[int, str], *, seed: int = 0, wakes: int = 1) -> World:
    world = World(dict(crashes), seed=seed, wakes=wakes)
    await world.play()
    await assert_invariants(world)
    return world


async def test_without_a_crash_nothing_is_done_twice() -> None:
    """The base line: two paid requests, one placing, and no more mutations than the crash plans below cover."""
    world = await played({})
    assert world.engine.asked == ["core/page/1/1", "core/page/1/2"]
    assert len(world.home.wall.placed) == 1


async def test_every_single_crash_point() -> None:
    """A worker that dies at any one store call, with or without its effect, changes nothing about the result."""
    fired = 0
    for plan in plans(MUTATIONS_OF_ONE_TURN, 1):
        fired += (await played(plan)).store.fired
    assert fired >= MUTATIONS_OF_ONE_TURN


async def test_every_pair_of_crash_points() -> None:
    """Two deaths, anywhere: all 1,100 pairs."""
    fired = 0
    for plan in plans(MUTATIONS_OF_ONE_TURN, 2):
        fired += (await played(plan)).store.fired
    assert fired > 1_000


@pytest.mark.parametrize("seed", range(60))
async def test_random_crashes_with_many_wakes(seed: int) -> None:
    """Four wakes, each call with a chance to kill its worker, and a broker that loses and doubles."""
    chance = random.Random(seed)
    crashes = {number: chance.choice(("before", "after")) for number in range(1, 120) if chance.random() < 0.08}
    await played(crashes, seed=seed, wakes=4)
