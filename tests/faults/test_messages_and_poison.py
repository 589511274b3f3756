"""Rows 18, 19, 21, 22, 59, 61, 62: what a broker does to messages, what nonsense does to a worker, and turns that kill."""

from __future__ import annotations

import asyncio
import socket

import pytest
import redis

from heinzelwerk.session import POISON_CLAIMS, Due
from heinzelwerk.turn import TurnState
from heinzelwerk.wake import Disposition
from tests.faults.conftest import Record
from tests.faults.world import TEAM, House


def bell(house: House, name: str, times: int) -> None:
    """Publish the same doorbell so often, each a message of its own."""
    for _ in range(times):
        house.runtime.bell.ring_now([Due("session", TEAM, name, 0)])
        assert house.runtime.bell.flush(10)


async def test_five_deliveries(house: House, row: Record):
    """One wake and five more doorbells for it make one turn; the rest find nothing due, or the lease held, and are counted."""
    row.covers(18, injected="the doorbell published five more times")
    await house.add("bells")
    before = await house.store.counters(TEAM)
    await house.wake("bells")
    assert house.runtime.bell.flush(10)
    bell(house, "bells", 5)
    turn = await house.ended("bells")

    async def counted() -> int:
        now = await house.store.counters(TEAM)
        return sum(now.get(name, 0) - before.get(name, 0) for name in ("doorbells_held", "doorbells_idle"))

    async def five() -> bool:
        return await counted() >= 5

    await house.world.until(five, "five doorbells to be counted")
    row.proven(f"{await counted()} doorbells counted as held or idle")
    row.came_to(f"{turn.state}, {house.requests('bells')} requests")
    assert house.requests("bells") == 2
    assert (await house.kinds("bells")).count("turn.started") == 1


async def test_redelivery_while_it_runs(house: House, row: Record):
    """A doorbell that arrives while its turn runs ends as `held`; the holder goes on."""
    row.covers(19, injected="a second delivery during a request")
    await house.add("again")
    held = house.control.arm("model.sent", "hold", of="again")
    before = (await house.store.counters(TEAM)).get("doorbells_held", 0)
    await house.wake("again")
    await house.world.fired(held)
    bell(house, "again", 1)

    async def refused() -> int:
        return (await house.store.counters(TEAM)).get("doorbells_held", 0) - before

    await house.world.until(refused, "the second delivery")
    row.proven("a doorbell found the lease held")
    held.release()
    turn = await house.ended("again")
    row.came_to(f"{turn.state}, segment {turn.segment}, {house.requests('again')} requests")
    assert turn.segment == 1
    assert house.requests("again") == 2


async def test_a_lost_message(house: House, row: Record):
    """A wake whose doorbell went nowhere is found by the workers' own sweep; no beat runs here."""
    row.covers(18, injected="the doorbell published to nowhere")
    await house.add("lost", "nothing", place="")
    lost: list[object] = []
    publish, house.runtime.bell._publish = house.runtime.bell._publish, lost.append
    await house.wake("lost")
    house.runtime.bell.flush(10)
    house.runtime.bell._publish = publish
    row.proven(f"{len(lost)} messages dropped")
    turn = await house.ended("lost")
    row.came_to(f"{turn.state} after the sweep rang again")
    assert lost
    assert turn.state is TurnState.COMPLETED


async def test_messages_without_sense(house: House, row: Record):
    """Bytes that are no message, unknown tasks, ids that are none: dropped; the queue moves on, no process ends."""
    row.covers(21, injected="garbage, unknown tasks and malformed ids on the queue")
    await house.add("sane", "nothing", place="")
    app = house.runtime.app
    with redis.Redis.from_url(house.world.server.url) as broker:
        for junk in (b"\x00 no message", b"{}", b'{"body": 1}'):
            broker.lpush("mq:turns", junk)
        app.send_task("heinzelwerk.unheard_of", args=("x",), queue="turns")
        app.send_task("heinzelwerk.turn", args=("no session",), queue="turns")
        app.send_task("heinzelwerk.turn", args=(), queue="turns")
        app.send_task("heinzelwerk.turn", args=("../../etc/passwd",), queue="turns")
        await house.wake("sane")
        turn = await house.ended("sane")

        async def taken() -> bool:
            return broker.llen("mq:turns") == 0

        await house.world.until(taken, "the queue to be empty")
    await house.wake("sane", "manual/sane/2")
    await house.ended("sane", 2)
    row.proven("7 messages taken off the queue")
    await house.working(3)
    alive = len(house.world.living("turns"))
    row.came_to(f"the turn behind them {turn.state}, {alive} workers alive")
    assert alive == 2


async def test_a_turn_that_kills(house: House, row: Record):
    """A turn whose request kills its process each time is rung on `solo`, then ended `failed: poison`; others go on."""
    row.covers(21, 22, injected="SIGKILL at each request of one turn, as an OOM killer does")
    house.world.staff("turns", "turns", "upkeep", "solo")
    await house.working(4)
    await house.add("poison")
    await house.add("healthy", "nothing", place="")
    point = house.control.arm("model.sent", "kill", of="poison", times=9)
    await house.wake("poison")
    for death in range(1, POISON_CLAIMS):
        await house.world.death(point, death)
        house.world.staff("turns", "turns", "upkeep", "solo")
    row.shot(point, POISON_CLAIMS - 1)
    turn = await house.ended("poison")
    await house.wake("healthy")
    healthy = await house.ended("healthy")
    deaths = len(point.fired())
    row.came_to(f"{turn.state}: {turn.reason} after {deaths} deaths; others {healthy.state}")
    assert (turn.state, turn.reason) == (TurnState.FAILED, "poison")
    assert deaths == POISON_CLAIMS - 1
    assert (await house.events("poison"))[-1]["data"]["reason"] == "poison"


