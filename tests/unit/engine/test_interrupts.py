"""Stops, steers, hand-backs, used-up time and lost leases, at every place of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo

from heinzelwerk import claim, resuming
from heinzelwerk.commit import Commit
from heinzelwerk.engine import messages
from heinzelwerk.mail import Mail, MailKind
from heinzelwerk.ports import Interrupt
from heinzelwerk.turn import TurnState
from tests.unit.engine.desk import SESSION, CrashHere, Desk, Reply, calls, desk, outcome, returns


def first(found: list[Desk], do: str, reply: Reply, *, at: int = 0, wait: float = 0.0) -> Reply:
    """A reply that interrupts its own turn while the request is in flight, then waits, then answers."""

    async def asked(heard: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if sum(isinstance(m, ModelResponse) for m in heard) == at:
            interrupt(found[0], do)
            await asyncio.sleep(wait)
        answer = reply(heard, info)
        assert isinstance(answer, ModelResponse)
        return answer

    return asked


def interrupt(found: Desk, do: str) -> None:
    """What the keeper's thread does when it hears of it."""
    for held in found.house.keeper.held:
        held.interrupt(Interrupt(do))


async def interrupted(do: str, *replies: Reply, at: int = 0, wait: float = 0.0) -> Desk:
    box: list[Desk] = []
    script = [first(box, do, reply, at=at, wait=wait) for reply in replies]
    box.append(await desk(*script))
    return box[0]


async def test_a_stop_ends_a_request_in_flight_and_keeps_what_was_done() -> None:
    """The turn ends cancelled; the unanswered request counts as possibly spent, the finished ones as spent."""
    found = await interrupted("stopped", calls("read_one"), outcome(), at=1, wait=30)
    ended = await found.finish()
    assert ended.state is TurnState.CANCELLED
    assert ended.usage.cost_micros == 1_500
    assert ended.usage.possible_micros > 0
    assert ended.usage.requests == 2
    assert (await found.store.spent("core")).reserved == 0
    kinds = [event["kind"] for event in await found.events()]
    assert kinds == ["turn.started", "step.model", "step.tools", "request.unknown", "turn.ended"]


async def test_a_stopped_turns_snapshot_can_be_gone_on_from() -> None:
    """What a stop leaves behind is a whole history: every call answered, loadable, fit for another run."""
    found = await interrupted("stopped", calls("read_one"), outcome(), at=1, wait=30)
    await found.finish()
    normal = messages.normal(await found.store.history(SESSION, 1))
    assert returns(normal.messages)["c0"].outcome == "success"
    assert messages.open_calls(normal.messages) == ()


async def test_a_stop_during_tools_keeps_the_finished_ones() -> None:
    """Sibling calls that had finished are in the record; the turn ends at once."""
    found = await desk(calls("read_one", "read_two"), outcome())

    async def stop(commit: Commit) -> None:
        if commit.calls:
            interrupt(found, "stopped")

    found.store.before_commit = stop
    ended = await found.finish()
    assert ended.state is TurnState.CANCELLED
    assert len(await found.store.calls(SESSION, 1)) >= 1
    assert len(found.model.requests) == 1
    stored = messages.load(await found.store.history(SESSION, 1))
    assert len(stored) == 3
    assert {part.outcome for part in returns(stored).values()} <= {"success"}


async def test_a_stop_that_meets_a_commit_loses_neither() -> None:
    """The commit that is under way is finished first, so the turn's last commit is no repetition of it."""
    plain = await desk(calls("read_one"), outcome())
    await plain.finish()
    for at in range(2, len(plain.store.commits)):
        found = await desk(calls("read_one"), outcome())

        async def stop(commit: Commit, found: Desk = found, at: int = at) -> None:
            if len(found.store.commits) == at:
                interrupt(found, "stopped")
                await asyncio.sleep(0.01)

        found.store.before_commit = stop
        ended = await found.finish()
        assert ended.state in (TurnState.CANCELLED, TurnState.COMPLETED), at
        assert len(await found.events("turn.ended")) == 1
        ops = [commit.op for commit in found.store.commits]
        assert len(ops) == len(set(ops)), at


