"""A provider on a real socket that misbehaves on command: one behaviour for each request, then good answers by script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import ToolCallPart

from heinzelwerk.engine.context import FACTS_CLOSE, FACTS_OPEN
from tests.faults import scripts
from tests.faults.listener import Listener

Behaviour = dict[str, Any]
GOOD: Behaviour = {}
HANG: Behaviour = {"hang": True}
CUT: Behaviour = {"cut": True}


def status(code: int, **headers: str) -> Behaviour:
    """An HTTP error."""
    return {"status": code, "headers": {name.replace("_", "-"): value for name, value in headers.items()}}


class Provider(Listener):
    """Speaks Chat Completions. `asked` counts the requests, `done` what was done with each."""

    def __init__(self) -> None:
        self.behaviours: list[Behaviour] = []
        self.always: Behaviour = GOOD
        self.done: list[str] = []
        self.usage = True
        self._never = asyncio.Event()
        super().__init__("provider")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def behaves(self, *behaviours: Behaviour) -> None:
        """What the next requests meet."""
        self.behaviours = list(behaviours)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.partition(b":")[2])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                )
                body = json.loads(await reader.readexactly(length))
                await self._answer(body, writer)
                await writer.drain()
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        behaviour = self.behaviours.pop(0) if self.behaviours else self.always
        self.done.append(next(iter(behaviour), "good"))
        if behaviour.get("hang"):
            await self._never.wait()
        code = behaviour.get("status", 200)
        error = json.dumps({"error": {"message": "injected", "type": "injected", "code": str(code)}}).encode()
        data = _good(body, usage=self.usage) if code == 200 else error
        lines = [f"HTTP/1.1 {code} X", "content-type: application/json", f"content-length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in behaviour.get("headers", {}).items()]
        whole = "\r\n".join(lines).encode() + b"\r\n\r\n" + data
        if behaviour.get("cut"):
            writer.write(whole[: len(whole) - len(data) // 2])
            await writer.drain()
            writer.transport.abort()
            return
        writer.write(whole)


def _good(body: dict[str, Any], *, usage: bool) -> bytes:
    """The script's answer for this conversation."""
    said = "".join(
        str(message.get("content")) for message in body["messages"] if message["role"] in ("system", "developer")
    )
    facts = json.loads(said.rpartition(FACTS_OPEN)[2].partition(FACTS_CLOSE)[0])
    script, _, who = facts["title"].partition(" ")
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    kind, _, number = script.partition("-")
    found = scripts.SCRIPTS[kind](who, turn, {**facts, "number": int(number or 0), "words": ""})
    calls = [_call(part, turn, at) for at, part in enumerate(found.parts) if isinstance(part, ToolCallPart)]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    whole = {
        "id": f"c{turn}",
        "object": "chat.completion",
        "created": 1796000000,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
    }
    if usage:
        whole["usage"] = {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050}
    return json.dumps(whole).encode()


def _call(part: ToolCallPart, turn: int, at: int) -> dict[str, Any]:
    arguments = part.args if isinstance(part.args, str) else json.dumps(part.args)
    return {"id": f"call_{turn}_{at}", "type": "function", "function": {"name": part.tool_name, "arguments": arguments}}


def kinds(done: Sequence[str]) -> str:
    """What was done, for a proof."""
    return ", ".join(f"{done.count(kind)}x {kind}" for kind in dict.fromkeys(done))
