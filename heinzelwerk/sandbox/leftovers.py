"""What a worker that was killed left behind: find it, kill it, remove it, and never touch what is not ours.

A pid alone is no identity: it is given again. A record names the boot, and of each process the pid and its start
time (field 22 of /proc/PID/stat). Source: facts/coding_agents.md 7.5.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heinzelwerk.sandbox import collect


@dataclass(frozen=True, slots=True)
class Cleared:
    """One run of a dead worker: whether its sandbox still lived and was killed, and what could not be removed."""

    run_id: str
    killed: bool
    problem: str = ""


def record_of(directory: Path) -> Path:
    """The record lies beside the run's directory, out of the agent's account."""
    return directory.with_name(f"{directory.name}.json")


def write_record(directory: Path, *, child: int | None, cgroup: Path | None = None) -> None:
    """Say who runs this: this very worker, and the sandbox's outermost process once there is one."""
    record = {
        "boot": _boot(),
        "worker": _identity(os.getpid()),
        "child": None if child is None else _identity(child),
        "cgroup": None if cgroup is None else str(cgroup),
    }
    fresh = record_of(directory).with_suffix(".new")
    fresh.write_text(json.dumps(record), encoding="utf-8")
    fresh.replace(record_of(directory))


def clear(root: Path) -> tuple[Cleared, ...]:
    """Clear every run below `root` whose worker is dead. Runs of workers that live are left alone.

    Call it when a worker starts. It never raises for one run; what it could not remove is in the answer.
    """
    if not root.is_dir():
        return ()
    return tuple(cleared for path in sorted(root.glob("*.json")) if (cleared := _clear_one(path)) is not None)


def _clear_one(path: Path) -> Cleared | None:
    record = _read(path)
    same_boot = record.get("boot") == _boot()
    if same_boot and _lives(record.get("worker")):
        return None
    killed = same_boot and _kill(record)
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
        with contextlib.suppress(OSError):
            Path(group, "cgroup.kill").write_text("1", encoding="ascii")
            Path(group).rmdir()
    child = record.get("child")
    if not isinstance(child, dict) or not _lives(child):
        return False
    try:
        os.kill(child["pid"], signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _lives(identity: object) -> bool:
    """Whether exactly this process exists, zombies not counted: those have ended."""
    if not isinstance(identity, dict) or not isinstance(identity.get("pid"), int):
        return False
    return identity == _identity(identity["pid"])


def _identity(pid: int) -> dict[str, int] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return {"pid": pid, "start": -1} if not Path("/proc").is_dir() and pid == os.getpid() else None
    return None if fields[0] in (b"Z", b"X") else {"pid": pid, "start": int(fields[19])}


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
