"""Finding a coding agent on this machine, and asking it which version it is and which flags it has.

Flags move between releases and an old release drops what isolates it, so an agent is asked once per binary, inside the
sandbox, and refused when its version is outside the tested range or a needed flag is gone (facts section 1).
"""

import asyncio
import hashlib
import re
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from heinzelwerk.handoff import Refusal
from heinzelwerk.runner.adapter import Find, RunnerSettings, Version

Ask = Callable[[tuple[str, ...], tuple[Path, ...]], Awaitable[bytes]]
"""`(argv, read-only host paths)` -> what it printed, from inside a sandbox without network."""

_VERSION = re.compile(rb"(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
_SCRIPTS = (".js", ".mjs", ".cjs")
_PRESENT = (Path("/usr"), Path("/bin"), Path("/lib"))  # in every sandbox already


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Where an agent is: how to start it, what of the host it needs, and the file that is it."""

    argv: tuple[str, ...]
    read_only: tuple[Path, ...]
    file: Path

    @property
    def identity(self) -> tuple[str, int, int, int]:
        """Changes whenever the file does: path, size, modification time, inode."""
        status = self.file.stat()
        return (str(self.file), status.st_size, status.st_mtime_ns, status.st_ino)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What an installed agent said about itself."""

    version: str
    sha256: str
    installation: Installation


def locate(find: Find, settings: RunnerSettings) -> Installation | Refusal:
    """The agent's executable, by the operator's path or on the search path."""
    named = settings.executable or shutil.which(find.name, path=settings.search_path)
    if named is None or not Path(named).exists():
        return Refusal(
            detail=f"{find.name} was not found ({settings.executable or settings.search_path}).",
            fix=f"Install {find.name}, or set the executable of the runner {settings.runner}.",
        )
    file = _native(Path(named).resolve(), find)
    if file.suffix not in _SCRIPTS:
        return Installation(argv=(str(file),), read_only=_needed(file), file=file)
    node = settings.node or shutil.which("node", path=settings.search_path)
    if node is None or not Path(node).exists():
        return Refusal(
            detail=f"{file.name} of {find.name} is a script for Node, and no node was found.",
            fix=f"Install Node 22, or set the node of the runner {settings.runner}.",
        )
    node = Path(node).resolve()
    return Installation(argv=(str(node), str(file)), read_only=(*_needed(file), *_needed(node)), file=file)


def locate_command(settings: RunnerSettings) -> Installation | Refusal:
    """The first word of the operator's command."""
    if not settings.command:
        return Refusal(detail="The command runner has no command.", fix="Give its argument list.")
    if not settings.trust_command:
        return Refusal(
            detail="Nobody has recorded that this command only reads.",
            fix="Let the operator set trust_command = true for it (by hand: --trust-command).",
        )
    named = shutil.which(settings.command[0], path=settings.search_path)
    if named is None:
        return Refusal(
            detail=f"The command {settings.command[0]!r} was not found or may not be run.",
            fix="Give its full path.",
        )
    file = Path(named).resolve()
    return Installation(argv=(named, *settings.command[1:]), read_only=_needed(file, Path(named)), file=file)


def _native(file: Path, find: Find) -> Path:
    """The real binary behind an npm start script, where the agent has one: it needs no Node and starts faster."""
    modules = _modules(file)
    if find.native is None or file.suffix not in _SCRIPTS or modules is None:
        return file
    return next((found for found in sorted(modules.glob(find.native)) if found.is_file()), file)


def _modules(file: Path) -> Path | None:
    """The outermost `node_modules` that holds a file."""
    return next((parent for parent in reversed(file.parents) if parent.name == "node_modules"), None)


def _needed(*files: Path) -> tuple[Path, ...]:
    """What must be visible for a file to run: its npm installation, or its directory."""
    tops = {_modules(file) or file.parent for file in files}
    return tuple(sorted(top for top in tops if not any(top.is_relative_to(root) for root in _PRESENT)))


async def probe(
    installation: Installation, find: Find | None, settings: RunnerSettings, *, ask: Ask
) -> Probe | Refusal:
    """Ask for version and flags, each in a sandbox of its own without any network; a command is not asked."""
    if find is None:
        digest = await asyncio.to_thread(_hash, installation.file)
        return Probe(version="", sha256=digest, installation=installation)
    read_only = (*installation.read_only, *settings.read_only)
    told = await ask((*installation.argv, *find.version), read_only)
    found = _VERSION.search(told)
    if found is None:
        return Refusal(
            detail=f"{find.name} did not say its version: {told[:200].decode('utf-8', 'replace').strip() or 'nothing'}",
            fix=f"Install a working {find.name}.",
        )
    major, minor, patch = (int(part) for part in found.groups())
    problem = _version_problem(find, settings, (major, minor, patch))
    if problem is not None:
        return problem
    offered = await ask((*installation.argv, *find.help), read_only) if find.flags else b""
    missing = [flag for flag in find.flags if not re.search(rb"(?<![\w-])" + flag.encode() + rb"(?![\w-])", offered)]
    if missing:
        return Refusal(
            detail=f"{find.name} {major}.{minor}.{patch} no longer has {', '.join(missing)}, which a run depends on.",
            fix=f"Install {find.name} {_dotted(find.versions[0])}.",
        )
    digest = await asyncio.to_thread(_hash, installation.file)
    return Probe(version=f"{major}.{minor}.{patch}", sha256=digest, installation=installation)


def _version_problem(find: Find, settings: RunnerSettings, version: Version) -> Refusal | None:
    low, below = settings.versions or find.versions
    if low <= version < below:
        return None
    return Refusal(
        detail=f"{find.name} {_dotted(version)} is outside the tested range: from {_dotted(low)}, below {_dotted(below)}.",
        fix=f"Install {find.name} {_dotted(low)}, or set the versions of the runner {settings.runner} after a test.",
    )


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
