"""A job: the durable record of one handoff, claimed by a handoff worker under a lease of its own and never run twice."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from heinzelwerk.ids import SessionId


class Task(BaseModel):
    """What a turn hands over, as its body keeps it: the prompt, the files it chose, the turn's read tools to serve."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str = Field(min_length=1, max_length=262_144)
    files: dict[str, str] = Field(default_factory=dict)
    turn_tools: tuple[str, ...] = ()


def request_body(job_id: str) -> str:
    """Where a job's Task lies in its turn's body."""
    return f"handoff/{job_id}/request"


def result_body(job_id: str) -> str:
    """Where a job's result lies, as JSON: status, report, usage, cost, files with hashes; never the files' contents."""
    return f"handoff/{job_id}/result"


def transcript_body(job_id: str) -> str:
    """Where the scrubbed transcript lies."""
    return f"handoff/{job_id}/transcript"


def reads_body(job_id: str) -> str:
    """Where the calls lie that the agent made of the turn's own read tools, as a JSON list of `Read`."""
    return f"handoff/{job_id}/reads"


def file_body(job_id: str, path: str) -> str:
    """Where a file lies that the agent left in `out/`."""
    return f"handoff/{job_id}/out/{path}"


class Read(BaseModel):
    """One call of a turn's read tool by a coding agent: never its arguments or its answer, only their hashes and sizes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool: str
    outcome: str  # success or failed
    ms: int
    arguments_sha256: str
    result_sha256: str
    characters: int


class JobState(StrEnum):
    """Where a job is. A job whose worker died becomes interrupted; it is reported, never run again."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


class JobRecord(BaseModel):
    """One handoff as the turn asked for it. Task, files and results are bodies of the turn, named by the functions here.

    `wait` is the turn's wait item that the job's end fills with its status; `deadline_ms` (server time) counts from
    when it was queued. `max_micros` and `timeout_s` are its share of what remained when the response was stored; the store
    lowers `max_micros` to what the day still has (a turn without a cap: to `share` of that) and puts it aside.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    team: str
    heinzel: str
    turn: int
    call: str
    wait: str
    runner: str
    max_micros: int | None = None
    share: float = Field(default=1.0, gt=0, le=1)
    timeout_s: float = Field(gt=0)
    created_ms: int = 0
    deadline_ms: int = 0
    state: JobState = JobState.QUEUED
    status: str = ""
    started_ms: int | None = None
    ended_ms: int | None = None
    worker: str = ""
    cost_micros: int | None = None

    @property
    def session(self) -> SessionId:
        """The session whose turn asked for it."""
        return SessionId(self.team, self.heinzel)