async def test_used_up_time_ends_the_turn() -> None:
    """The contract's timeout ends it `timeout`, with what it has."""
    found = await interrupted("overdue", calls("read_one"), outcome(), at=1, wait=30)
    ended = await found.finish()
    assert ended.state is TurnState.TIMEOUT
    assert ended.usage.cost_micros == 1_500


async def test_a_hand_back_stops_at_the_next_checkpoint_and_costs_nothing() -> None:
    """A process that ends lets the request in flight finish, stores it, and its successor goes on from there."""
    for at in (0, 1):
        found = await interrupted("hand_back", calls("read_one"), outcome(), at=at)
        did = await found.go()
        assert did.did == "running"
        turn = await found.turn()
        assert turn is not None
        assert turn.usage.requests == at + 1
        assert (await found.store.spent("core")).reserved == 0
        found.store.before_commit = None
        done = await found.go()
        assert done.did == "completed"
        assert len(found.model.requests) == 2
        assert (await found.turn()).usage.possible_micros == 0  # type: ignore[union-attr]


async def test_a_lost_lease_writes_nothing_more() -> None:
    """Another process holds the session: this one stops, and the turn is the other's."""
    found = await interrupted("lost", calls("read_one"), outcome(), at=1, wait=30)
    did = await found.go()
    assert did.did == "lost"
    before = len(found.store.commits)
    interrupt(found, "lost")
    await asyncio.sleep(0.01)
    assert len(found.store.commits) == before
    found.model.replies = (calls("read_one"), outcome())
    found.clock.pass_(20)
    ended = await found.finish()
    assert ended.state is TurnState.COMPLETED
    assert ended.usage.possible_micros > 0


def steer(number: int, turn: int = 1) -> Mail:
    return Mail(id=f"s{number}", kind=MailKind.STEER, turn=turn, text=f"Think of point {number}.", by="ada")


