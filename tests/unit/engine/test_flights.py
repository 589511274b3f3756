"""Claims about the limit of requests in flight at a provider, as a turn meets it."""

from __future__ import annotations

import pytest

from heinzelwerk.engine import flights
from heinzelwerk.engine.scripted import NAME
from heinzelwerk.ports import Policy
from heinzelwerk.session import Hold
from heinzelwerk.turn import TurnState, WaitKind
from tests.unit.engine.desk import calls, desk, outcome

PROVIDER = NAME.partition(":")[0]
OTHER = Hold("session", "other", "page", "1-x")
LIMITED = Policy(in_flight={PROVIDER: 1})


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "SHORT_S", (0.0, 0.0))


async def test_places_are_given_back_after_each_request() -> None:
    """A turn of several requests under a limit of one ends, and leaves the place free."""
    found = await desk(calls("read_one"), outcome(), policy=LIMITED)
    assert (await found.finish()).state is TurnState.COMPLETED
    assert await found.store.begin_request(PROVIDER, OTHER, limit=1, ttl_ms=1_000)


async def test_a_turn_without_a_place_waits_in_the_store() -> None:
    """It frees its worker, costs nothing, blames nobody, waits longer each time, and goes on when a place is free."""
    found = await desk(outcome(), policy=LIMITED, settings={"fallback": "spare:scripted"})
    assert await found.store.begin_request(PROVIDER, OTHER, limit=1, ttl_ms=10**9)
    waits = []
    for _ in range(8):  # more often than a provider in trouble is tried
        await found.go()
        turn = await found.turn()
        assert turn is not None
        assert turn.state is TurnState.WAITING
        (item,) = turn.waits
        assert item.kind is WaitKind.RETRY
        waits.append((item.deadline_ms - found.clock.ms()) / 1000)
        found.clock.pass_(40)
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(2, abs=0.1)
    assert waits[-1] == pytest.approx(30, abs=0.1)
    await found.store.end_requests(PROVIDER, [OTHER])
    ended = await found.finish()
    assert ended.state is TurnState.COMPLETED
    assert ended.usage.possible_micros == 0
    assert ended.usage.requests == 1
    assert await found.events("model.fallback") == []


async def test_a_failed_request_gives_its_place_back() -> None:
    """Nobody else is kept out by a turn that waits for its next attempt."""

    def fails(*_: object) -> object:
        raise ConnectionRefusedError

    found = await desk(fails, policy=LIMITED)  # type: ignore[arg-type]
    await found.go()
    turn = await found.turn()
    assert turn is not None
    assert turn.state is TurnState.WAITING
    assert await found.store.begin_request(PROVIDER, OTHER, limit=1, ttl_ms=1_000)


async def test_without_a_limit_the_store_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset costs nothing."""
    found = await desk(outcome(), policy=Policy(in_flight={"another": 1}))
    monkeypatch.delattr("heinzelwerk.claim.Claim.begin_request")
    monkeypatch.delattr("heinzelwerk.claim.Claim.end_request")
    assert (await found.finish()).state is TurnState.COMPLETED
