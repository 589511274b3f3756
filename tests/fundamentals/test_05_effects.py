"""5. A turn asks, code acts: an effect is planned, decided by a person, and placed at most once under its key."""

from __future__ import annotations

from heinzelwerk import apply, errors
from heinzelwerk.advance import advance
from heinzelwerk.effect import Decision, EffectRecord, Which
from heinzelwerk.ids import SessionId
from heinzelwerk.ports import Placement
from heinzelwerk.testing.house import House

PAGE = SessionId("core", "page")


async def planned(home: House) -> EffectRecord:
    await home.wake()
    await advance(PAGE, home.works)
    (record,) = await home.store.effects("core", Which.UNDECIDED)
    return record


async def test_nothing_is_placed_before_a_person_decides(home: House) -> None:
    """The turn has ended; the approval waits in the ledger, not in the turn."""
    record = await planned(home)
    assert await apply.apply("core", record.id, home.works) == "refused"
    assert home.wall.placed == []


async def test_an_approved_text_is_placed_once(home: House) -> None:
    """Doorbells for an effect may double too."""
    record = await planned(home)
    await apply.decide("core", record.id, Decision.APPROVED, by="ada", works=home.works)
    for _ in range(3):
        assert await apply.apply("core", record.id, home.works) == "completed"
    assert home.wall.placed == [record.key]


async def test_an_attempt_that_nobody_heard_of_again_is_read_back(home: House) -> None:
    """The worker dies after the call and before `completed`: the target is asked, and the text is not placed again."""
    record = await planned(home)
    await apply.decide("core", record.id, Decision.APPROVED, by="ada", works=home.works)

    def arrives_and_is_cut(placement: Placement) -> None:
        home.wall.placed.append(placement.key)
        home.wall.held[placement.arguments["place"]] = (placement.text, placement.key)
        raise errors.TargetUnknown("the connection was cut")

    home.wall.before_place = arrives_and_is_cut
    assert await apply.apply("core", record.id, home.works) == "in_doubt"
    home.clock.pass_(home.works.policy.effect_timeout_s + home.works.policy.effect_margin_s + 1)
    assert await apply.apply("core", record.id, home.works) == "completed"
    assert home.wall.placed == [record.key]
