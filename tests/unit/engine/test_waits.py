"""Handoffs, approvals and reads in one response: each is asked once, answered once, and none is skipped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from heinzelwerk.budget import Caps
from heinzelwerk.commit import Commit
from heinzelwerk.effect import Which
from heinzelwerk.engine.tools import Operation
from heinzelwerk.errors import TargetMissing
from heinzelwerk.handoff import AgentInfo as Who
from heinzelwerk.handoff import HandoffResult, Status
from heinzelwerk.handoff_job import Task, request_body, result_body
from heinzelwerk.ports import Policy, TargetView
from heinzelwerk.turn import TurnState, WaitKind
from heinzelwerk.wake import Cause
from tests.unit.engine.desk import CrashHere, Desk, Reply, calls, desk, outcome, returns

HANDOFF = ("handoff", {"task": "Check the docs.", "files": {"a.md": "A"}, "budget_share": 0.5})


class Place(BaseModel):
    """The arguments of a write in a chat."""

    place: str
    text: str


class Nothing(BaseModel):
    """No arguments."""


WRITE = Operation("notes.place", "Place a note.", Place)
PROPOSE = ("notes_place", {"place": "wall", "text": "Hi."})
CHAT: dict[str, Any] = {"cause": Cause.ASKED, "key": "asked/test/1", "text": "Please do.", "conversation": "c"}


async def _job_ends(
    found: Desk, status: Status = Status.COMPLETED, report: str | None = "All fine.", *, cost: int | None = 5
) -> None:
    """What a handoff worker does."""
    turn = await found.turn()
    assert turn is not None
    item = next(item for item in turn.waits if item.kind is WaitKind.JOB)
    claimed = await found.store.claim_job("core", item.id, nonce="w", worker="w")
    assert isinstance(claimed, tuple)
    result = HandoffResult(status=status, report=report, agent=Who(name="fake"))
    body = {result_body(item.id): result.model_dump_json().encode()}
    await found.store.close_job("core", item.id, token=claimed[1], status=status.value, cost_micros=cost, bodies=body)


async def test_a_handoff_parks_the_turn_and_its_report_resumes_it() -> None:
    """The commit that parks writes the job; the report is the call's result, in the same conversation."""
    found = await desk(calls(HANDOFF), outcome(), runners=("fake",))
    assert (await found.go()).did == "waiting"
    turn = await found.turn()
    assert turn is not None
    (item,) = turn.waits
    job = await found.store.job("core", item.id)
    assert job is not None
    assert (job.runner, job.call, job.turn) == ("fake", "1:c0", 1)
    task = Task.model_validate_json(await found.body(request_body(job.id)))
    assert (task.task, task.files) == ("Check the docs.", {"a.md": "A"})
    await _job_ends(found)
    ended = await found.finish()
    assert ended.state is TurnState.COMPLETED
    part = returns(found.model.requests[-1][0])["c0"]
    assert part.outcome == "success"
    assert "All fine." in part.model_response_str()
    assert len(found.model.requests) == 2


async def test_an_interrupted_handoff_is_told_and_never_run_again() -> None:
    """A dead handoff worker's job is no second job: the model gets `interrupted`."""
    found = await desk(calls(HANDOFF), outcome(), runners=("fake",))
    await found.go()
    await _job_ends(found, Status.INTERRUPTED, None)
    await found.finish()
    assert returns(found.model.requests[-1][0])["c0"].outcome == "interrupted"
    jobs = [job for commit in found.store.commits for job in commit.jobs]
    assert len(jobs) == 1


async def test_a_handoff_gets_a_share_of_what_is_left() -> None:
    """Money and time of the job are shares of the turn's own."""
    found = await desk(calls(HANDOFF), outcome(), runners=("fake",), policy=Policy(caps=Caps(turn=101_500)))
    await found.go()
    turn = await found.turn()
    assert turn is not None
    job = await found.store.job("core", turn.waits[0].id)
    assert job is not None
    assert job.max_micros == 50_000
    assert job.timeout_s == 300


async def test_without_a_runner_there_is_no_handoff_and_the_instructions_say_so() -> None:
    """The tool is absent and the model is told."""
    found = await desk(outcome())
    await found.finish()
    _, info = found.model.requests[0]
    assert "handoff" not in {tool.name for tool in info.function_tools}
    assert "there is no `handoff` tool" in (info.instructions or "")


async def _chat(*replies: Reply, at: int | None = None, operations: tuple[Operation, ...] = (WRITE,)) -> Desk:
    found = await desk(*replies, wake=CHAT, runners=("fake",), operations=operations)
    found.store.at = at
    return found


