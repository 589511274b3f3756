"""From the handoff calls of one response to their jobs: shares of what the turn may still spend, in money and time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heinzelwerk import ids
from heinzelwerk.commit import Body
from heinzelwerk.engine.tools import Handoff
from heinzelwerk.handoff_job import JobRecord, Task, request_body
from heinzelwerk.turn import TurnRecord, WaitItem, WaitKind

CLOSING_S = 120.0
"""What a waiting turn grants a job beyond its time: to be queued a while, and for its result to be stored."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the handoffs of one response are made from: the runner, what it may read through the turn, what is left."""

    runner: str
    reads: tuple[str, ...]
    left_micros: int | None
    left_s: float


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs with the waits that they fill and the bodies that they read, in the order of their calls."""

    records: tuple[JobRecord, ...]
    waits: tuple[WaitItem, ...]
    bodies: tuple[Body, ...]


def name(turn: TurnRecord, call: str) -> str:
    """A job's id: the same call of the same turn asks for one job, however often it is asked."""
    return ids.digest(f"{turn.id()}/{call}")[:26]


def make(calls: Mapping[str, Handoff], asked: Asked, turn: TurnRecord, *, now_ms: int) -> Jobs:
    """The jobs of these calls (`<ordinal>:<call id>`). Shares that sum over 1 are scaled, so that together they are the whole."""
    whole = max(1.0, sum(call.budget_share for call in calls.values()))
    made = [_job(key, call.budget_share / whole, asked, turn) for key, call in calls.items()]
    tasks = [Task(task=call.task, files=call.files, turn_tools=asked.reads) for call in calls.values()]
    return Jobs(
        tuple(made),
        # The job's own deadline is a duration: the store counts it from when it queues the job.
        tuple(_wait(job, now_ms) for job in made),
        tuple(_body(job, task) for job, task in zip(made, tasks, strict=True)),
    )


def _job(call: str, share: float, asked: Asked, turn: TurnRecord) -> JobRecord:
    timeout_s = max(asked.left_s * share, 1.0)
    return JobRecord(
        id=name(turn, call),
        team=turn.wake.team,
        heinzel=turn.wake.heinzel,
        turn=turn.number,
        call=call,
        wait=name(turn, call),
        runner=asked.runner,
        max_micros=None if asked.left_micros is None else int(asked.left_micros * share),
        share=share,
        timeout_s=timeout_s,
        deadline_ms=int((timeout_s + CLOSING_S) * 1000),
    )


def _wait(job: JobRecord, now_ms: int) -> WaitItem:
    return WaitItem(id=job.wait, kind=WaitKind.JOB, call=job.call, deadline_ms=now_ms + job.deadline_ms)


def _body(job: JobRecord, task: Task) -> Body:
    return Body(job.turn, request_body(job.id), task.model_dump_json().encode())
