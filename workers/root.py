"""The composition root: settings in, everything plugged together out. The one place that knows every room.

Each port can be replaced: `factories` adds models, `wrap` gets each bundle of ports before it is used. Tests and
embedders start their own programs with them; nothing in here knows of either.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from celery import Celery

import heinzelwerk
from config import sources
from config.settings import LONGEST_TURN_S, Settings
from heinzelwerk import loading
from heinzelwerk.capability import registry as capabilities
from heinzelwerk.errors import ConfigurationError
from heinzelwerk.ports import Capability, Clock, Ids, Keeper, Publisher, Runner, Store, Works
from heinzelwerk.publisher import keeping
from heinzelwerk.publisher import registry as publishers
from heinzelwerk.publisher.contracts import ContractFiles
from heinzelwerk.store.client import RedisStore, Renewer
from tasks import asked
from workers import app as celery_app
from workers import bell, handoffs, translation
from workers.archive import Retention
from workers.bell import CeleryBell
from workers.bridge import Bridge
from workers.clock import SystemClock, UlidIds
from workers.deeds import CoreDeeds
from workers.engine import EngineAtFirstUse, EngineRoom
from workers.journal import LeaseJournal
from workers.keeper import OVERTIME_S, IdleKeeper, LeaseKeeper
from workers.translation import caps

__all__ = ["Runtime", "build", "caps", "read_settings"]

CLIENT = "client"
"""The profile of programs that claim nothing: the CLI, the console, a receiver of events."""

HANDOFF_PROFILES = ("handoffs", "all")
"""Who starts coding agents: only these need their keys."""
SOLO_PROFILES = ("solo", "all")
"""Who runs turns that killed workers: alone, or as the only worker that there is."""

JOURNALS = "holds"
"""The directory under `[workers] data` in which the processes of a machine say what they hold."""

ModelFactories = Mapping[str, Callable[[str], Any]]
Wrap = Callable[[Works], Works]


@dataclass(frozen=True, slots=True)
class Parts:
    """What all teams share in one process."""

    settings: Settings
    store: Store
    bell: CeleryBell
    keeper: Keeper
    clock: Clock
    ids: Ids
    engine_room: EngineRoom
    capabilities: Mapping[str, Capability]
    publishers: Mapping[str, Publisher]
    runners: Mapping[str, Runner]
    solo: bool
    wrap: Wrap

    def works(self, team: str | None) -> Works:
        """The bundle of ports for one team's work (None: for all teams): its caps and its time zone are its own."""
        policy = translation.policy(self.settings, team)
        return self.wrap(
            Works(
                store=self.store,
                bell=self.bell,
                keeper=self.keeper,
                engine=EngineAtFirstUse(self.engine_room, policy),
                clock=self.clock,
                ids=self.ids,
                capabilities=self.capabilities,
                publishers=self.publishers,
                policy=policy,
                timezone=translation.zone(self.settings, team),
                runners=self.runners,
                solo=self.solo,
            )
        )


@dataclass(slots=True)
class Runtime:
    """One process, plugged together and not started. `works` serves no team in particular; `works_of` serves one."""

    settings: Settings
    profile: str
    worker: str
    app: Celery
    bell: CeleryBell
    bridge: Bridge
    keeper: LeaseKeeper | None
    journal: LeaseJournal
    parts: Parts
    deeds: CoreDeeds = field(init=False)
    _works: dict[str | None, Works] = field(default_factory=dict)

    @property
    def works(self) -> Works:
        """The bundle of ports for what concerns no single team's caps: sweeps, readers, the CLI."""
        return self.works_of(None)

    def works_of(self, team: str | None) -> Works:
        """A team's bundle, built at its first use."""
        found = self._works.get(team)
        if found is None:
            found = self._works.setdefault(team, self.parts.works(team))
        return found

    @property
    def format(self) -> int:
        """The highest format of records that this release reads and writes."""
        return translation.store_options(self.settings).format

    @property
    def leaving(self) -> bool:
        """Whether this process is ending and takes nothing more."""
        return self.keeper is not None and self.keeper.leaving

    async def close(self) -> None:
        """Publish what still waits to be rung and give the store's connections back."""
        await asyncio.to_thread(self.bell.close)
        await self.parts.store.close()


