"""A TCP proxy between workers and their server: delays, holds back, cuts, and leads to another server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from tests.faults.listener import Listener


class Proxy(Listener):
    """Listens on a free port of the loopback. Connections that exist take part in what changes."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.delay_s = 0.0
        self.delayed = self.held_back = self.cuts = 0
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        super().__init__("proxy")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def delay(self, seconds: float) -> None:
        """Hold every piece of data for so long, in both directions."""
        self.delay_s = seconds

    def blackhole(self) -> None:
        """Let connections live and pass nothing on, as a lost route does."""
        self._call(self._open.clear)

    def pass_on(self) -> None:
        """Undo `blackhole` and `delay`: what was held back goes on."""
        self.delay_s = 0.0
        self._call(self._open.set)

    def cut(self) -> None:
        """Break every connection."""
        self._call(self._cut)

    def lead_to(self, port: int) -> None:
        """New connections go to another server; the old ones break."""
        self.target = port
        self.cut()

    def close(self) -> None:
        self._call(self._cut)
        super().close()

    def _call(self, what: Callable[[], Any]) -> None:
        done = threading.Event()

        def call() -> None:
            what()
            done.set()

        self._loop.call_soon_threadsafe(call)
        done.wait(10)

    def _cut(self) -> None:
        for writer in tuple(self._writers):
            self.cuts += 1
            writer.transport.abort()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        other: asyncio.StreamWriter | None = None
        try:
            await self._open.wait()
            far, other = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers.add(other)
            await asyncio.gather(self._pump(reader, other), self._pump(far, writer))
        except OSError:
            pass  # one of the two is gone: so is the connection
        finally:
            for one in (writer, other):
                if one is not None:
                    self._writers.discard(one)
                    one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.delay_s:
                self.delayed += 1
                await asyncio.sleep(self.delay_s)
            if not self._open.is_set():
                self.held_back += 1
                await self._open.wait()
            writer.write(data)
            await writer.drain()
        writer.transport.abort()
