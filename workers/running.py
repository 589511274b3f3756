"""Running a worker or beat: what starts with the process, what goes on beside the tasks, how it leaves.

SIGTERM: nothing more is claimed, every run is asked to stop at its next checkpoint and hand back; what has not by three
fifths of the grace is cancelled and handed back from here. A doorbell that comes meanwhile goes back to its queue.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import structlog
from celery import signals

from heinzelwerk import advance
from heinzelwerk.errors import ConfigurationError, HeinzelwerkError
from heinzelwerk.ids import SessionId
from heinzelwerk.ports import Held, Interrupt
from workers import handoffs, health, journal, noticing, profiles, reloading, root
from workers import log as logs
from workers.keeper import LeaseKeeper
from workers.profiles import Profile
from workers.root import Runtime

log = structlog.get_logger("heinzelwerk.worker")

PATIENCE = 0.6
"""The part of the grace that runs get to reach a checkpoint by themselves."""
HEARTBEATS = 4
"""So many may be missed before a worker counts as gone."""
UPKEEP_SWEEPS = 5
"""In each so many sweeps' time upkeep looks whether something is due; each of its works has a period of its own."""
_PRUNE_EVERY_MS = 86_400_000
_START_S = 30.0


def run_worker(runtime: Runtime) -> int:
    """Run a worker of the runtime's profile until it is told to leave; answers its exit code."""
    found = profiles.profiles(runtime.settings).get(runtime.profile)
    if found is None:
        known = ", ".join(profiles.profiles(runtime.settings))
        raise ConfigurationError(
            f"there is no worker profile {runtime.profile!r}: known are {known}", fix=f"name one of {known}"
        )
    set_up_logs(runtime)
    return Worker(runtime, found).run()


def run_beat(runtime: Runtime, directory: Path) -> int:
    """Run beat: one static entry that asks for a sweep. Two of them, or none, lose and double nothing."""
    set_up_logs(runtime)
    directory.mkdir(parents=True, exist_ok=True)
    log.info("beat started", every_s=runtime.settings.workers.sweep_every)
    schedule = str(directory / "beat")
    runtime.app.Beat(schedule=schedule, scheduler_cls=health.TickingScheduler, quiet=True).run()
    return 0


def set_up_logs(runtime: Runtime) -> None:
    """Send this process's logs where its settings say, Celery's among them."""
    workers = runtime.settings.workers
    logs.set_up(
        log_format=workers.log_format,
        level=workers.log_level,
        secrets=runtime.settings.secrets(),
        context={"worker": runtime.worker},
    )
    signals.setup_logging.connect(_leave_logs_alone, weak=False)


def _leave_logs_alone(**_: Any) -> None:
    """Celery configures no logging where somebody listens to this signal."""


