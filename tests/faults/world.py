"""A deployment to break: its own server, real worker processes, contracts by script, and the truth afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

from heinzelwerk import loading
from heinzelwerk.client import Client, WakeReply
from heinzelwerk.contract.sets import Installed
from heinzelwerk.effect import EffectRecord
from heinzelwerk.ids import SessionId
from heinzelwerk.ports import Store
from heinzelwerk.turn import TurnRecord, TurnState
from heinzelwerk.wake import Disposition
from tests.faults.control import DIRECTORY, Control, Failpoint
from workers import root, supervisor
from workers.root import Runtime
from workers.server import EmbeddedServer
from workers.supervisor import Leashed

T = TypeVar("T")

TEAM = "crew"
MODEL = "fault:model"
CHECKOUT = Path(__file__).parents[2]
CANARY = "sk-canary-9f2d7c31aa"
"""The secret of every world: it must come out nowhere."""
LEASE_S = 1.5
LONG_S = 45.0
"""How long anything is waited for; nothing is measured against it."""

_CONTRACT = """---
name: {name}
kind: responsibility
description: Keeps one page true.
hz:
  schema: 1
  title: {script} {name}
  requires: [documents:read, code-host:read]
  inputs:
    page:
      read: documents.read
      args: {{ref: page.md}}
  outputs:
    page: {{format: markdown}}
{publishes}  timeout: 10m
{extra}---
### Goal
Keep the page true.
### Requires
- `page`
### Maintains
- `page`
### Done when
- It says what the page says.
"""
_SETTINGS = """
[heinzel]
model = "{model}"
{heinzel}
[heinzel.prices."{model}"]
input = 1
output = 1
[store]
lease = "{lease}s"
ring_first = "300ms"
ring_longest = "1500ms"
appendfsync = "{fsync}"
[teams.{team}]
source = "team"
{limits}
[documents]
directory = "documents"
[effects]
timeout = "1s"
margin = "300ms"
[workers]
data = "data"
turn_threads = 8
upkeep_threads = 8
grace = "4s"
sweep_every = "200ms"
heartbeat_every = "300ms"
watch_every = "100ms"
log_format = "json"
{more}
"""


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@dataclass
class Worker:
    """A worker process behind its leash."""

    leashed: Leashed
    profile: str
    log: Path

    @property
    def alive(self) -> bool:
        return self.leashed.poll() is None

    @property
    def runs(self) -> bool:
        """Whether the process behind the leash is there and no corpse."""
        try:
            children = psutil.Process(self.leashed.pid).children()
            return any(child.status() != psutil.STATUS_ZOMBIE for child in children)
        except psutil.NoSuchProcess:
            return False

    @property
    def pid(self) -> int:
        """The worker's own process id; it may take a moment until there is one."""
        until = time.monotonic() + LONG_S
        while time.monotonic() < until:
            if children := psutil.Process(self.leashed.pid).children():
                return int(children[0].pid)
            time.sleep(0.01)
        raise AssertionError(f"{self.log} never started")

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)