async def _decide(found: Desk, *, approve: bool = True) -> None:
    from heinzelwerk.effect import Decision

    effect = (await found.store.effects("core", Which.UNDECIDED))[0]
    decision = Decision.APPROVED if approve else Decision.DECLINED
    await found.store.decide("core", effect.id, decision, by="ada", digest=effect.digest)
    if approve:
        from heinzelwerk import apply

        await apply.apply("core", effect.id, found.house.works)


async def test_a_chats_write_is_a_proposal_that_runs_once_when_confirmed() -> None:
    """The run ends with a deferred request; the spine has no arguments; the result resumes the same conversation."""
    found = await _chat(calls(PROPOSE), outcome(draft=None, report="Placed."))
    assert (await found.go()).did == "waiting"
    assert "Hi." not in json.dumps(await found.events())
    await _decide(found)
    ended = await found.finish()
    assert ended.state is TurnState.COMPLETED
    assert len(found.house.wall.placed) == 1
    assert returns(found.model.requests[-1][0])["c0"].outcome == "success"


async def test_a_declined_write_is_told_and_nothing_is_placed() -> None:
    """The model hears that it was declined."""
    found = await _chat(calls(PROPOSE), outcome(draft=None, report="Left it."))
    await found.go()
    await _decide(found, approve=False)
    await found.finish()
    assert found.house.wall.placed == []
    assert returns(found.model.requests[-1][0])["c0"].outcome == "denied"


async def test_a_write_that_cannot_be_made_is_told_at_once() -> None:
    """A proposal for a target that is not there is none for a person: the model hears why, and the turn goes on."""
    found = await _chat(calls(PROPOSE), outcome(draft=None, report="Left it."))
    found.house.wall.view = _nowhere
    await found.go()
    assert [due.kind for due in found.house.bell.rung] == ["session"]  # rung for again, without waiting for anybody
    await found.go()
    ended = await found.turn()
    assert ended is not None
    assert ended.state is TurnState.COMPLETED
    part = returns(found.model.requests[-1][0])["c0"]
    assert "no such wall" in part.model_response_str()
    assert await found.store.effects("core", Which.UNDECIDED) == ()


async def _nowhere(arguments: Mapping[str, str]) -> TargetView:
    raise TargetMissing("there is no such wall")


async def test_outside_a_chat_there_is_no_write_tool() -> None:
    """A scheduled turn is not offered operations at all."""
    found = await desk(outcome(), operations=(WRITE,))
    await found.finish()
    assert "notes_place" not in {tool.name for tool in found.model.requests[0][1].function_tools}


async def test_a_chats_read_runs_at_once() -> None:
    """An operation that reads is a tool whose answer is framed data."""

    async def look(arguments: Mapping[str, Any]) -> str:
        return "Three are open."

    found = await _chat(calls("status"), outcome(draft=None), operations=(Operation("status", "Look.", Nothing, look),))
    await found.finish()
    assert "Three are open." in returns(found.model.requests[-1][0])["c0"].model_response_str()


async def test_an_unsafe_call_that_a_crash_cut_is_told_interrupted() -> None:
    """It was started and is never run a second time; the safe one beside it runs again."""
    runs: list[str] = []

    async def once(arguments: Mapping[str, Any]) -> str:
        runs.append("ran")
        return "Done."

    operation = Operation("count", "Count.", Nothing, once, replay_safe=False)
    plain = await _chat(calls("count", "read_one"), outcome(draft=None), operations=(operation,))
    await plain.finish()
    assert runs == ["ran"]
    started = next(
        n for n, commit in enumerate(plain.store.commits, 1) if any(b"started" in call.record for call in commit.calls)
    )
    runs.clear()
    found = await _chat(calls("count", "read_one"), outcome(draft=None), operations=(operation,), at=started)
    ended = await found.finish()
    assert ended.state is TurnState.COMPLETED
    assert runs == []
    results = returns(found.model.requests[-1][0])
    assert (results["c0"].outcome, results["c1"].outcome) == ("interrupted", "success")


async def _through(found: Desk, order: str) -> None:
    """Lead a turn with an approval and a handoff to its end, over a crash wherever it comes."""
    done: set[str] = set()
    for _ in range(12):
        try:
            await found.go()
        except CrashHere:
            found.clock.pass_(20)
            continue
        turn = await found.turn()
        assert turn is not None
        if turn.state.ended:
            return
        kinds = {item.kind for item in turn.waits if item.open}
        for step in order:
            if step == "a" and WaitKind.PROPOSAL in kinds and "a" not in done:
                done.add("a")
                await _decide(found)
                break
            if step == "h" and WaitKind.JOB in kinds and "h" not in done:
                done.add("h")
                await _job_ends(found)
                break
    raise AssertionError("it did not end")


