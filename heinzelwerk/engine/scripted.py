"""A model that answers by script, for tests of contracts and of the engine: no key, no network, no cost."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from heinzelwerk.engine.models import Models, ModelSettings
from heinzelwerk.engine.prices import Price

NAME = "double:scripted"
PRICE = Price(Decimal(1), Decimal(5))
Reply = Callable[[list[ModelMessage], AgentInfo], ModelResponse | Awaitable[ModelResponse]]


@dataclass
class Scripted:
    """Answers with its replies in order; the last one repeats. Remembers every request."""

    replies: Sequence[Reply]
    requests: list[tuple[list[ModelMessage], AgentInfo]] = field(default_factory=list)
    usage: RequestUsage | None = None
    answered: int = 0

    def model(self) -> Model:
        """As the engine asks it."""
        return FunctionModel(self._answer, model_name="scripted")

    def models(self) -> Models:
        """The models of a deployment that has only this one, at a dollar and five for a million tokens."""
        settings = ModelSettings(model=NAME, prices={NAME: PRICE})
        return Models(settings, factories={"double": lambda name: self.model()})

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests.append((messages, info))
        # By what the history holds, not by how often it was asked: a process that died asks again.
        at = sum(isinstance(message, ModelResponse) for message in messages)
        reply = self.replies[min(at, len(self.replies) - 1)](messages, info)
        found = reply if isinstance(reply, ModelResponse) else await reply
        found.usage = self.usage or RequestUsage(input_tokens=1000, output_tokens=100)
        self.answered += 1
        return found

    def heard(self, index: int = -1) -> str:
        """Everything that a request said, as one text."""
        messages, info = self.requests[index]
        parts = [str(getattr(part, "content", "")) for message in messages for part in message.parts]
        return "\n".join([info.instructions or "", *parts])


def calls(*wanted: tuple[str, dict[str, Any]] | str, prefix: str = "c") -> Reply:
    """A response that calls these tools at once: names, or names with arguments."""

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        named = [(entry, {}) if isinstance(entry, str) else entry for entry in wanted]
        parts = [ToolCallPart(name, args, tool_call_id=f"{prefix}{at}") for at, (name, args) in enumerate(named)]
        return ModelResponse(parts=parts)

    return reply


def says(words: str) -> Reply:
    """A response in plain text, which is no outcome."""
    return lambda messages, info: ModelResponse(parts=[TextPart(words)])


def facts(info: AgentInfo) -> dict[str, Any]:
    """The facts of the turn, as the instructions give them."""
    words = (info.instructions or "").rpartition("<turn-facts>")[2].partition("</turn-facts>")[0]
    found: dict[str, Any] = json.loads(words)
    return found


def outcome(**changes: Any) -> Reply:
    """A response that ends the turn with a draft that fits; `changes` replace fields, `draft__<name>` the draft's."""

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        told = facts(info)
        draft = {
            "text": "The pages say hello.",
            "output": next(iter(told["outputs"])),
            "contract_version": told["contract_version"],
            "done_when": [{"item": item, "met": True, "evidence": "read"} for item in told["done_when"]],
        }
        draft |= {key.removeprefix("draft__"): value for key, value in changes.items() if key.startswith("draft__")}
        given = {"report": "Wrote it.", "draft": draft}
        given |= {key: value for key, value in changes.items() if not key.startswith("draft__")}
        return ModelResponse(parts=[ToolCallPart("final_result", given, tool_call_id="end")])

    return reply
