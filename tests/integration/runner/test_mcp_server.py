"""The turn's read tools on their socket, whatever the other side sends."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heinzelwerk.handoff import ToolAnswer, TurnTool
from heinzelwerk.runner.mcp_server import serve_tools

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


class Client:
    """A bare MCP client: one JSON line a message."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.number = 0

    async def send(self, data: bytes) -> None:
        self.writer.write(data + b"\n")
        await self.writer.drain()

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        await self.send(json.dumps(message).encode())
        while True:
            reply: dict[str, Any] = json.loads(await self.reader.readline())
            if reply.get("id") == self.number:
                return reply


async def connect(path: Path) -> Client:
    client = Client(*await asyncio.open_unix_connection(path))
    await client.ask("initialize", **HELLO)
    await client.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    return client


async def echo(arguments: Mapping[str, Any]) -> ToolAnswer:
    return ToolAnswer(json.dumps(dict(arguments)))


async def breaks(arguments: Mapping[str, Any]) -> ToolAnswer:
    raise RuntimeError("secret path /srv/x")


async def never(arguments: Mapping[str, Any]) -> ToolAnswer:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


TOOLS = [
    TurnTool(name=call.__name__, description="d", schema={"type": "object"}, call=call)
    for call in (echo, breaks, never)
]


async def test_tools_are_listed_as_read_only_and_called(tmp_path: Path) -> None:
    """Each says that it only reads; a call's text comes back, and every message is a sign of life."""
    traffic: list[int] = []
    async with serve_tools(TOOLS, tmp_path / "s", on_traffic=lambda: traffic.append(1)):
        client = await connect(tmp_path / "s")
        tools = (await client.ask("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["echo", "breaks", "never"]
        assert all(tool["annotations"]["readOnlyHint"] for tool in tools)
        reply = await client.ask("tools/call", name="echo", arguments={"a": "ü"})
        assert json.loads(reply["result"]["content"][0]["text"]) == {"a": "ü"}
        assert len(traffic) == 4
        client.writer.close()


async def test_a_tool_that_breaks_is_an_answer_without_its_insides(tmp_path: Path) -> None:
    """The agent learns that the call failed; the message of the error, which may name anything, stays outside."""
    async with serve_tools(TOOLS, tmp_path / "s", on_traffic=lambda: None):
        client = await connect(tmp_path / "s")
        result = (await client.ask("tools/call", name="breaks", arguments={}))["result"]
        assert result["isError"] is True
        assert "RuntimeError" in result["content"][0]["text"]
        assert "secret" not in json.dumps(result)
        missing = (await client.ask("tools/call", name="write_mail", arguments={}))["result"]
        assert missing["isError"] is True
        assert "echo" in missing["content"][0]["text"]
        client.writer.close()


async def test_nonsense_ends_no_conversation_and_a_flood_only_its_own(tmp_path: Path) -> None:
    """Bytes that are no message are passed over; an endless line closes its connection; others go on."""
    async with serve_tools(TOOLS, tmp_path / "s", on_traffic=lambda: None):
        client = await connect(tmp_path / "s")
        for junk in (b"\xff\xfe\x00", b"[]", b"{}", b"[" * 5000, b'{"jsonrpc":"2.0","id":9,"method":"tools/fly"}'):
            await client.send(junk)
        flood = Client(*await asyncio.open_unix_connection(tmp_path / "s"))
        try:
            await flood.send(b"x" * (5 * 1024 * 1024))
            assert await flood.reader.read() == b""
        except ConnectionError:
            pass  # closed while we were still sending: that is what is wanted
        reply = await client.ask("tools/call", name="echo", arguments={"still": "here"})
        assert "here" in reply["result"]["content"][0]["text"]
        client.writer.close()
        flood.writer.close()


async def test_a_call_that_hangs_ends_with_the_run(tmp_path: Path) -> None:
    """The end of the run cuts every conversation, also in the middle of a call."""
    async with serve_tools(TOOLS, tmp_path / "s", on_traffic=lambda: None):
        client = await connect(tmp_path / "s")
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "never", "arguments": {}}}
        await client.send(json.dumps(message).encode())
        await asyncio.sleep(0.05)
    while await client.reader.readline():
        pass
    client.writer.close()
