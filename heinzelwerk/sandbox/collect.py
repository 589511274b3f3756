"""Take what an agent left in `out/`, trusting nothing about it; and measure and remove such trees.

The agent chose every name, type, mode, size and depth. Nothing is followed, opened blindly or waited for, and what
is not taken is listed with its reason. Source: facts/coding_agents.md 7.6.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from heinzelwerk.sandbox.spec import CollectedFile, Limits, SkippedFile

SKIPS_LISTED = 200
"""More skipped entries than this are counted in one last line."""

PATH_CHARACTERS = 3_500
"""Directories with longer paths count as over any cap; a path of 4,096 cannot be opened by name."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _Collection:
    """What was taken and what was not, so far, against the caps."""

    def __init__(self, device: int, limits: Limits) -> None:
        self.device = device
        self.limits = limits
        self.files: list[CollectedFile] = []
        self.skipped: list[SkippedFile] = []
        self.total = 0
        self.seen = 0

    def skip(self, path: str, reason: str) -> None:
        self.skipped.append(SkippedFile(path=_shown(path), reason=reason))

    def walk(self, directory: int, prefix: str, depth: int) -> None:
        """One directory, names in order; `directory` stays the caller's to close."""
        for name in sorted(os.listdir(directory)):
            path = f"{prefix}{name}"
            self.seen += 1
            if self.seen > 20 * self.limits.out_files + 1_000:
                self.skip(prefix or ".", "too many entries: the rest was not looked at")
                return
            problem = _name_problem(name)
            if problem is not None:
                self.skip(path, problem)
                continue
            try:
                self.take(directory, name, path, depth)
            except OSError as error:
                self.skip(path, f"unreadable: {os.strerror(error.errno or 0)}")

    def take(self, directory: int, name: str, path: str, depth: int) -> None:
        """One entry, whatever it turns out to be."""
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            if depth >= self.limits.out_depth:
                self.skip(path, f"more than {self.limits.out_depth} levels deep")
                return
            below = os.open(name, _DIRECTORY, dir_fd=directory)
            try:
                if os.fstat(below).st_dev != self.device:
                    self.skip(path, "on another file system")
                else:
                    self.walk(below, f"{path}/", depth + 1)
            finally:
                os.close(below)
        elif stat.S_ISREG(status.st_mode):
            self.read(directory, name, path)
        else:
            self.skip(path, _kind(status.st_mode))

    def read(self, directory: int, name: str, path: str) -> None:
        """One regular file, checked again on the open descriptor."""
        if len(self.files) >= self.limits.out_files:
            self.skip(path, f"more than {self.limits.out_files} files")
            return
        descriptor = os.open(name, _FILE, dir_fd=directory)
        try:
            status = os.fstat(descriptor)
            problem = self.problem_with(status)
            if problem is not None:
                self.skip(path, problem)
                return
            data = _read_up_to(descriptor, self.limits.out_file_bytes + 1)
        finally:
            os.close(descriptor)
        if len(data) > self.limits.out_file_bytes or self.total + len(data) > self.limits.out_bytes:
            self.skip(path, "grew over the cap")
            return
        self.total += len(data)
        self.files.append(CollectedFile(path=path, data=data, sha256=hashlib.sha256(data).hexdigest()))

    def problem_with(self, status: os.stat_result) -> str | None:
        if not stat.S_ISREG(status.st_mode):
            return _kind(status.st_mode)
        if status.st_dev != self.device:
            return "on another file system"
        if status.st_nlink != 1:
            return "has another name (hard link)"
        if status.st_size > self.limits.out_file_bytes:
            return f"{status.st_size} bytes: more than {self.limits.out_file_bytes} for one file"
        if self.total + status.st_size > self.limits.out_bytes:
            return f"more than {self.limits.out_bytes} bytes in total"
        return None


def collect(directory: int, limits: Limits) -> tuple[tuple[CollectedFile, ...], tuple[SkippedFile, ...]]:
    """Everything below the open directory that may be taken, in path order, and what was skipped and why.

    Call it when every process that could write there is dead. Modes are dropped: only names and bytes come back.
    """
    found = _Collection(os.fstat(directory).st_dev, limits)
    found.walk(directory, "", 1)
    listed = found.skipped[:SKIPS_LISTED]
    more = len(found.skipped) - len(listed)
    if more:
        listed.append(SkippedFile(path="...", reason=f"and {more} more entries that were skipped"))
    return tuple(found.files), tuple(listed)


