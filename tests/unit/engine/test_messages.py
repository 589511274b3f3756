"""Stored messages: formats of this and earlier releases, what a run's start moves, what is never stored twice."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from heinzelwerk.engine import messages
from heinzelwerk.ids import SessionId
from heinzelwerk.turn import TurnState
from tests.unit.engine.desk import SESSION, CrashHere, calls, desk, outcome

GOLDEN = Path(__file__).parents[2] / "data" / "engine"


def test_golden_bodies_load_and_are_written_the_same_way() -> None:
    """The stored bytes of release 0.1 stay readable, and this release writes them byte for byte."""
    for path in sorted(GOLDEN.glob("messages-*.jsonl")):
        items = path.read_bytes().splitlines()
        loaded = messages.load(items)
        assert len(loaded) == len(items) > 3
        assert messages.dump(loaded) == tuple(items), path.name


def test_a_golden_body_has_every_kind_of_part() -> None:
    """What a turn can write is in the golden file: prompts, calls, returns of each outcome, feedback."""
    loaded = messages.load((GOLDEN / "messages-0.1.jsonl").read_bytes().splitlines())
    parts = [part for message in loaded for part in message.parts]
    outcomes = {part.outcome for part in parts if isinstance(part, ToolReturnPart)}
    assert outcomes == {"success", "retried", "interrupted", "denied", "failed"}
    kinds = {type(part) for part in parts}
    assert kinds >= {UserPromptPart, ToolCallPart, ToolReturnPart, RetryFeedbackPart, TextPart}


@pytest.mark.parametrize(
    "content", ["Please try again.", [{"type": "int_parsing", "loc": ["q"], "msg": "m", "input": "x"}]]
)
@pytest.mark.parametrize("tool", ["look", None])
def test_legacy_retry_prompts_load_without_a_warning(content: object, tool: str | None) -> None:
    """Both shapes of the part that older releases wrote load as the parts that they always meant."""
    part = {"content": content, "tool_name": tool, "tool_call_id": "c1", "part_kind": "retry-prompt"}
    part["timestamp"] = "2026-01-01T00:00:00Z"
    item = json.dumps({"parts": [part], "kind": "request"}).encode()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (loaded,) = messages.load([item])
    (found,) = loaded.parts
    if tool is None:
        assert isinstance(found, RetryFeedbackPart)
    else:
        assert isinstance(found, ToolReturnPart)
        assert found.outcome == "retried"


async def test_a_future_format_is_refused_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is made and the stored turn is left alone for a newer worker."""
    found = await desk(calls("read_one"), outcome())
    found.store.at = 4
    with pytest.raises(CrashHere):
        await found.go()
    stored = await found.store.history(SESSION, 1)

    async def newer(session: SessionId, turn: int) -> tuple[bytes, ...]:
        return tuple(item.replace(b'{"heinzelwerk":1,', b'{"heinzelwerk":2,') for item in stored)

    monkeypatch.setattr(found.store, "history", newer)
    found.clock.pass_(20)
    before = len(found.model.requests)
    assert (await found.go()).did == "newer"
    assert len(found.model.requests) == before
    turn = await found.turn()
    assert turn is not None
    assert turn.state is TurnState.RUNNING


def test_instructions_are_not_stored_with_each_message() -> None:
    """A checkpoint costs what is new: the contract is not in it again."""
    request = ModelRequest(parts=[UserPromptPart("x")], instructions="The whole contract.")
    (item,) = messages.dump([request])
    assert b"contract" not in item
    assert request.instructions == "The whole contract."


def test_a_start_merges_what_the_library_would_and_says_what_to_rewrite() -> None:
    """Adjacent requests become one before the run, so that positions stay put; the stored tail from there is rewritten."""
    ask, steer = messages.prompt("one"), messages.prompt("two")
    answer = ModelResponse(parts=[TextPart("a")])
    normal = messages.normal(messages.dump([ask, answer, messages.prompt("x"), steer]))
    assert len(normal.messages) == 3
    assert normal.keep == 2
    again = messages.normal(messages.dump(normal.messages))
    assert (len(again.messages), again.keep) == (3, 3)


def test_open_calls_are_those_of_the_last_response_alone() -> None:
    """Answered ones do not count, nor do calls before it."""
    found = [
        messages.prompt("go"),
        ModelResponse(parts=[ToolCallPart("a", {}, tool_call_id="1"), ToolCallPart("b", {}, tool_call_id="2")]),
        ModelRequest(parts=[ToolReturnPart("a", "x", tool_call_id="1")]),
    ]
    assert [call.tool_call_id for call in messages.open_calls(found)] == ["2"]
    assert messages.open_calls([messages.prompt("go")]) == ()


def test_repeats_count_equal_calls_at_the_end() -> None:
    """Another call, other arguments or a text between them end the row; outcomes do not count."""

    def said(*named: tuple[str, str]) -> ModelResponse:
        return ModelResponse(
            parts=[ToolCallPart(name, {"q": q}, tool_call_id=f"{name}{q}{i}") for i, (name, q) in enumerate(named)]
        )

    assert messages.repeats([said(("a", "1")), said(("a", "1"), ("a", "1"))]) == 3
    assert messages.repeats([said(("a", "1")), said(("a", "2")), said(("a", "1"))]) == 1
    assert messages.repeats([said(("a", "1")), ModelResponse(parts=[TextPart("hm")]), said(("a", "1"))]) == 1
    assert messages.repeats([said(("final_result", "1"))] * 3) == 0


async def test_stored_messages_grow_by_what_is_new() -> None:
    """No commit but the first of a segment writes a message that was final before it."""
    found = await desk(*(calls(("previous_turns", {"n": n})) for n in range(1, 9)), outcome())
    await found.finish()
    written = [len(entry.items) for commit in found.store.commits for entry in commit.histories]
    assert max(written) <= 2
    assert len(await found.store.history(SESSION, 1)) == 19
