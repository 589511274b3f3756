"""Files below a directory that an operator named, opened so that no name in a contract can lead out of it.

Every component is opened below the one before it, by file descriptor and without following links: what was checked
is what is read, also while somebody moves things around.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from heinzelwerk.errors import FileMissing, FileUnreachable, FileUnsafe

MOST_BYTES = 1 << 20
SUFFIXES = (".md", ".markdown")

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LONGEST_REF = 1_024


@dataclass(frozen=True, slots=True)
class Found:
    """A file as it was read: its bytes and what the file system says about it."""

    data: bytes
    status: os.stat_result


def parts(ref: str) -> tuple[str, ...]:
    """The components of a reference such as `notes/changes.md`; ValueError says what is wrong with it.

    Relative, with `/`, Markdown files only; no `..`, no empty or hidden component, no control character.
    """
    names = tuple(ref.split("/"))
    if not ref or len(ref) > _LONGEST_REF or not all(letter.isprintable() for letter in ref) or "\\" in ref:
        raise ValueError(f"{ref[:80]!r} names no document: write a path such as notes/changes.md")
    if ref.startswith("/") or ".." in names:
        raise ValueError(f"{ref[:80]!r} leads out of the documents directory: write a path below it, without ..")
    if any(not name or name.startswith(".") for name in names):
        raise ValueError(f"{ref[:80]!r} has an empty or hidden part: write a path such as notes/changes.md")
    if not names[-1].lower().endswith(SUFFIXES):
        raise ValueError(f"{ref[:80]!r} is no Markdown file: its name ends with {' or '.join(SUFFIXES)}")
    return names


@contextmanager
def entered(directory: Path, ref: str, names: tuple[str, ...]) -> Iterator[int]:
    """The descriptor of the directory that holds the file; FileMissing, FileUnsafe or FileUnreachable otherwise."""
    try:
        here = os.open(directory, _DIRECTORY)  # may itself be a link: the operator chose it
    except OSError as error:
        raise _unreachable(f"the documents directory {directory}", error) from error
    try:
        for name in names[:-1]:
            inner = _opened(here, ref, name, _DIRECTORY)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


def read(here: int, ref: str, name: str, *, most_bytes: int = MOST_BYTES) -> Found:
    """Read one regular file whole from an entered directory; FileUnsafe for a link, another kind or too many bytes."""
    # Non-blocking, because opening a named pipe would otherwise wait for a writer.
    opened = _opened(here, ref, name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise FileUnsafe(f"{ref} is no regular file: name a Markdown file")
        data = _whole(opened, most_bytes + 1)
    except OSError as error:
        raise _unreachable(ref, error) from error
    finally:
        os.close(opened)
    if len(data) > most_bytes:
        raise FileUnsafe(f"{ref} has more than {most_bytes:,} bytes: split the document")
    return Found(data, status)


def decoded(data: bytes, ref: str) -> str:
    """The text of a document, byte order mark included; FileUnsafe names the first byte that is no UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileUnsafe(
            f"{ref} is not UTF-8: byte {error.start + 1}, in line {line}, belongs to no character: save it as UTF-8"
        ) from None


def _opened(here: int, ref: str, name: str, flags: int) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=here)
    except FileNotFoundError as error:
        raise FileMissing(f"there is no document {ref} in the documents directory: check the name") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            raise FileUnsafe(
                f"{ref} leads through {name!r}, a link or no directory: links are never followed"
            ) from error
        raise _unreachable(ref, error) from error


def _whole(opened: int, most: int) -> bytes:
    kept = bytearray()
    while len(kept) < most and (chunk := os.read(opened, most - len(kept))):
        kept += chunk
    return bytes(kept)


def _unreachable(what: str, error: OSError) -> FileUnreachable:
    return FileUnreachable(f"{what} cannot be read ({error.strerror}): check that it exists and its permissions")
