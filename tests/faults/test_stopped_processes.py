"""Rows 12 and 15: a process that sleeps through its lease, and a network that delays, swallows or breaks what it carries."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from heinzelwerk import errors
from heinzelwerk.turn import TurnState
from tests.faults import invariants, targets
from tests.faults.conftest import Record
from tests.faults.proxy import Proxy
from tests.faults.world import LEASE_S, House, World

FAR_LEASE_S = 4.0
"""Longer than the other worlds': a renewal over a line of 500 ms must have time for its answer."""


async def test_a_sleeping_worker(house: House, row: Record):
    """SIGSTOP for two leases in the middle of a request, then SIGCONT: another owns the turn, the sleeper writes nothing."""
    row.covers(12, injected="SIGSTOP of a turn worker for more than two leases, then SIGCONT")
    await house.add("sleeper", "steps-2")
    stopped = house.control.arm("model.sent", "stop", of="sleeper")
    await house.wake("sleeper")
    pid = await house.world.fired(stopped)
    await asyncio.sleep(2 * LEASE_S)
    turn = await house.ended("sleeper")
    before = await house.events("sleeper")
    worker = house.world.by_pid(pid)
    worker.signal(signal.SIGCONT)
    row.shot(stopped)

    async def noticed() -> bool:
        return "lease lost" in worker.log.read_text()

    await house.world.until(noticed, "the sleeper to notice")
    effect = await house.placed("sleeper")
    row.came_to(f"{turn.state} elsewhere, the sleeper lost its lease and lives, effect {effect.state}")
    assert turn.state is TurnState.COMPLETED
    assert [event for event in await house.events("sleeper") if event["kind"] != "effect.moved"] == before
    assert worker.alive


async def test_a_sleeping_effect_worker(house: House, row: Record):
    """SIGSTOP between `started` and the call, for longer than the attempt's time: the target refuses what comes late."""
    row.covers(12, injected="SIGSTOP of an effect worker between `started` and the call")
    await house.add("late", place="shelf.place")
    stopped = house.control.arm("place.before", "stop", of="late")
    await house.wake("late")
    effect = await house.draft("late")
    await house.client.approve(effect.id, by="ada")
    pid = await house.world.fired(stopped)
    house.world.start("upkeep")
    settled = await house.settled(effect)
    worker = house.world.by_pid(pid)
    worker.signal(signal.SIGCONT)
    row.shot(stopped)
    await asyncio.sleep(1.0)  # the late request has its chance
    placed = [line for line in targets.placed(house.control) if line["key"] == effect.key]
    row.came_to(f"{settled.state} by another process, placed {len(placed)}x, the late call was refused")
    assert len(placed) == 1
    assert (await house.client.effect(effect.id)).state.value == "completed"
    worker.leashed.stop(0)


@pytest.fixture
async def far(tmp_path: Path) -> AsyncIterator[tuple[House, Proxy]]:
    """A world of its own whose first worker reaches the server through a proxy."""
    world = World(tmp_path / "w", lease_s=FAR_LEASE_S)
    proxy = Proxy(world.server.port)
    try:
        async with world.open() as house:
            await house.begin("upkeep")
            world.start("turns", url=proxy.url)
            await house.working(2)
            yield house, proxy
            await invariants.check(house)
    finally:
        world.close()
        proxy.close()


async def test_a_slow_and_then_silent_network(far: tuple[House, Proxy], row: Record):
    """500 ms for each answer, then none for two leases: no lease is held by two, the same process goes on after."""
    house, proxy = far
    row.covers(15, injected="0.5 s latency, then a blackhole of more than two leases")
    proxy.delay(0.25)
    await house.add("slow", "nothing", place="")
    await house.wake("slow")
    slow = await house.ended("slow")
    assert proxy.delayed
    await house.add("silent", "steps-2")
    held = house.control.arm("model.sent", "hold", of="silent")
    proxy.delay(0)
    await house.wake("silent")
    pid = await house.world.fired(held)
    proxy.blackhole()
    await asyncio.sleep(FAR_LEASE_S)
    house.world.start("turns")
    turn_elsewhere = asyncio.create_task(house.ended("silent"))
    await asyncio.sleep(FAR_LEASE_S)
    held.release()
    turn = await turn_elsewhere
    proxy.pass_on()
    row.proven(f"the proxy delayed {proxy.delayed} pieces and held back {proxy.held_back}")
    worker = house.world.by_pid(pid)

    async def noticed() -> bool:
        return "lease lost" in worker.log.read_text()

    await house.world.until(noticed, "the cut-off worker to stop its run")
    for other in house.world.living("turns"):
        if other is not worker:
            other.leashed.stop(5)
    await house.add("after", "nothing", place="")
    await house.wake("after")
    after = await house.ended("after")
    row.came_to(f"slow: {slow.state}; silent: {turn.state} elsewhere; the same process then: {after.state}")
    assert (slow.state, turn.state, after.state) == (TurnState.COMPLETED,) * 3
    assert worker.alive
    assert (await house.kinds("silent")).count("turn.ended") == 1


async def test_a_caller_is_told(far: tuple[House, Proxy], row: Record):
    """Who asks through a dead network gets one typed error that names the server and the fix, and nothing is half done."""
    house, proxy = far
    row.covers(15, injected="a caller behind a blackhole")
    async with house.world.open(proxy.url) as outside:
        await outside.store.now_ms()
        proxy.blackhole()
        with pytest.raises(errors.StoreUnavailable, match=r"store redis://127\.0\.0\.1"):
            await outside.client.wake("nobody")
        row.proven(f"the proxy held back {proxy.held_back}")
        proxy.pass_on()
    row.came_to("StoreUnavailable with address and fix")


async def test_broken_connections(far: tuple[House, Proxy], row: Record):
    """Every connection is reset again and again while turns run: nothing is lost, nothing is doubled."""
    house, proxy = far
    row.covers(15, injected="all connections reset ten times under load")
    names = [f"reset-{number}" for number in range(6)]
    for name in names:
        house.world.contract(name, "steps-6")
    await house.load()
    for name in names:
        await house.wake(name)
    for _ in range(10):
        proxy.cut()
        await asyncio.sleep(0.15)
    row.proven(f"the proxy broke {proxy.cuts} connections")
    turns = [await house.ended(name) for name in names]
    row.came_to(f"{len(turns)} turns, all {turns[0].state}, requests {[house.requests(name) for name in names]}")
    assert proxy.cuts > 0
    assert {turn.state for turn in turns} == {TurnState.COMPLETED}
