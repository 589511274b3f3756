"""A place for real handoffs in tests: the machine's own sandbox, the real clock, fresh names, and the pinned CLIs."""

import asyncio
import os
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest

from heinzelwerk.runner.attempt import House
from heinzelwerk.sandbox.choose import ORDER, choose_backend
from heinzelwerk.sandbox.spec import Backend, BackendName, Refusal

PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")
"""An interpreter without a virtual environment, for scripts that play an agent."""


class WallClock:
    """The real time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


def real_house(directory: Path, *, only: BackendName | None = None) -> House:
    """Handoffs below a directory, in the first sandbox that passes its self-test here (or in the one named)."""
    chosen: list[Backend | Refusal] = []
    choosing = asyncio.Lock()

    async def backend() -> Backend | Refusal:
        async with choosing:
            return await choose()

    async def choose() -> Backend | Refusal:
        if not chosen:
            chosen.append(await choose_backend(root=directory / "runs", order=ORDER if only is None else (only,)))
        return chosen[0]

    return House(
        root=directory / "runs",
        transcripts=directory / "transcripts",
        backend=backend,
        clock=WallClock(),
        new_id=lambda: uuid.uuid4().hex,
    )


def cli_cache() -> Path:
    """Where deploy/install_agents.sh puts the CLIs."""
    named = os.environ.get("AGENT_CLI_CACHE")
    if named:
        return Path(named)
    base = "/var/cache" if os.geteuid() == 0 else os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    return Path(base) / "heinzelwerk" / "clis"


REQUIRED = "REQUIRE_AGENT_CLIS"
"""Set where a missing CLI is a failure: the CI installs them."""


def need_cli(name: str, package: str, program: str) -> Path:
    """The start file of a CLI; its test is skipped by name where it is not installed, or fails where it must be."""
    found = installed(package, program)
    if found is None:
        words = f"{name} is not installed: run `make clis`"
        if os.environ.get(REQUIRED):
            pytest.fail(words)
        pytest.skip(words)
    return found


def installed(package: str, program: str) -> Path | None:
    """The start file of a finished installation, as npm linked it."""
    for home in sorted(cli_cache().glob(f"{package}@*")):
        link = home / "node_modules" / ".bin" / program
        if (home / ".complete").exists() and link.exists():
            return link
    return None
