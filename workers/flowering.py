"""Flower over our app: workers, queues and rates. Messages carry ids only, so that is all it can show."""

from __future__ import annotations

from celery import Celery


def run(app: Celery, *, address: str, port: int, login: str | None) -> int:
    """Serve until the process is told to end. `login` is `USER:PASSWORD`; it is passed inside this process, never as argv."""
    arguments = ["flower", f"--address={address}", f"--port={port}", "--logging=warning"]
    if login is not None:
        arguments.append(f"--basic-auth={login}")
    app.start(argv=arguments)
    return 0
