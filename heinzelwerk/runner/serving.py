"""Small servers that live for the time of one run, on a socket that is bound into its sandbox."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self.over = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets=sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        """Wait for the end of the run; the server's own loop would look for it ten times a second."""
        await self.over.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Cut everything now: the run is over, and the server's own end would wait a tenth of a second for nothing."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.close()
        open_now = set(self.server_state.tasks)
        if open_now:
            # Those that stream notice that nobody listens any more; those that wait for an answer are cancelled.
            _, waiting = await asyncio.wait(open_now, timeout=0.05)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the worker, not to a server inside it."""
        yield


@asynccontextmanager
async def serve(app: Starlette, listener: socket.socket) -> AsyncIterator[None]:
    """Serve an application on a bound socket for as long as the block lasts; open requests are cut at its end."""

    async def until_over(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:
            return  # the run is over: no fault of the application, and nothing for the log

    config = uvicorn.Config(until_over, lifespan="off", log_config=None, access_log=False, ws="none", http="h11")
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    ready = asyncio.create_task(server.ready.wait())
    try:
        await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        yield
    finally:
        ready.cancel()
        server.over.set()
        with anyio.CancelScope(shield=True):
            await serving


Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serve_connections(connected: Connected, path: Path, *, limit: int) -> AsyncIterator[None]:
    """Give each connection to a unix socket to `connected`, for as long as the block lasts; then all are cut.

    A side that goes away ends its connection and nothing else. `limit` bounds a line, in bytes.
    """
    open_now: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            open_now.add(task)
            task.add_done_callback(open_now.discard)
        try:
            await connected(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the other side went, or never said what it wanted: there is nobody to answer
        finally:
            writer.close()

    with listening(path) as listener:
        server = await asyncio.start_unix_server(one, sock=listener, limit=limit)
        try:
            yield
        finally:
            server.close()
            for task in list(open_now):
                task.cancel()
            await asyncio.gather(*open_now, return_exceptions=True)


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A unix socket that every account may connect to, because the agent runs under another one.

    Who may reach it is decided by the directory that holds it.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        # A socket's address has 107 bytes at most; by way of the open directory only its name counts.
        listener.bind(f"/proc/self/fd/{directory}/{path.name}")
        path.chmod(0o666)
        listener.listen(128)
        yield listener
    finally:
        listener.close()
        os.close(directory)
        path.unlink(missing_ok=True)
