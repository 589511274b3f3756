"""A cgroup v2 of its own for each run, where the worker was given a directory to make it in.

It bounds all processes together, which no rlimit does, and kills them in one write. Where the machine delegates
nothing, runs do without: that is a warning of `doctor`, not a failure.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from heinzelwerk.sandbox.spec import Limits


@dataclass(frozen=True, slots=True)
class Group:
    """The cgroup of one run, and which of its limits are in force."""

    path: Path
    enforced: tuple[str, ...]

    def adopt(self, top: int) -> None:
        """Move a process and all that descend from it; call it while none of them forks."""
        for pid in (top, *_descendants(top)):
            with contextlib.suppress(ProcessLookupError):
                (self.path / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def kill(self) -> None:
        """Kill every process in it, those of other sessions and orphans included."""
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_text("1", encoding="ascii")

    def remove(self) -> None:
        """Remove it; the kernel allows that a moment after the last process has been reaped."""
        for _ in range(20):
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.002)
            else:
                return


def open_group(parent: Path, name: str, limits: Limits) -> Group | None:
    """Make the run's group below `parent` with the limits whose controllers are delegated; None: not possible."""
    path = parent / f"handoff-{os.getpid()}-{name}"  # other directories of runs may know the same run ids
    try:
        Group(path, ()).remove()  # left by a worker that had this pid
        path.mkdir()
    except OSError:
        return None
    wanted = {"pids.max": limits.nproc, "memory.max": limits.memory_bytes}
    enforced = []
    for file, value in wanted.items():
        if value is not None and (path / file).exists():
            with contextlib.suppress(OSError):
                (path / file).write_text(str(value), encoding="ascii")
                enforced.append(file)
    return Group(path, tuple(enforced))


def bounds(parent: Path) -> bool:
    """Whether groups below `parent` can bound processes or memory."""
    try:
        controllers = (parent / "cgroup.subtree_control").read_text(encoding="ascii").split()
    except OSError:
        return False
    return bool({"pids", "memory"} & set(controllers))


def own_group() -> Path | None:
    """This worker's own cgroup v2 directory, if a child can be made and killed in it; None elsewhere."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    inside = next((line[3:] for line in lines if line.startswith("0::")), None)
    mount = next((fields[1] for line in mounts if (fields := line.split())[2] == "cgroup2"), None)
    if inside is None or mount is None:
        return None
    path = Path(mount + inside)
    return path if os.access(path, os.W_OK) and (path / "cgroup.procs").exists() else None


def _descendants(top: int) -> list[int]:
    found, waiting = [], [top]
    while waiting:
        pid = waiting.pop()
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                below = [int(word) for word in task.read_text(encoding="ascii").split()]
                found += below
                waiting += below
    return found
