"""The turn's own read tools, served to a coding agent over MCP on a unix socket (ADR 0050 statement 8, last sentence).

The agent starts the sandbox's stdio script as its MCP server; that script only joins its pipes to this socket. Every
call runs out here, in the worker, through the function that the turn gave for it: it is bounded, cleaned and recorded
there like the turn's own calls, and there is no tool here that writes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from heinzelwerk.handoff import ToolAnswer, TurnTool
from heinzelwerk.runner.adapter import TOOLS_SERVER
from heinzelwerk.runner.serving import serve_connections

_MESSAGE_BYTES = 4 * 1024 * 1024


@asynccontextmanager
async def serve_tools(tools: Sequence[TurnTool], path: Path, *, on_traffic: Callable[[], None]) -> AsyncIterator[None]:
    """Serve the tools on a unix socket for as long as the block lasts; `on_traffic` is called with every line."""
    offered = {tool.name: tool for tool in tools}

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _converse(offered, _Lines(reader, on_traffic), _Writer(writer))

    async with serve_connections(connected, path, limit=_MESSAGE_BYTES):
        yield


async def _converse(offered: Mapping[str, TurnTool], lines: "_Lines", writer: "_Writer") -> None:
    async def listed(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in offered.values()])

    async def called(context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        answer = await _answer(offered, params.name, params.arguments or {})
        return types.CallToolResult(content=[types.TextContent(type="text", text=answer.text)], is_error=not answer.ok)

    server: Server[Any] = Server(TOOLS_SERVER, on_list_tools=listed, on_call_tool=called)
    # The library's stdio transport takes any pair of text files; these two are a socket.
    streams = stdio_server(cast("anyio.AsyncFile[str]", lines), cast("anyio.AsyncFile[str]", writer))
    async with streams as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _described(tool: TurnTool) -> types.Tool:
    read_only = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    return types.Tool(
        name=tool.name, description=tool.description, input_schema=dict(tool.schema), annotations=read_only
    )


async def _answer(offered: Mapping[str, TurnTool], name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
    tool = offered.get(name)
    if tool is None:
        return ToolAnswer(f"There is no tool {name[:80]!r}; there are {', '.join(offered) or 'none'}.", ok=False)
    try:
        return await tool.call(arguments)
    except Exception as problem:  # noqa: BLE001 - whatever a tool raises, the agent gets an answer and the run goes on
        return ToolAnswer(f"The tool failed: {type(problem).__name__}.", ok=False)


class _Lines:
    """The receiving half of a socket, as an asynchronous text file."""

    def __init__(self, reader: asyncio.StreamReader, on_traffic: Callable[[], None]) -> None:
        self._reader = reader
        self._on_traffic = on_traffic

    async def __aiter__(self) -> AsyncIterator[str]:
        while True:
            try:
                line = await self._reader.readline()
            except ValueError:  # a line beyond the limit: nobody asks a read tool that much
                return
            if not line:
                return
            self._on_traffic()
            yield line.decode("utf-8", "replace")


class _Writer:
    """The sending half."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, text: str) -> int:
        self._writer.write(text.encode("utf-8", "replace"))
        return len(text)

    async def flush(self) -> None:
        await self._writer.drain()
