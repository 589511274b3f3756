"""Contract files on a disk: which there are, and their bytes. The one module of this package that does I/O.

Symbolic links are never followed: a link could show a team somebody else's file. Source: the contract format, section 1.1.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from heinzelwerk.contract import reader, source
from heinzelwerk.contract.reader import SUFFIX, Reading
from heinzelwerk.contract.source import Finding

_HIDDEN = "."


def read_directory(directory: Path, *, namespace: str = "team", recursive: bool = False) -> tuple[Reading, ...]:
    """Every `*.prose.md` of a directory, by path; `recursive` also looks into its directories, hidden ones left out.

    A directory that is a link or no directory gives one reading with HZC001 (line 1, field `directory`), one that does not
    exist gives none.
    """
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        kind = "a symbolic link" if directory.is_symlink() else "no directory"
        return (_unread(directory, namespace, "directory", f"{directory.name} is {kind}", "Name a real directory."),)
    try:
        paths = sorted(_files(directory, recursive=recursive))
    except FileNotFoundError:
        return ()
    except OSError as error:
        message = f"the directory cannot be read: {error.strerror}"
        return (_unread(directory, namespace, "directory", message, "Check its permissions."),)
    return tuple(read_file(path, namespace=namespace) for path in paths)


def read_path(path: Path, *, namespace: str = "team") -> tuple[Reading, ...]:
    """What `check PATH` reads: one file whatever its name, or a directory with all directories below it."""
    if path.is_file() and not path.is_symlink():
        return (read_file(path, namespace=namespace),)
    if not path.exists() and not path.is_symlink():
        hint = "Check the spelling; contracts live in workflows/."
        return (_unread(path, namespace, "file", "there is no such file or directory", hint),)
    return read_directory(path, namespace=namespace, recursive=True)


def read_file(path: Path, *, namespace: str = "team") -> Reading:
    """One contract file; what the disk refuses is a diagnostic like any other."""
    data = read_bytes(path)
    if isinstance(data, Finding):
        return _unread(path, namespace, data.field, data.message, data.hint)
    return reader.read(data, file_name=path.name, namespace=namespace, file=str(path))


def read_bytes(path: Path) -> bytes | Finding:
    """The bytes of a contract file, one more than the largest allowed at most; or why the disk refuses them."""
    try:
        # O_NOFOLLOW and the size come from one open file, so that nobody can swap it in between; O_NONBLOCK keeps a
        # named pipe from holding the check.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return Finding(1, "HZC001", "file", f"the file cannot be read: {error.strerror}", "Check its permissions.")
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return Finding(1, "HZC001", "file", "it is no regular file", "Replace it by a file.")
        return opened.read(source.LARGEST_FILE + 1)


def _files(directory: Path, *, recursive: bool) -> Iterator[Path]:
    for entry in os.scandir(directory):
        path = directory / entry.name
        if entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
            yield path
        elif recursive and entry.is_dir(follow_symlinks=False) and not entry.name.startswith(_HIDDEN):
            yield from _files(path, recursive=True)


def _unread(path: Path, namespace: str, field: str, message: str, hint: str) -> Reading:
    empty = reader.unread(file_name=path.name, namespace=namespace, file=str(path))
    return empty.found((Finding(1, "HZC001", field, message, hint),))
