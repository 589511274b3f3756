"""Become an unprivileged account and exec: how a worker that runs as root starts a sandbox.

Usage: enter.py PLAN ARGV... The plan: uid, gid, reach (host paths that ARGV will need).

Inside a user namespace made by root, an outside uid 0 stays behind every mapped id, and bound files are read with
its rights; so the account changes first. What lies below a directory that only root may enter (an interpreter in
/root/.pyenv, an agent in /root/.cache) is then out of reach. Where root may mount, this gives the child a private view in
which such a directory holds the needed paths and nothing else; where it may not, it says which path is out of reach.
"""

import ctypes
import marshal
import os
import stat
import sys
from typing import Any

_NEW_MOUNTS = 0x00020000
_BIND, _REC, _PRIVATE, _NOSUID, _NODEV = 4096, 16384, 1 << 18, 2, 4

_libc = ctypes.CDLL(None, use_errno=True)


def barrier(path: str, uid: int, gid: int) -> "str | None":
    """The topmost directory above `path` that the account may not enter, or None."""
    parent = os.path.dirname(path)
    chain = []
    while parent not in chain:
        chain.append(parent)
        parent = os.path.dirname(parent)
    for directory in reversed(chain):
        status = os.stat(directory)
        bit = stat.S_IXUSR if status.st_uid == uid else stat.S_IXGRP if status.st_gid == gid else stat.S_IXOTH
        if not status.st_mode & bit:
            return directory
    return None


def reveal(paths: "list[str]", uid: int, gid: int) -> None:
    """Make every path enterable for the account, in a mount namespace of our own. Does nothing where all are."""
    hidden = {path: closed for path in paths if (closed := barrier(path, uid, gid)) is not None}
    if not hidden:
        return
    if _libc.unshare(_NEW_MOUNTS) != 0:
        path, closed = next(iter(hidden.items()))
        raise OSError(
            ctypes.get_errno(),
            f"{path} lies below {closed}, which uid {uid} may not enter, and this root may not mount: "
            "install it elsewhere or run the worker in an unprivileged account",
        )
    _mount("none", "/", None, _REC | _PRIVATE)
    opened = {path: os.open(path, os.O_PATH) for path in hidden}
    for closed in sorted(set(hidden.values())):
        _mount("tmpfs", closed, "tmpfs", _NOSUID | _NODEV, "mode=755,size=1m")
    for path in sorted(opened):
        _place(path, opened[path])


def _place(path: str, descriptor: int) -> None:
    if os.path.lexists(path) and os.path.samestat(os.stat(path), os.fstat(descriptor)):
        return  # it came along with a directory around it
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.makedirs(path, exist_ok=True)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o444))
    _mount(f"/proc/self/fd/{descriptor}", path, None, _BIND | _REC)


def _mount(source: str, target: str, kind: "str | None", flags: int, data: "str | None" = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    if _libc.mount(*encoded[:3], ctypes.c_ulong(flags), encoded[3]) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def become(uid: int, gid: int) -> None:
    """Give up root for good, and make sure of it."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid) or os.getgroups():
        raise OSError(1, "the account did not change")
    try:
        os.setuid(0)
    except PermissionError:
        return
    raise OSError(1, "the way back to root is open")


def main(plan: "dict[str, Any]", argv: "list[str]") -> None:
    """Reveal, become, exec."""
    reveal(plan["reach"], plan["uid"], plan["gid"])
    become(plan["uid"], plan["gid"])
    os.execve(argv[0], argv, dict(os.environ))  # noqa: S606 - no shell; the clean environment it was given


if __name__ == "__main__":
    try:
        with open(sys.argv[1], "rb") as file:
            main(marshal.load(file), sys.argv[2:])  # noqa: S302 - written by the worker, in a directory of its own
    except OSError as problem:
        sys.stderr.write(f"cannot drop root: {problem}\n")
        sys.exit(125)
