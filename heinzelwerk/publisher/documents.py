"""The publisher `documents.replace-section`: marked sections of Markdown files below a directory of the operator's."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from heinzelwerk import folder, ids
from heinzelwerk.errors import (
    FileError,
    FileMissing,
    FileUnsafe,
    Refused,
    TargetConflict,
    TargetMissing,
    TargetUnavailable,
    TargetUnknown,
)
from heinzelwerk.ports import Placement, TargetView
from heinzelwerk.publisher import section
from heinzelwerk.publisher.section import Where

LOCK_NAME = ".heinzelwerk.lock"

_TRIES = 3
_POLL_S = 0.02
_SHARE_OF_TIME = 0.9
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class DocumentSections:
    """Replaces marked sections, each only while it holds what was shown; what stands around it is kept.

    Writers of this kind take turns by a lock file in the directory. People and other programs do not take that lock:
    the document is compared once more right before the new one takes its place, and read afresh where it differs.
    """

    action = section.ACTION

    # The section is compared with what was shown under the lock, and an attempt that was stopped in the middle still
    # holds the lock: a late attempt finds a section that has moved on, or finds its own text, and changes nothing.
    refuses_late = True

    def __init__(self, directory: Path, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._monotonic = monotonic

    def target(self, arguments: Mapping[str, str]) -> str:
        """`documents:<ref>#<marker>`. Refused where the arguments are not exactly a `ref` and a `marker` that fit."""
        return section.where(arguments).target

    async def view(self, arguments: Mapping[str, str]) -> TargetView:
        """The section as it is; `revision` is the SHA-256 of the document.

        TargetMissing: no such document or section. TargetConflict: markers that do not fit together, a link, a file
        that is no text. TargetUnavailable: permissions, a lost mount.
        """
        return await asyncio.to_thread(self._view, section.where(arguments))

    async def read_back(self, arguments: Mapping[str, str]) -> TargetView:
        """What stands there after an attempt: `key` names the effect whose text is there, unedited."""
        return await self.view(arguments)

    async def place(self, placement: Placement, *, deadline_s: float) -> str:
        """Replace the section within `deadline_s` seconds; answers the SHA-256 of the new document.

        Placing under the same key again changes nothing, also where the text was edited since.
        """
        # The caller stops waiting at `deadline_s`; ending before that gives it an answer instead of a doubt.
        deadline = self._monotonic() + deadline_s * _SHARE_OF_TIME
        try:
            at = section.where(placement.arguments)
        except Refused as error:
            raise TargetMissing(str(error)) from error  # decided, nothing changed: the ledger must not wonder
        return await asyncio.to_thread(self._place, at, placement, deadline)

    def _view(self, at: Where) -> TargetView:
        with _as_target_errors(), folder.entered(self._directory, at.ref, folder.parts(at.ref)) as here:
            found = _plain_file(here, at)
            return section.view(folder.decoded(found.data, at.ref), at, revision=ids.digest(found.data))

    def _place(self, at: Where, placement: Placement, deadline: float) -> str:
        with (
            _as_target_errors(),
            folder.entered(self._directory, at.ref, folder.parts(at.ref)) as here,
            self._locked(at, deadline),
        ):
            for _ in range(_TRIES):
                found = _plain_file(here, at)
                after = section.place(folder.decoded(found.data, at.ref), at, placement).encode("utf-8")
                if after == found.data or self._swapped(here, at, found, after, deadline):
                    return ids.digest(after)
        raise TargetUnavailable(
            f"{at.ref} was changed by others {_TRIES} times while {at.marker} was written: try later"
        )

    @contextmanager
    def _locked(self, at: Where, deadline: float) -> Iterator[None]:
        path = self._directory / LOCK_NAME
        with _unchanged(path):
            lock = os.open(path, _LOCK, 0o666)
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    self._check_time(at, deadline, "another writer held the documents directory")
                    time.sleep(_POLL_S)
                except OSError as error:
                    raise TargetUnavailable(
                        f"{path} cannot be locked ({error.strerror}): use a local directory"
                    ) from error
            yield
        finally:
            os.close(lock)

    def _check_time(self, at: Where, deadline: float, why: str) -> None:
        if self._monotonic() >= deadline:
            raise TargetUnavailable(f"{at} was not written: its time was up, {why}; nothing was changed")

    def _swapped(self, here: int, at: Where, found: folder.Found, after: bytes, deadline: float) -> bool:
        """Put the new document in the old one's place, whole or not at all; False where the old one has changed."""
        name = folder.parts(at.ref)[-1]
        # The lock makes a fixed name safe; what a killed attempt left behind is simply replaced.
        draft = f".heinzelwerk-{ids.digest(name)[:16]}.new"
        try:
            with _unchanged(at.ref):
                _remove(here, draft)
                _write(here, draft, after, found.status)
            now = folder.read(here, at.ref, name)
            if now.data != found.data or not os.path.samestat(now.status, found.status):
                return False
            self._check_time(at, deadline, "writing took too long")
            _rename(here, draft, name, at.ref)
        finally:
            try:
                _remove(here, draft)
            except OSError:
                pass  # the next attempt removes it; the error that led here is the one to report
        try:
            os.fsync(here)
        except OSError as error:
            raise TargetUnknown(f"{at.ref} was replaced, but the disk did not confirm it ({error.strerror})") from error
        return True


def _plain_file(here: int, at: Where) -> folder.Found:
    """Read the document; FileUnsafe for one that replacing would part from its other names."""
    name = folder.parts(at.ref)[-1]
    found = folder.read(here, at.ref, name)
    if found.status.st_nlink > 1:
        raise FileUnsafe(f"{at.ref} has {found.status.st_nlink} names (hard links): replacing it would part them")
    return found


def _write(here: int, name: str, data: bytes, like: os.stat_result) -> None:
    """Write a new file with the old one's mode and owner, down to the disk."""
    if not like.st_mode & 0o222:
        raise OSError(errno.EACCES, "the document is marked read-only")
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
def _unchanged(what: str | Path) -> Iterator[None]:
    """Steps before the document is touched: whatever the system refuses here, nothing has changed."""
    try:
        yield
    except OSError as error:
        raise TargetUnavailable(
            f"{what} cannot be written ({error.strerror}): nothing was changed; check free space, permissions and owner"
        ) from error


@contextmanager
def _as_target_errors() -> Iterator[None]:
    try:
        yield
    except FileMissing as error:
        raise TargetMissing(str(error)) from error
    except FileUnsafe as error:
        raise TargetConflict(str(error)) from error
    except FileError as error:
        raise TargetUnavailable(str(error)) from error