@dataclass
class World:
    """One deployment. `heinzel`, `limits` and `more` are lines for the settings' tables.

    `apart`: each worker is as on a machine of its own, so that nobody knows of a dead one before its lease has passed.
    """

    directory: Path
    heinzel: str = ""
    limits: str = ""
    more: str = ""
    model: str = MODEL
    fsync: str = "always"
    lease_s: float = LEASE_S
    change: str = "tests.faults.wrapped:change"
    environ: dict[str, str] = field(default_factory=dict)
    apart: bool = False
    workers: list[Worker] = field(default_factory=list)
    accepted: list[tuple[str, str]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    parked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.directory.mkdir(exist_ok=True)
        (self.directory / "team" / "workflows").mkdir(parents=True)
        (self.directory / "documents").mkdir()
        self.page("True.")
        self.config = self.directory / "heinzelwerk.toml"
        self.config.write_text(
            _SETTINGS.format(
                model=self.model,
                heinzel=self.heinzel,
                limits=self.limits,
                more=self.more,
                fsync=self.fsync,
                team=TEAM,
                lease=self.lease_s,
            )
        )
        self.control = Control(self.directory / "faults")
        self.server = EmbeddedServer.start(self.directory / "server", appendfsync=self.fsync)

    def use_own_times(self) -> None:
        """The product's own times instead of a test's, but for the lease: before the first worker starts."""
        short = ("ring_first", "ring_longest", "sweep_every", "heartbeat_every", "watch_every", "grace")
        lines = [line for line in self.config.read_text().splitlines() if line.partition(" =")[0] not in short]
        self.config.write_text("\n".join(lines) + "\n")

    # -- contracts ---------------------------------------------------------------------------------------------

    def page(self, words: str) -> None:
        """What the input of every contract says."""
        (self.directory / "documents" / "page.md").write_text(f"# A page\n\n{words}\n")

    def contract(self, name: str, script: str = "plain", *, place: str = "wall.place", extra: str = "") -> None:
        """Add a contract; `place` is the action of its publishing ("": none), `extra` are more lines under `hz:`."""
        publishes = f"  publishes:\n    - action: {place}\n      output: page\n      args: {{place: {name}}}\n"
        self.texts[name] = _CONTRACT.format(name=name, script=script, publishes=publishes if place else "", extra=extra)

    async def load(self, store: Store) -> loading.Loaded:
        """Write the contracts down and load them."""
        folder = self.directory / "team" / "workflows"
        for path in folder.glob("*.prose.md"):
            if path.name.removesuffix(".prose.md") not in self.texts:
                path.unlink()
        for name, words in self.texts.items():
            (folder / f"{name}.prose.md").write_text(words)
        repository = loading.read_repository(self.directory / "team")
        return await loading.load(TEAM, repository, timezone="UTC", source="team", installed=Installed(), store=store)

    # -- processes ---------------------------------------------------------------------------------------------

    def environment(self, url: str | None = None, **more: str) -> dict[str, str]:
        """A worker's environment; a secret is in it."""
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONWARNINGS": "ignore",
            "HEINZELWERK_CONFIG": str(self.config),
            "HEINZELWERK_STORE__URL": url or self.server.url,
            "ANTHROPIC_API_KEY": CANARY,
            "OPENAI_API_KEY": CANARY,
            DIRECTORY: str(self.control.directory),
            **self.environ,
            **more,
        }

    def start(self, profile: str, *, url: str | None = None, **environ: str) -> Worker:
        """Start a worker (or beat)."""
        log = self.directory / f"{profile}-{len(self.workers)}.log"
        if self.apart:
            environ["HEINZELWERK_WORKERS__DATA"] = str(log.with_suffix(".data"))
        leashed = supervisor.start(
            [sys.executable, "-P", "-m", "tests.support.worker", profile, self.change],
            environment=self.environment(url, **environ),
            log=log,
        )
        worker = Worker(leashed, profile, log)
        self.workers.append(worker)
        return worker

    def staff(self, *profiles: str) -> None:
        """Make sure that these run: one process for each name, dead ones (`death` waits for them) replaced."""
        for worker in self.workers:
            if not worker.alive:
                worker.leashed.stop(0)  # gives the leash's pipe back
        left = [worker.profile for worker in self.workers if worker.alive]
        for profile in profiles:
            if profile in left:
                left.remove(profile)
            else:
                self.start(profile)

    def living(self, profile: str) -> list[Worker]:
        return [worker for worker in self.workers if worker.profile == profile and worker.alive]

    def by_pid(self, pid: int) -> Worker:
        """The living worker with this process id."""
        return next(worker for worker in self.workers if worker.alive and worker.pid == pid)

    def command(self, *words: str) -> tuple[int, str]:
        """Run the product's command line in a process of its own; its exit code and what it said."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "workers", *words],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=LONG_S,
        )
        return done.returncode, done.stdout + done.stderr

    def close(self) -> None:
        """End everything at once."""
        self.control.disarm()
        for worker in self.workers:
            if worker.alive:
                worker.signal(signal.SIGCONT)
            worker.leashed.stop(0)
        self.server.stop()

    def logs(self) -> str:
        """All logs, for a failed test."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text()[-6000:]}" for path in sorted(self.directory.glob("*.log"))
        )

    # -- asking ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def open(self, url: str | None = None) -> AsyncIterator[House]:
        """The team's client over this loop, straight to the server (or by another address)."""
        overrides = {"store": {"url": url or self.server.url}}
        runtime = root.build(root.read_settings(self.config, overrides=overrides).settings, profile="client")
        try:
            yield House(self, Client(runtime.works_of(TEAM), TEAM), runtime)
        finally:
            await runtime.close()

    async def until(self, look: Callable[[], Awaitable[T]], what: str = "") -> T:
        """What `look` answers once it is true; fails with all logs where it never is."""
        end = time.monotonic() + LONG_S
        while time.monotonic() < end:
            if answer := await look():
                return answer
            await asyncio.sleep(0.02)
        raise AssertionError(f"{what or look} did not happen within {LONG_S:.0f} s\n{self.logs()}")

    async def fired(self, point: Failpoint, times: int = 1) -> int:
        """Wait until a failpoint has fired so often; answers the process id of the last one."""

        async def look() -> int:
            shots = point.fired()
            return shots[-1].pid if len(shots) >= times else 0

        return await self.until(look, f"failpoint {point.name}")

    async def death(self, point: Failpoint, times: int = 1) -> int:
        """Wait until a failpoint has killed, and until the dead process is seen as dead."""
        pid = await self.fired(point, times)

        async def look() -> bool:
            # The shot is moved before it kills: wait for this very process, then for the leash that held it.
            return not _lives(pid) and not any(worker.alive and not worker.runs for worker in self.workers)

        await self.until(look, f"the death of {pid}")
        return pid


