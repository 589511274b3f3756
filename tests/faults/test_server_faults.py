"""Rows 13, 14, 16, 17: the server dies, forgets, is replaced by one that knows less, is full, or may evict."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis

from heinzelwerk import errors
from heinzelwerk.effect import EffectState
from heinzelwerk.turn import TurnState
from tests.faults import invariants, targets
from tests.faults.conftest import Record
from tests.faults.proxy import Proxy
from tests.faults.world import House, World
from workers.server import EmbeddedServer


@pytest.fixture(params=["everysec"])
def fsync(request: pytest.FixtureRequest) -> str:
    """How durable the world's server is."""
    return str(request.param)


@pytest.fixture
def own(tmp_path: Path, fsync: str) -> Iterator[World]:
    """A world of this test's own: what happens to its server happens to nobody else."""
    world = World(tmp_path / "w", fsync=fsync)
    yield world
    world.close()


@pytest.fixture
async def house(own: World) -> AsyncIterator[House]:
    """Staffed before, held to the invariants after."""
    async with own.open() as house:
        await house.begin("turns", "turns", "upkeep")
        yield house
        own.control.disarm()
        await invariants.check(house, parked=tuple(own.parked))


def aof(world: World) -> Path:
    """The server's growing append-only file."""
    (found,) = (world.directory / "server" / "appendonlydir").glob("*.incr.aof")
    return found


async def synced(world: World) -> int:
    """The length of the append-only file once everything acknowledged is in it."""
    with redis.Redis.from_url(world.server.url) as server:
        for _ in range(200):
            size = aof(world).stat().st_size
            await asyncio.sleep(0.05)
            if server.info("persistence")["aof_pending_bio_fsync"] == 0 and aof(world).stat().st_size == size:
                return size
    return aof(world).stat().st_size


@pytest.mark.parametrize("fsync", ["always", "everysec"], indirect=True)
async def test_killed_ten_times(house: House, row: Record, fsync: str):
    """SIGKILL of the server ten times under load: every acknowledged wake, checkpoint and ledger entry is there after."""
    row.covers(13, injected=f"SIGKILL of the server 10x under load, appendfsync {fsync}")
    names = [f"load-{number}" for number in range(10)]
    for name in names:
        house.world.contract(name, "steps-8", place="shelf.place")
    await house.load()
    pids = {worker.pid for worker in house.world.workers}
    for name in names:
        await house.wake(name)
        house.world.server.kill()
        await asyncio.sleep(0.05)
        house.world.server.restart()
    row.proven("10 kills")
    turns = [await house.ended(name) for name in names]
    effects = [await house.placed(name) for name in names]
    row.came_to(f"{len(turns)} turns and {len(effects)} effects completed by the same processes")
    assert {turn.state for turn in turns} == {TurnState.COMPLETED}
    assert {effect.state for effect in effects} == {EffectState.COMPLETED}
    assert pids == {worker.pid for worker in house.world.workers if worker.alive}


async def test_the_last_second_is_lost_in_a_turn(house: House, row: Record):
    """The append-only file cut back to the middle of a turn that had ended: it resumes from there, and ends once."""
    row.covers(13, injected="AOF cut back to the middle of a turn")
    await house.add("cut", "steps-3", place="shelf.place")
    held = house.control.arm("commit:step.tools.after", "hold", of="cut")
    await house.wake("cut")
    await house.world.fired(held)
    size = await synced(house.world)
    held.release()
    await house.ended("cut")
    row.proven(await cut_back(house, size))
    turn = await house.ended("cut")
    effect = await house.placed("cut")
    row.came_to(f"{turn.state} again from step {turn.steps}, effect {effect.state}")
    assert turn.state is TurnState.COMPLETED
    assert (await house.kinds("cut")).count("turn.ended") == 1


@pytest.mark.parametrize("place", ["shelf.place", "wall.place"])
async def test_the_last_second_is_lost_in_an_effect(house: House, row: Record, place: str):
    """The file cut back to before `started` of an effect that was placed: it is found at its target, not placed again."""
    row.covers(13, injected=f"AOF cut back to before `started` of a placed effect ({place})")
    name = f"lost-{place.partition('.')[0]}"
    await house.add(name, place=place)
    await house.wake(name)
    effect = await house.draft(name)
    size = await synced(house.world)
    held = house.control.arm("start_effect.before", "hold")
    await house.client.approve(effect.id, by="ada")
    await house.world.fired(held)
    size = await synced(house.world)
    held.release()
    assert (await house.settled(effect)).state is EffectState.COMPLETED
    row.proven(await cut_back(house, size))
    after = await house.settled(effect)
    placed = sum(line["key"] == effect.key for line in targets.placed(house.control))
    row.came_to(f"{after.state} ({after.seen or 'placed again under its key'}), the target took {placed} write")
    assert after.state is EffectState.COMPLETED
    assert placed == 1


