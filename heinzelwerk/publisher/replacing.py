"""Replacing one file whole: by lock, by comparison with what was read, and by a rename, so that nobody's edit is lost.

Writers of this kind take turns by a lock. People and other programs do not take it: the file is compared once more right
before the new one takes its place, and read afresh where it differs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from heinzelwerk import folder, ids
from heinzelwerk.errors import (
    FileError,
    FileMissing,
    FileUnsafe,
    TargetConflict,
    TargetMissing,
    TargetUnavailable,
    TargetUnknown,
)

SHARE_OF_TIME = 0.9
"""The caller stops waiting at its deadline; ending before that gives it an answer instead of a doubt."""
TRIES = 3
_POLL_S = 0.02
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Replacing:
    """One attempt to replace `name` in an entered directory; `what` is what errors call the target, `ref` the file."""

    here: int
    name: str
    ref: str
    what: str
    deadline: float
    monotonic: Callable[[], float]

    @contextmanager
    def locked(self, lock: int, held: str) -> Iterator[None]:
        """Hold the open file `lock`, which is closed at the end; TargetUnavailable (`held`) where time is up before that."""
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    self._check_time(held)
                    time.sleep(_POLL_S)
                except OSError as error:
                    raise TargetUnavailable(
                        f"{self.ref} cannot be locked ({error.strerror}): use a local directory"
                    ) from error
            yield
        finally:
            os.close(lock)

    def read(self) -> folder.Found:
        """Read the file; FileUnsafe for one that replacing would part from its other names."""
        found = folder.read(self.here, self.ref, self.name)
        if found.status.st_nlink > 1:
            raise FileUnsafe(f"{self.ref} has {found.status.st_nlink} names (hard links): replacing it would part them")
        return found

    def _check_time(self, why: str) -> None:
        if self.monotonic() >= self.deadline:
            raise TargetUnavailable(f"{self.what} was not written: its time was up, {why}; nothing was changed")

    def swapped(self, found: folder.Found, after: bytes) -> bool:
        """Put the new file in the old one's place, whole or not at all; False where the old one has changed."""
        # The lock makes a fixed name safe; what a killed attempt left behind is simply replaced.
        draft = f".heinzelwerk-{ids.digest(self.name)[:16]}.new"
        try:
            with unchanged(self.ref):
                _remove(self.here, draft)
                _write(self.here, draft, after, found.status)
            now = folder.read(self.here, self.ref, self.name)
            if now.data != found.data or not os.path.samestat(now.status, found.status):
                return False
            self._check_time("writing took too long")
            _rename(self.here, draft, self.name, self.ref)
        finally:
            try:
                _remove(self.here, draft)
            except OSError:
                pass  # the next attempt removes it; the error that led here is the one to report
        try:
            os.fsync(self.here)
        except OSError as error:
            raise TargetUnknown(
                f"{self.ref} was replaced, but the disk did not confirm it ({error.strerror})"
            ) from error
        return True


def _write(here: int, name: str, data: bytes, like: os.stat_result) -> None:
    """Write a new file with the old one's mode and owner, down to the disk."""
    if not like.st_mode & 0o222:
        raise OSError(errno.EACCES, "the file is marked read-only")
    opened = os.open(name, _NEW, 0o600, dir_fd=here)
    try:
        mine = os.fstat(opened)
        if (mine.st_uid, mine.st_gid) != (like.st_uid, like.st_gid):
            os.fchown(opened, like.st_uid, like.st_gid)
        os.fchmod(opened, stat.S_IMODE(like.st_mode))
        left = memoryview(data)
        while left:
            left = left[os.write(opened, left) :]
        os.fsync(opened)
    finally:
        os.close(opened)


def _rename(here: int, draft: str, name: str, ref: str) -> None:
    try:
        os.rename(draft, name, src_dir_fd=here, dst_dir_fd=here)
    except OSError as error:
        # These are decided before anything moves; after any other error a network file system may have moved it.
        if error.errno in (
            errno.EACCES,
            errno.EPERM,
            errno.EROFS,
            errno.ENOSPC,
            errno.EDQUOT,
            errno.EBUSY,
            errno.ENOENT,
        ):
            raise TargetUnavailable(f"{ref} could not be replaced ({error.strerror}); nothing was changed") from error
        raise TargetUnknown(f"nobody can say whether {ref} was replaced ({error.strerror})") from error


def _remove(here: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=here)
    except FileNotFoundError:
        pass  # the usual case: nothing was left behind


@contextmanager
def unchanged(what: str | Path) -> Iterator[None]:
    """Steps before the file is touched: whatever the system refuses here, nothing has changed."""
    try:
        yield
    except OSError as error:
        raise TargetUnavailable(
            f"{what} cannot be written ({error.strerror}): nothing was changed; check free space, permissions and owner"
        ) from error


@contextmanager
def as_target_errors() -> Iterator[None]:
    """Errors of reading a file as errors of a target."""
    try:
        yield
    except FileMissing as error:
        raise TargetMissing(str(error)) from error
    except FileUnsafe as error:
        raise TargetConflict(str(error)) from error
    except FileError as error:
        raise TargetUnavailable(str(error)) from error
