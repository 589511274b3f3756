"""A target whose last attempt is in doubt is looked at before anything else is placed there."""

from __future__ import annotations

from heinzelwerk import apply, errors
from heinzelwerk.advance import advance
from heinzelwerk.effect import Decision, Which
from heinzelwerk.ids import SessionId
from heinzelwerk.ports import Placement
from heinzelwerk.testing import house
from heinzelwerk.testing.house import ScriptedEngine, finish

PAGE = SessionId(house.TEAM, "page")


async def test_a_later_text_waits_until_the_earlier_attempt_was_read_back() -> None:
    """It arrived and its worker died: the ledger says so before the later text replaces it."""
    home = house.build(engine=ScriptedEngine([finish("First."), finish("Second.")]))
    await home.load(house.page())
    await home.wake(key="manual/1")
    await advance(PAGE, home.works)
    (first,) = await home.store.effects(house.TEAM, Which.UNDECIDED)
    await apply.decide(house.TEAM, first.id, Decision.APPROVED, by="ada", works=home.works)

    def arrives_and_is_cut(placement: Placement) -> None:
        home.wall.placed.append(placement.key)
        home.wall.held[placement.arguments["place"]] = (placement.text, placement.key)
        raise errors.TargetUnknown("the connection was cut")

    home.wall.before_place = arrives_and_is_cut
    assert await apply.apply(house.TEAM, first.id, home.works) == "in_doubt"
    home.wall.before_place = lambda placement: None
    await home.wake(key="manual/2")
    await advance(PAGE, home.works)
    (second,) = await home.store.effects(house.TEAM, Which.UNDECIDED)
    await apply.decide(house.TEAM, second.id, Decision.APPROVED, by="ada", works=home.works)
    home.clock.pass_(home.works.policy.effect_timeout_s + home.works.policy.effect_margin_s + 1)
    assert await apply.apply(house.TEAM, second.id, home.works) == "target_busy"
    assert await apply.apply(house.TEAM, first.id, home.works) == "completed"
    home.clock.pass_(6)
    assert await apply.apply(house.TEAM, second.id, home.works) == "completed"
    assert home.wall.placed == [first.key, second.key]
