"""Rows 28 to 32, 37, 39: a provider over a real socket that refuses, delays, hangs, cuts its answers, or is down for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from heinzelwerk.turn import TurnState, WaitKind
from tests.faults import invariants, provider
from tests.faults.conftest import Record
from tests.faults.provider import CUT, HANG, Provider, status
from tests.faults.world import House, World

MODEL = "openai-chat:fake"


@pytest.fixture(scope="module")
def near() -> Iterator[Provider]:
    """The provider of this module's world."""
    found = Provider()
    yield found
    found.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, near: Provider) -> Iterator[World]:
    """A world whose model is asked over HTTP, with a fallback that is not."""
    table = f'base_url = "{near.url}"\nfallback = "fault:fallback"\nrequest_timeout = "1s"\n'
    prices = '\n[heinzel.prices."fault:fallback"]\ninput = 1\noutput = 1\n'
    found = World(tmp_path_factory.mktemp("world") / "w", model=MODEL, heinzel=table, more=prices)
    yield found
    found.close()


@pytest.fixture
async def house(world: World, near: Provider) -> AsyncIterator[House]:
    """Staffed before, held to the invariants after; the provider is good again."""
    near.behaves()
    near.always, near.usage = provider.GOOD, True
    near.done.clear()
    async with world.open() as found:
        await found.begin("turns", "upkeep")
        yield found
        near.always = provider.GOOD
        await invariants.check(found)


async def trouble(house: House, name: str) -> list[dict]:
    """The failed attempts on a spine."""
    return [event["data"] for event in await house.events(name) if event["data"].get("failed")]


async def test_rate_limited(house: House, near: Provider, row: Record):
    """429 with Retry-After: that long is waited, nothing is charged for the refusal, then the turn goes on."""
    row.covers(28, injected="429 with Retry-After: 1")
    near.behaves(status(429, retry_after="1"))
    await house.add("limited", "nothing", place="")
    await house.wake("limited")
    turn = await house.ended("limited")
    (failed,) = await trouble(house, "limited")
    row.proven(f"the provider: {provider.kinds(near.done)}")
    row.came_to(f"{turn.state} after a wait of {failed['wait_s']} s, {failed['possible_micros']} micros possible")
    assert turn.state is TurnState.COMPLETED
    assert failed["wait_s"] >= 1
    assert failed["possible_micros"] == 0


async def test_rate_limited_for_long(house: House, near: Provider, row: Record):
    """A long Retry-After is a stored wait: no worker is held, and the turn can be stopped meanwhile."""
    row.covers(28, injected="429 with Retry-After: 600")
    near.behaves(status(429, retry_after="600"))
    await house.add("patient", "nothing", place="")
    await house.wake("patient")
    turn = await house.waiting("patient")
    (item,) = turn.waits
    seconds = (item.deadline_ms - await house.store.now_ms()) / 1000
    row.proven(f"the provider: {provider.kinds(near.done)}")
    row.came_to(f"waits as a record for {seconds:.0f} s more, no lease held; then stopped")
    await house.client.stop("patient", by="ada")
    ended = await house.ended("patient")
    assert item.kind is WaitKind.RETRY
    assert seconds > 500
    assert ended.state is TurnState.CANCELLED


@pytest.mark.parametrize("code", [500, 502, 503, 529])
async def test_server_errors(house: House, near: Provider, row: Record, code: int):
    """Two errors are waited out in the segment; each attempt is on the spine."""
    row.covers(29, injected=f"{code} twice")
    near.behaves(status(code), status(code))
    name = f"error-{code}"
    await house.add(name, "nothing", place="")
    await house.wake(name)
    turn = await house.ended(name)
    failed = await trouble(house, name)
    row.proven(f"the provider: {provider.kinds(near.done)}")
    row.came_to(f"{turn.state} with attempt 3, waits {[one['wait_s'] for one in failed]} s")
    assert turn.state is TurnState.COMPLETED
    assert len(failed) == 2


async def test_nobody_listens(tmp_path: Path, row: Record):
    """Connections refused: bounded attempts, then stored waits, then the fallback answers; nothing was possibly paid."""
    row.covers(29, 32, injected="connection refused for the whole turn; and https spoken to a plain port")
    gone = Provider()
    gone.close()
    table = f'base_url = "{gone.url}"\nfallback = "fault:fallback"\nrequest_timeout = "1s"\n'
    prices = '\n[heinzel.prices."fault:fallback"]\ninput = 1\noutput = 1\n'
    world = World(tmp_path / "w", model=MODEL, heinzel=table, more=prices)
    try:
        async with world.open() as house:
            await house.begin("turns", "upkeep")
            await house.add("refused", "nothing", place="")
            await house.wake("refused")
            turn = await house.ended("refused")
            failed = await trouble(house, "refused")
            parked = (await house.kinds("refused")).count("turn.waiting")
            row.proven(f"{len(failed)} failed attempts: {failed[0]['failed']}")
            row.came_to(
                f"{turn.state} by the fallback after {parked} stored waits, {turn.usage.possible_micros} possible"
            )
            assert turn.state is TurnState.COMPLETED
            assert "model.fallback" in await house.kinds("refused")
            assert parked >= 1
            assert turn.usage.possible_micros == 0
            await invariants.check(house)
    finally:
        world.close()


