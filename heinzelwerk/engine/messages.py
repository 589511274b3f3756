"""Stored messages: how a run's history is written, read back, and made ready for the next segment.

Each stored entry is one message as JSON behind a format mark. Instructions are left out: they are rendered again from
what the turn is pinned to, so that a checkpoint costs what is new and not the contract once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.usage import RunUsage

from heinzelwerk import errors
from heinzelwerk.turn import Usage

FORMAT = 1
"""The format of stored messages that this release writes; it reads this one and the unmarked one before it."""
_MARK = b'{"heinzelwerk":'
_OURS = b'{"heinzelwerk":1,'
OUTPUT_TOOL = "final_result"
"""The name under which a model returns its outcome."""


def dump(messages: Sequence[ModelMessage]) -> tuple[bytes, ...]:
    """One marked JSON document per message."""
    return tuple(_dump_one(message) for message in messages)


def _dump_one(message: ModelMessage) -> bytes:
    if isinstance(message, ModelRequest) and message.instructions is not None:
        message = replace(message, instructions=None)
    document = ModelMessagesTypeAdapter.dump_json([message], exclude_none=True)[1:-1]
    return _OURS + document[1:]


def load(items: Sequence[bytes]) -> list[ModelMessage]:
    """Read stored entries; FormatTooNew where a newer release wrote one, before anything is spent."""
    return ModelMessagesTypeAdapter.validate_json(b"[" + b",".join(_unmark(item) for item in items) + b"]")


def _unmark(item: bytes) -> bytes:
    if item.startswith(_OURS):
        return b"{" + item[len(_OURS) :]
    if not item.startswith(_MARK):
        return item  # written before there was a mark, or by the library itself
    written = item[len(_MARK) :].split(b",", 1)[0]
    raise errors.FormatTooNew(
        f"a stored message has format {written.decode(errors='replace')}, this release reads up to {FORMAT}",
        fix="Upgrade this worker to the release that wrote it; nothing was spent.",
    )


def conversation(messages: Sequence[ModelMessage], usage: Usage, turn: str) -> Conversation:
    """The turn's messages and usage as the library's own record, for a run and for exports."""
    return Conversation(messages=list(messages), usage=run_usage(usage), conversation_id=turn)


def run_usage(usage: Usage) -> RunUsage:
    """What a turn has used so far as the library counts it, so that its limits span every segment."""
    return RunUsage(
        requests=usage.requests,
        tool_calls=usage.tool_calls,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )


@dataclass(frozen=True, slots=True)
class Normal:
    """A stored history as a run takes it: `keep` stored entries stand as they are, what follows them is rewritten."""

    messages: list[ModelMessage]
    keep: int


def normal(items: Sequence[bytes]) -> Normal:
    """Load a history and merge what the library would merge at its start, so that positions stay put while it runs."""
    stored = load(items)
    repaired = repair_messages(stored, repair_last_response=False)
    same = 0
    for mine, theirs in zip(stored, repaired, strict=False):
        if mine is not theirs and mine != theirs:
            break
        same += 1
    return Normal(list(repaired), same)


def last_response(messages: Sequence[ModelMessage]) -> int | None:
    """The position of the last response; None where there is none."""
    return next((i for i in range(len(messages) - 1, -1, -1) if isinstance(messages[i], ModelResponse)), None)


def open_calls(messages: Sequence[ModelMessage]) -> tuple[ToolCallPart, ...]:
    """The calls of the last response that nothing behind it answers."""
    at = last_response(messages)
    if at is None:
        return ()
    answered = {
        part.tool_call_id
        for message in messages[at + 1 :]
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }
    response = messages[at]
    calls = response.tool_calls if isinstance(response, ModelResponse) else ()
    return tuple(call for call in calls if call.tool_call_id not in answered)


def with_results(messages: Sequence[ModelMessage], results: Mapping[str, ToolReturnPart]) -> list[ModelMessage]:
    """A cancelled run's messages with the results that its snapshot lost: a call that was being stored when it was cut."""
    missing = [results[call.tool_call_id] for call in open_calls(messages) if call.tool_call_id in results]
    found = list(messages)
    if not missing:
        return found
    before: Sequence[Any] = ()
    if isinstance(found[-1], ModelRequest):
        before = found.pop().parts
    return [*found, ModelRequest(parts=[*before, *missing], state="interrupted")]


def ended(messages: Sequence[ModelMessage]) -> bool:
    """Whether the last response returned an outcome and nothing was said since."""
    at = last_response(messages)
    if at is None or at + 1 >= len(messages):
        return False
    parts = [part for message in messages[at + 1 :] for part in message.parts]
    return (
        any(isinstance(p, ToolReturnPart) and p.tool_name == OUTPUT_TOOL and p.outcome == "success" for p in parts)
        and not any(isinstance(part, UserPromptPart) for part in parts)
    )  # fmt: skip


def said(messages: Sequence[ModelMessage]) -> tuple[str, ...]:
    """The words in the user's place, in order."""
    return tuple(
        str(part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    )


def prompt(text: str, *, at: datetime | None = None) -> ModelRequest:
    """A request with one message in the user's place, stamped with `at` where the same words must give the same bytes."""
    return ModelRequest(parts=[UserPromptPart(text, timestamp=at) if at is not None else UserPromptPart(text)])


def repeats(messages: Sequence[ModelMessage]) -> int:
    """How many times in a row, up to the end, the same tool was called with the same arguments.

    An outcome that is returned again is no such call: its retries are counted already.
    """
    count, seen = 0, None
    for message in reversed(messages):
        if not isinstance(message, ModelResponse):
            continue
        for call in reversed(message.tool_calls):
            key = (call.tool_name, call.args_as_json_str())
            if call.tool_name == OUTPUT_TOOL or (seen is not None and key != seen):
                return count
            seen, count = key, count + 1
        if not message.tool_calls:
            return count
    return count
