"""What each process of a machine holds, in a file that is locked for as long as the process lives.

The kernel gives the lock back the moment a process is gone, however it died and whatever its id: whoever gets the lock of
another's file knows that its leases have no holder any more, and need not wait for their time to pass. A process whose
machine, or whose view of the directory, is gone as well leaves its leases to run out, as ever; so does one that could not
write its journal. Nothing here is relied on for safety: a lease that was ended too early only costs its holder the work.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from heinzelwerk.session import Hold

log = structlog.get_logger("heinzelwerk.journal")

SUFFIX = ".holds"
_REWRITE_AT = 64 * 1024
"""Bytes after which the journal is written anew with what is held now."""


class LeaseJournal:
    """This process's own file; closed, and its lock given back, with the process.

    Not thread-safe: its caller has a lock of its own. A disk that refuses is logged once and ends the journal.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self.path = directory / f"{name}{SUFFIX}"
        self._held: dict[str, Hold] = {}
        self._file: int | None = None
        self._bytes = 0

    def open(self) -> None:
        """Make the file and lock it."""
        with self._disk():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while self._file is None:
                self._file = self._locked()

    def keep(self, hold: Hold) -> None:
        """Note a hold before work begins under it."""
        self._held[hold.token] = hold
        self._append(_kept(hold))

    def forget(self, hold: Hold) -> None:
        """Note that it was given back or lost."""
        if self._held.pop(hold.token, None) is not None:
            self._append({"forget": [hold.token]})

    def close(self) -> None:
        """Take the file away where nothing is held; what still is stays for others to read."""
        if self._file is None:
            return
        with self._disk():
            if not self._held:
                self.path.unlink(missing_ok=True)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _locked(self) -> int | None:
        """The file, or None where somebody took it for a dead one's before it was locked."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is(file, self.path):
                os.ftruncate(file, 0)
                return file
        except OSError:
            os.close(file)
            raise
        os.close(file)
        return None

    def _append(self, entry: dict[str, list[str]]) -> None:
        if self._file is None:
            return
        with self._disk():
            if not self._held or self._bytes > _REWRITE_AT:
                os.ftruncate(self._file, 0)
                self._bytes = 0
                entries = [_kept(one) for one in self._held.values()]
            else:
                entries = [entry]
            for one in entries:
                self._bytes += os.write(self._file, json.dumps(one).encode() + b"\n")

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            log.warning("no journal of leases: after a kill they run out by themselves", reason=str(error))
            if self._file is not None:
                os.close(self._file)
                self._file = None


@contextmanager
def bequeathed(path: Path) -> Iterator[tuple[Hold, ...]]:
    """What a dead process held, under its file's lock; nothing while it lives. The file goes at the end of the block.

    A block that fails leaves the file for the next attempt, or for somebody else's.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):  # gone, or of another user of this machine
        yield ()
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        yield ()
        return
    try:
        yield _read(path) if _is(file, path) else ()
        if _is(file, path):
            path.unlink()
    finally:
        os.close(file)


def others(directory: Path, *, than: Path) -> tuple[Path, ...]:
    """The journals in a directory but one's own."""
    with suppress(FileNotFoundError):
        return tuple(sorted(path for path in directory.glob(f"*{SUFFIX}") if path != than))
    return ()


def _kept(hold: Hold) -> dict[str, list[str]]:
    return {"keep": [hold.kind, hold.team, hold.name, hold.token]}


def _is(file: int, path: Path) -> bool:
    """Whether the path still names this very file."""
    try:
        there, here = os.stat(path), os.fstat(file)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _read(path: Path) -> tuple[Hold, ...]:
    """Every hold that was noted and not forgotten; a line that a kill cut short ends the reading."""
    held: dict[str, Hold] = {}
    for line in path.read_bytes().splitlines():
        try:
            entry = json.loads(line)
            if "keep" in entry:
                hold = Hold(*entry["keep"])
                held[hold.token] = hold
            else:
                (token,) = entry["forget"]
                held.pop(token, None)
        except (ValueError, TypeError, KeyError):
            break
    return tuple(held.values())
