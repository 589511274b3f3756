"""What a worker that was killed left behind: find it, kill it, remove it, and never touch what is not ours.

A worker holds a lock on the record of each of its runs; the kernel drops it with the worker, however that ends, and also
across containers that share the directory. A sandbox that should have died with its worker is killed by pid and start
time (field 22 of /proc/PID/stat), within one boot and pid namespace: a pid alone is no identity, it is given again.
Source: facts/coding_agents.md 7.5.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heinzelwerk.sandbox import cgroup, collect


@dataclass(frozen=True, slots=True)
class Cleared:
    """One run of a dead worker: whether its sandbox still lived and was killed, and what could not be removed."""

    run_id: str
    killed: bool
    problem: str = ""


def record_of(directory: Path) -> Path:
    """The record lies beside the run's directory, out of the agent's account."""
    return directory.with_name(f"{directory.name}.json")


def claim(directory: Path) -> int:
    """Make and lock the record of a run; returns its descriptor, which is the lock. FileExistsError: it has one."""
    while True:
        held = os.open(record_of(directory), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)  # a starting worker took the empty record for a leftover and is removing it
            continue
        if os.fstat(held).st_nlink:
            return held
        os.close(held)


def note(held: int, *, child: int, group: Path | None = None) -> None:
    """Write down the sandbox's outermost process and its cgroup, for whoever finds this record without its worker."""
    record = {**_here(), "child": _identity(child), "cgroup": None if group is None else str(group)}
    os.ftruncate(held, 0)
    os.pwrite(held, json.dumps(record).encode(), 0)


def clear(root: Path) -> tuple[Cleared, ...]:
    """Clear every run below `root` whose worker is dead. Runs of workers that live are left alone.

    Call it when a worker starts. It never raises for one run; what it could not remove is in the answer.
    """
    if not root.is_dir():
        return ()
    return tuple(cleared for path in sorted(root.glob("*.json")) if (cleared := _clear_one(path)) is not None)


def _clear_one(path: Path) -> Cleared | None:
    try:
        held = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None  # another worker that starts was faster
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _clear(path, _read(held))
    except BlockingIOError:
        return None
    finally:
        os.close(held)


def _clear(path: Path, record: dict[str, Any]) -> Cleared:
    killed = record.items() >= _here().items() and _kill(record)
    directory = path.with_suffix("")
    try:
        collect.remove_tree(directory)
        path.with_suffix(".enter").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    except OSError as error:
        return Cleared(directory.name, killed, f"{directory} could not be removed: {error.strerror}")
    return Cleared(directory.name, killed)


def _kill(record: dict[str, Any]) -> bool:
    group = record.get("cgroup")
    if isinstance(group, str):
        left = cgroup.Group(Path(group), ())
        left.kill()
        left.remove()
    child = record.get("child")
    if not isinstance(child, dict) or not isinstance(child.get("pid"), int) or child != _identity(child["pid"]):
        return False
    try:
        os.kill(child["pid"], signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _identity(pid: int) -> dict[str, int] | None:
    """Pid and start time; None for one that does not exist or has ended and waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else {"pid": pid, "start": int(fields[19])}


def _read(held: int) -> dict[str, Any]:
    try:
        record = json.loads(os.pread(held, 65_536, 0))
    except ValueError:
        return {}  # cut by a crash: it names nobody
    return record if isinstance(record, dict) else {}


def _here() -> dict[str, str]:
    """Within what pids mean something: this boot, this pid namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return {"boot": boot, "pid_namespace": os.readlink("/proc/self/ns/pid")}
    except OSError:
        return {"boot": "", "pid_namespace": ""}
