"""Small servers that live for the time of one run, on a socket that is bound into its sandbox."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import uvicorn
from starlette.applications import Starlette


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

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the worker, not to a server inside it."""
        yield


@asynccontextmanager
async def serve(app: Starlette, listener: socket.socket) -> AsyncIterator[None]:
    """Serve an application on a bound socket for as long as the block lasts; open requests are cut at its end."""
    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, ws="none", http="h11")
    config.timeout_graceful_shutdown = 1
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
        server.force_exit = True
        server.over.set()
        with anyio.CancelScope(shield=True):
            await serving


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