class Worker:
    """One worker process: Celery's consumer in front, the event loop and the keeper behind."""

    def __init__(self, runtime: Runtime, profile: Profile) -> None:
        if runtime.keeper is None:
            raise ConfigurationError(f"the profile {runtime.profile!r} claims nothing and cannot be a worker")
        self._runtime = runtime
        self._profile = profile
        self._keeper: LeaseKeeper = runtime.keeper
        self._settings = runtime.settings.workers
        self._started = time.monotonic()
        self._draining = False

    def run(self) -> int:
        """Check the store, serve until told to leave, give everything back."""
        runtime = self._runtime
        runtime.bridge.run(runtime.works.store.prepare(), _START_S)
        _ = runtime.parts.engine_room.models  # loaded now: not while the first turn's lease is running
        self._keeper.start()
        signals.worker_ready.connect(self._begin, weak=False)
        signals.worker_shutting_down.connect(self._leave, weak=False)
        worker = runtime.app.Worker(
            hostname=runtime.worker,
            pool_cls="threads",
            concurrency=self._profile.threads,
            queues=list(self._profile.queues),
            without_gossip=True,
            without_mingle=True,
            quiet=True,
            task_events=True,
        )
        try:
            worker.start()
        finally:
            self._keeper.stop()
            runtime.bell.close()
            runtime.bridge.close(last=runtime.works.store.close())
        log.info("worker ended", code=worker.exitcode or 0)
        return int(worker.exitcode or 0)

    # -- beside the tasks ----------------------------------------------------------------------------------------

    def _begin(self, **_: Any) -> None:
        """What goes on as long as the process lives, on the loop that all tasks share."""
        store, every = self._runtime.works.store, self._settings
        log.info("worker started", profile=self._profile.name, threads=self._profile.threads, version=root.version())
        self._runtime.bridge.go_on(self._keeper.watch(store, every_s=every.watch_every))
        self._runtime.bridge.go_on(_repeat("heartbeat", self._heartbeat, every.heartbeat_every))
        self._runtime.bridge.go_on(_repeat("look for dead processes", self._inherit, every.watch_every))
        if self._runtime.profile in root.HANDOFF_PROFILES:
            self._runtime.bridge.go_on(self._clearing())
        self._runtime.bridge.go_on(self._sweeping())
        if self._profile.upkeeps:
            self._runtime.bridge.go_on(_repeat("upkeep", self._upkeep, UPKEEP_SWEEPS * every.sweep_every))
            self._runtime.bridge.go_on(noticing.go_on(self._runtime))

    async def _sweeping(self) -> None:
        """The scan of a starting worker, then the sweep in turn with all others: a dead beat only delays."""
        deeds = self._runtime.deeds

        async def first() -> None:
            await deeds.sweep_now()

        async def look() -> None:
            if not self._draining and not self._runtime.leaving:
                await deeds.sweep_in_turn()

        await _attempt("first sweep", first)
        await _repeat("sweep", look, self._settings.sweep_every)

    async def _inherit(self) -> None:
        """End the leases of processes of this machine that are dead: their work goes on now, not when its time is over."""
        mine = self._runtime.journal.path
        for path in journal.others(mine.parent, than=mine):
            with journal.bequeathed(path) as holds:
                if not holds:
                    continue
                for provider in self._runtime.settings.heinzel.in_flight:
                    await self._runtime.works.store.end_requests(provider, holds)
                ended = await self._runtime.works.store.end_leases(holds)
                log.warning("leases of a dead process ended", of=path.stem, held=len(holds), ended=ended)
            for team in sorted({hold.team for hold in holds}):
                await advance.ring(team, self._runtime.works_of(team))

    async def _clearing(self) -> None:
        """Once, at the start: what a killed worker left of its coding agents on this machine."""

        async def clear() -> None:
            await handoffs.clear(self._runtime.settings, self._runtime.works.clock)

        await _attempt("clearing", clear)

    async def _upkeep(self) -> None:
        """What one process of the deployment does now and then: read the teams' repositories, apply the retention."""
        if self._draining or self._runtime.leaving:
            return
        await reloading.reload_all(self._runtime)
        if await self._runtime.works.store.take_turns("prune", ttl_ms=_PRUNE_EVERY_MS):
            await self._runtime.deeds.prune_all()

    async def _heartbeat(self) -> None:
        """Say that the loop makes progress, and look whether the deployment is being drained."""
        works = self._runtime.works
        self._draining = await works.store.flag("drain") is not None
        self._runtime.deeds.draining = self._draining
        facts = {
            "version": root.version(),
            "format": str(self._runtime.format),
            "profile": self._profile.name,
            "host": socket.gethostname(),
            "pid": str(os.getpid()),
            "clock": works.clock.now().isoformat(),
            "state": "leaving" if self._runtime.leaving else "draining" if self._draining else "working",
            "holds": str(len(self._keeper.holding())),
            "up_s": str(int(time.monotonic() - self._started)),
        }
        ttl_ms = int(self._settings.heartbeat_every * HEARTBEATS * 1000)
        await works.store.heartbeat(self._runtime.worker, facts, ttl_ms=ttl_ms)

    # -- leaving -------------------------------------------------------------------------------------------------

    def _leave(self, **_: Any) -> None:
        """Celery's reaction to SIGTERM calls this in the main thread: only begin, from a thread of our own."""
        threading.Thread(target=self._hand_back, name="heinzelwerk-leaving", daemon=True).start()

    def _hand_back(self) -> None:
        self._keeper.leave()
        log.info("worker leaves", holds=len(self._keeper.holding()))
        until = time.monotonic() + PATIENCE * self._settings.grace
        while self._keeper.holding() and time.monotonic() < until:
            time.sleep(0.05)
        if left := self._keeper.holding():
            log.warning("runs reached no checkpoint in time, handed back as they are", count=len(left))
            self._give_up(left)

    def _give_up(self, left: tuple[Held, ...]) -> None:
        """Stop the runs where they are and hand their sessions back; a job's lease runs out: it is never run again."""
        for held in left:
            held.interrupt(Interrupt.LOST)
        self._runtime.bridge.cancel_running()
        for held in left:
            if held.hold.kind == "session":
                try:
                    self._runtime.bridge.run(self._release(held), 2.0)
                except (HeinzelwerkError, TimeoutError) as error:  # then the lease runs out by itself
                    log.warning("could not hand back", session=held.hold.name, reason=str(error))

    async def _release(self, held: Held) -> None:
        hold, works = held.hold, self._runtime.works_of(held.hold.team)
        session = SessionId(hold.team, hold.name)
        await works.store.release(session, hold.token, handed_back=True, due_ms=None, holds_session=True)
        await advance.ring(hold.team, works)


async def _repeat(name: str, action: Callable[[], Awaitable[None]], every_s: float) -> None:
    """Do it for ever, with a pause in between; trouble is logged when it begins and when it is over."""
    well = True
    while True:
        was, well = well, await _attempt(name, action, quiet=not well)
        if well and not was:
            log.info(f"{name} works again")
        await asyncio.sleep(every_s)


async def _attempt(name: str, action: Callable[[], Awaitable[None]], *, quiet: bool = False) -> bool:
    try:
        await action()
    except HeinzelwerkError as error:
        if not quiet:
            log.warning(f"{name} failed", reason=str(error))
        return False
    except Exception:
        log.exception(f"{name} failed")
        return False
    return True
