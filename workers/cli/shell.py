"""What every command starts from: the screen, the settings, and a team's client over the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from heinzelwerk import errors
from heinzelwerk.client import Client
from workers.show.screen import Screen

if TYPE_CHECKING:
    from config.settings import Settings
    from heinzelwerk.budget import Caps
    from workers.root import Runtime

T = TypeVar("T")

_WAITS = "`heinzelwerk doctor` says whether workers run (Ctrl-C leaves, the turn goes on)"
_PATIENCE_S = 8.0
"""Silence after which somebody who waits is told what is not there."""


@dataclass
class Shell:
    """One command line: `config` is the named settings file, `traceback` asks for more about unexpected errors."""

    screen: Screen
    config: str | None = None
    traceback: bool = False
    config_file: Path | None = field(default=None, init=False)
    _settings: Settings | None = field(default=None, init=False)

    @property
    def settings(self) -> Settings:
        """The settings, read once. ConfigurationError names every bad one."""
        if self._settings is None:
            from config import sources

            try:
                loaded = sources.load(self.config)
            except sources.BadSettings as bad:
                raise errors.ConfigurationError(
                    "these settings cannot be used:\n" + "\n".join(_fault(fault) for fault in bad.faults),
                    fix=f"correct each at the place that is named; {sources.EXAMPLE} shows every key",
                ) from bad
            self._settings, self.config_file = loaded.settings, loaded.file
        return self._settings

    @property
    def zone(self) -> tzinfo:
        """The time zone of the person at the shell."""
        zone = datetime.now().astimezone().tzinfo  # noqa: TID251 - where this terminal is, for showing only
        assert zone is not None  # noqa: S101 - astimezone always sets one
        return zone

    def caps(self, team: str) -> Caps:
        """What may be spent."""
        from workers import root

        return root.caps(self.settings, team)

    def server_url(self) -> str:
        """The store's address: the settings', else the server of an `up` in this directory; Refused where there is none."""
        from workers import server

        settings = self.settings
        url = settings.store.url or server.running_url(server_directory(settings))
        if url is None:
            raise errors.Refused(
                "no server: neither REDIS_URL nor [store] url is set, and no `heinzelwerk up` runs in "
                f"{settings.workers.data.absolute().parent}",
                fix="start one with `heinzelwerk up` (another terminal, this directory), or set REDIS_URL",
            )
        return url

    def connected(self) -> Settings:
        """The settings with the address of the server in them."""
        store = self.settings.store.model_copy(update={"url": self.server_url()})
        return self.settings.model_copy(update={"store": store})

    def on_team(
        self, team: str | None, ask: Callable[[Client], Awaitable[int | None]], *, draft: str | None = None
    ) -> int | None:
        """Call `ask` with a team's client; the connection ends with it. Without a name `draft` says whose it is."""

        async def with_client(runtime: Runtime) -> int | None:
            name = await self.team_name(team, runtime, draft=draft)
            return await ask(Client(runtime.works_of(name), name))

        return self.on_runtime(with_client)

    def on_runtime(self, ask: Callable[[Runtime], Awaitable[T]]) -> T:
        """Call `ask` with the ports of this deployment."""

        async def connected() -> T:
            async with self.runtime() as runtime:
                return await ask(runtime)

        return asyncio.run(connected())

    @asynccontextmanager
    async def runtime(self) -> AsyncIterator[Runtime]:
        """The ports of a client of this deployment: store and bell, no engine."""
        from workers import log, root

        settings = self.connected()
        log.set_up(log_format="text", level="error", secrets=settings.secrets())
        runtime = root.build(settings, profile="client")
        try:
            await runtime.works.store.prepare()
            yield runtime
        finally:
            await runtime.close()

    async def team_name(self, named: str | None, runtime: Runtime, *, draft: str | None = None) -> str:
        """The team that was named, the one that has the draft, or the only one; Refused where none of them is clear."""
        loaded = await runtime.works.store.teams()
        known = sorted({*loaded, *self.settings.teams})
        if named is not None:
            if named not in known:
                raise errors.Refused(
                    f"there is no team {named!r}",
                    fix=f"known are {', '.join(known)}" if known else "`heinzelwerk load` brings a team's contracts",
                )
            return named
        if len(known) == 1:
            return known[0]
        if not known:
            raise errors.Refused(
                "no team has loaded contracts yet",
                fix="`heinzelwerk load DIRECTORY --team NAME`, or [teams.NAME] source = ... and `heinzelwerk load`",
            )
        if draft is not None:
            store = runtime.works.store
            owners = [team for team in known if await store.effect(team, draft) is not None]
            if len(owners) == 1:
                return owners[0]
        raise errors.Refused(f"there are {len(known)} teams", fix=f"name one with --team: {', '.join(known)}")

    @asynccontextmanager
    async def patience(self, what: str, *, fix: str = _WAITS) -> AsyncIterator[None]:
        """While the block runs long, say on stderr that it still goes on and what to do."""

        async def remind() -> None:
            await asyncio.sleep(_PATIENCE_S)
            self.screen.note(f"still {what}; {fix}")

        reminder = asyncio.create_task(remind())
        try:
            yield
        finally:
            reminder.cancel()


def server_directory(settings: Settings) -> Path:
    """Where `up` keeps its server's files."""
    return settings.workers.data / "server"


def _fault(fault: object) -> str:
    fix = getattr(fault, "fix", "")
    return f"  {fault}" + (f"\n    fix: {fix}" if fix and not str(fault).endswith(fix) else "")
