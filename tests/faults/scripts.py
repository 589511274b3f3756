"""The model double of the fault suite: what it answers is decided by the contract's title, `<script> <name>`.

Every request is counted before it is answered, where a provider would count it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from heinzelwerk.engine.context import FACTS_CLOSE, FACTS_OPEN
from tests.faults.control import Control

THINKS_S = "FAULTS_MODEL_S"
"""How long the model takes for each answer, in seconds."""
SEARCH = "search_code_host_merged_pull_requests"
OUTCOME = "final_result"
Script = Callable[[str, int, dict[str, Any]], ModelResponse]


def model(name: str, control: Control) -> FunctionModel:
    """The model `fault:<anything>`."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        facts = _facts(messages)
        script, _, who = facts["title"].partition(" ")
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        control.log("request", of=who, ordinal=turn, words=_said(messages))
        await control.hit("model.sent", who)
        await asyncio.sleep(float(os.environ.get(THINKS_S, "0")))
        kind, _, number = script.partition("-")
        found = SCRIPTS[kind](who, turn, {**facts, "number": int(number or 0), "words": _said(messages)})
        await control.hit("model.replied", who)
        return found

    return FunctionModel(answer, model_name=name)


def _facts(messages: list[ModelMessage]) -> dict[str, Any]:
    said = next(m.instructions for m in reversed(messages) if isinstance(m, ModelRequest) and m.instructions)
    inside = said.rpartition(FACTS_OPEN)[2].partition(FACTS_CLOSE)[0]
    facts: dict[str, Any] = json.loads(inside)
    return facts


def _said(messages: list[ModelMessage]) -> str:
    return json.dumps([str(part.content) for m in messages if isinstance(m, ModelRequest) for part in m.parts])[-4000:]


def _outcome(**given: Any) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(OUTCOME, given)])


def draft(who: str, facts: dict[str, Any], **more: Any) -> ModelResponse:
    """A valid outcome with a draft for the contract's one output."""
    done = [{"item": item, "met": True, "evidence": "It was read."} for item in facts["done_when"]]
    (output,) = facts["outputs"]
    text = f"What {who} says, as of {facts['as_of']}."
    version = facts["contract_version"]
    return _outcome(
        report=f"Wrote what {who} says.",
        draft={"text": text, "output": output, "contract_version": version, "done_when": done},
        **more,
    )


def _plain(who: str, turn: int, facts: dict[str, Any]) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("read_page", {})]) if turn == 0 else draft(who, facts)


def _three(who: str, turn: int, facts: dict[str, Any]) -> ModelResponse:
    if turn:
        return draft(who, facts)
    calls = [
        ToolCallPart(SEARCH, {"repository": f"{who}/{n}", "window": "7d"}, tool_call_id=f"c{n}") for n in (1, 2, 3)
    ]
    return ModelResponse(parts=calls)


def _steps(who: str, turn: int, facts: dict[str, Any]) -> ModelResponse:
    if turn < facts["number"]:
        return ModelResponse(parts=[ToolCallPart("previous_turns", {"n": turn + 1})])
    return draft(who, facts)


def _nothing(who: str, turn: int, facts: dict[str, Any]) -> ModelResponse:
    return _outcome(report="Looked.", nothing_to_do=True, reason="it is true already")


def _asks(who: str, turn: int, facts: dict[str, Any]) -> ModelResponse:
    return _outcome(report="Asked.", question="Which one?") if turn == 0 else draft(who, facts)


def _invalid(who: str, turn: int, facts: dict[str, Any]) -> ModelResponse:
    return _outcome(report="", draft={"text": turn})


def _words(who: str, turn: int, facts: dict[str, Any]) -> ModelResponse:
    return ModelResponse(parts=[TextPart("I would rather talk.")])


def _unknown(who: str, turn: int, facts: dict[str, Any]) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("delete_everything", {"turn": turn})])


def _misfit(who: str, turn: int, facts: dict[str, Any]) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("previous_turns", {"n": f"many {turn}"})])


def _mends(who: str, turn: int, facts: dict[str, Any]) -> ModelResponse:
    if turn == 0:
        return _unknown(who, turn, facts)
    return _misfit(who, turn, facts) if turn == 1 else draft(who, facts)


def _circles(who: str, turn: int, facts: dict[str, Any]) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("previous_turns", {"n": 1})])


def _searches(who: str, turn: int, facts: dict[str, Any]) -> ModelResponse:
    if turn == 0:
        return ModelResponse(parts=[ToolCallPart(SEARCH, {"repository": f"{who}/1", "window": "7d"})])
    return draft(who, facts)


SCRIPTS: dict[str, Script] = {
    "plain": _plain,
    "three": _three,
    "steps": _steps,
    "nothing": _nothing,
    "asks": _asks,
    "invalid": _invalid,
    "words": _words,
    "unknown": _unknown,
    "misfit": _misfit,
    "mends": _mends,
    "circles": _circles,
    "searches": _searches,
}
