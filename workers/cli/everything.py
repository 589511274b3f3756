"""Everything on one machine, for `up` and `demo`: an embedded server, the contracts loaded, workers, beat, perhaps Flower."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from heinzelwerk.errors import ConfigurationError, HeinzelwerkError
from workers import examining, profiles
from workers.cli.loads import load_all
from workers.doctor import Level
from workers.server import EmbeddedServer
from workers.supervisor import Fleet, Program

if TYPE_CHECKING:
    from config.settings import Settings

Note = Callable[[str, str], None]

_LOOK_EVERY_S = 0.5


class Everything:
    """Started by `start`, ended by leaving the block, however that happens. `note(name, what)` gets one line per transition.

    `config` is the settings file that the processes read, `environment` theirs without a server's address.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        config: Path | None,
        environment: Mapping[str, str],
        note: Note,
        with_flower: bool = False,
        leave_with_parent: bool = False,
    ) -> None:
        self._settings = settings
        self._config = config
        self._environment = environment
        self._note = note
        self._with_flower = with_flower
        self._leave_with_parent = leave_with_parent
        self._server: EmbeddedServer | None = None
        self._fleet: Fleet | None = None
        self.settings = settings

    @property
    def url(self) -> str:
        """The server's address."""
        return self._server.url if self._server else ""

    @property
    def logs(self) -> Path:
        """The directory with one log for each process."""
        return self._settings.workers.data / "logs"

    def start(self) -> None:
        """The server, then the contracts, then the processes; Refused where another one holds the data directory."""
        self._check_models()
        data = self._settings.workers.data
        self.logs.mkdir(parents=True, exist_ok=True)
        (data / ".gitignore").write_text("*\n")  # it lies in the team's repository, and holds every word of every turn
        self._server = EmbeddedServer.start(data / "server", appendfsync=self._settings.store.appendfsync)
        self._note("server", f"answers at {self.url}")
        store = self._settings.store.model_copy(update={"url": self.url, "broker_url": None})
        self.settings = self._settings.model_copy(update={"store": store})
        self._load()
        self._fleet = Fleet(self._programs(), note=self._note, leave_with_parent=self._leave_with_parent)
        self._fleet.start()

    def _check_models(self) -> None:
        """A model that cannot run is said before anything is started, not by a failed turn an hour later."""
        for found in examining.models(self._settings):
            if found.level is Level.DOWN:
                raise ConfigurationError(found.what, fix=found.fix)

    def _load(self) -> None:
        try:
            for name, done in asyncio.run(load_all(self.settings)).items():
                report = done.loaded.report
                self._note(
                    f"team {name}", f"{len(report.readings)} contracts, {report.errors} errors: `heinzelwerk check`"
                )
        except HeinzelwerkError as error:
            self._note("contracts", f"not loaded: {error}")  # the rest runs; `load` says more

    def _programs(self) -> list[Program]:
        environment = {**self._environment, "REDIS_URL": self.url}
        programs = profiles.fleet(self.settings, config=self._config, environment=environment, logs=self.logs)
        if self._with_flower:
            command = profiles.command("flower", config=self._config)
            programs.append(Program("flower", command, environment, log=self.logs / "flower.log"))
        return programs

    def wait(self) -> None:
        """Block until `leave`, or until the starter of ours is gone (demo). A server that dies meanwhile is started again."""
        while self._fleet is not None and not self._fleet.wait(_LOOK_EVERY_S):
            self._keep_server()

    def _keep_server(self) -> None:
        """Bring back a server that somebody killed, at its address and with its data: the processes find it by themselves."""
        if self._server is not None and not self._server.runs:
            self._note("server", "ended, starts again with the data that it had written")
            self._server.restart()
            self._note("server", f"answers at {self.url}")

    def leave(self) -> None:
        """Make `wait` return; safe in a signal's reaction."""
        if self._fleet is not None:
            self._fleet.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fleet is not None:
            self._note("workers", "finish what they hold")
            self._fleet.stop()
        if self._server is not None:
            self._server.stop()
