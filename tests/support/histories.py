"""Git histories for tests, written as fast-import streams: any date, any bytes, tens of thousands in a second."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True)
class Change:
    """One commit of the main line; `merged` adds a branch of that many commits as its second parent."""

    at: datetime
    message: bytes = b"Change"
    author: bytes = b"Ada Lovelace"
    merged: int = 0
    encoding: bytes | None = None


def plain_git(directory: Path, *arguments: str, stdin: bytes | None = None) -> str:
    done = subprocess.run(
        ["git", "-C", str(directory), *arguments], input=stdin, capture_output=True, check=True, timeout=120
    )
    return done.stdout.decode().strip()


def make(top: Path, changes: Sequence[Change], *, bare: bool = False) -> Path:
    """A repository at `top` whose first-parent line is `changes`, oldest first."""
    top.mkdir(parents=True)
    plain_git(top, "init", "-q", "-b", "main", *(("--bare",) if bare else ()))
    if changes:
        plain_git(top, "fast-import", "--quiet", "--date-format=raw", stdin=stream(changes))
    return top


def stream(changes: Sequence[Change]) -> bytes:
    parts: list[bytes] = []
    for number, change in enumerate(changes, start=1):
        main, before = number * 1_000, (number - 1) * 1_000
        tip = before
        for step in range(change.merged):
            branch = Change(change.at, b"Step %d on a branch" % step, b"Branch Author")
            parts.append(_commit(b"refs/heads/topic", main - change.merged + step, branch, parent=tip))
            tip = main - change.merged + step
        parts.append(_commit(b"refs/heads/main", main, change, parent=before, merge=tip if change.merged else None))
    return b"".join(parts)


def _commit(ref: bytes, mark: int, change: Change, *, parent: int, merge: int | None = None) -> bytes:
    stamp = b"%d +0000" % int(change.at.timestamp())
    lines = [
        b"commit " + ref,
        b"mark :%d" % mark,
        b"author %s <someone@example.org> %s" % (change.author, stamp),
        b"committer Robot <robot@example.org> %s" % stamp,
        *([b"encoding " + change.encoding] if change.encoding else []),
        b"data %d" % len(change.message),
        change.message,
        *([b"from :%d" % parent] if parent else []),
        *([b"merge :%d" % merge] if merge is not None else []),
        b"M 100644 inline note.txt",
        b"data 4",
        b"%4d" % (mark % 10_000),
        b"",
    ]
    return b"\n".join(lines) + b"\n"
