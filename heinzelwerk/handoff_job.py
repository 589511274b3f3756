"""A job: the durable record of one handoff, claimed by a handoff worker under a lease of its own and never run twice."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from heinzelwerk.ids import SessionId


class JobState(StrEnum):
    """Where a job is. A job whose worker died becomes interrupted; it is reported, never run again."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


class JobRecord(BaseModel):
    """One handoff as the turn asked for it. Task, files and results are bodies of the turn, named by `body`.

    `wait` is the turn's wait item that the job's end fills with its status; `deadline_ms` (server time) counts from
    when it was queued. `max_micros` and `timeout_s` are its share of what remained when the response was stored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    team: str
    heinzel: str
    turn: int
    call: str
    wait: str
    runner: str
    body: str
    max_micros: int | None = None
    timeout_s: float = Field(gt=0)
    created_ms: int = 0
    deadline_ms: int = 0
    state: JobState = JobState.QUEUED
    status: str = ""
    started_ms: int | None = None
    ended_ms: int | None = None
    worker: str = ""
    place: dict[str, str | int] = Field(default_factory=dict)  # boot id, pid, start time: what a restart cleans up
    cost_micros: int | None = None

    @property
    def session(self) -> SessionId:
        """The session whose turn asked for it."""
        return SessionId(self.team, self.heinzel)
