"""The private directory of one run: made before it, filled with what the agent is given, gone after it.

<root>/<run id>.json     locked by the worker that runs it, for `leftovers`
<root>/<run id>/work     the given files; `work/out` for what comes back
<root>/<run id>/home     HOME, or under bubblewrap the files that are copied into one made of memory
<root>/<run id>/tmp      TMPDIR, where it is not memory
<root>/<run id>/run      standing instructions, configuration, our scripts; read-only for the agent
"""

from __future__ import annotations

import contextlib
import functools
import os
import py_compile
import re
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from heinzelwerk.errors import Refused
from heinzelwerk.sandbox import collect, leftovers, threads
from heinzelwerk.sandbox.spec import Account, Backend, InsidePath, Layout, SandboxSpec

SCRIPTS = Path(__file__).with_name("inside")
INSIDE = PurePosixPath("/handoff")
"""Where a run's own directories appear under bubblewrap: a name that no host path has, as host paths keep theirs."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One run's directory and what is inside it. Serves one `run.run`."""

    run_id: str
    directory: Path
    layout: Layout
    backend: Backend
    record: int
    """The locked record of this run, see `leftovers`."""
    out: int
    """The open `work/out`: whatever is renamed meanwhile, this is the one that is collected."""
    listeners: tuple[socket.socket, ...]
    """Model and tools, where the loopback device is the machine's; empty under bubblewrap."""

    @property
    def entry(self) -> Path:
        """What `inside/enter.py` is told; beside the directory, where root alone may write."""
        return self.directory.with_name(f"{self.run_id}.enter")


@contextlib.asynccontextmanager
async def place(backend: Backend, *, root: Path, run_id: str) -> AsyncIterator[Place]:
    """Make the private directory of a run below `root`; it is removed at the end, whatever happened.

    Raises Refused for a run id that is no file name or that is in use.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise Refused(f"{run_id!r} is no run id: letters, digits, dot, dash and underscore, at most 120")
    opened = _open(backend, root=root, run_id=run_id)
    try:
        yield opened
    finally:
        await threads.whole(_remove, opened)


def _remove(place: Place) -> None:
    for listener in place.listeners:
        listener.close()
    os.close(place.out)
    try:
        collect.remove_tree(place.directory)
        place.entry.unlink(missing_ok=True)
        leftovers.record_of(place.directory).unlink(missing_ok=True)
    except OSError:
        pass  # the run's result is worth more; its record stays, so the next start tries again and says what is wrong
    os.close(place.record)


def _open(backend: Backend, *, root: Path, run_id: str) -> Place:
    directory = root.resolve() / run_id
    root.mkdir(mode=0o711, parents=True, exist_ok=True)
    try:
        record = leftovers.claim(directory)
    except FileExistsError:
        raise Refused(f"run {run_id} is running already, or was left behind: see {directory}") from None
    directory.mkdir(mode=0o700)
    for name in ("work", "work/out", "home", "tmp", "run"):
        (directory / name).mkdir(mode=0o755 if name in ("work", "run") else 0o700)
    _give(backend.drop_to, *(directory / name for name in (".", "work/out", "home", "tmp")))
    listeners = () if backend.name == "bubblewrap" else (_listener(), _listener())
    out = os.open(directory / "work/out", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    layout = _layout(backend, directory, listeners)
    return Place(
        run_id=run_id,
        directory=directory,
        layout=layout,
        backend=backend,
        record=record,
        out=out,
        listeners=tuple(listeners),
    )


def _layout(backend: Backend, directory: Path, listeners: tuple[socket.socket, ...]) -> Layout:
    python = InsidePath(str(backend.python))
    if backend.name == "bubblewrap":
        work, home, run = (InsidePath(str(INSIDE / name)) for name in ("work", "home", "run"))
        tmp = InsidePath("/tmp")  # noqa: S108 - a memory file system of the run's own
        return Layout(work=work, home=home, run=run, tmp=tmp, python=python, model_port=8080, tools_port=8081)
    work, home, run, tmp = (InsidePath(str(directory / name)) for name in ("work", "home", "run", "tmp"))
    model_port, tools_port = (int(listener.getsockname()[1]) for listener in listeners)
    return Layout(work=work, home=home, run=run, tmp=tmp, python=python, model_port=model_port, tools_port=tools_port)


def fill(place: Place, spec: SandboxSpec) -> tuple[str, ...]:
    """Write what the agent is given; returns warnings. Raises Refused for a path that leaves its directory."""
    warnings: list[str] = []
    account = place.backend.drop_to
    home = place.directory / "home"
    if spec.home_from is not None:
        warnings += _copy_tree(spec.home_from, home)
    for target, files in (("work", spec.files), ("home", spec.home_files), ("run", spec.run_files)):
        _write_all(place.directory / target, files)
    for name, data in _scripts().items():
        (place.directory / "run" / name).write_bytes(data)
    if account is not None:
        _give(account, *home.rglob("*"))
    return tuple(warnings)


@functools.cache
def _scripts() -> Mapping[str, bytes]:
    """Our scripts for the inside, compiled once: doing it at every start costs more than bubblewrap does.

    They are for the very interpreter that runs this (`Backend.python`), and carry no time to be checked against.
    """
    found = {"stdio.py": (SCRIPTS / "stdio.py").read_bytes()}
    with tempfile.TemporaryDirectory(prefix="hw-scripts-") as scratch:
        for name in ("shim", "forward", "fence"):
            compiled, mode = Path(scratch, f"{name}.pyc"), py_compile.PycInvalidationMode.UNCHECKED_HASH
            source = str(SCRIPTS / f"{name}.py")
            py_compile.compile(source, cfile=str(compiled), dfile=f"{name}.py", doraise=True, invalidation_mode=mode)
            found[compiled.name] = compiled.read_bytes()
    return found


def _write_all(top: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        relative = PurePosixPath(name)
        parts = relative.parts
        if not parts or relative.is_absolute() or ".." in parts or "\x00" in name or parts[0] == "out":
            raise Refused(f"{name!r} is no path for a file of a run: relative, without '..', not below out/")
        target = top.joinpath(*parts)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise Refused(f"{name!r} is both a file and a directory among the files of this run") from None


def _copy_tree(source: Path, target: Path) -> Iterable[str]:
    """Regular files and directories of an operator's directory, never what a link points to."""
    skipped = 0
    for directory, names, files in os.walk(source, followlinks=False):
        there = target / os.path.relpath(directory, source)
        there.mkdir(parents=True, exist_ok=True)
        skipped += sum(os.path.islink(os.path.join(directory, name)) for name in names)
        for name in files:
            entry = Path(directory, name)
            if stat.S_ISREG(entry.lstat().st_mode):
                (there / name).write_bytes(entry.read_bytes())
            else:
                skipped += 1
    return (f"{skipped} links or special files of {source} were not copied into HOME",) if skipped else ()


def _give(account: Account | None, *paths: Path) -> None:
    if account is not None:
        for path in paths:
            os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _listener() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    listener.setblocking(False)
    return listener