async def test_approval_handoff_and_read_in_one_response_survive_every_crash() -> None:
    """Whatever commit the process dies after, and whoever answers first: nothing is asked twice, nothing is skipped."""
    script = (calls(PROPOSE, HANDOFF, "read_one"), outcome(draft=None, report="All three."))
    for order in ("ah", "ha"):
        plain = await _chat(*script)
        await _through(plain, order)
        for at in range(2, len(plain.store.commits)):
            found = await _chat(*script, at=at)
            await _through(found, order)
            turn = await found.turn()
            assert turn is not None
            assert turn.state is TurnState.COMPLETED, at
            assert len(found.model.requests) == 2, at
            assert len(found.house.wall.placed) == 1, at
            asked = [record for commit in found.store.commits for record in commit.effects]
            jobs = {job.id for commit in found.store.commits for job in commit.jobs}
            assert len({record.id for record in asked}) == len(jobs) == 1, at
            results = returns(found.model.requests[-1][0])
            assert {part.outcome for part in results.values()} == {"success"}, at
            assert sorted(results) == ["c0", "c1", "c2"], at


async def test_what_the_model_did_not_ask_is_not_answered() -> None:
    """A turn that only waits sends nothing and spends nothing."""
    found = await _chat(calls(PROPOSE), outcome(draft=None))
    await found.go()
    await found.go()
    assert len(found.model.requests) == 1
    spent: list[Commit] = [commit for commit in found.store.commits if commit.reserve]
    assert len(spent) == 1


async def test_what_a_handoff_cost_counts_against_the_turn_and_the_day() -> None:
    """The proxy's figure is the turn's and the day's money; the next handoff's share is of what is left then."""
    policy = Policy(caps=Caps(turn=1_001_500))
    found = await desk(calls(HANDOFF), calls(HANDOFF, prefix="d"), outcome(), runners=("fake",), policy=policy)
    await found.go()
    before = await found.turn()
    assert before is not None
    await _job_ends(found, cost=400_000)
    await found.go()
    turn = await found.turn()
    assert turn is not None
    assert turn.usage.cost_micros >= before.usage.cost_micros + 400_000
    assert (await found.store.spent("core")).spent == turn.usage.cost_micros
    job = await found.store.job("core", turn.waits[0].id)
    assert job is not None
    assert job.max_micros is not None
    assert job.max_micros < 300_000


async def test_a_handoff_whose_cost_nobody_knows_counts_at_its_cap() -> None:
    """A handoff worker died: what the agent may have spent is possible money, not free."""
    found = await desk(calls(HANDOFF), outcome(), runners=("fake",), policy=Policy(caps=Caps(turn=101_500)))
    await found.go()
    await _job_ends(found, Status.INTERRUPTED, None, cost=None)
    ended = await found.finish()
    assert ended.usage.possible_micros == 50_000
    assert (await found.store.spent("core")).possible == 50_000


async def test_a_handoff_that_nobody_took_in_time_never_runs() -> None:
    """Its wait ran out and the turn went on: a worker that comes back later must not spend money on it."""
    found = await desk(calls(HANDOFF), outcome(), runners=("fake",))
    await found.go()
    turn = await found.turn()
    assert turn is not None
    (item,) = turn.waits
    job = await found.store.job("core", item.id)
    assert job is not None
    assert job.deadline_ms == item.deadline_ms


@pytest.mark.parametrize("stored", [b'{"of": "a newer release"}', b"\xff\xfe"])
async def test_a_result_that_cannot_be_read_holds_nobody_up(stored: bytes) -> None:
    """A newer release's handoff worker, or damage: the model is told what is there, and the session goes on."""
    found = await desk(calls(HANDOFF), outcome(), runners=("fake",))
    await found.go()
    turn = await found.turn()
    assert turn is not None
    (item,) = turn.waits
    claimed = await found.store.claim_job("core", item.id, nonce="w", worker="w")
    assert isinstance(claimed, tuple)
    body = {result_body(item.id): stored}
    await found.store.close_job("core", item.id, token=claimed[1], status="completed", cost_micros=5, bodies=body)
    assert (await found.finish()).state is TurnState.COMPLETED
