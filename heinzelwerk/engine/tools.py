"""The tools of a turn, generated from its contract: typed, read-only, each saying whether it may run twice.

A tool's result is cleaned, redacted, bounded and framed as data. `Tool` objects are cached: building one costs more than
a whole model request of ours.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints, create_model
from pydantic_ai import ModelRetry, RunContext, Tool
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred

from heinzelwerk import errors, forms, ids, text
from heinzelwerk import handoff as handoffs
from heinzelwerk.contract import methods
from heinzelwerk.engine import context
from heinzelwerk.engine.deps import TurnDeps
from heinzelwerk.event import Note
from heinzelwerk.handoff import HandoffFile, HandoffRequest, HandoffResult
from heinzelwerk.handoff_job import file_body, result_body
from heinzelwerk.opening import Opening
from heinzelwerk.ports import Capability, Policy
from heinzelwerk.wake import Cause

SAFE = {"replay_safe": True}
UNSAFE = {"replay_safe": False}
WAITS = {"replay_safe": False, "defers": True}  # it only asks: the job or the proposal is its record
Ctx = RunContext[TurnDeps]
Verb = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z_]{0,31}$")]
Short = Annotated[str, StringConstraints(min_length=1, max_length=300)]


def key(ctx: Ctx) -> str:
    """The name of the running call in the ledger: `<ordinal of its response>:<call id>`."""
    return f"{ctx.deps.segment.turn.ordinal}:{ctx.tool_call_id}"


@dataclass(frozen=True)
class Operation:
    """Something that people may ask for in a chat. A read runs at once and may run again; a write (`reads` None) becomes
    a proposal that a person confirms, and code outside the turn performs it.
    """

    name: str
    description: str
    arguments: type[BaseModel]
    reads: Callable[[Mapping[str, Any]], Awaitable[str]] | None = None
    replay_safe: bool = True


def generate(
    opening: Opening,
    policy: Policy,
    capabilities: Mapping[str, Capability],
    *,
    handoff: bool,
    operations: Sequence[Operation] = (),
) -> list[Tool[TurnDeps]]:
    """Every tool of this turn: inputs, searches of the required capabilities, what happened before, report, handoff.

    `operations` are offered in a chat alone: outside of it a turn has no way to ask for a write but its draft.
    """
    wait, again = policy.tool_timeout_s, policy.retries_of_tool
    found = [_read(name, wait, again) for name in opening.inputs]
    found.extend(_searches(opening, capabilities, wait, again))
    found.extend(_plain(wait, again))
    if any(skill.files or len(skill.text) > context.LONGEST_SKILL for skill in opening.skills):
        found.append(_skills(wait, again))
    if handoff:
        found.extend((_handoff(again), _handoff_file(wait, again)))
    if opening.turn.wake.cause is Cause.ASKED:
        found.extend(_operation(operation, wait, again) for operation in operations)
    return found


def _tool(
    function: Any, name: str, description: str, wait: float | None, again: int, *, metadata: dict[str, bool] = SAFE
) -> Tool[TurnDeps]:
    return Tool(
        function,
        name=name,
        description=description,
        takes_ctx=True,
        max_retries=again,
        timeout=wait,
        metadata=dict(metadata),
    )


@lru_cache(maxsize=512)
def _read(name: str, wait: float, again: int) -> Tool[TurnDeps]:
    async def read(ctx: Ctx) -> str:
        entry = ctx.deps.opening.inputs[name]
        if entry.gap is not None:
            return f"There is nothing to read: {text.safe(entry.gap)}"
        window = f" since {entry.since} until {entry.until}" if entry.since else ""
        return f"{entry.read}{window}\n{context.framed(name, entry.data)}"

    return _tool(read, f"read_{name}", f"The input {name} as it was fetched for this wake, whole.", wait, again)


# -- what happened before -------------------------------------------------------------------------------------


async def last_approved(ctx: Ctx, output: str) -> str:
    """The last version of an output that a person approved."""
    known = ctx.deps.opening.contract.outputs
    if output not in known:
        raise ModelRetry(f"There is no output {output!r}; the contract declares {', '.join(known)}.")
    found = ctx.deps.opening.approved.get(output)
    if found is None:
        return f"No version of {output} has been approved yet."
    number, words = found
    return f"Turn {number} wrote it.\n{context.framed(f'last approved {output}', words)}"


async def previous_turns(ctx: Ctx, n: Annotated[int, Field(ge=1, le=50)] = 5) -> str:
    """What this Heinzelmännchen did in its last n turns, one line each, oldest first."""
    turns = ctx.deps.opening.earlier[-n:]
    return "\n".join(context.line(turn) for turn in turns) or "There are no earlier turns."


async def lessons(ctx: Ctx) -> str:
    """The lessons of earlier turns that people accepted."""
    return (
        "\n".join(f"- {text.safe(lesson)}" for lesson in ctx.deps.opening.lessons) or "No lesson has been accepted yet."
    )


async def report(ctx: Ctx, verb: Verb, target: Short, description: Short) -> str:
    """Write one line to this Heinzelmännchen's own action log: what was done, to what, in one sentence. Nothing else happens."""
    segment = ctx.deps.segment
    name = key(ctx)
    data = {
        "verb": verb,
        "target": text.clean_line(target),
        "description": text.clean_line(description),
        "call": name,
    }
    segment.note_call(name, Note("report", data, turn=segment.turn.id(), key=f"{segment.turn.id()}/{name}"))
    return "Noted."


