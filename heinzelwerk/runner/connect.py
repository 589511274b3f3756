"""The way out for an agent with its own login: CONNECT to the provider's hosts, and nowhere else.

What is inside the tunnel is TLS between agent and provider, so nothing is metered: usage comes from the agent.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from heinzelwerk.runner.serving import serve_connections

_HEAD_BYTES = 16 * 1024
_CHUNK = 64 * 1024
_HEAD_S = 10.0
_PORT = 443

Open = Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def open_tcp(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the provider."""
    return await asyncio.open_connection(host, port)


class ConnectProxy:
    """One run's tunnel. `turned_away` names what was asked for and not allowed, the first few."""

    def __init__(self, hosts: frozenset[str], *, on_traffic: Callable[[], None], connect: Open = open_tcp) -> None:
        self._hosts = hosts
        self._on_traffic = on_traffic
        self._connect = connect
        self.turned_away: list[str] = []

    @asynccontextmanager
    async def serve(self, path: Path) -> AsyncIterator[None]:
        """Listen on a unix socket for as long as the block lasts; open tunnels are cut at its end."""
        async with serve_connections(self._connected, path, limit=_HEAD_BYTES):
            yield

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
        await self._tunnel(head, reader, writer)

    async def _tunnel(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._on_traffic()
        target = head.split(b"\r\n", 1)[0].decode("latin-1")
        host = self._allowed(target)
        if host is None:
            if len(self.turned_away) < 10:
                self.turned_away.append(target[:120])
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        try:
            far_reader, far_writer = await self._connect(host, _PORT)
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await writer.drain()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, far_writer))
                group.create_task(self._copy(far_reader, writer))
        except* OSError:
            pass  # one side broke off: the other is closed below
        finally:
            far_writer.close()

    def _allowed(self, target: str) -> str | None:
        method, _, rest = target.partition(" ")
        host, _, port = rest.partition(" ")[0].rpartition(":")
        return host.lower() if method == "CONNECT" and port == str(_PORT) and host.lower() in self._hosts else None

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while chunk := await source.read(_CHUNK):
            self._on_traffic()
            target.write(chunk)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
