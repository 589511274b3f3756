"""The path of one wake over memory doubles: accepted, run, drafted, approved, placed."""

from __future__ import annotations

import json

from heinzelwerk import apply, errors
from heinzelwerk.advance import advance
from heinzelwerk.effect import Decision, EffectState, Moved, Which
from heinzelwerk.ids import SessionId
from heinzelwerk.testing import house
from heinzelwerk.testing.house import ScriptedEngine
from heinzelwerk.turn import Pins

PAGE = SessionId(house.TEAM, "page")


async def ready() -> house.House:
    home = house.build()
    await home.store.prepare()
    await home.load(house.page())
    return home


async def test_a_wake_becomes_one_completed_turn_with_a_draft_that_waits() -> None:
    """Accepted once, run once, one planned effect that waits for a person; the session has nothing due."""
    home = await ready()
    await home.wake()
    did = await advance(PAGE, home.works)
    assert (did.did, did.turn) == ("completed", 1)
    waiting = await home.store.effects(house.TEAM, Which.UNDECIDED)
    assert [record.action for record in waiting] == ["notes.place"]
    assert await home.kinds() == ["turn.started", "effect.planned", "turn.ended"]
    assert (await advance(PAGE, home.works)).did == "nothing_due"


async def test_approving_places_the_text_once() -> None:
    """Approve, apply, apply again: the target holds the text, placed under the effect's key exactly once."""
    home = await ready()
    await home.wake()
    await advance(PAGE, home.works)
    (record,) = await home.store.effects(house.TEAM, Which.UNDECIDED)
    reply = await apply.decide(house.TEAM, record.id, Decision.APPROVED, by="ada", works=home.works)
    assert reply.moved is Moved.DONE
    assert await apply.apply(house.TEAM, record.id, home.works) == "completed"
    assert await apply.apply(house.TEAM, record.id, home.works) == "completed"
    assert home.wall.placed == [record.key]
    assert home.wall.held["wall"][0] == "The page says hello."
    await advance(PAGE, home.works)
    assert (await home.kinds())[-2:] == ["effect.moved"] * 2  # approved, completed


async def test_the_second_decision_is_told_who_decided() -> None:
    """First decision wins; the second learns of it and changes nothing."""
    home = await ready()
    await home.wake()
    await advance(PAGE, home.works)
    (record,) = await home.store.effects(house.TEAM, Which.UNDECIDED)
    await apply.decide(house.TEAM, record.id, Decision.DECLINED, by="ada", works=home.works)
    reply = await apply.decide(house.TEAM, record.id, Decision.APPROVED, by="bob", works=home.works)
    assert reply.moved is Moved.ALREADY_DECIDED
    assert reply.record is not None
    assert reply.record.decided_by == "ada"
    assert await apply.apply(house.TEAM, record.id, home.works) == EffectState.REFUSED.value
    assert home.wall.placed == []


async def test_the_same_key_gives_one_turn() -> None:
    """Ten wakes with one key are one turn."""
    home = await ready()
    for _ in range(10):
        await home.wake(key="manual/same")
    assert (await advance(PAGE, home.works)).did == "completed"
    assert (await advance(PAGE, home.works)).did == "nothing_due"


async def test_unchanged_inputs_skip_without_a_model() -> None:
    """A scheduled wake over the same inputs ends `skipped: unchanged`; the engine is not asked."""
    home = await ready()
    await home.wake()
    await advance(PAGE, home.works)
    await home.wake(key="scheduled/page/1", cause="scheduled", when_busy="merge", slot=home.clock.now())
    assert (await advance(PAGE, home.works)).did == "nothing_due"
    assert isinstance(home.engine, ScriptedEngine)
    assert len(home.engine.openings) == 1
    last = json.loads((await home.store.spine(PAGE))[-1])
    assert (last["kind"], last["data"]["reason"]) == ("wake.skipped", "unchanged")


async def test_an_unmet_item_places_nothing() -> None:
    """A draft whose own check finds an item unmet ends `skipped` with the item, and plans no effect."""

    def unmet(opening, claim):  # type: ignore[no-untyped-def]
        ending = house.finish()(opening, claim)
        draft = ending.outcome.draft
        items = [entry.model_copy(update={"met": False}) for entry in draft.done_when]
        changed = ending.outcome.model_copy(update={"draft": draft.model_copy(update={"done_when": items})})
        return type(ending)(ending.tail, changed)

    home = house.build(engine=ScriptedEngine([unmet]))
    await home.load(house.page())
    await home.wake()
    did = await advance(PAGE, home.works)
    assert did.did == "skipped"
    turn = await home.store.turn(PAGE, 1)
    assert turn is not None
    assert "It says what the page says." in turn.reason
    assert await home.store.effects(house.TEAM) == ()


async def test_an_input_that_cannot_be_read_fails_the_turn_with_its_reason() -> None:
    """The wake is not lost in silence: its turn ends failed and says which input, and why."""
    home = await ready()
    home.works.capabilities.clear()  # type: ignore[attr-defined]
    await home.wake()
    await advance(PAGE, home.works)
    turn = await home.store.turn(PAGE, 1)
    assert turn is not None
    assert turn.state.value == "failed"
    assert "documents.read" in turn.reason


async def test_a_turn_that_cannot_start_keeps_the_wakes_words_where_they_expire() -> None:
    """The record of every turn outlives its words, also of one that ended before it began."""
    home = await ready()
    assert isinstance(home.works.engine, ScriptedEngine)
    home.works.engine.pins = _no_model  # type: ignore[method-assign]
    await home.wake(text="the secret plan", data={"for": "your eyes"})
    await advance(PAGE, home.works)
    record = await home.store.turn(PAGE, 1)
    assert record is not None
    assert (record.state.value, record.wake.text, record.wake.data) == ("failed", None, None)
    body = await home.store.body(PAGE, 1, "wake")
    assert body is not None
    assert json.loads(body) == {"text": "the secret plan", "data": {"for": "your eyes"}}


def _no_model(contract: object) -> Pins:
    raise errors.Refused("no model is configured", fix="set [heinzel] model")


async def test_a_body_of_a_newer_release_is_left_to_it() -> None:
    """Nothing is spent and no death is counted: the session is released and due again later, however often it is tried."""

    def newer(opening, claim):  # type: ignore[no-untyped-def]
        raise errors.FormatTooNew("messages of format 9")

    home = house.build(engine=ScriptedEngine([newer, newer, newer, newer, house.finish()]))
    await home.load(house.page())
    await home.wake()
    for _ in range(4):
        assert (await advance(PAGE, home.works)).did == "newer"
        home.clock.pass_(61)
    assert (await advance(PAGE, home.works)).did == "completed"
