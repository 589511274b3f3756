"""What a turn may wait for, and every way out of it."""

from __future__ import annotations

from heinzelwerk.advance import advance
from heinzelwerk.ending import Failed, Parked, Tail
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail, MailKind, Posting
from heinzelwerk.testing import house
from heinzelwerk.testing.house import ScriptedEngine, finish
from heinzelwerk.turn import TurnState, WaitItem, WaitKind

PAGE = SessionId(house.TEAM, "page")


async def started(*segments, extra: str = ""):  # type: ignore[no-untyped-def]
    home = house.build(engine=ScriptedEngine(list(segments)))
    await home.load(house.page(extra=extra))
    await home.wake()
    await advance(PAGE, home.works)
    return home


def ask(opening, claim):  # type: ignore[no-untyped-def]
    ending = finish()(opening, claim)
    outcome = ending.outcome.model_copy(update={"question": "Which page?", "draft": None})
    return type(ending)(ending.tail, outcome)


def fail(opening, claim):  # type: ignore[no-untyped-def]
    return Failed(Tail(opening.turn), "the model's answers never fitted")


def park_for_retry(opening, claim):  # type: ignore[no-untyped-def]
    item = WaitItem(id="retry-1", kind=WaitKind.RETRY, deadline_ms=claim.now_ms() + 60_000)
    return Parked(Tail(opening.turn), (item,))


async def test_a_question_waits_and_its_answer_resumes_the_same_turn() -> None:
    """The worker is freed; the answer's words reach the next segment; the turn completes under its own number."""
    home = await started(ask, finish())
    turn = await home.store.turn(PAGE, 1)
    assert turn is not None
    assert (turn.state, turn.reason) == (TurnState.WAITING, "answer")
    mail = Mail(id="m1", kind=MailKind.ANSWER, turn=1, fills="question-1", value="answered", text="page.md", by="ada")
    assert (await home.store.post(PAGE, mail)).posting is Posting.DELIVERED
    assert (await advance(PAGE, home.works)).did == "completed"
    assert home.engine.openings[1].question_answer == "page.md"  # type: ignore[attr-defined]
    assert "question.answered" in await home.kinds()


async def test_other_wakes_run_while_a_question_waits() -> None:
    """A session is never held for people."""
    home = await started(ask, finish())
    await home.wake(key="manual/2", cause="asked", conversation="c")
    assert (await advance(PAGE, home.works)).turn == 2


async def test_a_later_turn_supersedes_the_question_of_one_that_nobody_asked_for() -> None:
    """The earlier turn ends cancelled with the reason; both wakes have ended."""
    home = await started(ask, finish())
    await home.wake(key="manual/2")
    await advance(PAGE, home.works)
    first = await home.store.turn(PAGE, 1)
    assert first is not None
    assert (first.state, first.reason) == (TurnState.CANCELLED, "its question was superseded by turn 2")


async def test_a_question_that_nobody_answers_ends_at_its_deadline() -> None:
    """Every wait has a deadline and an exit: `timeout`, without another segment."""
    home = await started(ask)
    home.clock.pass_(home.works.policy.question_ttl_s + 1)
    await advance(PAGE, home.works)
    turn = await home.store.turn(PAGE, 1)
    assert turn is not None
    assert turn.state is TurnState.TIMEOUT
    assert len(home.engine.openings) == 1  # type: ignore[attr-defined]


async def test_a_stop_ends_a_waiting_turn_and_a_second_stop_is_told_so() -> None:
    """Stop is idempotent: the first ends it `cancelled`, a later one learns that it has ended."""
    home = await started(ask)
    await home.store.post(PAGE, Mail(id="s1", kind=MailKind.STOP, turn=1, by="ada"))
    await advance(PAGE, home.works)
    turn = await home.store.turn(PAGE, 1)
    assert turn is not None
    assert (turn.state, turn.reason) == (TurnState.CANCELLED, "stopped by ada")
    again = await home.store.post(PAGE, Mail(id="s2", kind=MailKind.STOP, turn=1, by="bob"))
    assert again.posting is Posting.TURN_ENDED


async def test_a_stored_retry_holds_the_session_until_its_time() -> None:
    """Nothing waits in a worker: the turn is due again at the retry's time, other wakes wait behind it."""
    home = await started(park_for_retry, finish())
    await home.wake(key="manual/2")
    assert (await advance(PAGE, home.works)).did == "nothing_due"
    home.clock.pass_(61)
    assert (await advance(PAGE, home.works)).turn == 1
    assert (await advance(PAGE, home.works)).turn == 2


async def test_the_contracts_retries_run_a_failed_turn_anew() -> None:
    """`hz.retries: 1`: the first failure waits, the second run completes; one turn, one wake, one end."""
    home = await started(fail, finish(), extra="  retries: 1\n")
    turn = await home.store.turn(PAGE, 1)
    assert turn is not None
    assert (turn.state, turn.retries_left) == (TurnState.WAITING, 0)
    home.clock.pass_(31)
    assert (await advance(PAGE, home.works)).did == "completed"
    assert (await home.kinds()).count("turn.ended") == 1


async def test_a_failure_without_retries_ends_the_turn() -> None:
    """No retries declared: failed at once, with the reason on the spine."""
    home = await started(fail)
    turn = await home.store.turn(PAGE, 1)
    assert turn is not None
    assert (turn.state, turn.reason) == (TurnState.FAILED, "the model's answers never fitted")


async def test_a_steer_after_the_end_becomes_the_next_wake() -> None:
    """A message that comes too late is not lost: it is the next turn's."""
    home = await started(finish())
    late = await home.store.post(PAGE, Mail(id="st", kind=MailKind.STEER, turn=1, text="And the date?", by="ada"))
    assert late.posting is Posting.DELIVERED
    assert (await advance(PAGE, home.works)).turn == 2
    assert home.engine.openings[1].message == "And the date?"  # type: ignore[attr-defined]


async def test_a_steer_beside_a_question_that_nobody_answers_becomes_the_next_wake() -> None:
    """The turn ends with its question; what was said to it meanwhile was heard by nobody yet, and keeps its sender."""
    home = await started(ask, finish())
    steer = Mail(id="st", kind=MailKind.STEER, turn=1, text="And the date?", by="ada")
    assert (await home.store.post(PAGE, steer)).posting is Posting.DELIVERED
    assert (await advance(PAGE, home.works)).did == "nothing_due"
    home.clock.pass_(home.works.policy.question_ttl_s + 1)
    await advance(PAGE, home.works)
    assert (await advance(PAGE, home.works)).turn == 2
    first, second = [await home.store.turn(PAGE, number) for number in (1, 2)]
    assert first is not None
    assert second is not None
    assert (first.state, second.wake.by) == (TurnState.TIMEOUT, "ada")
    assert home.engine.openings[1].message == "And the date?"  # type: ignore[attr-defined]
    assert (await home.kinds()).count("steer.returned") == 1


async def test_a_steer_to_a_turn_that_a_later_one_supersedes_becomes_the_next_wake() -> None:
    """However a turn ends: what it did not hear is said to the next one."""
    home = await started(ask, finish(), finish())
    steer = Mail(id="st", kind=MailKind.STEER, turn=1, text="And the date?", by="ada")
    await home.store.post(PAGE, steer)
    await advance(PAGE, home.works)
    await home.wake(key="manual/2")
    assert (await advance(PAGE, home.works)).turn == 2
    assert (await advance(PAGE, home.works)).turn == 3
    assert home.engine.openings[2].message == "And the date?"  # type: ignore[attr-defined]
