"""A session in the gaps: mail that comes while another turn runs, a second question, a turn that cannot resume."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from heinzelwerk import apply, errors, sweep
from heinzelwerk.advance import advance
from heinzelwerk.effect import Decision, EffectRecord, EffectState, Moved, Which
from heinzelwerk.ending import OverBudget, Tail
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail, MailKind, Posting
from heinzelwerk.outcome import Lesson
from heinzelwerk.testing import house
from heinzelwerk.testing.house import House, ScriptedEngine, finish
from heinzelwerk.turn import TurnState
from tests.unit.path.test_waits import ask

PAGE = SessionId(house.TEAM, "page")
ASK_FOR_MONEY = "  on_budget: ask\n"


def over_budget(opening: Any, claim: Any) -> OverBudget:
    return OverBudget(Tail(opening.turn), "turn", 5)


async def opened(*segments: Any, extra: str = "") -> House:
    home = house.build(engine=ScriptedEngine(list(segments)))
    await home.load(house.page(extra=extra))
    return home


async def answer(
    home: House, turn: int, item: str, *, kind: MailKind = MailKind.ANSWER, value: str = "answered"
) -> None:
    mail = Mail(id=home.works.ids.new(), kind=kind, turn=turn, fills=item, value=value, text="this one", by="ada")
    assert (await home.store.post(PAGE, mail)).posting is Posting.DELIVERED


async def waiting_item(home: House, turn: int) -> str:
    record = await home.store.turn(PAGE, turn)
    assert record is not None
    (item,) = record.waits
    assert item.open, item
    return item.id


async def ends(home: House) -> list[tuple[str, str]]:
    events = [json.loads(line) for line in await home.store.spine(PAGE)]
    return [(event["turn"], event["data"]["verdict"]) for event in events if event["kind"] == "turn.ended"]


async def test_a_second_question_waits_for_an_answer_of_its_own() -> None:
    """The answer to a turn's first question does not answer its second."""
    home = await opened(ask, ask, finish())
    await home.wake()
    await advance(PAGE, home.works)
    await answer(home, 1, await waiting_item(home, 1))
    await advance(PAGE, home.works)
    await answer(home, 1, await waiting_item(home, 1))
    assert (await advance(PAGE, home.works)).did == "completed"


async def test_each_rise_of_a_turns_budget_needs_a_person() -> None:
    """A turn that comes to its cap again waits again; the first raise does not pay for ever."""
    home = await opened(over_budget, extra=ASK_FOR_MONEY)
    await home.wake()
    await advance(PAGE, home.works)
    await answer(home, 1, await waiting_item(home, 1), kind=MailKind.BUDGET_RAISED, value="raised")
    await advance(PAGE, home.works)
    await waiting_item(home, 1)
    assert (await advance(PAGE, home.works)).did == "nothing_due"


async def test_a_steer_that_no_request_took_becomes_the_next_wake() -> None:
    """A message that joined a running turn and came after its last request is the next turn's, not lost."""
    home = await opened()
    late = Mail(id="m-late", kind=MailKind.STEER, turn=1, text="And the date?", by="ada")

    async def said_at_the_end(opening: Any, claim: Any) -> Any:
        assert (await home.store.post(PAGE, late)).posting is Posting.DELIVERED
        return finish()(opening, claim)

    await _with_async_segments(home, said_at_the_end, finish())
    await home.wake()
    assert (await advance(PAGE, home.works)).turn == 1
    await advance(PAGE, home.works)
    assert (await advance(PAGE, home.works)).turn == 2
    assert (await home.kinds()).count("turn.steered") == 0
    assert home.engine.openings[1].message == "And the date?"  # type: ignore[attr-defined]


async def test_an_answer_during_another_turn_makes_its_own_turn_due_at_once() -> None:
    """The running turn takes the mail; releasing the session must not leave the answered turn until its deadline."""
    home = await opened()

    async def while_running(opening: Any, claim: Any) -> Any:
        await answer(home, 1, await waiting_item(home, 1))
        taken = await claim.fetch_mail()
        await claim.commit((), mail_taken=len(taken))
        return finish()(opening, claim)

    await _with_async_segments(home, ask, while_running, finish())
    await home.wake(cause="asked", conversation="a")
    await advance(PAGE, home.works)
    await home.wake(key="manual/2", cause="asked", conversation="b")
    await advance(PAGE, home.works)
    overview = await home.store.overview(PAGE)
    assert overview is not None
    assert overview.due_ms is not None
    assert overview.due_ms - await home.store.now_ms() <= 5_000
    assert (await advance(PAGE, home.works)).turn == 1


