"""Serving a web application from one process: its socket, and uvicorn until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from heinzelwerk.errors import ConfigurationError

LOOPBACK = ("127.0.0.1", "::1", "localhost")
MOST_AT_ONCE = 200
"""Connections; the next one is answered 503, so that a flood costs memory of a known size."""
READING_S = 30.0
"""A request's body must have come by then; what was begun is answered within as long when the process ends."""


def host(header: str) -> str:
    """A Host header without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def listening(section: str, address: str, port: int) -> socket.socket:
    """The socket of a section of the settings. ConfigurationError where it cannot be listened on."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family)
    except OSError as error:
        raise ConfigurationError(
            f"[{section}] cannot listen on {address} port {port}: {error.strerror or error}",
            fix=f"choose another [{section}] address or port, or end what listens there",
        ) from error


def address_of(listener: socket.socket) -> str:
    """Where it listens, as it stands in a URL."""
    address, port = listener.getsockname()[:2]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class _Server(uvicorn.Server):
    """uvicorn's server without its signals: it would end the process with them instead of letting it end well."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(app: ASGIApp, listener: socket.socket) -> None:
    """Answer until SIGTERM or Ctrl-C; what was begun is answered first."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,  # whom to believe about a client's address is the application's own rule
        limit_concurrency=MOST_AT_ONCE,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=int(READING_S),
    )
    server = _Server(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, setattr, server, "should_exit", True)
    await server.serve(sockets=[listener])
