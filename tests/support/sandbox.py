"""What the sandbox's tests share: backends of this machine, agents as scripts, and the same agents without a sandbox."""

import asyncio
import marshal
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heinzelwerk.sandbox import choose, place, run
from heinzelwerk.sandbox.place import SCRIPTS
from heinzelwerk.sandbox.spec import Backend, BackendName, Layout, Limits, Refusal, SandboxResult, SandboxSpec

CONFINING: tuple[BackendName, ...] = ("bubblewrap", "landlock")
PYTHON = os.path.realpath(sys.executable)
_chosen: dict[BackendName, Backend | Refusal] = {}


def backend_here(name: BackendName) -> Backend | Refusal:
    """The backend as the product chooses it on this machine, self-test included; asked once a test process."""
    if name not in _chosen:
        with public_directory() as root:
            _chosen[name] = asyncio.run(choose.choose_backend(root=root / "runs", order=(name,)))
    return _chosen[name]


def unprivileged() -> int | None:
    """The account that agents get here; None when the tests run in an ordinary one already."""
    return choose.NOBODY if os.geteuid() == 0 else None


@contextmanager
def public_directory() -> Iterator[Path]:
    """A directory that every account may enter and write, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="hw-test-", ignore_cleanup_errors=True) as name:
        path = Path(name)
        path.chmod(0o777)
        yield path


@dataclass
class Seen:
    """A result with the lines that came."""

    result: SandboxResult
    lines: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def out(self) -> str:
        """stdout as text."""
        return "\n".join(line.decode("utf-8", "replace") for stream, line in self.lines if stream == "stdout")

    @property
    def err(self) -> str:
        """stderr as text."""
        return "\n".join(line.decode("utf-8", "replace") for stream, line in self.lines if stream == "stderr")


ROOMY = Limits(timeout_s=60, nproc=4096)
"""The kernel counts the processes and threads of the account, not of the run, and tests side by side share the account: with
the default of 256 a fork bomb in one of them takes the threads of the others. What bounds a bomb is tested with its own limit."""


async def run_agent(
    backend: Backend,
    script: str,
    *words: str,
    root: Path,
    limits: Limits = ROOMY,
    stop: asyncio.Event | None = None,
    on_line: Callable[[str, bytes], None] | None = None,
    activity: Callable[[], float] | None = None,
    make: Callable[[Layout], Mapping[str, Any]] = lambda layout: {},
    run_id: str = "run-1",
) -> Seen:
    """Run a Python script through the real sandbox; `make` adds to the request what needs the layout."""
    lines: list[tuple[str, bytes]] = []

    def take(stream: str, line: bytes) -> None:
        lines.append((stream, line))
        if on_line is not None:
            on_line(stream, line)

    async with place.place(backend, root=root, run_id=run_id) as opened:
        argv = (opened.layout.python, "-I", "-S", "-u", "-c", textwrap.dedent(script), *words)
        request = SandboxSpec(**{"argv": argv, "limits": limits, **make(opened.layout)})
        result = await run.run(
            request, opened, on_line=take, stop=stop or asyncio.Event(), now=time.time, activity=activity
        )
    return Seen(result, lines)


@contextmanager
def outside(
    argv: Sequence[str], *, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[Any]:
    """A process in the agents' account without any sandbox, killed at the end."""
    account = unprivileged()
    with public_directory() as scratch:
        front: list[str] = []
        if account is not None:
            plan = {"uid": account, "gid": account, "reach": [os.path.realpath(sys.base_prefix)]}
            (scratch / "plan").write_bytes(marshal.dumps(plan))
            front = [PYTHON, "-I", "-S", str(SCRIPTS / "enter.py"), str(scratch / "plan")]
        child = subprocess.Popen(
            [*front, *argv],
            env={"PATH": "/usr/bin:/bin", **(environment or {})},
            cwd=cwd or scratch,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            yield child
        finally:
            child.kill()
            child.communicate()


def run_outside(script: str, *words: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """What the same script prints without any sandbox."""
    with outside(
        [PYTHON, "-I", "-S", "-u", "-c", textwrap.dedent(script), *words], cwd=cwd, environment=environment
    ) as child:
        printed, _ = child.communicate(timeout=60)
        return str(printed)


def alive_with(mark: str) -> list[int]:
    """The processes of the machine whose command line holds `mark`; zombies have none."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in words and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def wait_until(true: Callable[[], bool], *, seconds: float = 60.0) -> None:
    """Wait for something that must come; the bound only ends a broken test."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
