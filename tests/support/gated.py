"""A model whose answers a test can hold back, and whose requests a test can count, across processes: both are files.

`requests` in the directory gets one line per request (`<pid> <number of messages>`); while a file `hold` is there,
requests wait for its end. The first request of a turn reads the page, the second returns the outcome.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.support.worker import Change

DIRECTORY = "TEST_GATE"
MODEL = "gated:model"


class Gate:
    """The test's side of the model."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    def close(self) -> None:
        """Hold every request from now on."""
        (self.directory / "hold").touch()

    def open(self) -> None:
        """Let them go."""
        (self.directory / "hold").unlink(missing_ok=True)

    def requests(self) -> list[int]:
        """The process ids that asked, in order."""
        path = self.directory / "requests"
        return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []


def change() -> Change:
    """The worker's side."""
    return Change(factories={"gated": lambda name: FunctionModel(_answer, model_name=name)})


async def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    directory = Path(os.environ[DIRECTORY])
    with (directory / "requests").open("a") as file:
        file.write(f"{os.getpid()} {len(messages)}\n")
    while (directory / "hold").exists():
        await asyncio.sleep(0.01)
    returned = any(
        isinstance(part, ToolReturnPart) and part.tool_name == "read_page"
        for message in messages
        for part in message.parts
    )
    if not returned:
        return ModelResponse(parts=[ToolCallPart("read_page", {})])
    (outcome, *_) = info.output_tools
    return ModelResponse(
        parts=[ToolCallPart(outcome.name, {"report": "Read the page.", "nothing_to_do": True, "reason": "it is true"})]
    )