def disk_use(directories: tuple[Path, ...], *, stop_at: int, entries: int = 100_000) -> int:
    """Bytes on disk below the directories, while they are being written; more than `stop_at` is not counted further.

    More than `entries` entries count as too much as well: they fill a disk by its inodes.
    """
    total = seen = 0
    for top in directories:
        for size in _sizes(top):
            total, seen = total + size, seen + 1
            if total > stop_at:
                return total
            if seen > entries:
                return stop_at + 1
    return total


def remove_tree(top: Path) -> None:
    """Remove a tree that may be unreadable, unwritable or thousands of levels deep; nothing in it is followed.

    Call it when nothing writes there any more. OSError where an entry belongs to somebody else.
    """
    try:
        root = _enter(str(top), None)
    except FileNotFoundError:
        return
    try:
        counter = 0
        while names := os.listdir(root):
            for name in names:
                counter = _flatten(root, name, counter)
    finally:
        os.close(root)
    top.rmdir()


def _flatten(root: int, name: str, counter: int) -> int:
    """Remove one entry of `root`; directories inside it move up to `root` first, so that no depth can hurt."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=root, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=root)
        return counter
    inner = _enter(name, root)
    try:
        for below in os.listdir(inner):
            if stat.S_ISDIR(os.stat(below, dir_fd=inner, follow_symlinks=False).st_mode):
                os.close(_enter(below, inner))  # moving a directory writes its `..`
                counter += 1
                os.rename(below, _free_name(root, counter), src_dir_fd=inner, dst_dir_fd=root)
            else:
                os.unlink(below, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=root)
    return counter


def _free_name(root: int, counter: int) -> str:
    name = f".{counter}"
    while True:
        try:
            os.stat(name, dir_fd=root, follow_symlinks=False)
        except FileNotFoundError:
            return name
        name += "x"


def _enter(name: str, parent: int | None) -> int:
    """Open a directory and give its owner the rights to list and change it."""
    try:
        opened = os.open(name, _DIRECTORY, dir_fd=parent)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=parent)
        opened = os.open(name, _DIRECTORY, dir_fd=parent)
    os.fchmod(opened, 0o700)
    return opened


def _sizes(top: Path) -> Iterator[int]:
    waiting = [str(top)]
    while waiting:
        directory = waiting.pop()
        if len(directory) > PATH_CHARACTERS:
            yield sys.maxsize  # deeper than a name can reach: nobody could say what lies there
            return
        for status, path in _listed(directory):
            yield status.st_blocks * 512
            if stat.S_ISDIR(status.st_mode):
                waiting.append(path)


def _listed(directory: str) -> list[tuple[os.stat_result, str]]:
    try:
        return [(entry.stat(follow_symlinks=False), entry.path) for entry in _scan(directory)]
    except OSError:
        return []  # it went while we looked; the next look counts it


def _scan(directory: str) -> list[os.DirEntry[str]]:
    """The entries; a directory that the agent closed to its own account is opened again, else it could hide there."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except PermissionError:
        held = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.chmod(f"/proc/self/fd/{held}", 0o700)
        finally:
            os.close(held)
        with os.scandir(directory) as entries:
            return list(entries)


def _read_up_to(descriptor: int, cap: int) -> bytes:
    kept = bytearray()
    while len(kept) < cap and (chunk := os.read(descriptor, min(1 << 20, cap - len(kept)))):
        kept += chunk
    return bytes(kept)


def _name_problem(name: str) -> str | None:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if any(not letter.isprintable() for letter in name):
        return "its name has control or invisible characters"
    return None


def _kind(mode: int) -> str:
    for test, word in (
        (stat.S_ISLNK, "symbolic link"),
        (stat.S_ISFIFO, "named pipe"),
        (stat.S_ISSOCK, "socket"),
        (stat.S_ISCHR, "character device"),
        (stat.S_ISBLK, "block device"),
    ):
        if test(mode):
            return word
    return "not a regular file"


def _shown(path: str) -> str:
    """For people: printable, and not endless."""
    text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in path)
    return text if len(text) <= 300 else f"{text[:290]}...{text[-7:]}"
