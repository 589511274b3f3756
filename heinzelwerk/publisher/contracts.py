"""The publisher `contract.amend`: an approved change of a contract's own text, written into its team's repository.

A team whose repository is a directory of the operator's gets the file replaced; the next load makes it act. A repository
that is fetched with git belongs to its remote, and a directory may be mounted read-only: there approving records the
decision, and people apply the patch.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from heinzelwerk import amending, folder, ids
from heinzelwerk.errors import FileMissing, FileUnreachable, TargetConflict, TargetMissing, TargetUnavailable
from heinzelwerk.ports import Placement, TargetView
from heinzelwerk.publisher import replacing
from heinzelwerk.publisher.replacing import Replacing

Loaded = Callable[[str, str], Awaitable[bytes | None]]
"""The bytes of a team's contract as the newest generation has them; None where none is loaded."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


def by_hand(root: Path | None) -> bool:
    """Whether people apply a change themselves: the team has no directory here, or one that is mounted read-only.

    A directory that is not on this machine is another worker's to write.
    """
    if root is None:
        return True
    workflows = root / amending.WORKFLOWS
    return workflows.is_dir() and not os.access(workflows, os.W_OK)


class ContractFiles:
    """Replaces `workflows/<name>.prose.md` below a team's directory, only while it holds what was shown.

    `arguments` are `team` and `contract`, as code writes them; a model never names them.
    """

    action = amending.ACTION
    refuses_late = True  # the file is compared with what was shown under a lock; without a directory nothing is written

    def __init__(
        self, directories: Mapping[str, Path], loaded: Loaded, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._directories, self._loaded, self._monotonic = dict(directories), loaded, monotonic

    def target(self, arguments: Mapping[str, str]) -> str:
        """`contract:<name>`."""
        return f"contract:{arguments['contract']}"

    async def view(self, arguments: Mapping[str, str]) -> TargetView:
        """The contract as its file is, or as it is loaded where this process sees no file; `shown` is its SHA-256.

        TargetMissing: no such contract. TargetConflict: a link, or a file that is no text.
        """
        name = arguments["contract"]
        data = await self._current(arguments["team"], name)
        return TargetView(self.target(arguments), ids.digest(data), _text(data, name), revision=ids.digest(data))

    async def place(self, placement: Placement, *, deadline_s: float) -> str:
        """Write the text within `deadline_s` seconds; answers its SHA-256.

        TargetConflict where the contract changed since it was shown, or where the new text has errors. Writing the same
        text again changes nothing.
        """
        team, name = placement.arguments["team"], placement.arguments["contract"]
        wrong = amending.fault(placement.text, name=name)
        if wrong:
            raise TargetConflict(f"nothing was written, the new text of {name} has an error in {wrong}")
        root = self._directories.get(team)
        if root is not None and not by_hand(root):
            deadline = self._monotonic() + deadline_s * replacing.SHARE_OF_TIME
            return await asyncio.to_thread(self._write, root, name, placement, deadline)
        _check(await self._current(team, name), name, placement)
        return ids.digest(placement.text)

    async def _current(self, team: str, name: str) -> bytes:
        root = self._directories.get(team)
        data = await asyncio.to_thread(self._read, root, name) if root is not None else None
        if data is None:
            # The loaded text has the same bytes, and so the same hash, as the file that it was loaded from.
            data = await self._loaded(team, name)
        if data is None:
            raise TargetMissing(f"team {team} has no contract {name} loaded: it was renamed or taken out")
        return data

    def _read(self, root: Path, name: str) -> bytes | None:
        ref = amending.place(name)
        with replacing.as_target_errors():
            try:
                with folder.entered(root, ref, folder.parts(ref)) as here:
                    return folder.read(here, ref, folder.parts(ref)[-1]).data
            except FileMissing as error:
                raise TargetMissing(f"there is no {ref} in {root}: it was renamed or taken out") from error
            except FileUnreachable:
                return None  # a worker on another host; whoever writes it says what is wrong

    def _write(self, root: Path, name: str, placement: Placement, deadline: float) -> str:
        ref = amending.place(name)
        with replacing.as_target_errors(), folder.entered(root, ref, folder.parts(ref)) as here:
            attempt = Replacing(here, folder.parts(ref)[-1], ref, ref, deadline, self._monotonic)
            with replacing.unchanged(root / ref):
                # The directory itself is the lock, so that a checkout of people's gets no file of ours.
                lock = os.open(".", _DIRECTORY, dir_fd=here)
            with attempt.locked(lock, f"another writer held {root}"):
                for _ in range(replacing.TRIES):
                    found = attempt.read()
                    _check(found.data, name, placement)
                    after = placement.text.encode()
                    if after == found.data or attempt.swapped(found, after):
                        return ids.digest(after)
        raise TargetUnavailable(f"{ref} was changed by others {replacing.TRIES} times while it was written: try later")


def _check(data: bytes, name: str, placement: Placement) -> None:
    """TargetConflict where the contract neither is what was shown nor already what shall be."""
    if ids.digest(data) not in (placement.shown, ids.digest(placement.text)):
        raise TargetConflict(f"{amending.place(name)} was changed since the amendment was shown; nothing was written")


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TargetConflict(f"{amending.place(name)} is not UTF-8 at byte {error.start}: save it as UTF-8") from error