async def told(mail: Sequence[Mail], *replies: Reply, extra: str = "") -> Desk:
    """A desk at which this mail arrives while the first request is out; the first of `replies` answers it."""
    box: list[Desk] = []

    async def meanwhile(heard: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        for one in mail:
            await box[0].store.post(SESSION, one)
        answer = replies[0](heard, info)
        assert isinstance(answer, ModelResponse)
        return answer

    box.append(await desk(meanwhile, *replies[1:], extra=extra))
    return box[0]


async def test_a_message_reaches_the_next_request_after_it_is_durable() -> None:
    """The spine has `turn.steered` and the body its words before the model sees it; it is said once."""
    found = await told([steer(1)], calls("read_one"), outcome())
    ended = await found.finish()
    assert ended.state is TurnState.COMPLETED
    assert found.model.heard(1).count("Think of point 1.") == 1
    steered = (await found.events("turn.steered"))[0]
    assert (steered["mail"], steered["by"]) == ("s1", "ada")
    assert "Think" not in str(steered)
    assert await found.body("steer/s1") == "Think of point 1."
    at = [event["kind"] for event in await found.events()].index("turn.steered")
    assert [e["kind"] for e in await found.events()][at + 1 :].count("step.model") == 1


async def test_a_message_is_said_once_whatever_dies() -> None:
    """A crash at any commit after the message arrived neither loses nor repeats it."""

    async def build(at: int | None) -> Desk:
        found = await told([steer(1)], calls("read_one", "read_two"), outcome())
        found.store.at = at
        return found

    plain = await build(None)
    await plain.finish()
    for at in range(3, len(plain.store.commits)):
        found = await build(at)
        ended = await found.finish()
        assert ended.state is TurnState.COMPLETED, at
        assert found.model.heard().count("Think of point 1.") == 1, at
        assert len(await found.events("turn.steered")) == 1, at
        assert len(found.model.requests) == 2, at


async def test_other_mail_does_not_hold_a_message_up() -> None:
    """What stands before it in the box is moved onto the spine with it; a stop is left where it is."""
    moved = Mail(id="e1", kind=MailKind.EFFECT_MOVED, data={"effect": "x", "state": "refused"})
    found = await told([moved, steer(1), steer(2)], calls("read_one"), outcome())
    await found.finish()
    assert [event["kind"] for event in await found.events("effect.moved", "turn.steered")] == [
        "effect.moved",
        "turn.steered",
        "turn.steered",
    ]
    heard = found.model.heard(1)
    assert heard.index("point 1") < heard.index("point 2")


@pytest.mark.parametrize(
    "first",
    [
        Mail(id="e1", kind=MailKind.EFFECT_MOVED, data={"effect": "x", "state": "completed"}),
        Mail(id="j1", kind=MailKind.JOB_ENDED, turn=1, data={"job": "x", "cost_micros": 7}),
        Mail(id="s0", kind=MailKind.STOP, turn=9),
    ],
    ids=["an effect that completed", "a handoff's end", "a stop of another turn"],
)
async def test_what_only_a_claim_can_take_holds_no_message_up(first: Mail) -> None:
    """Behind a lesson that was accepted, a job's cost or another turn's mail the session is claimed anew: the words reach
    the next request, the mail in front acts, and no request is made twice."""
    found = await told([first, steer(1)], calls("read_one"), calls("read_two"), outcome())
    ended = await found.finish()
    assert ended.state is TurnState.COMPLETED
    assert found.model.heard(1).count("Think of point 1.") == 1
    assert found.model.heard(2).count("Think of point 1.") == 1
    assert len(found.model.requests) == 3
    assert await found.store.unread_mail(SESSION) == ()
    assert len(await found.events("turn.steered")) == 1


async def test_a_message_that_was_held_up_is_said_once_whatever_dies() -> None:
    """The hand-back that lets mail in front through is as safe as any other commit: nothing is lost, said or asked twice."""

    async def build(at: int | None) -> Desk:
        moved = Mail(id="e1", kind=MailKind.EFFECT_MOVED, data={"effect": "x", "state": "completed"})
        found = await told([moved, steer(1)], calls("read_one", "read_two"), outcome())
        found.store.at = at
        return found

    plain = await build(None)
    await plain.finish()
    for at in range(3, len(plain.store.commits)):
        found = await build(at)
        assert (await found.finish()).state is TurnState.COMPLETED, at
        assert found.model.heard().count("Think of point 1.") == 1, at
        assert len(found.model.requests) == 2, at
        assert len(await found.events("turn.steered")) == len(await found.events("effect.moved")) == 1, at


async def test_a_message_behind_open_calls_waits_for_their_results() -> None:
    """A turn that died with open calls hears a message that came meanwhile after their results, once."""
    found = await desk(calls("read_one", "read_two"), outcome())
    found.store.at = 3
    with pytest.raises(CrashHere):
        await found.go()
    found.clock.pass_(20)
    await found.store.post(SESSION, steer(7))
    ended = await found.finish()
    assert ended.state is TurnState.COMPLETED
    assert found.model.heard().count("Think of point 7.") == 1
    assert {"c0", "c1"} <= set(returns(found.model.requests[-1][0]))
    turn = await found.turn()
    assert turn is not None
    assert turn.steers == ()


async def test_a_message_between_segments_is_part_of_the_history() -> None:
    """A message to a turn whose process died between steps is said with the next request, and stored with it."""
    found = await desk(calls("read_one"), outcome())
    found.store.at = 4
    with pytest.raises(CrashHere):
        await found.go()
    found.clock.pass_(20)
    await found.store.post(SESSION, steer(8))
    await found.finish()
    assert found.model.heard().count("Think of point 8.") == 1
    stored = b"".join(await found.store.history(SESSION, 1))
    assert stored.count(b"Think of point 8.") == 1


async def test_the_next_segment_opens_with_what_the_last_one_stored() -> None:
    """The opening of a resumed turn has its history, its ledger and its counters."""
    found = await desk(calls("read_one", "read_two"), outcome())
    found.store.at = 5
    with pytest.raises(CrashHere):
        await found.go()
    found.clock.pass_(20)
    async with claim.hold(SESSION, found.house.works) as held:
        assert isinstance(held, claim.Claim)
        opening = await resuming.reopen(held.snapshot.turns[0], found.house.works)
        assert len(opening.calls) == 2
        assert len(opening.history) == 2
        assert opening.turn.ordinal == 1


async def test_messages_from_before_and_during_a_resume_are_each_said_once() -> None:
    """One came while the turn lay dead with open calls, one while its successor ran them; the successor dies anywhere."""

    async def lead(at: int | None) -> Desk:
        found = await desk(calls("read_one", "read_two"), outcome())
        found.store.at = 3
        with pytest.raises(CrashHere):
            await found.go()
        found.clock.pass_(20)
        await found.store.post(SESSION, steer(7))
        posted: list[str] = []

        async def during(commit: Commit) -> None:
            if commit.calls and not posted:
                posted.append("s8")
                await found.store.post(SESSION, steer(8))

        found.store.before_commit = during
        found.store.at = at
        await found.finish()
        return found

    whole = await lead(None)
    for at in range(4, len(whole.store.commits)):
        found = await lead(at)
        heard = found.model.heard()
        assert [heard.count(f"point {n}.") for n in (7, 8)] == [1, 1], at
        assert len(found.model.requests) == 2, at
        assert len(await found.events("turn.steered")) == 2, at


async def said_while_running(*then: Reply, extra: str = "") -> Desk:
    """A turn whose second request carries a message of ada's; `then` answers that request and those that follow."""
    box: list[Desk] = []

    def out(reply: Reply) -> Reply:
        return first(box, "overdue", reply, at=then.index(reply) + 1, wait=30) if reply is timed_out else reply

    box.append(await told([steer(1)], calls("read_one"), *map(out, then), extra=extra))
    return box[0]


def timed_out(heard: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    raise AssertionError("the turn's time is used up before this answers")


def refused(heard: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    raise ModelHTTPError(status_code=401, model_name="scripted", body="no such key")


@pytest.mark.parametrize("last", [timed_out, refused])
async def test_a_message_that_no_response_followed_is_the_next_turns(last: Reply) -> None:
    """The turn that took it ends without an answer: the words start the next turn, from who said them, once."""
    found = await said_while_running(last)
    ended = await found.finish()
    assert ended.state in (TurnState.TIMEOUT, TurnState.FAILED)
    seen = await found.store.overview(SESSION)
    assert seen is not None
    (queued,) = seen.inbox
    assert (queued.wake.text, queued.wake.by, queued.wake.key) == ("Think of point 1.", "ada", "asked/steer/s1")
    (back,) = await found.events("steer.returned")
    assert (back["mail"], back["wake"]) == ("s1", queued.wake.id)
    assert "Think" not in str(back)


async def test_a_message_that_was_answered_is_not_said_again() -> None:
    """A response followed it: the model heard it, whatever becomes of the turn afterwards."""
    found = await said_while_running(calls("read_two"), timed_out)
    assert (await found.finish()).state is TurnState.TIMEOUT
    seen = await found.store.overview(SESSION)
    assert seen is not None
    assert seen.inbox == ()
    assert await found.events("steer.returned") == []


async def test_a_turn_that_runs_anew_hears_its_messages_again() -> None:
    """`retries` drops the conversation of the failed run, not what people said to the turn."""
    bad = [outcome(report=17)] * 3

    def badly_at_first(heard: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        answer = (bad.pop() if bad else outcome())(heard, info)
        assert isinstance(answer, ModelResponse)
        return answer

    found = await said_while_running(calls("read_two"), badly_at_first, extra="  retries: 1\n")
    ended = await found.finish()
    assert ended.state is TurnState.COMPLETED
    assert len(await found.events("turn.retried")) == len(await found.events("turn.steered")) == 1
    anew = next(at for at, (heard, _) in enumerate(found.model.requests) if at and len(heard) == 1)
    for at in (anew, -1):
        assert found.model.heard(at).count("Think of point 1.") == 1
        assert "[message s1 from ada" in found.model.heard(at)
    assert await found.events("steer.returned") == []