@dataclass
class House:
    """A world as one test sees it, on its own event loop."""

    world: World
    client: Client
    runtime: Runtime

    @property
    def store(self) -> Store:
        return self.runtime.works.store

    @property
    def control(self) -> Control:
        return self.world.control

    async def begin(self, *profiles: str) -> None:
        """Prepare the store, load the contracts, staff the world."""
        await self.store.prepare()
        await self.load()
        self.world.staff(*profiles)
        await self.working(len(profiles))

    async def load(self) -> loading.Loaded:
        return await self.world.load(self.store)

    async def working(self, count: int) -> None:
        """Wait until so many workers give a heartbeat."""

        async def look() -> bool:
            pids = {worker.pid for worker in self.world.workers if worker.alive and worker.profile != "beat"}
            beats = await self.store.workers()
            return sum(int(facts["pid"]) in pids for facts in beats.values()) >= count

        await self.world.until(look, f"{count} workers")

    async def add(self, name: str, script: str = "plain", *, place: str = "wall.place", extra: str = "") -> None:
        """A contract more."""
        self.world.contract(name, script, place=place, extra=extra)
        await self.load()

    async def wake(self, name: str, key: str | None = None, **more: Any) -> WakeReply:
        """Wake and remember what was accepted."""
        reply = await self.client.wake(name, key=key or f"manual/{name}", **more)
        if reply.disposition is Disposition.ACCEPTED:
            self.world.accepted.append((name, reply.key))
        return reply

    async def turn(self, name: str, number: int = 1) -> TurnRecord | None:
        return await self.store.turn(SessionId(TEAM, name), number)

    async def ended(self, name: str, number: int = 1) -> TurnRecord:
        """Wait until a turn has ended."""

        async def look() -> TurnRecord | None:
            found = await self.turn(name, number)
            return found if found is not None and found.state.ended else None

        found = await self.world.until(look, f"the end of {name}/{number}")
        assert found is not None
        return found

    async def waiting(self, name: str, number: int = 1) -> TurnRecord:
        """Wait until a turn waits."""

        async def look() -> TurnRecord | None:
            found = await self.turn(name, number)
            return found if found is not None and found.state is TurnState.WAITING else None

        found = await self.world.until(look, f"{name}/{number} to wait")
        assert found is not None
        return found

    async def effects(self, name: str) -> list[EffectRecord]:
        """The effects of one Heinzelmännchen, oldest first."""
        found = await self.store.effects(TEAM, limit=10_000)
        return sorted((one for one in found if one.heinzel == name), key=lambda one: (one.turn, one.created_ms))

    async def draft(self, name: str, number: int = 1) -> EffectRecord:
        """Wait for the effect that a turn planned."""

        async def look() -> EffectRecord | None:
            return next((one for one in await self.effects(name) if one.turn == number), None)

        found = await self.world.until(look, f"a draft of {name}/{number}")
        assert found is not None
        return found

    async def placed(self, name: str, number: int = 1) -> EffectRecord:
        """Approve what a turn planned and wait until it has ended."""
        effect = await self.draft(name, number)
        await self.client.approve(effect.id, by="ada")
        return await self.settled(effect)

    async def settled(self, effect: EffectRecord) -> EffectRecord:
        """Wait until code will do nothing more about an effect by itself."""

        async def look() -> EffectRecord | None:
            found = await self.store.effect(TEAM, effect.id)
            assert found is not None
            resting = found.state.value == "unknown_after_crash" and await self._is_resting(found)
            return found if found.state.ended or resting else None

        found = await self.world.until(look, f"the end of effect {effect.id}")
        assert found is not None
        return found

    async def _is_resting(self, effect: EffectRecord) -> bool:
        due = await self.store.due(TEAM, kind="effect", limit=1000)
        return effect.id not in {entry.name for entry in due}

    async def events(self, name: str) -> list[dict[str, Any]]:
        """The spine of a Heinzelmännchen."""
        return [json.loads(line) for line in await self.store.spine(SessionId(TEAM, name))]

    async def kinds(self, name: str) -> list[str]:
        return [event["kind"] for event in await self.events(name)]

    def requests(self, name: str) -> int:
        """How often the model was asked for this Heinzelmännchen, as the model counted."""
        return len(self.control.logged("request", of=name))

    def reads(self, name: str) -> list[str]:
        """The reads that the tool's target counted, by call."""
        return [entry["call"] for entry in self.control.logged("tool", of=name)]

    async def names(self) -> Iterable[str]:
        return await self.store.sessions(TEAM)
