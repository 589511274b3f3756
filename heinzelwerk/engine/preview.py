"""What a turn would send first, without sending it: for people who want to see it, and what it may cost."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.usage import RequestUsage

from heinzelwerk.engine import context, prices
from heinzelwerk.engine.models import Models
from heinzelwerk.opening import Opening


@dataclass(frozen=True, slots=True)
class Preview:
    """The standing instructions, the first message, and the price in micro-dollars of one request with all inputs read.

    `request_micros` counts the instructions, the message, every input once and the longest answer; None: unknown.
    """

    instructions: str
    prompt: str
    input_tokens: int
    output_tokens: int
    request_micros: int | None


def preview(opening: Opening, models: Models, *, history_tokens: int, handoff: bool) -> Preview:
    """Render a turn's first request. ConfigurationError where its model cannot run or has no price."""
    instructions = context.instructions(opening, handoff=handoff)
    prompt = "\n\n".join(
        str(part.content)
        for message in context.first_messages(opening, budget=history_tokens)
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    )
    read = "".join(context.framed(entry.name, entry.data) for entry in opening.inputs.values())
    given = context.tokens(instructions) + context.tokens(prompt) + context.tokens(read)
    made = models.settings.max_tokens
    quote = models.quote(opening.model)
    micros = prices.cost(quote, RequestUsage(input_tokens=given, output_tokens=made))
    return Preview(instructions, prompt, given, made, micros)
