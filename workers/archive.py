"""Retention: whole turns past it leave the store, their spine lines first written to the archive and synced."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heinzelwerk.ids import SessionId
from heinzelwerk.ports import Store


@dataclass(frozen=True, slots=True)
class Retention:
    """How long spines stay in the store, in seconds, and the directory that keeps them afterwards (None: nobody does)."""

    spine_s: float
    directory: Path | None = None


async def prune(team: str, retention: Retention, store: Store) -> int:
    """Seal what ended before the retention; answers the number of lines that left the store."""
    before_ms = await store.now_ms() - int(retention.spine_s * 1000)
    directory = retention.directory
    if directory is None:
        return await store.prune(team, before_ms=before_ms, archive=None)

    async def keep(session: SessionId, lines: Sequence[bytes]) -> None:
        await asyncio.to_thread(append, directory, session, lines)

    return await store.prune(team, before_ms=before_ms, archive=keep)


def append(directory: Path, session: SessionId, lines: Sequence[bytes]) -> None:
    """Add spine lines to `<directory>/<team>/<heinzel>.jsonl` and sync file and directory; whole lines or an OSError."""
    folder = directory / session.team
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{session.heinzel}.jsonl").open("ab") as file:
        file.write(b"".join(line.rstrip(b"\n") + b"\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