async def read_skill(ctx: Ctx, name: str, file: str = "SKILL.md") -> str:
    """The whole text of a skill that applies to this turn, or one of its files."""
    skills = {skill.name: skill for skill in ctx.deps.opening.skills}
    skill = skills.get(name)
    if skill is None:
        raise ModelRetry(f"There is no skill {name!r} here; there are {', '.join(skills)}.")
    words = skill.text if file == "SKILL.md" else skill.files.get(file)
    if words is None:
        raise ModelRetry(f"The skill {name} has no file {file!r}; it has {', '.join(['SKILL.md', *skill.files])}.")
    return context.framed(f"skill {name}/{file}", words, limit=ctx.deps.policy.result_bytes)


@lru_cache(maxsize=8)
def _plain(wait: float, again: int) -> tuple[Tool[TurnDeps], ...]:
    functions = (last_approved, previous_turns, lessons, report)
    return tuple(_tool(f, f.__name__, (f.__doc__ or "").strip(), wait, again) for f in functions)


@lru_cache(maxsize=8)
def _skills(wait: float, again: int) -> Tool[TurnDeps]:
    return _tool(read_skill, "read_skill", (read_skill.__doc__ or "").strip(), wait, again)


# -- searches ---------------------------------------------------------------------------------------------------


def _searches(
    opening: Opening, capabilities: Mapping[str, Capability], wait: float, again: int
) -> list[Tool[TurnDeps]]:
    found = []
    for required in opening.contract.requires:
        need = forms.requirement(required, modes_of=methods.MODES)
        capability = capabilities.get(need.capability)
        if capability is None:
            continue
        for method, arguments in capability.methods().items():
            known = methods.METHODS.get(f"{need.capability}.{method}")
            if known is not None and known.mode == "read" and known.window:
                found.append(_search(need.capability, method, arguments, wait, again))
    return found


@lru_cache(maxsize=256)
def _search(capability: str, method: str, arguments: type[BaseModel], wait: float, again: int) -> Tool[TurnDeps]:
    name = f"search_{capability.replace('-', '_')}_{method}"
    described = "Back or ahead from this turn's moment: 7d, last 7d or next 12h; at most 366d."
    wanted = create_model(name, __base__=arguments, window=(str, Field(description=described)))

    async def search(ctx: Ctx, wanted: BaseModel) -> str:
        given = {field: str(value) for field, value in wanted.model_dump(mode="json").items() if value is not None}
        try:
            since, until = forms.window(given.pop("window")).around(context.as_of(ctx.deps.opening))
        except ValueError as error:
            raise ModelRetry(str(error)) from error
        try:
            data = await ctx.deps.capabilities[capability].read(method, given, since=since, until=until)
        except errors.ReadFailed as error:
            return f"It could not be read: {text.bounded(str(error), limit=2_000)}"
        return context.framed(f"{capability}.{method}", data, limit=ctx.deps.policy.result_bytes)

    search.__annotations__ = {"ctx": Ctx, "wanted": wanted, "return": str}
    return _tool(search, name, f"Search {capability}.{method} in another window of time.", wait, again)