async def test_a_wake_that_kills_before_it_starts(house: House, row: Record):
    """A wake whose start kills its process (a contract, an input) ends too: `failed: poison`, no turn was ever started."""
    row.covers(22, injected="SIGKILL right after each claim of one session")
    house.world.staff("turns", "turns", "upkeep", "solo")
    await house.add("unborn")
    point = house.control.arm("claim.after", "kill", of="unborn", times=POISON_CLAIMS - 1)
    await house.wake("unborn")
    for death in range(1, POISON_CLAIMS):
        await house.world.death(point, death)
        house.world.staff("turns", "turns", "upkeep", "solo")
    row.shot(point, POISON_CLAIMS - 1)
    turn = await house.ended("unborn")
    row.came_to(f"{turn.state}: {turn.reason}, {house.requests('unborn')} requests")
    assert (turn.state, turn.reason) == (TurnState.FAILED, "poison")
    assert house.requests("unborn") == 0


async def test_the_same_webhook_again(house: House, row: Record):
    """One delivery id is one turn, also after it has ended, for 30 days: longer than anybody repeats a delivery."""
    row.covers(59, injected="the same delivery at once, after 1.1 s, and after the turn's end")
    await house.add("hook", "nothing", place="", extra="  on: [event.push]\n")
    replies = [await house.client.event("hook", source="github", delivery="d-1", data={"n": 1})]
    house.world.accepted.append(("hook", replies[0].key))
    replies.append(await house.client.event("hook", source="github", delivery="d-1", data={"n": 1}))
    await asyncio.sleep(1.1)
    replies.append(await house.client.event("hook", source="github", delivery="d-1", data={"n": 1}))
    turn = await house.ended("hook")
    replies.append(await house.client.event("hook", source="github", delivery="d-1", data={"n": 1}))
    with redis.Redis.from_url(house.world.server.url) as server:
        (seen,) = server.keys(f"hw:{{{TEAM}}}:seen:hook:*")
        kept_ms = int(server.pttl(seen))
    row.proven(f"{[str(reply.disposition) for reply in replies]}")
    row.came_to(f"{turn.state}, one turn; the key is kept for {kept_ms // 86_400_000} more days")
    assert [reply.disposition for reply in replies] == [Disposition.ACCEPTED] + [Disposition.DUPLICATE] * 3
    assert kept_ms > 29 * 86_400_000
    assert await house.turn("hook", 2) is None


async def test_many_turns_in_one_process(house: House, row: Record):
    """The second and every later turn of a process runs on the same loop, its clients alive."""
    row.covers(61, injected="eight turns, one after the other and side by side, in two processes")
    names = [f"loop-{number}" for number in range(4)]
    for name in names:
        house.world.contract(name, "plain", place="")
    await house.load()
    for key in ("one", "two"):
        await asyncio.gather(*(house.wake(name, f"manual/{name}/{key}") for name in names))
    turns = [await house.ended(name, number) for name in names for number in (1, 2)]
    pids = {entry["pid"] for name in names for entry in house.control.logged("request", of=name)}
    row.proven(f"{len(turns)} turns in {len(pids)} processes")
    row.came_to(f"all {turns[0].state}; no closed loop in any log")
    assert {turn.state for turn in turns} == {TurnState.COMPLETED}
    assert len(pids) <= 2
    assert "loop is closed" not in house.world.logs()


async def test_nobody_reads_the_events(house: House, row: Record):
    """A monitor that subscribes and never reads costs the server a bounded buffer and turns nothing."""
    row.covers(62, injected="a subscriber to all task events that never reads")
    await house.add("watched", "plain", place="")
    with socket.create_connection(("127.0.0.1", house.world.server.port)) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(b"PSUBSCRIBE *\r\n")
        with redis.Redis.from_url(house.world.server.url) as server:

            async def subscribed() -> bool:
                return server.pubsub_numpat() >= 1

            await house.world.until(subscribed, "the deaf subscriber")
            limit = server.config_get("client-output-buffer-limit")["client-output-buffer-limit"]
        row.proven(f"subscribed and deaf; buffer limit {limit.rpartition('pubsub ')[2]}")
        for number in range(3):
            await house.wake("watched", f"manual/watched/{number}")
        turns = [await house.ended("watched", number) for number in (1, 2, 3)]
    row.came_to(f"3 turns {turns[0].state}")
    assert {turn.state for turn in turns} == {TurnState.COMPLETED}
    assert "pubsub 0 " not in limit


@pytest.mark.parametrize("workers", [2])
async def test_ten_wakes_with_one_key(house: House, row: Record, workers: int):
    """Ten wakes with one key over two workers: one accepted, nine duplicates, one turn."""
    row.covers(18, injected="ten wakes with one key at once")
    await house.add("ten", place="")
    replies = await asyncio.gather(*(house.wake("ten", "manual/ten") for _ in range(10)))
    turn = await house.ended("ten")
    said = sorted(str(reply.disposition) for reply in replies)
    row.proven(f"{said.count('accepted')} accepted, {said.count('duplicate')} duplicates")
    row.came_to(f"{turn.state}, {house.requests('ten')} requests")
    assert said == ["accepted"] + ["duplicate"] * 9
    assert house.requests("ten") == 2
    assert len(house.world.living("turns")) == workers
