"""Claims about places among the requests in flight at a provider, for every body of the store."""

from __future__ import annotations

import pytest

from heinzelwerk.session import Hold
from heinzelwerk.store import rules
from tests.support.store_world import World

VENDOR = "vendor-chat"


def holder(name: str, *, team: str = "docs") -> Hold:
    return Hold("session", team, name, f"1-{name}")


async def begin(world: World, hold: Hold, *, limit: int = 2, ttl_ms: int = 60_000) -> bool:
    return await world.store.begin_request(VENDOR, hold, limit=limit, ttl_ms=ttl_ms)


async def test_no_more_than_the_limit_have_a_place(world: World) -> None:
    """The third is refused until one of two gives its place back; another provider's places are its own."""
    a, b, c = holder("a"), holder("b"), holder("c")
    assert [await begin(world, one) for one in (a, b, c)] == [True, True, False]
    assert await world.store.begin_request("other", c, limit=1, ttl_ms=60_000)
    assert await world.store.end_requests(VENDOR, [a, holder("nobody")]) == 1
    assert [await begin(world, one) for one in (c, a)] == [True, False]


async def test_asking_again_and_giving_back_again_change_nothing(world: World) -> None:
    """A client repeats a command whose reply was lost: a holder has one place, and gives one back."""
    a, b = holder("a"), holder("b")
    assert [await begin(world, a) for _ in range(3)] == [True, True, True]
    assert await begin(world, b)
    assert [await world.store.end_requests(VENDOR, [a]) for _ in range(2)] == [1, 0]
    assert await world.store.end_requests(VENDOR, []) == 0


async def test_a_place_ends_by_itself(world: World) -> None:
    """Nobody gives it back: it is free after its time, by the server's clock."""
    assert await begin(world, holder("dead"), limit=1, ttl_ms=60)
    assert not await begin(world, holder("next"), limit=1)
    await world.time.passes(80)
    assert await begin(world, holder("next"), limit=1)


async def test_a_team_that_waits_gets_the_next_place(world: World) -> None:
    """However many turns of a busy team ask first: who got a place longest ago is served, then the others again."""
    busy = [holder(f"b{n}", team="busy") for n in range(3)]
    calm = holder("c", team="calm")
    assert await begin(world, busy[0], limit=1)
    assert not await begin(world, calm, limit=1)
    await world.time.passes(2)
    await world.store.end_requests(VENDOR, [busy[0]])
    assert [await begin(world, one, limit=1) for one in busy[1:]] == [False, False]
    assert await begin(world, calm, limit=1)
    await world.time.passes(2)
    await world.store.end_requests(VENDOR, [calm])
    assert await begin(world, busy[1], limit=1)


async def test_who_no_longer_asks_holds_nobody_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place is not kept for a team whose turns went to wait in the store."""
    monkeypatch.setattr(rules, "ASKING_MS", 60)
    assert await begin(world, holder("a", team="busy"), limit=1)
    assert not await begin(world, holder("c", team="calm"), limit=1)
    await world.store.end_requests(VENDOR, [holder("a", team="busy")])
    assert not await begin(world, holder("b", team="busy"), limit=1)
    await world.time.passes(80)
    assert await begin(world, holder("b", team="busy"), limit=1)
