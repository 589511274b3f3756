"""Which confinement works here: found out by trying it with canaries, never by what is installed.

An installed bwrap may be forbidden namespaces, a kernel may have Landlock switched off, an account may not be
reachable. So each candidate runs a script through the very path of real runs, and the script reports what it could do.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import pwd
import shutil
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from heinzelwerk.errors import HeinzelwerkError
from heinzelwerk.sandbox import cgroup, landlock
from heinzelwerk.sandbox import place as places
from heinzelwerk.sandbox import run as runs
from heinzelwerk.sandbox.inside import fence
from heinzelwerk.sandbox.launch import SEARCH_PATH
from heinzelwerk.sandbox.spec import Account, Backend, BackendName, Ended, Limits, Refusal, SandboxSpec

ORDER: tuple[BackendName, ...] = ("bubblewrap", "landlock")
NOBODY = 65534
_tests = itertools.count(1)

_SELF_TEST = """
import json, os, socket, sys
secret, port = sys.argv[1], int(sys.argv[2])
seen = {}
try:
    open(secret).close()
    seen["file"] = "it could read a file outside"
except OSError:
    pass
try:
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    seen["port"] = "it could connect to a port of the machine"
except OSError:
    pass
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[3])
    seen["unix"] = "it could connect to a unix socket of the machine"
except OSError:
    pass
try:
    if int(sys.argv[4]):
        os.kill(int(sys.argv[4]), 0)
        seen["signal"] = "it could signal the worker"
except OSError:
    pass
try:
    open(os.path.join(os.getcwd(), "own"), "w").close()
    seen["work"] = "it could write into its given files"
except OSError:
    pass