async def cut_back(house: House, size: int) -> str:
    """Kill the server, cut its file, start it again, as a power loss leaves it; workers live through it."""
    server, path = house.world.server, aof(house.world)

    async def written() -> bool:
        return path.stat().st_size > size

    # With everysec the server keeps what it acknowledged to itself while an earlier fsync is under way, for up to two seconds.
    await house.world.until(written, "the server to write its file")
    server.kill()
    lost = path.stat().st_size - size
    assert lost > 0, "there was nothing to lose"
    with path.open("r+b") as file:
        file.truncate(size)
    server.restart()
    return f"{lost} bytes of acknowledged writes gone"


async def test_failover_with_lost_writes(tmp_path: Path, row: Record):
    """Everybody is led to a replica that stopped following in the middle of a turn: new leases, nothing placed twice."""
    row.covers(14, injected="replica promoted, its primary's last writes lost")
    world = World(tmp_path / "w")
    replica = EmbeddedServer.start(tmp_path / "replica", options={"replicaof": f"127.0.0.1 {world.server.port}"})
    proxy = Proxy(world.server.port)
    primary = world.server
    try:
        async with world.open(proxy.url) as house:
            await house.store.prepare()
            world.contract("over", "steps-3", place="shelf.place")
            await house.load()
            for profile in ("turns", "turns", "upkeep"):
                world.start(profile, url=proxy.url)
            await house.working(3)
            held = house.control.arm("commit:step.tools.after", "hold", of="over")
            await house.wake("over")
            await world.fired(held)
            with redis.Redis.from_url(primary.url) as first, redis.Redis.from_url(replica.url) as second:

                async def follows() -> bool:
                    behind = first.info("replication")
                    return (
                        behind["connected_slaves"] == 1 and behind["slave0"]["offset"] == behind["master_repl_offset"]
                    )

                await world.until(follows, "the replica to follow")
                second.execute_command("REPLICAOF", "NO", "ONE")
                offset = second.info("replication")["master_repl_offset"]
                held.release()
                await house.ended("over")
                effect = await house.placed("over")
                lost = first.info("replication")["master_repl_offset"] - offset
            assert effect.state is EffectState.COMPLETED
            proxy.lead_to(replica.port)
            world.server = replica
            row.proven(f"{lost} bytes of writes lost with the primary")
            turn = await house.ended("over")
            again = await house.placed("over")
            row.came_to(f"{turn.state} again from its last durable step, effect {again.state}, placed once")
            assert lost > 0
            assert turn.state is TurnState.COMPLETED
            # The same key, the same section: what the first life placed is found, whichever turn's commit survived.
            await invariants.check(house)
    finally:
        world.close()
        primary.stop()
        replica.stop()
        proxy.close()


async def test_full_memory(house: House, row: Record):
    """maxmemory reached: callers are told, running turns stop and stay, workers live; with room they go on by themselves."""
    row.covers(16, injected="maxmemory set below what is used, policy noeviction")
    await house.add("full", "steps-3", place="")
    held = house.control.arm("model.sent", "hold", of="full")
    await house.wake("full")
    await house.world.fired(held)
    pids = {worker.pid for worker in house.world.workers}
    with redis.Redis.from_url(house.world.server.url) as server:
        server.config_set("maxmemory", "1mb")
        with pytest.raises(errors.StoreUnavailable, match="out of memory"):
            await house.client.wake("full", key="manual/refused")
        held.release()
        await asyncio.sleep(3.0)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            server.set("x", "y")
        row.proven("the server refused writes (OOM)")
        server.config_set("maxmemory", "0")
    turn = await house.ended("full")
    row.came_to(f"the caller got StoreUnavailable, the turn {turn.state} after, no process ended")
    assert turn.state is TurnState.COMPLETED
    assert pids == {worker.pid for worker in house.world.workers if worker.alive}
    assert await house.turn("full", 2) is None


async def test_evicting_policy(house: House, row: Record):
    """A server that may evict is refused by `doctor`, with the fix; so is one without an append-only file."""
    row.covers(17, injected="maxmemory-policy allkeys-lru, then appendonly no")
    said = {}
    with redis.Redis.from_url(house.world.server.url) as server:
        for setting, bad, good in (
            ("maxmemory-policy", "allkeys-lru", "noeviction"),
            ("appendonly", "no", "yes"),
        ):
            server.config_set(setting, bad)
            code, said[setting] = await asyncio.to_thread(house.world.command, "doctor", "--json")
            server.config_set(setting, good)
            assert code == 1, said
    row.proven("CONFIG SET took both")
    row.came_to("doctor exits 1 for each, with the fix")
    assert "maxmemory-policy noeviction" in said["maxmemory-policy"]
    assert "appendonly yes" in said["appendonly"]
    assert json.loads(said["appendonly"])
