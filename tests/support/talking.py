"""The gated model with words: it writes down what it was told, asks, teaches and amends as its wake wants it to.

Each request appends to `heard` in the gate's directory one JSON line with everything that it carried.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.support.gated import DIRECTORY
from tests.support.worker import Change

QUESTION = "Which colour?"
LESSON = "Say numbers as numbers."
NOTHING = {"report": "Read the page.", "nothing_to_do": True, "reason": "it is true"}


def change() -> Change:
    """The worker's side; takes the gated model's place."""
    return Change(factories={"gated": lambda name: FunctionModel(_answer, model_name=name)})


def heard(directory: Path) -> list[str]:
    """The test's side: what each request carried, in order."""
    return [json.loads(line) for line in (directory / "heard").read_text().splitlines()]


async def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    directory = Path(os.environ[DIRECTORY])
    parts = [part for message in messages for part in message.parts]
    said = "\n".join(str(part.content) for part in parts if isinstance(part, UserPromptPart))
    with (directory / "heard").open("a") as file:
        file.write(json.dumps(f"{info.instructions}\n{said}") + "\n")
    with (directory / "requests").open("a") as file:
        file.write(f"{os.getpid()} {len(messages)}\n")
    while (directory / "hold").exists():
        await asyncio.sleep(0.01)
    names = {part.tool_name for part in parts if isinstance(part, ToolReturnPart)}
    (outcome, *_) = info.output_tools
    if "read_page" not in names:
        return ModelResponse(parts=[ToolCallPart("read_page", {})])
    if "PLACE" in said and "documents_replace_section" not in names:
        words = {"ref": "notes.md", "marker": "weekly", "text": "From the chat."}
        return ModelResponse(parts=[ToolCallPart("documents_replace_section", words)])
    wanted: dict[str, object] = NOTHING
    if "ASK" in said and outcome.name not in names:
        wanted = {"report": "It asks.", "question": QUESTION}
    elif "TEACH" in said:
        wanted = {**NOTHING, "lessons": [{"sentence": LESSON, "hunks": []}]}
    elif "AMEND" in said:
        text = (directory / "amendment").read_text()
        wanted = {"report": "It proposes a change.", "amendment": {"text": text, "reason": "It grew."}}
    return ModelResponse(parts=[ToolCallPart(outcome.name, wanted)])
