"""Working off one handoff: claimed once, run once, its result stored for the turn that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import TypeAdapter

from heinzelwerk import advance, budget, contract, errors, handoff, handoff_job, ids, resuming, text
from heinzelwerk.handoff import (
    AgentInfo,
    HandoffFile,
    HandoffRequest,
    HandoffResult,
    Limits,
    Status,
    ToolAnswer,
    TranscriptInfo,
    TurnTool,
)
from heinzelwerk.handoff_job import JobRecord, JobState, Read, Task
from heinzelwerk.ports import Interrupt
from heinzelwerk.session import Hold, NotClaimed
from heinzelwerk.turn import TurnRecord

if TYPE_CHECKING:
    from heinzelwerk.ports import Clock, Runner, Works

log = structlog.get_logger("heinzelwerk.handing")

REPORT_CHARACTERS = 65_536
CLOSING_S = 60.0
"""What remains of a job's deadline for storing its result when its agent is stopped."""
READS_KEPT = 500
_LOOK_EVERY_S = 1.0
_READS = TypeAdapter(list[Read])


@dataclass(slots=True)
class _HeldJob:
    """A job's lease in this process; an interrupt of any kind stops the agent."""

    hold: Hold
    interrupted: Interrupt | None = None

    def interrupt(self, why: Interrupt) -> None:
        """Stop; LOST overrides."""
        if self.interrupted is None or why is Interrupt.LOST:
            self.interrupted = why


@dataclass(slots=True)
class _Reads:
    """Serves the turn's own read tools to the agent and remembers each call of them."""

    clock: Clock
    made: list[Read] = field(default_factory=list)

    def recorded(self, tool: TurnTool) -> TurnTool:
        """The tool, with its calls remembered."""

        async def call(arguments: Mapping[str, Any]) -> ToolAnswer:
            began = self.clock.monotonic()
            try:
                answer = await tool.call(arguments)
            except Exception as error:  # whatever an adapter raises, the agent gets an answer and the call is on record
                log.exception("tool failed", tool=tool.name, error=type(error).__name__)
                answer = ToolAnswer(f"The tool failed ({type(error).__name__}).", ok=False)
            if len(self.made) < READS_KEPT:
                self.made.append(
                    Read(
                        tool=tool.name,
                        outcome="success" if answer.ok else "failed",
                        ms=int((self.clock.monotonic() - began) * 1000),
                        arguments_sha256=ids.digest(handoff.canonical(dict(arguments))),
                        result_sha256=ids.digest(answer.text),
                        characters=len(answer.text),
                    )
                )
            return answer

        return TurnTool(name=tool.name, description=tool.description, schema=tool.schema, call=call)


async def hand_over(team: str, job_id: str, works: Works, *, worker: str) -> str:
    """Run one handoff if nobody has; answers one word. A job whose worker died is closed `interrupted`, never run again."""
    if await _close_left_behind(team, job_id, works):
        await advance.ring(team, works)
        return Status.INTERRUPTED.value
    claimed = await works.store.claim_job(team, job_id, nonce=works.ids.new(), worker=worker)
    if isinstance(claimed, NotClaimed):
        await advance.ring(team, works)
        return claimed.reason
    job, token = claimed
    held = _HeldJob(Hold("job", team, job_id, token))
    works.keeper.keep(held)
    try:
        reads = _Reads(works.clock)
        result = await _run(job, held, reads, works)
        if held.interrupted is Interrupt.LOST:
            return "lost"
        await _store(job, held, result, reads.made, works)
    finally:
        works.keeper.forget(held)
    await advance.ring(team, works)
    return result.status.value


async def _close_left_behind(team: str, job_id: str, works: Works) -> bool:
    """Close a job whose worker died on this machine with the transcript that it left; False where there is none to close."""
    job = await works.store.job(team, job_id)
    runner = works.runners.get(job.runner) if job is not None else None
    if job is None or runner is None or job.state is not JobState.RUNNING:
        return False
    left = runner.left_behind(job.id)
    if not left:
        return False
    result = HandoffResult(
        status=Status.INTERRUPTED,
        detail="The worker that ran the agent was lost; it is not started again.",
        agent=AgentInfo(name=job.runner),
        transcript=TranscriptInfo(bytes=len(left), kept=len(left), sha256=handoff.sha256(left), data=left),
    )
    return await _close(job, None, result, works)


async def _run(job: JobRecord, held: _HeldJob, reads: _Reads, works: Works) -> HandoffResult:
    runner = works.runners.get(job.runner)
    turn = await works.store.turn(job.session, job.turn)
    raw = await works.store.body(job.session, job.turn, handoff_job.request_body(job.id))
    source = await works.store.body(job.session, job.turn, "contract")
    if runner is None or raw is None or source is None or turn is None:
        missing = (
            f"no runner {job.runner} is set up on this worker" if runner is None else "the task's body has expired"
        )
        return refused(job, missing)
    task = Task.model_validate_json(raw)
    try:
        tools = [reads.recorded(tool) for tool in await _lent(task, turn, works)]
    except errors.GiveUp as gone:
        return refused(job, str(gone))
    request = _request(job, task, _instructions(source, job), left_s=await _time_left_s(job, works))
    watch = asyncio.create_task(_watch(job, held, works))
    told = {"team": job.team, "session": str(job.session), "turn": job.turn, "job": job.id}
    try:
        log.info("handoff started", **told, runner=job.runner)
        result = await _guarded(runner, request, held, tools)
    finally:
        watch.cancel()
    log.info("handoff ended", **told, status=result.status.value)
    return result


