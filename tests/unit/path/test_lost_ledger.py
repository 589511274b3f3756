"""A ledger that lost its last writes: what it does not know any more, the target does."""

from __future__ import annotations

from heinzelwerk import apply
from heinzelwerk.advance import advance
from heinzelwerk.effect import Decision, EffectState
from heinzelwerk.ids import SessionId
from heinzelwerk.testing import house


async def test_an_effect_that_is_there_is_not_placed_again() -> None:
    """At a target that cannot refuse, an approved effect whose text stands there under its key is completed, not placed."""
    home = house.build()
    await home.store.prepare()
    await home.load(house.page())
    home.wall.refuses_late = False
    await home.wake()
    await advance(SessionId(house.TEAM, "page"), home.works)
    (record,) = await home.store.effects(house.TEAM)
    await apply.decide(house.TEAM, record.id, Decision.APPROVED, by="ada", works=home.works)
    words = await home.store.effect_text(house.TEAM, record.id)
    home.wall.held["wall"] = (words or "", record.key)
    assert await apply.apply(house.TEAM, record.id, home.works) == "completed"
    after = await home.store.effect(house.TEAM, record.id)
    assert after is not None
    assert after.state is EffectState.COMPLETED
    assert after.seen == "was there before this attempt"
    assert home.wall.placed == []