async def test_a_half_open_socket(house: House, near: Provider, row: Record):
    """A request that is accepted and never answered ends at its time as `timeout`, possibly paid, and is tried again."""
    row.covers(30, injected="a request that is never answered, request_timeout 1 s")
    near.behaves(HANG)
    await house.add("hang", "nothing", place="")
    await house.wake("hang")
    turn = await house.ended("hang")
    (failed,) = await trouble(house, "hang")
    row.proven(f"the provider: {provider.kinds(near.done)}")
    row.came_to(
        f"{failed['failed']} after {failed['ms']} ms, {failed['possible_micros']} micros possible, then {turn.state}"
    )
    assert turn.state is TurnState.COMPLETED
    assert failed["failed"] == "timeout"
    assert failed["possible_micros"] > 0


async def test_an_answer_cut_in_its_arguments(house: House, near: Provider, row: Record):
    """Half of an answer with tool arguments: discarded, no tool runs on it, possibly paid, asked again."""
    row.covers(31, injected="the connection reset in the middle of the tool arguments")
    near.behaves(CUT)
    await house.add("half", "searches", place="")
    await house.wake("half")
    turn = await house.ended("half")
    (failed,) = await trouble(house, "half")
    row.proven(f"the provider: {provider.kinds(near.done)}")
    row.came_to(f"{failed['failed']}, then {turn.state}; the tool ran {len(house.reads('half'))}x")
    assert turn.state is TurnState.COMPLETED
    assert house.reads("half") == ["1"]
    assert failed["possible_micros"] > 0


async def test_down_for_long(house: House, near: Provider, row: Record):
    """The provider down under many turns: the circuit opens, turns are parked instead of burning attempts, all end."""
    row.covers(32, injected="503 to everything until the circuit is open, 8 turns")
    near.always = status(503)
    names = [f"down-{number}" for number in range(8)]
    for name in names:
        house.world.contract(name, "nothing", place="")
    await house.load()
    await asyncio.gather(*(house.wake(name) for name in names))
    for name in names:
        await house.world.until(lambda name=name: _met_it(house, name), "the trouble")  # type: ignore[misc]
    asked = len(near.done)
    near.always = provider.GOOD
    turns = [await house.ended(name) for name in names]
    row.proven(f"the provider: {asked}x 503")
    row.came_to(f"8 turns {turns[0].state}, {asked} requests while it was down")
    assert {turn.state for turn in turns} == {TurnState.COMPLETED}
    assert asked < 8 * 12


async def _met_it(house: House, name: str) -> bool:
    kinds = await house.kinds(name)
    return "turn.waiting" in kinds or "model.fallback" in kinds or "turn.ended" in kinds


async def test_an_answer_without_usage(house: House, near: Provider, row: Record):
    """An answer that does not say what it cost counts at the cap: the turn ends at its budget, never uncapped."""
    row.covers(37, injected="answers without usage")
    near.usage = False
    await house.add("silent", "plain", place="")
    await house.wake("silent")
    turn = await house.ended("silent")
    row.proven(f"the provider: {provider.kinds(near.done)}, none with usage")
    row.came_to(f"{turn.state}: {turn.reason}; {turn.usage.cost_micros} micros counted")
    assert turn.state is TurnState.BUDGET
    assert turn.usage.cost_micros == 2_000_000


async def test_the_cap_in_the_middle(tmp_path: Path, row: Record):
    """A turn at its cap with `on_budget: ask` waits for a person with what it has; raised, the same turn goes on."""
    row.covers(39, injected="a turn's cap reached after some steps")
    near = Provider()
    table = f'base_url = "{near.url}"\nmax_usd = 0.006\nmax_tokens = 2000'
    world = World(tmp_path / "w", model=MODEL, heinzel=table)
    try:
        async with world.open() as house:
            await house.begin("turns", "upkeep")
            await house.add("poor", "steps-8", place="", extra="  on_budget: ask\n")
            await house.wake("poor")
            waiting = await house.waiting("poor")
            row.proven(f"waits for {waiting.reason} after {waiting.ordinal} answers")
            for _ in range(12):
                found = await house.turn("poor")
                assert found is not None
                if found.state.ended:
                    break
                if found.state is TurnState.WAITING and any(item.open for item in found.waits):
                    await house.client.raise_budget("poor", by="ada")
                await asyncio.sleep(0.5)
            turn = await house.ended("poor")
            row.came_to(f"{turn.state} as the same turn after raises, {turn.ordinal} answers")
            assert turn.state is TurnState.COMPLETED
            assert 0 < waiting.ordinal < turn.ordinal
            assert len(near.done) == 9
            await invariants.check(house)
    finally:
        world.close()
        near.close()