open(os.path.join(os.environ["HOME"], "own"), "w").close()
print(json.dumps(seen))
"""

_FIXES = (
    (
        "setting up uid map",
        "allow user namespaces for bwrap (Ubuntu: an AppArmor profile for /usr/bin/bwrap, see docs/sandbox.md)",
    ),
    (
        "creating new namespace",
        "allow user namespaces in this container (Docker: --security-opt seccomp=..., docs/sandbox.md)",
    ),
    (
        "create a new namespace",
        "allow user namespaces in this container (Docker: --security-opt seccomp=..., docs/sandbox.md)",
    ),
    (
        "may not enter",
        "install Python and the agents where that account can read them, or run the worker in an unprivileged account",
    ),
    ("cannot drop root", "give the worker CAP_SETUID and CAP_SETGID, or run it in an unprivileged account"),
    ("was not found", "install bubblewrap with the system's package manager: apt install bubblewrap"),
)


async def choose_backend(
    *,
    root: Path,
    account: str | None = None,
    order: Sequence[BackendName] = ORDER,
    unsafe: bool = False,
    cgroup_parent: Path | None = None,
    bwrap: Path | None = None,
) -> Backend | Refusal:
    """The first backend of `order` that confines a test run here, or why none does. Takes some 0.1 s for each.

    `root` is the directory for runs, on the disk that may be filled. `account`: what to become when started as root
    (default uid 65534). `unsafe` is an operator's explicit wish to run without confinement; it is then said in every result.
    `cgroup_parent`: a delegated cgroup v2 directory (default: this worker's own). `bwrap`: the binary (default: found on
    a fixed path). What dead workers left below `root` is cleared first.
    """
    try:
        drop_to = _account(account)
    except LookupError:
        return Refusal(
            detail=f"there is no account {account!r} to drop root to",
            fix="create it, or correct the account of handoffs in the settings",
        )
    await runs.clear_leftovers(root)
    base = _unconfined(drop_to, cgroup_parent)
    if unsafe:
        return replace(base, warnings=(*base.warnings, "sandbox = unsafe: this agent ran without any confinement"))
    tried: list[tuple[str, str]] = []
    for name in order:
        candidate = await _candidate(base, name, bwrap)
        problem = candidate if isinstance(candidate, str) else await self_test(candidate, root=root)
        if problem is None and isinstance(candidate, Backend):
            return candidate
        tried.append((name, str(problem)))
    return _refusal(tried)


def _unconfined(drop_to: Account | None, cgroup_parent: Path | None) -> Backend:
    """What all backends have in common. The interpreter is the base one: a virtual environment is not needed inside."""
    return Backend(
        name="unsafe",
        version="",
        python=Path(os.path.realpath(sys.executable)),
        python_home=Path(os.path.realpath(sys.base_prefix)),
        drop_to=drop_to,
        cgroup=cgroup.own_group() if cgroup_parent is None else cgroup_parent,
        warnings=() if drop_to is None else (f"started as root: agents run as {drop_to.name} (uid {drop_to.uid})",),
    )


async def _candidate(base: Backend, name: BackendName, bwrap: Path | None) -> Backend | str:
    """What to test, or why there is nothing to test."""
    if name == "bubblewrap":
        found = shutil.which("bwrap", path=SEARCH_PATH) if bwrap is None else str(bwrap)
        if found is None or not os.access(found, os.X_OK):
            return f"bwrap was not found in {SEARCH_PATH if bwrap is None else bwrap}"
        return replace(base, name=name, executable=Path(found), version=await _version(found))
    if name == "landlock":
        if sys.platform != "linux" or fence.abi() < fence.ABI_NEEDED:
            found_abi = fence.abi() if sys.platform == "linux" else 0
            return f"the kernel has Landlock ABI {found_abi}, needed is {fence.ABI_NEEDED} (Linux 6.12)"
        return replace(base, name=name, version=f"ABI {fence.abi()}", warnings=(*base.warnings, landlock.WARNING))
    return f"{name} is no confinement"


async def self_test(backend: Backend, *, root: Path) -> str | None:
    """Run the canaries through a backend; what it let through or why it did not run, or None when it confines."""
    run_id = f"self-test-{backend.name}-{os.getpid()}-{next(_tests)}"
    # Not below `root`: a unix socket's path is short, and an operator's directory may be long.
    with tempfile.TemporaryDirectory(prefix="hw-canary-") as public, socket.socket(socket.AF_UNIX) as by_path:
        try:
            canary = _canary(public, by_path)
            with socket.create_server(("127.0.0.1", 0)) as tcp:
                # In a pid namespace the worker's number is somebody else's: there is nothing to ask there.
                worker = os.getpid() if backend.name == "landlock" else 0
                words = (canary, str(tcp.getsockname()[1]), by_path.getsockname(), str(worker))
                return await _try(backend, root=root, run_id=run_id, words=words)
        except (OSError, HeinzelwerkError) as error:
            return str(error)


def _canary(directory: str, by_path: socket.socket) -> str:
    """A file and a listening socket in `directory` that every account of the machine can reach."""
    canary, service = Path(directory, "canary"), Path(directory, "service")
    canary.write_text("readable by everybody", encoding="ascii")
    by_path.bind(str(service))
    by_path.listen()
    for path, mode in ((directory, 0o755), (canary, 0o644), (service, 0o666)):
        os.chmod(path, mode)
    return str(canary)


async def _try(backend: Backend, *, root: Path, run_id: str, words: Sequence[str]) -> str | None:
    lines: list[bytes] = []
    async with places.place(backend, root=root, run_id=run_id) as place:
        argv = (place.layout.python, "-I", "-S", "-c", _SELF_TEST, *words)
        spec = SandboxSpec(argv=argv, limits=Limits(timeout_s=60, idle_s=60))
        result = await runs.run(
            spec, place, on_line=lambda stream, line: lines.append(line), stop=asyncio.Event(), now=lambda: 0.0
        )
    if result.ended is not Ended.EXITED or result.exit_code != 0:
        words_of_agent = b" ".join(lines[-3:]).decode("utf-8", "replace")
        return result.detail or f"the self-test ended with {result.exit_code}: {words_of_agent}"
    seen = json.loads(lines[-1]) if lines else {"output": "it printed nothing"}
    return "; ".join(seen.values()) or None


async def _version(bwrap: str) -> str:
    child = await asyncio.create_subprocess_exec(
        bwrap, "--version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env={}
    )
    words, _ = await child.communicate()
    return words.decode("ascii", "replace").strip().removeprefix("bubblewrap ")[:40]


def _account(name: str | None) -> Account | None:
    """Whom to become: nobody else for an unprivileged worker, the named or the last account for root."""
    if os.geteuid() != 0:
        return None
    if name is None:
        return Account(uid=NOBODY, gid=NOBODY, name="nobody")
    entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    if entry.pw_uid == 0:
        raise LookupError
    return Account(uid=entry.pw_uid, gid=entry.pw_gid, name=entry.pw_name)


def _refusal(tried: Sequence[tuple[str, str]]) -> Refusal:
    detail = "; ".join(f"{name}: {reason}" for name, reason in tried)
    fixes = [fix for sign, fix in _FIXES for _, reason in tried if sign in reason.lower() or sign in reason]
    fix = fixes[0] if fixes else "install bubblewrap, or use a kernel with Landlock (Linux 6.12)"
    return Refusal(detail=f"no sandbox works here: {detail}", fix=fix, tried=tuple(tried))