# -- handoff ----------------------------------------------------------------------------------------------------


class Handoff(BaseModel):
    """A coding agent's task: what to do, the files it gets (path to text), and its share of what the turn may still spend."""

    task: Annotated[str, StringConstraints(min_length=1, max_length=200_000)]
    files: dict[str, str] = Field(default_factory=dict, max_length=500)
    budget_share: float = Field(default=0.5, gt=0, le=1)


async def handoff(
    ctx: Ctx,
    task: Annotated[str, StringConstraints(min_length=1, max_length=200_000)],
    files: Annotated[dict[str, str], Field(max_length=500)] | None = None,
    budget_share: Annotated[float, Field(gt=0, le=1)] = 0.5,
) -> str:
    """Give heavy, file-bound work to a coding agent once: it gets the task and these files (relative path to text), works in a
    closed directory, and its report comes back. It writes nothing outside; decide yourself what to do with its report.
    """
    chosen = tuple(HandoffFile(path=path, data=words.encode()) for path, words in (files or {}).items())
    wrong = handoffs.check_request(HandoffRequest(run_id="-", agent="-", prompt=task, files=chosen))
    if wrong is not None:
        raise ModelRetry(f"Nothing was handed over. {wrong.detail} {wrong.fix}")
    raise CallDeferred(metadata={"job": ids.digest(f"{ctx.deps.segment.turn.id()}/{key(ctx)}")[:26]})


async def read_handoff_file(
    ctx: Ctx,
    handoff: str,
    path: str,
    start: Annotated[int, Field(ge=0, description="The first character to show.")] = 0,
) -> str:
    """A file that a coding agent left with its report: `handoff` is the id that its result names, `path` one of its files."""
    deps = ctx.deps
    claim, turn = deps.segment.claim, deps.segment.turn.number
    content = await claim.body(turn, file_body(handoff, path))
    if content is None:
        raw = await claim.body(turn, result_body(handoff))
        if raw is None:
            raise ModelRetry(f"This turn has no ended handoff {handoff!r}; the result of `handoff` names its id.")
        there = [file.path for file in HandoffResult.model_validate_json(raw).files]
        raise ModelRetry(f"The handoff {handoff} left no file {path!r}; it left {', '.join(there) or 'none'}.")
    try:
        words = content.decode()
    except UnicodeDecodeError:
        return f"{text.clean_line(path)} is no text: {len(content)} bytes, SHA-256 {ids.digest(content)}."
    return context.framed(f"handoff {handoff}/{path}", words[start:], limit=deps.policy.result_bytes)


@lru_cache(maxsize=8)
def _handoff_file(wait: float, again: int) -> Tool[TurnDeps]:
    return _tool(read_handoff_file, "read_handoff_file", (read_handoff_file.__doc__ or "").strip(), wait, again)


@lru_cache(maxsize=8)
def _handoff(again: int) -> Tool[TurnDeps]:
    return _tool(handoff, "handoff", " ".join((handoff.__doc__ or "").split()), None, again, metadata=WAITS)


# -- a chat's operations ------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _operation(operation: Operation, wait: float, again: int) -> Tool[TurnDeps]:
    async def run(ctx: Ctx, wanted: BaseModel) -> str:
        if operation.reads is None:
            # Raised from the body and not declared, so that a confirmed call is answered like any other: from its record.
            raise ApprovalRequired
        answer = await operation.reads(wanted.model_dump(mode="json"))
        return context.framed(operation.name, answer, limit=ctx.deps.policy.result_bytes)

    run.__annotations__ = {"ctx": Ctx, "wanted": operation.arguments, "return": str}
    metadata = WAITS if operation.reads is None else SAFE if operation.replay_safe else UNSAFE
    return _tool(run, tool_name(operation), operation.description, wait, again, metadata=metadata)


def tool_name(operation: Operation) -> str:
    """What the model calls an operation: models take no dots and dashes in names."""
    return operation.name.replace(".", "_").replace("-", "_")


def proposed(tool: str, arguments: Mapping[str, Any], operations: Sequence[Operation]) -> tuple[str, dict[str, str]]:
    """The operation and the arguments, as text, that a write call asks for."""
    name = next((operation.name for operation in operations if tool_name(operation) == tool), tool)
    return name, {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