async def test_an_answered_question_is_not_superseded() -> None:
    """An answer that came while a later turn ran counts: the turn goes on with it."""
    home = await opened()

    async def while_running(opening: Any, claim: Any) -> Any:
        await answer(home, 1, await waiting_item(home, 1))
        return finish()(opening, claim)

    await _with_async_segments(home, ask, while_running, finish())
    await home.wake()
    await advance(PAGE, home.works)
    await home.wake(key="manual/2")
    await advance(PAGE, home.works)
    assert (await advance(PAGE, home.works)).turn == 1
    assert await ends(home) == [("core/page/2", "completed"), ("core/page/1", "completed")]


async def test_a_turn_ends_once_though_its_question_expired_and_a_later_turn_came() -> None:
    """One claim finds the deadline passed and a new wake: the first turn has one end, its own."""
    home = await opened(ask, finish())
    await home.wake()
    await advance(PAGE, home.works)
    home.clock.pass_(home.works.policy.question_ttl_s + 1)
    await home.wake(key="manual/2")
    await advance(PAGE, home.works)
    assert await ends(home) == [("core/page/1", "timeout"), ("core/page/2", "completed")]


async def test_wakes_behind_a_turn_that_cannot_resume_stay_due() -> None:
    """The turn ends failed; what waits in the inbox is due at once, not when somebody happens to come by."""
    home = await opened()

    async def dies(opening: Any, claim: Any) -> Any:
        raise RuntimeError("the worker dies here")

    await _with_async_segments(home, dies, finish())
    await home.wake()
    try:
        await advance(PAGE, home.works)
    except RuntimeError:
        home.keeper.held.clear()
    await home.wake(key="manual/2")
    session = home.store._state.teams[house.TEAM].sessions["page"]  # type: ignore[attr-defined]
    del session.words[1].body["contract"]
    home.clock.pass_(60)
    await advance(PAGE, home.works)
    first = await home.store.turn(PAGE, 1)
    assert first is not None
    assert first.state is TurnState.FAILED
    overview = await home.store.overview(PAGE)
    assert overview is not None
    assert overview.due_ms is not None
    assert (await advance(PAGE, home.works)).turn == 2


async def _with_async_segments(home: House, *segments: Any) -> None:
    engine = home.engine
    assert isinstance(engine, ScriptedEngine)
    left = list(segments)

    async def run(opening: Any, claim: Any) -> Any:
        engine.openings.append(opening)
        ending = left.pop(0)(opening, claim)
        return await ending if hasattr(ending, "__await__") else ending

    engine.run = run  # type: ignore[method-assign]


async def cut_while_placing(home: House) -> EffectRecord:
    """An approved effect whose worker died while it was placing: nobody knows what came of it."""
    await home.wake()
    await advance(PAGE, home.works)
    (effect,) = await home.store.effects(house.TEAM, Which.UNDECIDED)
    await apply.decide(house.TEAM, effect.id, Decision.APPROVED, by="ada", works=home.works)

    def dies(placement: Any) -> None:
        raise RuntimeError("the worker dies before it knows")

    home.wall.before_place = dies
    with pytest.raises(RuntimeError):
        await apply.apply(house.TEAM, effect.id, home.works)
    return effect


async def test_a_worker_without_the_publisher_does_not_call_a_started_effect_failed() -> None:
    """Its attempt may have placed the text: it is left alone until its deadline, then in doubt, and another worker looks."""
    home = await opened(finish())
    effect = await cut_while_placing(home)
    bare = replace(home.works, publishers={})
    assert await apply.apply(house.TEAM, effect.id, bare) == "not_due"
    home.clock.pass_(home.works.policy.effect_timeout_s + home.works.policy.effect_margin_s + 1)
    assert await apply.apply(house.TEAM, effect.id, bare) == "unknown_after_crash"
    home.clock.pass_(400)
    assert [due.name for due in await home.store.due(house.TEAM, kind="effect")] == [effect.id]
    home.wall.before_place = lambda placement: None
    for _ in range(2):
        await apply.apply(house.TEAM, effect.id, home.works)
        home.clock.pass_(30)
    stored = await home.store.effect(house.TEAM, effect.id)
    assert stored is not None
    assert (stored.state, home.wall.placed) == (EffectState.COMPLETED, [effect.key])


