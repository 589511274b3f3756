"""The publisher `documents.replace-section`: marked sections of Markdown files below a directory of the operator's."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from heinzelwerk import folder, ids
from heinzelwerk.errors import Refused, TargetMissing, TargetUnavailable
from heinzelwerk.ports import Placement, TargetView
from heinzelwerk.publisher import replacing, section
from heinzelwerk.publisher.replacing import Replacing
from heinzelwerk.publisher.section import Where

LOCK_NAME = ".heinzelwerk.lock"

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
        deadline = self._monotonic() + deadline_s * replacing.SHARE_OF_TIME
        try:
            at = section.where(placement.arguments)
        except Refused as error:
            raise TargetMissing(str(error)) from error  # decided, nothing changed: the ledger must not wonder
        return await asyncio.to_thread(self._place, at, placement, deadline)

    def _view(self, at: Where) -> TargetView:
        with replacing.as_target_errors(), folder.entered(self._directory, at.ref, folder.parts(at.ref)) as here:
            found = self._replacing(here, at, deadline=0.0).read()
            return section.view(folder.decoded(found.data, at.ref), at, revision=ids.digest(found.data))

    def _place(self, at: Where, placement: Placement, deadline: float) -> str:
        with replacing.as_target_errors(), folder.entered(self._directory, at.ref, folder.parts(at.ref)) as here:
            attempt = self._replacing(here, at, deadline)
            path = self._directory / LOCK_NAME
            with replacing.unchanged(path):
                lock = os.open(path, _LOCK, 0o666)
            with attempt.locked(lock, "another writer held the documents directory"):
                for _ in range(replacing.TRIES):
                    found = attempt.read()
                    after = section.place(folder.decoded(found.data, at.ref), at, placement).encode("utf-8")
                    if after == found.data or attempt.swapped(found, after):
                        return ids.digest(after)
        raise TargetUnavailable(
            f"{at.ref} was changed by others {replacing.TRIES} times while {at.marker} was written: try later"
        )

    def _replacing(self, here: int, at: Where, deadline: float) -> Replacing:
        return Replacing(here, folder.parts(at.ref)[-1], at.ref, str(at), deadline, self._monotonic)
