"""6. A worker may die at any moment: what is stored is not paid for again, what is not stored did not happen."""

from __future__ import annotations

from tests.support.simulator import World, assert_invariants


async def test_a_worker_dies_between_two_paid_requests() -> None:
    """Another one goes on after the last checkpoint: the first request is not asked again."""
    world = World({7: "before"})
    await world.play()
    await assert_invariants(world)
    assert world.store.fired == 1
    assert world.engine.asked.count("core/page/1/1") == 1