async def test_a_key_that_is_used_again_after_its_retention_offers_its_draft() -> None:
    """A wake's key may be forgotten before its effect's record: the new turn's draft is asked anew, not taken for the old one."""
    home = await opened(finish(), finish("Other words."))
    await home.wake(key="manual/weekly")
    await advance(PAGE, home.works)
    (first,) = await home.store.effects(house.TEAM, Which.UNDECIDED)
    await apply.decide(house.TEAM, first.id, Decision.APPROVED, by="ada", works=home.works)
    await apply.apply(house.TEAM, first.id, home.works)
    home.clock.pass_(31 * 86_400)
    await home.wake(key="manual/weekly")
    await advance(PAGE, home.works)
    assert (await advance(PAGE, home.works)).did == "nothing_due"
    (second,) = await home.store.effects(house.TEAM, Which.UNDECIDED)
    assert (second.turn, second.ask) == (2, 2)


async def test_a_turn_that_only_waits_is_cancelled_when_its_contract_goes() -> None:
    """Nobody answers a question of a contract that is gone: the load makes the session due, and its claim ends the turn."""
    home = await opened(ask)
    await home.wake()
    await advance(PAGE, home.works)
    await home.load()
    await advance(PAGE, home.works)
    assert await ends(home) == [("core/page/1", "cancelled")]


async def test_an_older_turn_that_ends_last_is_not_the_last_success() -> None:
    """Its question was answered after a later turn drafted: the later turn's draft and fingerprint stay the newest."""
    home = await opened(ask, finish("Newer."), finish("Older."))
    await home.wake(cause="asked", conversation="a")
    await advance(PAGE, home.works)
    home.pages.pages["page.md"] = "Other inputs."
    await home.wake(key="manual/2", cause="asked", conversation="b")
    await advance(PAGE, home.works)
    await answer(home, 1, await waiting_item(home, 1))
    assert (await advance(PAGE, home.works)).turn == 1
    overview = await home.store.overview(PAGE)
    assert overview is not None
    assert json.loads(overview.memo["success"])["turn"] == 2
    assert await home.store.draft(PAGE, "page", approved=False) == (2, "Newer.")


async def test_an_attempt_that_may_still_run_is_not_resolved() -> None:
    """`retry` while another worker is placing would place twice; after the deadline it is a person's to decide."""
    home = await opened(finish())
    home.wall.refuses_late = False
    effect = await cut_while_placing(home)
    early = await apply.resolve(house.TEAM, effect.id, "retry", by="ada", works=home.works)
    assert (early.moved, "may still run" in early.detail) == (Moved.HELD_ELSEWHERE, True)
    home.clock.pass_(home.works.policy.effect_timeout_s + home.works.policy.effect_margin_s + 1)
    late = await apply.resolve(house.TEAM, effect.id, "retry", by="ada", works=home.works)
    assert late.moved is Moved.DONE


async def test_an_output_may_be_called_lesson() -> None:
    """A draft and a lesson of one outcome are two asks, and keeping the lesson approves no draft."""
    raw = house.page().replace("    page: {format", "    lesson: {format").replace("output: page", "output: lesson")
    raw = raw.replace("### Maintains\n- `page`", "### Maintains\n- `lesson`")
    learned = Lesson(sentence="Look twice.")
    home = house.build(engine=ScriptedEngine([finish(lessons=[learned])]))
    await home.load(raw)
    await home.wake()
    await advance(PAGE, home.works)
    asked = {effect.action: effect for effect in await home.store.effects(house.TEAM, Which.UNDECIDED)}
    assert set(asked) == {"notes.place", "lesson.keep"}
    await apply.decide(house.TEAM, asked["lesson.keep"].id, Decision.APPROVED, by="ada", works=home.works)
    assert await home.store.draft(PAGE, "lesson", approved=True) is None
    await apply.decide(house.TEAM, asked["notes.place"].id, Decision.APPROVED, by="ada", works=home.works)
    assert await home.store.draft(PAGE, "lesson", approved=True) == (1, "The page says hello.")


async def test_a_turn_that_is_left_to_a_newer_release_is_not_rung_without_pause() -> None:
    """It can go on, but not here: the session is due again after a while, and the older workers do not spin on it."""

    def newer(opening: Any, claim: Any) -> Any:
        raise errors.FormatTooNew("a stored message has format 2")

    home = await opened(newer)
    await home.wake()
    await advance(PAGE, home.works)
    overview = await home.store.overview(PAGE)
    assert overview is not None
    assert overview.due_ms is not None
    assert overview.due_ms - await home.store.now_ms() >= 10_000
    home.bell.rung.clear()
    await sweep.sweep(home.works)
    assert home.bell.rung == []
