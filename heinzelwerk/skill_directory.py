"""Skills on a disk: `<directory>/<name>/SKILL.md` and the files beside it. Symbolic links are refused, never followed."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from heinzelwerk import skill
from heinzelwerk.skill import Layer, Refusal, Skill

_IGNORED = "__pycache__"


def read_skills(directory: Path, *, layer: Layer = Layer.TEAM) -> tuple[Skill | Refusal, ...]:
    """Every skill of a directory, by name; none where it does not exist. One bad skill never hides the others."""
    if directory.is_symlink():
        return (Refusal(directory.name, directory.name, "the directory is a symbolic link", "Name a real directory."),)
    if not directory.is_dir():
        return ()
    names = sorted(
        entry.name
        for entry in os.scandir(directory)
        if not _ignored(entry.name) and (entry.is_symlink() or entry.is_dir(follow_symlinks=False))
    )
    return tuple(read_skill(directory / name, layer=layer) for name in names)


def read_skill(directory: Path, *, layer: Layer = Layer.TEAM) -> Skill | Refusal:
    """One skill's directory; what the disk refuses is a refusal like any other."""
    name = directory.name
    if directory.is_symlink():
        return Refusal(name, name, "the directory is a symbolic link", "Copy the skill here.")
    files: dict[str, bytes] = {}
    try:
        for path in _files(directory, depth=1):
            relative = path.relative_to(directory).as_posix()
            if path.is_symlink():
                return Refusal(name, relative, "a symbolic link", "Replace it by the file.")
            if len(files) > skill.MOST_FILES + 1:
                break  # one more than allowed is enough to be refused
            files[relative] = _content(path)
    except OSError as error:
        return Refusal(name, name, f"the directory cannot be read: {error.strerror}", "Check its permissions.")
    return skill.read(name, files, layer=layer)


def _files(directory: Path, *, depth: int) -> Iterator[Path]:
    """Files and links below, in order; directories too deep are entered once more, so that their files are refused."""
    for entry in sorted(os.scandir(directory), key=lambda found: found.name):
        if _ignored(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth <= skill.DEEPEST:
                yield from _files(directory / entry.name, depth=depth + 1)
        else:
            yield directory / entry.name


def _content(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, f"{path.name} is no regular file")
        return opened.read(skill.LARGEST_FILE + 1)


def _ignored(name: str) -> bool:
    return name.startswith(".") or name == _IGNORED
