"""What the spine keeps of a handoff (ADR 0050 statement 6): the runner, how it ended, figures and hashes, never its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pydantic import JsonValue, TypeAdapter, ValidationError

from heinzelwerk import handoff_job, ids, text
from heinzelwerk.event import Note
from heinzelwerk.handoff import HandoffResult
from heinzelwerk.handoff_job import JobRecord, Read, Task
from heinzelwerk.mail import Mail

if TYPE_CHECKING:
    from heinzelwerk.ports import Works

_TOOLS_NAMED = 100  # an agent's own tools; their names come from outside, and an event has a cap
_Found = TypeVar("_Found")
_READS = TypeAdapter(list[Read])


async def complete(note: Note, mail: Mail, team: str, works: Works) -> Note:
    """The event of a handoff's end with all that is known of it.

    What a crash or the retention took, and what a newer release's worker wrote, is left out: it must not hold the session up.
    """
    job = await works.store.job(team, str(mail.data.get("job", "")))
    if job is None:
        return note
    data: dict[str, JsonValue] = {**note.data, **_asked(job)}
    if job.started_ms is not None and job.ended_ms is not None:
        data["ms"] = job.ended_ms - job.started_ms
    task = _read(
        Task.model_validate_json, await works.store.body(job.session, job.turn, handoff_job.request_body(job.id))
    )
    if task is not None:
        data["task_sha256"] = ids.digest(task.task)
    result = _read(
        HandoffResult.model_validate_json,
        await works.store.body(job.session, job.turn, handoff_job.result_body(job.id)),
    )
    if result is not None:
        data |= _came_back(result)
    reads = _read(_READS.validate_json, await works.store.body(job.session, job.turn, handoff_job.reads_body(job.id)))
    if reads is not None:
        data["reads"] = _reads(reads)
    return Note(note.kind, data, turn=note.turn, key=note.key)


def _read(parse: Callable[[bytes], _Found], raw: bytes | None) -> _Found | None:
    try:
        return parse(raw) if raw is not None else None
    except ValidationError:
        return None


def _asked(job: JobRecord) -> dict[str, JsonValue]:
    asked: dict[str, JsonValue] = {"runner": job.runner, "call": job.call, "timeout_s": job.timeout_s}
    if job.max_micros is not None:
        asked["max_micros"] = job.max_micros
    return asked


def _came_back(result: HandoffResult) -> dict[str, JsonValue]:
    """The result's figures and hashes. The report's hash is that of the text that the body holds and the model read."""
    usage = result.usage
    found: dict[str, JsonValue] = {
        "agent": result.agent.name,
        "agent_version": result.agent.version,
        "model": text.clean_line(result.model) if result.model else None,
        "turns": result.turns,
        "tool_calls": {
            text.clean_line(name, limit=80): count.model_dump(mode="json")
            for name, count in list(result.tool_calls.items())[:_TOOLS_NAMED]
        },
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write,
        "usage_source": result.usage_source,
        "cost_source": result.cost_source,
        "files": len(result.files),
        "report_sha256": ids.digest(result.report) if result.report is not None else None,
        "request_sha256": result.hashes.get("request"),
        "transcript_sha256": result.transcript.sha256 if result.transcript is not None else None,
    }
    if result.sandbox is not None:
        found |= {"sandbox": result.sandbox.backend, "network": result.sandbox.network}
    return found


def _reads(made: list[Read]) -> dict[str, JsonValue]:
    """The agent's calls of the turn's own tools, like its own tools' counts."""
    calls, failed = Counter(read.tool for read in made), Counter(r.tool for r in made if r.outcome == "failed")
    return {name: {"calls": number, "failed": failed[name]} for name, number in calls.items()}