def read_settings(config: Path | str | None = None, *, overrides: dict[str, Any] | None = None) -> sources.Loaded:
    """The settings of this machine; ConfigurationError names every bad one."""
    try:
        return sources.load(config, overrides=overrides)
    except sources.BadSettings as bad:
        raise ConfigurationError(f"bad settings:\n{bad}", fix=bad.faults[0].fix) from bad


def build(
    settings: Settings,
    *,
    profile: str,
    factories: ModelFactories | None = None,
    wrap: Wrap | None = None,
    worker: str | None = None,
) -> Runtime:
    """Plug one process together; nothing is started and no connection opened. ConfigurationError without a server's address.

    `profile` is a worker's (workers/profiles.py) or `client`. `factories` adds model prefixes, `wrap` changes the ports.
    """
    url = settings.store.url
    if url is None:
        fix = "set REDIS_URL or [store] url, or start `heinzelwerk up` in this directory"
        raise ConfigurationError(f"no server: {fix}", fix=fix)
    name = worker or f"{profile}-{os.getpid()}@{socket.gethostname()}"
    app = celery_app.make_app(settings, url)
    bridge = Bridge(silent_s=settings.workers.loop_silent)
    options = translation.store_options(settings)
    clock, ids, ring = SystemClock(), UlidIds(), CeleryBell(bell.publisher(app))
    # A name that never was: a process id, and in a container the host's name too, come again.
    journal = LeaseJournal(settings.workers.data / JOURNALS, f"{name}-{ids.new()}")
    keeper = None if profile == CLIENT else _keeper(settings, Renewer(url, options), bridge, journal)
    found = capabilities.build(
        repositories=settings.code_host.repositories,
        documents=settings.documents.directory,
        plugins=settings.adapters.capabilities,
    )
    store = RedisStore(url, options)
    parts = Parts(
        settings=settings,
        store=store,
        bell=ring,
        keeper=keeper or IdleKeeper(),
        clock=clock,
        ids=ids,
        engine_room=EngineRoom(settings, capabilities=found, clock=clock, ids=ids, factories=factories),
        capabilities=found,
        publishers=_kept(settings, store)
        | publishers.build(documents=settings.documents.directory, plugins=settings.adapters.publishers),
        runners=handoffs.runners(settings, clock, ids) if profile in HANDOFF_PROFILES else {},
        solo=profile in SOLO_PROFILES,
        wrap=wrap or (lambda works: works),
    )
    runtime = Runtime(settings, profile, name, app, ring, bridge, keeper, journal, parts)
    runtime.deeds = _deeds(runtime)
    asked.register(app, runtime.deeds)
    return runtime


def _kept(settings: Settings, store: Store) -> dict[str, Publisher]:
    """The publishers that every deployment has: drafts that are placed nowhere, lessons, changes of contracts."""
    amendments = ContractFiles(translation.directories(settings), partial(loading.text_of, store=store))
    kept: tuple[Publisher, ...] = (keeping.draft(), keeping.lesson(), amendments)
    return {one.action: one for one in kept}


def version() -> str:
    """The release that this process runs."""
    return heinzelwerk.__version__


def _keeper(settings: Settings, renewer: Renewer, bridge: Bridge, journal: LeaseJournal) -> LeaseKeeper:
    return LeaseKeeper(
        renewer,
        lease_s=settings.store.lease,
        longest_s=LONGEST_TURN_S,
        journal=journal,
        late_s=settings.workers.loop_late,
        lag_s=bridge.lag_s,
    )


def _deeds(runtime: Runtime) -> CoreDeeds:
    settings = runtime.settings
    return CoreDeeds(
        runtime.bridge,
        runtime.works_of,
        leaving=lambda: runtime.leaving,
        worker=runtime.worker,
        longest_s=LONGEST_TURN_S + OVERTIME_S,
        sweep_every_s=settings.workers.sweep_every,
        retention=Retention(settings.retention.spine, settings.retention.archive),
    )