async def _guarded(runner: Runner, request: HandoffRequest, held: _HeldJob, tools: list[TurnTool]) -> HandoffResult:
    result = await runner.run(
        request, on_event=lambda line: None, stop=lambda: held.interrupted is not None, turn_tools=tools
    )
    if held.interrupted is Interrupt.HAND_BACK:
        # This process ends. The run was cut and is never repeated, so the turn learns that, not that a person stopped it.
        return result.model_copy(update={"status": Status.INTERRUPTED, "report": None})
    return result


async def _watch(job: JobRecord, held: _HeldJob, works: Works) -> None:
    """Stop the agent when nothing waits for it any more: a person stopped the turn, or the wait's time is over."""
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        try:
            turn = await works.store.turn(job.session, job.turn)
        except errors.StoreUnavailable:
            continue  # the lease decides whether this goes on
        if turn is not None and not _waits(turn, job):
            held.interrupt(Interrupt.STOPPED)


def _waits(turn: TurnRecord, job: JobRecord) -> bool:
    return not turn.state.ended and any(item.id == job.wait and item.open for item in turn.waits)


async def _lent(task: Task, turn: TurnRecord, works: Works) -> tuple[TurnTool, ...]:
    """The turn's own read tools that the operator lends to this runner; BodyExpired where what they read is gone."""
    if not task.turn_tools:
        return ()
    from heinzelwerk.engine import lending  # here: whoever only lists or wakes need not load an agent library

    opening = await resuming.reopen(turn, works)
    return lending.lend(opening, works.policy, works.capabilities, task.turn_tools)


async def _time_left_s(job: JobRecord, works: Works) -> float:
    """What is left of the job's own time: it began to run out while the job was queued."""
    return (job.deadline_ms - await works.store.now_ms()) / 1000 - CLOSING_S


def _instructions(source: bytes, job: JobRecord) -> str:
    reading = contract.reread(source, file_name=f"{job.heinzel}.prose.md")
    return reading.definition.body if reading.definition else ""


def _request(job: JobRecord, task: Task, instructions: str, *, left_s: float) -> HandoffRequest:
    limits = Limits(
        timeout_s=max(min(job.timeout_s, left_s), 1.0),
        max_usd=budget.usd(job.max_micros) if job.max_micros is not None else None,
    )
    return HandoffRequest(
        run_id=job.id,
        agent=job.runner,
        prompt=task.task,
        contract=instructions,
        files=tuple(HandoffFile(path=path, data=words.encode()) for path, words in sorted(task.files.items())),
        turn_tools=task.turn_tools,
        limits=limits,
    )


async def _store(job: JobRecord, held: _HeldJob, result: HandoffResult, reads: list[Read], works: Works) -> None:
    """Store what the run came to, over a store that does not answer for a while: it was paid for and is never repeated.

    A lease that ran out meanwhile is no reason to lose it, as long as nobody has closed the job.
    """
    until = works.clock.monotonic() + CLOSING_S
    while True:
        try:
            token = held.hold.token
            if not await _close(job, token, result, works, reads=reads):
                await _close(job, None, result, works, reads=reads)
            return
        except errors.StoreUnavailable as error:
            if works.clock.monotonic() > until:
                raise
            log.warning("a handoff's result waits for the store", job=job.id, reason=str(error))
            await asyncio.sleep(_LOOK_EVERY_S)


async def _close(
    job: JobRecord, token: str | None, result: HandoffResult, works: Works, *, reads: list[Read] | None = None
) -> bool:
    """Store the result cleaned, redacted and cut like any tool result; the transcript, files and reads beside it."""
    clean = result.model_copy(
        update={
            "report": text.bounded(result.report, limit=REPORT_CHARACTERS) if result.report else result.report,
            "detail": text.bounded(result.detail, limit=REPORT_CHARACTERS) if result.detail else result.detail,
        }
    )
    bodies = {handoff_job.result_body(job.id): clean.model_dump_json().encode()}
    if result.transcript is not None and result.transcript.data:
        bodies[handoff_job.transcript_body(job.id)] = result.transcript.data
    if reads:
        bodies[handoff_job.reads_body(job.id)] = _READS.dump_json(reads)
    for entry in result.files:
        bodies[handoff_job.file_body(job.id, entry.path)] = entry.data
    return await works.store.close_job(
        job.team, job.id, token=token, status=result.status.value, cost_micros=_cost(result), bodies=bodies
    )


def _cost(result: HandoffResult) -> int | None:
    """Micro-dollars; None: nobody knows. What was never started, or could reach no model, cost nothing."""
    if result.cost_usd is not None:
        return budget.micros(Decimal(result.cost_usd))
    unreachable = result.sandbox is not None and result.sandbox.network == "none"
    return 0 if unreachable or result.status is Status.REFUSED else None


def refused(job: JobRecord, reason: str) -> HandoffResult:
    """A result for a job that this worker cannot run at all."""
    return HandoffResult(status=Status.REFUSED, detail=reason, agent=AgentInfo(name=job.runner))
