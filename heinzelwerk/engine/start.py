"""Where a segment begins: the messages a run is started with, made from what is stored. Pure.

A call of the last response that nothing answers sends the run back to that response, never on: finished calls are then
answered from the ledger, answered waits from `Opening.answers`, and the rest runs or asks again.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart

from heinzelwerk.engine import context, messages
from heinzelwerk.opening import Opening


@dataclass(frozen=True, slots=True)
class Start:
    """`keep` stored entries stand; behind them `messages[keep:]` is what must be stored.

    `late` are words that can only be said with the next request, because calls are open before them. `requests`: the
    first thing to happen is a model request.
    """

    messages: list[ModelMessage]
    keep: int
    late: tuple[str, ...] = ()

    @property
    def requests(self) -> bool:
        """Whether the run begins with a model request."""
        return not self.messages or not (isinstance(self.messages[-1], ModelResponse) and self.messages[-1].tool_calls)


def start(opening: Opening, *, budget: int, summary: str = "") -> Start:
    """How this segment begins; `summary` stands for the earlier turns that a new turn's budget leaves out.

    FormatTooNew where the stored history is a newer release's.
    """
    if not opening.history:
        return _steered(opening, Start(context.first_messages(opening, budget=budget, summary=summary), 0))
    normal = messages.normal(opening.history)
    found, keep = list(normal.messages), normal.keep
    late: tuple[str, ...] = ()
    at = messages.last_response(found)
    if at is not None and messages.open_calls(found):
        late = messages.said(found[at + 1 :])
        found, keep = found[: at + 1], min(keep, at + 1)
    elif opening.question_answer is not None and messages.ended(found):
        keep = _append(found, keep, context.answer(opening.question_answer))
    return _steered(opening, Start(found, keep, late))


def _steered(opening: Opening, begun: Start) -> Start:
    """Put the turn's messages that no response followed into the history, or behind its open calls, unless they are there."""
    found, keep, late = list(begun.messages), begun.keep, list(begun.late)
    there = {*messages.said(found), *late}
    for mail in opening.steers:
        words = context.steer(mail.id, mail.text or "", mail.by)
        if words in there:
            continue
        if begun.requests:
            keep = _append(found, keep, words)
        else:
            late.append(words)
    return Start(found, keep, tuple(late))


def _append(found: list[ModelMessage], keep: int, words: str) -> int:
    """Say these words with the trailing request; answers how much of the history still stands as stored.

    They join the request that is there, because a run's start would merge the two anyway and move what follows.
    """
    if found and isinstance(found[-1], ModelRequest):
        found[-1] = ModelRequest(parts=[*found[-1].parts, UserPromptPart(words)], timestamp=found[-1].timestamp)
        return min(keep, len(found) - 1)
    found.append(messages.prompt(words))
    return min(keep, len(found) - 1)
