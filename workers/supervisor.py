"""The one place outside the sandbox that starts processes: each on a leash, so that nothing outlives its starter.

`start` runs one command on a leash (workers/leash.py). `Fleet` keeps a set of them running: restart on any exit with a
growing delay, SIGTERM, grace, SIGKILL at the end. What `up` and `demo` run is decided by their callers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LEASH = Path(__file__).with_name("leash.py")
ORPHAN_GRACE_S = 2.0
"""What a command gets between SIGTERM and SIGKILL once its starter is gone."""
EXIT_ORPHANED, ORPHANED_S = 129, 1.5
"""How a process ends whose starter is gone, and how long it may clean up before."""
FIRST_DELAY_S, LONGEST_DELAY_S = 0.5, 30.0
STEADY_S = 60.0
"""Who lived this long starts again after the first delay."""


class Leashed:
    """A running command. `pid` is the leash's: signals sent to it go on to the command."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self.pid = popen.pid

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        return self._popen.poll()

    def wait(self, timeout_s: float) -> int | None:
        """The exit code, None where it still runs after that many seconds."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number: int) -> None:
        """Send a signal on to the command; one that has ended gets none."""
        if self.poll() is None:
            self._popen.send_signal(number)

    def stop(self, grace_s: float) -> int:
        """SIGTERM, then after the grace SIGKILL to its whole group; answers the exit code."""
        if self.poll() is None:
            self._popen.terminate()
            self.wait(grace_s)
        self._cut()
        return self._popen.wait()

    def _cut(self) -> None:
        if self._popen.stdin is not None:
            self._popen.stdin.close()


def start(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    log: Path | None = None,
    orphan_grace_s: float = ORPHAN_GRACE_S,
    keep_open: Sequence[int] = (),
) -> Leashed:
    """Start a command on a leash. Output is appended to `log`, or goes where ours goes.

    `keep_open` are descriptors that the command inherits (a lock that must last as long as it does).
    """
    output = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        popen = subprocess.Popen(
            [sys.executable, "-I", "-S", str(LEASH), str(orphan_grace_s), *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=dict(environment),
            start_new_session=True,  # Ctrl-C is for the supervisor: it stops its children in order
            pass_fds=tuple(keep_open),
        )
    finally:
        if output is not None:
            os.close(output)
    return Leashed(popen)


def end_with_parent() -> threading.Event:
    """From now on this process ends when the one that started it is gone; the event is set when that has happened.

    It is interrupted as by Ctrl-C, so that it can clean up, and ends at once where that takes too long: the leashes end
    what it had started. For programs that somebody waits for, such as `demo` under make.
    """
    parent, orphaned = os.getppid(), threading.Event()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        orphaned.set()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(ORPHANED_S)
        os._exit(EXIT_ORPHANED)

    threading.Thread(target=watch, name="parent", daemon=True).start()
    return orphaned


@dataclass(frozen=True, slots=True)
class Program:
    """One process that a fleet keeps running; `grace_s` is what it gets to end in peace."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    grace_s: float = 20.0
    log: Path | None = None


@dataclass(slots=True)
class _Berth:
    """A program's place in the fleet: what runs there, since when, and when the next start is due."""

    program: Program
    running: Leashed | None = None
    started: float = 0.0
    delay_s: float = FIRST_DELAY_S
    start_at: float = 0.0
    exits: list[int] = field(default_factory=list)


class Fleet:
    """Keeps programs running until `stop`. `note(name, what)` is called with one short sentence per transition.

    With `leave_with_parent` our own process ends when the one that started it is gone (`demo`; never `up`, which may
    run under nohup): it is interrupted as by Ctrl-C, and ends at once where that takes too long.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        *,
        note: Callable[[str, str], None] = lambda name, what: None,
        leave_with_parent: bool = False,
    ) -> None:
        self._berths = [_Berth(program) for program in programs]
        self._note = note
        self._leaving = threading.Event()
        self._orphaned = end_with_parent() if leave_with_parent else threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="fleet", daemon=True)

    def start(self) -> None:
        """Start everything and watch it from a thread."""
        for berth in self._berths:
            self._launch(berth)
        self._watcher.start()

    def wait(self, at_most_s: float) -> bool:
        """Block until somebody calls `leave` or `stop`, or the parent is gone: True then, False when the time is over."""
        return self._leaving.wait(at_most_s)

    def leave(self) -> None:
        """Make `wait` return; safe in a signal's reaction and from any thread."""
        self._leaving.set()

    def stop(self) -> None:
        """End everything: all get SIGTERM at once, each its own grace, then SIGKILL."""
        self._leaving.set()
        if self._watcher.is_alive() and threading.current_thread() is not self._watcher:
            self._watcher.join()
        stopping = [
            threading.Thread(
                target=berth.running.stop, args=(0.5 if self._orphaned.is_set() else berth.program.grace_s,)
            )
            for berth in self._berths
            if berth.running is not None
        ]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()

    def running(self) -> dict[str, int]:
        """The programs that run now, with their leashes' process ids."""
        return {
            berth.program.name: berth.running.pid
            for berth in self._berths
            if berth.running is not None and berth.running.poll() is None
        }

    def exits(self, name: str) -> list[int]:
        """The exit codes that a program has had so far."""
        return [code for berth in self._berths if berth.program.name == name for code in berth.exits]

    def _watch(self) -> None:
        while not self._leaving.wait(0.2):
            for berth in self._berths:
                self._look_at(berth)

    def _look_at(self, berth: _Berth) -> None:
        if berth.running is None:
            if time.monotonic() >= berth.start_at:
                self._launch(berth)
            return
        code = berth.running.poll()
        if code is None:
            return
        berth.running.stop(0)
        berth.running = None
        berth.exits.append(code)
        lived = time.monotonic() - berth.started
        berth.delay_s = FIRST_DELAY_S if lived >= STEADY_S else min(berth.delay_s * 2, LONGEST_DELAY_S)
        berth.start_at = time.monotonic() + berth.delay_s
        self._note(berth.program.name, f"ended with {code} after {lived:.0f} s, starts again in {berth.delay_s:.1f} s")

    def _launch(self, berth: _Berth) -> None:
        program = berth.program
        berth.running = start(program.command, environment=program.environment, log=program.log)
        berth.started = time.monotonic()
        self._note(program.name, "started")
