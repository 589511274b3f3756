"""Failpoints across processes: a test arms them, a worker's wrapped ports run into them, and each says that it fired.

All of it is files of one directory, so that it survives SIGKILL of anybody: `arm/` holds one file per shot that has not
been fired, firing moves it to `fired/`, `log` gets one JSON line per thing that the outside world would have counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY = "FAULTS_DIRECTORY"
ANYBODY = "any"
_POLL_S = 0.01


class Injected(Exception):
    """What a failpoint raises when it was armed with `raise`."""


@dataclass(frozen=True)
class Fired:
    """One shot that was fired: by which process, and when (seconds since the epoch)."""

    pid: int
    at: float


@dataclass(frozen=True)
class Failpoint:
    """An armed failpoint, for its test."""

    control: Control
    name: str

    def fired(self) -> list[Fired]:
        """The shots so far, in order."""
        return self.control.shots(self.name)

    def release(self) -> None:
        """Let go whoever was armed with `hold` here."""
        self.control.release(self.name)


class Control:
    """Both sides of the directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for part in ("arm", "fired", "released"):
            (directory / part).mkdir(parents=True, exist_ok=True)

    # -- the test's side ---------------------------------------------------------------------------------------

    def arm(self, point: str, do: str, *, of: str = ANYBODY, times: int = 1, **more: Any) -> Failpoint:
        """Arm a point for one Heinzelmännchen (or any): `kill`, `stop`, `term`, `hold`, `raise`, `sleep` (s=...)."""
        name = f"{point}@{of}"
        for shot in range(times):
            path = self.directory / "arm" / f"{name}#{time.monotonic_ns()}-{shot}"
            path.with_suffix(".new").write_text(json.dumps({"do": do, "name": name, **more}))
            path.with_suffix(".new").rename(path)
        return Failpoint(self, name)

    def disarm(self) -> None:
        """Take back what has not fired, and let go whoever is held."""
        for path in (self.directory / "arm").iterdir():
            path.unlink(missing_ok=True)
        (self.directory / "released" / "all").touch()

    def shots(self, name: str) -> list[Fired]:
        """What fired under a name."""
        found = []
        for path in (self.directory / "fired").glob("*"):
            if path.name.partition("#")[0] == name:
                pid = int(path.name.rpartition("=")[2])
                found.append(Fired(pid, path.stat().st_ctime))
        return sorted(found, key=lambda shot: shot.at)

    def release(self, name: str) -> None:
        """Let go who is held at a point."""
        (self.directory / "released" / name).touch()

    def logged(self, kind: str, **wanted: Any) -> list[dict[str, Any]]:
        """What the outside world counted: lines of one kind whose facts are these."""
        path = self.directory / "log"
        if not path.exists():
            return []
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        return [e for e in entries if e["kind"] == kind and all(e.get(k) == v for k, v in wanted.items())]

    # -- the worker's side -------------------------------------------------------------------------------------

    def log(self, kind: str, **facts: Any) -> None:
        """Count something, in one write that no SIGKILL can halve."""
        line = json.dumps({"kind": kind, "pid": os.getpid(), "at": time.time(), **facts}) + "\n"
        handle = os.open(self.directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    async def hit(self, point: str, of: str) -> None:
        """Run into a failpoint; nothing happens where it is not armed."""
        shot = self._take(point, of)
        if shot is None:
            return
        if shot["do"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif shot["do"] == "stop":
            # To this thread: one to the process may be taken by another thread, and this one goes on for a moment, even
            # into a lock of the target's that it then holds for as long as it sleeps.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        elif shot["do"] == "term":
            os.kill(os.getpid(), signal.SIGTERM)
        elif shot["do"] == "raise":
            raise Injected(f"injected at {point}: {shot.get('words', '')}")
        elif shot["do"] == "sleep":
            await asyncio.sleep(shot["s"])
        elif shot["do"] == "hold":
            released = self.directory / "released"
            while not (released / shot["name"]).exists() and not (released / "all").exists():
                await asyncio.sleep(_POLL_S)

    def _take(self, point: str, of: str) -> dict[str, Any] | None:
        """One shot of this point: whoever can move its file has it, so that it fires once among all processes."""
        names = (f"{point}@{of}", f"{point}@{ANYBODY}")
        for entry in sorted(os.listdir(self.directory / "arm")):
            if entry.partition("#")[0] not in names or entry.endswith(".new"):
                continue
            source = self.directory / "arm" / entry
            try:
                shot: dict[str, Any] = json.loads(source.read_text())
                source.rename(self.directory / "fired" / f"{entry}={os.getpid()}")
            except FileNotFoundError:
                continue  # another process was faster
            return shot
        return None
