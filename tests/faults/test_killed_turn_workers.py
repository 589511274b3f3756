"""Rows 1 to 7, 10: SIGKILL of a turn worker at every point of a turn. Another process goes on; nothing is run or paid twice."""

import signal

import pytest

from heinzelwerk.turn import TurnState
from tests.faults.conftest import Record
from tests.faults.world import House


async def kill(house: House, row: Record, at: str, name: str) -> None:
    """Wake a Heinzelmännchen and kill the worker that comes to this point of its turn; the shot is proven."""
    point = house.control.arm(at, "kill", of=name)
    await house.wake(name)
    await house.world.death(point)
    row.shot(point)


async def test_before_the_first_write(house: House, row: Record):
    """Killed between claim and first event: the wake starts one turn, elsewhere, and costs what one turn costs."""
    row.covers(1, injected="SIGKILL after the claim")
    await house.add("first")
    await kill(house, row, "claim.after", "first")
    turn = await house.ended("first")
    row.came_to(f"{turn.state}, {house.requests('first')} requests")
    assert turn.state is TurnState.COMPLETED
    assert house.requests("first") == 2
    assert (await house.kinds("first")).count("turn.started") == 1
    assert turn.usage.possible_micros == 0


async def test_after_started(house: House, row: Record):
    """Killed after `turn.started`, before any request: the same turn resumes, each request is sent once."""
    row.covers(2, injected="SIGKILL after the commit of turn.started")
    await house.add("second")
    await kill(house, row, "commit:turn.started.after", "second")
    turn = await house.ended("second")
    row.came_to(f"{turn.state}, {house.requests('second')} requests, segment {turn.segment}")
    assert turn.state is TurnState.COMPLETED
    assert house.requests("second") == 2
    assert turn.segment == 2


async def test_request_in_flight(house: House, row: Record):
    """Killed while a request is out: it is sent again, and the first is shown as possibly paid."""
    row.covers(3, injected="SIGKILL with the request at the model")
    await house.add("third")
    await kill(house, row, "model.sent", "third")
    turn = await house.ended("third")
    events = await house.events("third")
    unknown = [event["data"] for event in events if event["kind"] == "request.unknown"]
    row.came_to(f"{turn.state}, 1 request re-sent, {turn.usage.possible_micros} micros possible")
    assert turn.state is TurnState.COMPLETED
    assert house.requests("third") == 3
    assert len(unknown) == 1
    assert turn.usage.possible_micros == unknown[0]["possible_micros"] > 0


async def test_after_the_reply(house: House, row: Record):
    """Killed between the reply and its checkpoint: asked again, the double spend is visible, one outcome."""
    row.covers(4, injected="SIGKILL after the last reply, before the last commit")
    await house.add("fourth")
    await kill(house, row, "commit:turn.ended.before", "fourth")
    turn = await house.ended("fourth")
    row.came_to(f"{turn.state}, {house.requests('fourth')} requests, one outcome")
    assert turn.state is TurnState.COMPLETED
    assert (await house.kinds("fourth")).count("turn.ended") == 1
    assert len(await house.effects("fourth")) == 1
    assert (await house.placed("fourth")).state.value == "completed"


async def test_reply_lost_before_its_checkpoint(house: House, row: Record):
    """Killed with the reply in memory and nothing stored of it: the request is sent again and shown as unknown."""
    row.covers(4, injected="SIGKILL before the commit of the first step")
    await house.add("reply")
    await kill(house, row, "commit:step.model.before", "reply")
    turn = await house.ended("reply")
    row.came_to(f"{turn.state}, 1 request re-sent, {turn.usage.possible_micros} micros possible")
    assert turn.state is TurnState.COMPLETED
    assert house.requests("reply") == 3
    assert turn.usage.possible_micros > 0


async def test_after_the_checkpoint(house: House, row: Record):
    """Killed between checkpoint and tool: the response is not asked for again, the tool runs once."""
    row.covers(5, injected="SIGKILL after the commit of the response")
    await house.add("fifth", "searches")
    await kill(house, row, "commit:step.model.after", "fifth")
    turn = await house.ended("fifth")
    row.came_to(f"{turn.state}, {house.requests('fifth')} requests, tool ran {len(house.reads('fifth'))}x")
    assert turn.state is TurnState.COMPLETED
    assert house.requests("fifth") == 2
    assert house.reads("fifth") == ["1"]


async def test_between_parallel_tools(house: House, row: Record):
    """Killed with one of three calls done: its result is reused, the other two run again, none is asked for again."""
    row.covers(6, injected="SIGKILL after one of three results was stored")
    await house.add("sixth", "three")
    held = [house.control.arm(f"tool.{call}", "hold", of="sixth") for call in (2, 3)]
    await kill(house, row, "commit:call.after", "sixth")
    for hold in held:
        hold.release()
    turn = await house.ended("sixth")
    reads = sorted(house.reads("sixth"))
    row.came_to(f"{turn.state}, reads by call {reads}, {house.requests('sixth')} requests")
    assert turn.state is TurnState.COMPLETED
    assert house.requests("sixth") == 2
    assert reads == ["1", "2", "2", "3", "3"]


async def test_after_the_outcome(house: House, row: Record):
    """Killed right after the last commit, before anything was rung: the effect that it planned is placed once."""
    row.covers(7, injected="SIGKILL after the last commit")
    await house.add("seventh")
    await kill(house, row, "commit:turn.ended.after", "seventh")
    effect = await house.placed("seventh")
    row.came_to(f"effect {effect.state}, placed once")
    assert effect.state.value == "completed"
    assert house.requests("seventh") == 2


async def test_while_stopping(house: House, row: Record):
    """Killed while a stop is carried out: the turn ends `cancelled` elsewhere; a second stop changes nothing."""
    row.covers(10, injected="SIGKILL before the commit of a stopped turn's end")
    await house.add("tenth")
    held = house.control.arm("model.sent", "hold", of="tenth")
    point = house.control.arm("commit:turn.ended.before", "kill", of="tenth")
    await house.wake("tenth")
    await house.world.fired(held)
    await house.client.stop("tenth", by="ada")
    await house.world.death(point)
    row.shot(point)
    turn = await house.ended("tenth")
    again = await house.client.stop("tenth", by="bob", turn=1)
    row.came_to(f"{turn.state}, a second stop: {again.posting}")
    held.release()
    assert turn.state is TurnState.CANCELLED
    assert again.posting.value == "turn_ended"


@pytest.mark.parametrize("number", [signal.SIGTERM])
async def test_told_to_leave(house: House, row: Record, number: int):
    """SIGTERM in the middle of a turn: handed back within the grace, not counted as a death, nothing run again."""
    row.covers(11, injected="SIGTERM with a request at the model")
    await house.add("eleventh", "steps-4")
    held = house.control.arm("model.sent", "hold", of="eleventh")
    await house.wake("eleventh")
    pid = await house.world.fired(held)
    worker = house.world.by_pid(pid)
    worker.signal(number)
    row.proven(f"SIGTERM to {pid}")

    async def leaves() -> bool:
        return "worker leaves" in worker.log.read_text()

    await house.world.until(leaves)
    held.release()
    turn = await house.ended("eleventh")

    async def gone() -> bool:
        return not worker.alive

    await house.world.until(gone)
    row.came_to(f"exit {worker.leashed.poll()}, {turn.state}, {house.requests('eleventh')} requests")
    assert worker.leashed.poll() == 0
    assert turn.state is TurnState.COMPLETED
    assert house.requests("eleventh") == 5
    assert "turn.handed_back" in await house.kinds("eleventh")
