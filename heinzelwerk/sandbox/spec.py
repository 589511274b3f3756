"""What a sandboxed run is asked for and what comes back, as values; the starting is in `heinzelwerk.sandbox.run`.

A caller opens a `Place` for one run (`run.place`), writes its arguments and configuration with the place's `Layout`,
and calls `run.run` once. Source of the rules and figures: facts/coding_agents.md sections 5 and 7.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NewType

MEBIBYTE = 1 << 20

BackendName = Literal["bubblewrap", "landlock", "unsafe"]
Stream = Literal["stdout", "stderr"]
InsidePath = NewType("InsidePath", str)
"""A path as the agent sees it. On bubblewrap it exists nowhere else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the parent enforces on one run. Seconds, bytes, counts."""

    timeout_s: float = 600.0
    idle_s: float = 180.0
    """No output, and no activity that the caller reports, for this long ends the run as `idle`."""
    stop_grace_s: float = 5.0
    """From the interrupt of a stop to the kill. A timeout gives at most 0.7 s, to be dead within a second."""
    output_bytes: int = 64 * MEBIBYTE
    """Of stdout and stderr together; more ends the run as `output_cap`."""
    out_files: int = 500
    out_bytes: int = 50 * MEBIBYTE
    """Collected from `out/` in total. `disk_bytes` bounds what may lie there meanwhile."""
    out_file_bytes: int = 10 * MEBIBYTE
    out_depth: int = 12
    disk_bytes: int = 256 * MEBIBYTE
    """For `out/`, looked at each second; on bubblewrap also the fixed size of HOME and of the temporary directory."""
    nproc: int = 256
    nofile: int = 1024
    fsize: int = 64 * MEBIBYTE
    data: int = 4096 * MEBIBYTE
    """RLIMIT_DATA of each process, not RLIMIT_AS: runtimes reserve far more addresses than they use."""
    cpu_s: int = 3600
    """CPU seconds of each process."""
    memory_bytes: int | None = None
    """Of all processes together; enforced only where a cgroup with the memory controller is delegated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where things are, as the agent sees them: real directories under Landlock, fixed ones under bubblewrap.

    Host paths that are bound read-only (`SandboxSpec.read_only`) keep their own path inside, on every backend.
    """

    work: InsidePath
    """The working directory: the given files, read-only."""
    home: InsidePath
    """HOME: private, writable, gone after the run. Never below the temporary directory (codex refuses that)."""
    tmp: InsidePath
    """TMPDIR."""
    run: InsidePath
    """Read-only files of the run: standing instructions, private configuration."""
    python: InsidePath
    """An interpreter for `-I -S` scripts inside."""
    model_port: int
    """On 127.0.0.1, forwarded to `SandboxSpec.model_socket`."""
    tools_port: int
    """On 127.0.0.1, forwarded to `SandboxSpec.tools_socket`."""

    @property
    def out(self) -> InsidePath:
        """Where the agent may leave files."""
        return InsidePath(f"{self.work}/out")

    @property
    def contract(self) -> InsidePath:
        """Where `run_files["contract.md"]` appears."""
        return InsidePath(f"{self.run}/contract.md")

    @property
    def model_url(self) -> str:
        """The base address of the model, without a path."""
        return f"http://127.0.0.1:{self.model_port}"

    @property
    def tools_argv(self) -> tuple[str, ...]:
        """A command that joins its stdin and stdout to `tools_socket`: the stdio server for an agent's MCP settings."""
        return (self.python, "-I", "-S", f"{self.run}/stdio.py", str(self.tools_port))


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """One run. All paths in the mappings are relative POSIX paths below the named directory.

    The agent's environment is `environment` and HOME, TMPDIR, PATH (where not given), LANG: nothing of the worker's.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    stdin: bytes = field(default=b"", repr=False)
    """Written, then closed: an agent that waits for the end of its input would hang otherwise."""
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Below `Layout.work`, read-only."""
    home_files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Below `Layout.home`, writable: private configuration of the agent."""
    home_from: Path | None = None
    """A directory whose copy becomes HOME, below `home_files`; links in it are left out."""
    run_files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Below `Layout.run`, read-only, such as `contract.md`."""
    read_only: tuple[Path, ...] = ()
    """Host files or directories that the agent may read and execute, at their own path: its installation."""
    out: bool = True
    """Whether `out/` is writable and collected."""
    model_socket: Path | None = None
    tools_socket: Path | None = None
    limits: Limits = Limits()


class Ended(enum.StrEnum):
    """Why a run is over; the first that happened."""

    EXITED = "exited"
    """The agent ended by itself: see `exit_code` and `signal`."""
    TIMEOUT = "timeout"
    IDLE = "idle"
    STOPPED = "stopped"
    """`stop` was set."""
    OUTPUT_CAP = "output_cap"
    DISK_CAP = "disk_cap"
    KILLED = "killed"
    """The sandbox died under us: the machine's memory killer, an operator, a broken supervisor."""
    SETUP_FAILED = "setup_failed"
    """The agent was never started; `detail` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedFile:
    """One file of `out/`: relative path, bytes, SHA-256 in lower-case hex."""

    path: str
    data: bytes = field(repr=False)
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFile:
    """One entry of `out/` that was not taken, with the reason; the name is escaped for display."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxResult:
    """What came of a run. Everything that it started is dead by the time this value exists."""

    ended: Ended
    exit_code: int | None
    """What the agent returned; None where a signal ended it or it never ran."""
    signal: int | None
    """The signal that ended the agent, ours included."""
    started_at: float
    """Seconds since the epoch, by the clock that the caller gave."""
    duration_ms: int
    detail: str = ""
    output_bytes: int = 0
    files: tuple[CollectedFile, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    backend: BackendName
    backend_version: str
    network: Literal["model", "none", "host"]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The unprivileged account that a worker which runs as root drops to."""

    uid: int
    gid: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A way to confine that passed its self-test on this machine, in this account."""

    name: BackendName
    version: str
    python: Path
    """The interpreter for the scripts inside; `python_home` is bound for it."""
    python_home: Path
    executable: Path | None = None
    """The bwrap binary."""
    drop_to: Account | None = None
    cgroup: Path | None = None
    """A delegated cgroup v2 directory below which each run gets its own."""
    warnings: tuple[str, ...] = ()
    """For every result, such as the weaker guarantees of Landlock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """No backend may be used here: what failed, step by step, and what to do about it."""

    detail: str
    fix: str
    tried: tuple[tuple[str, str], ...] = ()
    """(backend, reason) in the order tried."""
