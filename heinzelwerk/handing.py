"""Working off one handoff: claimed once, run once, its result stored for the turn that waits for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import structlog

from heinzelwerk import advance, budget, contract, handoff_job, text
from heinzelwerk.handoff import AgentInfo, HandoffFile, HandoffRequest, HandoffResult, Limits, Status
from heinzelwerk.handoff_job import JobRecord, Task
from heinzelwerk.ports import Interrupt
from heinzelwerk.session import Hold, NotClaimed

if TYPE_CHECKING:
    from heinzelwerk.ports import Runner, Works

log = structlog.get_logger("heinzelwerk.handing")

REPORT_CHARACTERS = 65_536
_LOOK_EVERY_S = 1.0


@dataclass(slots=True)
class _HeldJob:
    """A job's lease in this process; an interrupt of any kind stops the agent."""

    hold: Hold
    interrupted: Interrupt | None = None

    def interrupt(self, why: Interrupt) -> None:
        """Stop; LOST overrides."""
        if self.interrupted is None or why is Interrupt.LOST:
            self.interrupted = why


async def hand_over(team: str, job_id: str, works: Works, *, worker: str) -> str:
    """Run one handoff if nobody has; answers one word. A job whose worker died is closed `interrupted`, never run again."""
    claimed = await works.store.claim_job(team, job_id, nonce=works.ids.new(), worker=worker)
    if isinstance(claimed, NotClaimed):
        await advance.ring(team, works)
        return claimed.reason
    job, token = claimed
    held = _HeldJob(Hold("job", team, job_id, token))
    works.keeper.keep(held)
    try:
        result = await _run(job, held, works)
        if held.interrupted is Interrupt.LOST:
            return "lost"
        await _close(job, token, result, works)
    finally:
        works.keeper.forget(held)
    await advance.ring(team, works)
    return result.status.value


async def _run(job: JobRecord, held: _HeldJob, works: Works) -> HandoffResult:
    runner = works.runners.get(job.runner)
    raw = await works.store.body(job.session, job.turn, handoff_job.request_body(job.id))
    source = await works.store.body(job.session, job.turn, "contract")
    if runner is None or raw is None or source is None:
        missing = (
            f"no runner {job.runner} is set up on this worker" if runner is None else "the task's body has expired"
        )
        return refused(job, missing)
    request = _request(job, Task.model_validate_json(raw), _instructions(source, job))
    watch = asyncio.create_task(_watch(job, held, works))
    try:
        log.info(
            "handoff started", team=job.team, session=str(job.session), turn=job.turn, job=job.id, runner=job.runner
        )
        result = await _guarded(runner, request, held)
    finally:
        watch.cancel()
    log.info(
        "handoff ended", team=job.team, session=str(job.session), turn=job.turn, job=job.id, status=result.status.value
    )
    return result


async def _guarded(runner: Runner, request: HandoffRequest, held: _HeldJob) -> HandoffResult:
    result = await runner.run(request, on_event=lambda line: None, stop=lambda: held.interrupted is not None)
    if held.interrupted is Interrupt.HAND_BACK:
        # This process ends. The run was cut and is never repeated, so the turn learns that, not that a person stopped it.
        return result.model_copy(update={"status": Status.INTERRUPTED, "report": None})
    return result


async def _watch(job: JobRecord, held: _HeldJob, works: Works) -> None:
    """Stop the agent when the turn that waits for it has ended: a person stopped it, or its time is over."""
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        turn = await works.store.turn(job.session, job.turn)
        if turn is not None and turn.state.ended:
            held.interrupt(Interrupt.STOPPED)


def _instructions(source: bytes, job: JobRecord) -> str:
    reading = contract.read(source, file_name=f"{job.heinzel}.prose.md")
    return reading.definition.body if reading.definition else ""


def _request(job: JobRecord, task: Task, instructions: str) -> HandoffRequest:
    limits = Limits(
        timeout_s=job.timeout_s,
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


async def _close(job: JobRecord, token: str, result: HandoffResult, works: Works) -> None:
    """Store the result cleaned, redacted and cut like any tool result; the transcript and files beside it."""
    clean = result.model_copy(
        update={
            "report": text.bounded(result.report, limit=REPORT_CHARACTERS) if result.report else result.report,
            "detail": text.bounded(result.detail, limit=REPORT_CHARACTERS) if result.detail else result.detail,
        }
    )
    bodies = {handoff_job.result_body(job.id): clean.model_dump_json().encode()}
    if result.transcript is not None and result.transcript.data:
        bodies[handoff_job.transcript_body(job.id)] = result.transcript.data
    for entry in result.files:
        bodies[handoff_job.file_body(job.id, entry.path)] = entry.data
    cost = budget.micros(Decimal(result.cost_usd)) if result.cost_usd is not None else None
    await works.store.close_job(
        job.team, job.id, token=token, status=result.status.value, cost_micros=cost, bodies=bodies
    )


def refused(job: JobRecord, reason: str) -> HandoffResult:
    """A result for a job that this worker cannot run at all."""
    return HandoffResult(status=Status.REFUSED, detail=reason, agent=AgentInfo(name=job.runner))
