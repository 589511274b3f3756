"""Pipes of a child on the event loop: bytes in, whole lines out, never a pipe left full."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


class Lines(asyncio.Protocol):
    """Splits what arrives on a pipe at `\\n` alone and gives each line to `take`, the unfinished last one at the end.

    Lines are whole however long they are: a final event of some megabytes must be parsed before anything is cut.
    """

    def __init__(self, take: Callable[[bytes], None], *, count: Callable[[int], None] | None = None) -> None:
        self.take = take
        self.count = count
        self.pieces: list[bytes] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """Bytes of the pipe; `count` sees their number before any line is given out."""
        if self.count is not None:
            self.count(len(data))
        first, *others = data.split(b"\n")
        self.pieces.append(first)
        for piece in others:
            self.take(b"".join(self.pieces))
            self.pieces = [piece]

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of the pipe."""
        rest = b"".join(self.pieces)
        self.pieces = []
        if rest:
            self.take(rest)
        if not self.ended.done():
            self.ended.set_result(None)


class Feed(asyncio.BaseProtocol):
    """Writes one text to a pipe and closes it; a reader that closes early is no error."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing to do: the text is written by `write_all`."""


async def read_lines(descriptor: int, protocol: Lines) -> asyncio.ReadTransport:
    """Attach a protocol to the reading end of a pipe, which the transport then owns."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb", buffering=0))
    return transport


async def write_all(descriptor: int, data: bytes) -> asyncio.WriteTransport:
    """Write `data` to a pipe as fast as it is read there, then close it."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_write_pipe(Feed, os.fdopen(descriptor, "wb", buffering=0))
    if data:
        transport.write(data)
    transport.close()
    return transport
