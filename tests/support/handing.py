"""A deployment whose turns hand work over: a scripted model, a coding agent of the test's choosing, real workers.

The model reads its first message: a wake whose text is JSON says with which arguments the turn calls which tools, one
response after another; then it ends the turn. Any other turn ends at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from heinzelwerk.ids import SessionId
from heinzelwerk.turn import TurnRecord
from tests.support.deployment import CONTRACT, SETTINGS, TEAM, Deployment
from tests.support.gated import MODEL
from tests.support.worker import Change
from workers.root import Runtime

PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")
OTHER = SessionId(TEAM, "other")
MARK = "SCRIPT "


def change() -> Change:
    """The worker's side."""
    return Change(factories={"gated": lambda name: FunctionModel(_answer, model_name=name)})


def script(*rounds: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The text of a wake that makes a turn call these tools, round by round. `$handoff` stands for the last handoff's id."""
    return MARK + json.dumps(rounds)


async def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    said = [
        str(part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]
    rounds = next((json.loads(text.partition(MARK)[2].splitlines()[0]) for text in said if MARK in text), [])
    done = sum(isinstance(message, ModelResponse) for message in messages)
    if done < len(rounds):
        calls = json.loads(json.dumps(rounds[done]).replace("$handoff", _handoff(messages)))
        return ModelResponse(parts=[ToolCallPart(name, given) for name, given in calls])
    (outcome, *_) = info.output_tools
    words = {"report": "It is done.", "nothing_to_do": True, "reason": "a test"}
    return ModelResponse(parts=[ToolCallPart(outcome.name, words)])


def _handoff(messages: Sequence[ModelMessage]) -> str:
    """The id that the last handoff's result names."""
    told = [
        part.model_response_str()
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturnPart) and part.tool_name == "handoff"
    ]
    return told[-1].partition('"handoff": "')[2].partition('"')[0] if told else ""


def deployment(directory: Path, runners: str, *, threads: int = 4) -> Deployment:
    """A deployment with two contracts and these `[handoff.runners.*]` tables."""
    settings = SETTINGS.replace("turn_threads = 4", f"turn_threads = {threads}").replace(
        'lease = "20s"', 'lease = "6s"'
    )
    found = Deployment(directory, settings + runners)
    other = CONTRACT.replace("name: page", "name: other").replace("title: One page", "title: Another page")
    (directory / "team" / "workflows" / "other.prose.md").write_text(other)
    return found


def command(*argv: str, more: str = "") -> str:
    """The table of one agent that is a command; a TOML string."""
    return f"""
[handoff.runners.agent]
agent = "command"
command = {json.dumps(argv)}
trust_command = true
{more}
"""


def start(found: Deployment, *profiles: str) -> None:
    """Start these workers with the scripted model."""
    for profile in profiles:
        found.workers.append(_worker(found, profile))


def _worker(found: Deployment, profile: str) -> Any:
    from workers import supervisor

    return supervisor.start(
        [sys.executable, "-P", "-m", "tests.support.worker", profile, "tests.support.handing:change"],
        environment=found.environment,
        log=found.directory / f"{profile}-{len(found.workers)}.log",
    )


async def ended(found: Deployment, runtime: Runtime, session: SessionId, number: int = 1) -> TurnRecord:
    """Wait until the turn has ended."""

    async def look() -> TurnRecord | None:
        turn = await runtime.works.store.turn(session, number)
        return turn if turn is not None and turn.state.ended else None

    turn = await found.eventually(look, seconds=180)
    assert turn is not None
    return turn


async def events(runtime: Runtime, session: SessionId, kind: str) -> list[dict[str, Any]]:
    """The data of the spine's events of this kind."""
    lines = [json.loads(line) for line in await runtime.works.store.spine(session)]
    return [line["data"] for line in lines if line["kind"] == kind]


async def told(runtime: Runtime, session: SessionId, tool: str, number: int = 1) -> list[dict[str, Any]]:
    """The returns of a tool that the turn's model saw, as they are stored."""
    history = [json.loads(item) for item in await runtime.works.store.history(session, number)]
    parts = [part for message in history for part in message["parts"]]
    return [part for part in parts if part["part_kind"] == "tool-return" and part["tool_name"] == tool]


__all__ = ["MODEL", "OTHER", "PYTHON", "change", "command", "deployment", "ended", "events", "script", "start", "told"]
