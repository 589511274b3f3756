"""A whole deployment for one test: its own server, settings with short times, real worker processes, one contract."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from heinzelwerk import loading
from heinzelwerk.client import Client
from heinzelwerk.contract.sets import Installed
from heinzelwerk.ids import SessionId
from heinzelwerk.turn import TurnRecord
from tests.support.gated import DIRECTORY, MODEL, Gate
from workers import root, supervisor
from workers.root import Runtime
from workers.server import EmbeddedServer
from workers.supervisor import Leashed

T = TypeVar("T")

TEAM = "crew"
HEINZEL = "page"
SESSION = SessionId(TEAM, HEINZEL)
CHECKOUT = Path(__file__).parents[2]
CONTRACT = """---
name: page
kind: responsibility
description: Keeps one page true.
hz:
  schema: 1
  title: One page
  requires: [documents:read]
  inputs:
    page:
      read: documents.read
      args: {ref: page.md}
  outputs:
    page: {format: markdown}
  timeout: 10m
---
### Goal
Keep the page true.
### Requires
- `page`
### Maintains
- `page`
### Done when
- It says what the page says.
"""
SETTINGS = f"""
[heinzel]
model = "{MODEL}"
[heinzel.prices."{MODEL}"]
input = 1
output = 1
[store]
lease = "20s"
ring_first = "300ms"
ring_longest = "2s"
[teams.{TEAM}]
source = "team"
[documents]
directory = "documents"
[workers]
data = "data"
turn_threads = 4
upkeep_threads = 4
grace = "4s"
sweep_every = "200ms"
heartbeat_every = "200ms"
watch_every = "100ms"
"""


class Deployment:
    """What a test starts, stops and asks."""

    def __init__(self, directory: Path, settings: str = SETTINGS) -> None:
        self.directory = directory
        self.gate = Gate(directory / "gate")
        (directory / "documents").mkdir()
        (directory / "documents" / "page.md").write_text("# A page\n\nTrue.\n")
        (directory / "team" / "workflows").mkdir(parents=True)
        (directory / "team" / "workflows" / "page.prose.md").write_text(CONTRACT)
        self.config = directory / "heinzelwerk.toml"
        self.config.write_text(settings)
        self.server = EmbeddedServer.start(directory / "server")
        self.workers: list[Leashed] = []
        self.variables: dict[str, str] = {}  # more of the environment of workers that start from now on

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONWARNINGS": "ignore",
            "HEINZELWERK_CONFIG": str(self.config),
            "HEINZELWERK_STORE__URL": self.server.url,
            DIRECTORY: str(self.gate.directory),
            **self.variables,
        }

    def start(self, profile: str, *changes: str) -> Leashed:
        """Start a worker; its log is `<profile>-<number>.log`."""
        worker = supervisor.start(
            [sys.executable, "-P", "-m", "tests.support.worker", profile, "tests.support.gated:change", *changes],
            environment=self.environment,
            log=self.directory / f"{profile}-{len(self.workers)}.log",
        )
        self.workers.append(worker)
        return worker

    def logs(self) -> str:
        """All workers' logs."""
        return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(self.directory.glob("*.log")))

    def close(self) -> None:
        """End everything at once; tests of good ends end it themselves."""
        for worker in self.workers:
            worker.stop(0)
        self.server.stop()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[tuple[Client, Runtime]]:
        """The team's client, its contracts loaded."""
        settings = root.read_settings(self.config, overrides={"store": {"url": self.server.url}}).settings
        runtime = root.build(settings, profile="client")
        try:
            await runtime.works.store.prepare()
            repository = loading.read_repository(self.directory / "team")
            loaded = await loading.load(
                TEAM, repository, timezone="UTC", source="team", installed=Installed(), store=runtime.works.store
            )
            assert [entry for entry in loaded.report.readings if not entry.valid] == []
            yield Client(runtime.works, TEAM), runtime
        finally:
            await runtime.close()

    async def eventually(self, look: Callable[[], Awaitable[T]], *, seconds: float = 60.0) -> T:
        """What `look` answers once it is true; fails with all logs where it never is."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if answer := await look():
                return answer
            await asyncio.sleep(0.02)
        raise AssertionError(f"did not happen within {seconds} s\n{self.logs()}")

    async def asked(self, count: int) -> list[int]:
        """Wait until the model has been asked so often; answers who asked."""

        async def look() -> list[int]:
            found = self.gate.requests()
            return found if len(found) >= count else []

        return await self.eventually(look)

    async def working(self, runtime: Runtime, count: int) -> dict[str, dict[str, str]]:
        """Wait until so many workers give a heartbeat."""

        async def look() -> dict[str, dict[str, str]]:
            found = await runtime.works.store.workers()
            return found if len(found) >= count else {}

        return await self.eventually(look)

    async def ended(self, runtime: Runtime, numbers: Sequence[int]) -> list[TurnRecord]:
        """Wait until these turns have ended."""

        async def look() -> list[TurnRecord]:
            found = [await runtime.works.store.turn(SESSION, number) for number in numbers]
            return [turn for turn in found if turn is not None and turn.state.ended] if all(found) else []

        async def all_ended() -> list[TurnRecord]:
            found = await look()
            return found if len(found) == len(numbers) else []

        return await self.eventually(all_ended)
