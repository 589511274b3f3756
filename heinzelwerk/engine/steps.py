"""What each step makes of a turn: its next record, its event, its settlement. Pure; `Segment` writes what comes out.

A step's event says its cause, attempt, tokens, cost and duration; retries stand with cause, attempt and limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue
from pydantic_ai.messages import ModelResponse

from heinzelwerk.budget import Settlement
from heinzelwerk.engine.purse import Asked, Charge
from heinzelwerk.engine.trouble import Trouble
from heinzelwerk.event import Note
from heinzelwerk.turn import TurnRecord, Usage
from heinzelwerk.unanswered import RESERVED

MODEL, TOOLS, UNKNOWN = "step.model", "step.tools", "request.unknown"
PARKS, FALLBACK, FULL = "parks", "fallback", "full"
"""Counters: the stored waits for one response; whether the turn has turned to its fallback model."""
Data = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Round:
    """A round of tools: an entry for each call, what was refused, the retry budgets spent so far, all calls of the turn."""

    calls: tuple[Data, ...]
    retries: tuple[Data, ...]
    counters: dict[str, int]
    tool_calls: int


@dataclass(frozen=True, slots=True)
class Made:
    """A turn after a step, with what is written beside it."""

    turn: TurnRecord
    notes: tuple[Note, ...] = ()
    settle: tuple[Settlement, ...] = ()


def _head(turn: TurnRecord, step: int) -> Data:
    return {"step": step, "segment": turn.segment, "cause": turn.wake.cause.value}


def _without(turn: TurnRecord, *names: str) -> dict[str, int]:
    return {name: value for name, value in turn.counters.items() if name not in names}


def paid(
    turn: TurnRecord, response: ModelResponse, asked: Asked, charge: Charge, *, model: str, ms: int, **more: JsonValue
) -> Made:
    """A model answered. `more` joins the event: the response's ordinal, or the purpose of one beside the conversation."""
    used = response.usage
    spent = Usage(
        requests=1,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cache_read_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
        cost_micros=charge.micros,
        unpriced=int(charge.unpriced),
    )
    after = turn.model_copy(
        update={
            "steps": asked.step,
            "attempt": 0,
            "counters": _without(turn, RESERVED, PARKS, FULL),
            "usage": turn.usage.plus(spent),
        }
    )
    data: Data = {
        **_head(turn, asked.step),
        "attempt": asked.attempt,
        "model": model,
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cost_micros": charge.micros,
        "ms": ms,
        "calls": [call.tool_name for call in response.tool_calls],
        **more,
    }
    if used.cache_read_tokens or used.cache_write_tokens:
        data |= {"cache_read_tokens": used.cache_read_tokens, "cache_write_tokens": used.cache_write_tokens}
    if charge.unpriced:
        data["unpriced"] = True
    if response.finish_reason not in (None, "stop", "tool_call"):
        data["finish"] = response.finish_reason
    return Made(after, (Note(MODEL, data, turn=turn.id()),), asked.settled(charge.micros))


def failed(turn: TurnRecord, trouble: Trouble, asked: Asked, *, model: str, ms: int, then: Data) -> Made:
    """An attempt brought no response; what may have been spent is booked as possible. `then` says what follows."""
    spent = asked.micros if trouble.spent else 0
    data: Data = {
        **_head(turn, asked.step),
        "attempt": asked.attempt,
        "model": model,
        "failed": trouble.kind,
        "ms": ms,
        "possible_micros": spent,
        **then,
    }
    if trouble.status is not None:
        data["status"] = trouble.status
    if trouble.retry_after_s is not None:
        data["retry_after_s"] = trouble.retry_after_s
    after = turn.model_copy(
        update={
            "attempt": asked.attempt,
            "counters": _without(turn, RESERVED),
            "usage": turn.usage.plus(Usage(requests=1, possible_micros=spent)),
        }
    )
    return Made(after, (Note(MODEL, data, turn=turn.id()),), asked.settled(spent, possible=trouble.spent))


def tools(turn: TurnRecord, found: Round) -> Made:
    """A round of tools ended."""
    step = turn.steps + 1
    data: Data = {**_head(turn, step), "ordinal": turn.ordinal, "calls": list(found.calls)}
    if found.retries:
        data["retries"] = list(found.retries)
    kept = {name: value for name, value in turn.counters.items() if not name.startswith(("tool:", "output"))}
    after = turn.model_copy(
        update={
            "steps": step,
            "counters": {**kept, **found.counters},
            "usage": turn.usage.model_copy(update={"tool_calls": found.tool_calls}),
        }
    )
    return Made(after, (Note(TOOLS, data, turn=turn.id()),))


def left_open(turn: TurnRecord, asked: Asked, *, sent: bool) -> Made:
    """A segment ends before its attempt was answered: sent it may have been spent, not sent it costs nothing."""
    spent = asked.micros if sent else 0
    after = turn.model_copy(
        update={
            "counters": _without(turn, RESERVED),
            "usage": turn.usage.plus(Usage(requests=int(sent), possible_micros=spent)),
        }
    )
    data: Data = {"step": asked.step, "attempt": asked.attempt, "possible_micros": spent}
    notes = (Note(UNKNOWN, data, turn=turn.id()),) if sent else ()
    return Made(after, notes, asked.settled(spent, possible=sent))
