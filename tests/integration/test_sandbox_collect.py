"""Taking files from a tree that an enemy made, measuring it, and removing it."""

import os
import socket
import sys
from pathlib import Path

import pytest

from heinzelwerk.sandbox import collect
from heinzelwerk.sandbox.spec import CollectedFile, Limits, SkippedFile


def taken(top: Path, **limits: int) -> tuple[dict[str, bytes], dict[str, str]]:
    """Collected path -> bytes, skipped path -> reason."""
    opened = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        files, skipped = collect.collect(opened, Limits(**limits))
    finally:
        os.close(opened)
    assert all(isinstance(file, CollectedFile) for file in files)
    assert all(isinstance(file, SkippedFile) for file in skipped)
    return {file.path: file.data for file in files}, {file.path: file.reason for file in skipped}


def test_nothing_hostile_is_followed_opened_or_waited_for(tmp_path: Path) -> None:
    """Every kind of entry that is no plain file is named with its reason, and plain ones beside them still come."""
    (tmp_path / "good").write_text("good")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "root").symlink_to("/")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as service:
        directory = os.open(tmp_path, os.O_PATH)  # a socket's path must be short, wherever the test runs
        service.bind(f"/proc/self/fd/{directory}/service")
        os.close(directory)
        with open(tmp_path / "sparse", "wb") as sparse:
            sparse.truncate(1 << 40)
        (tmp_path / "one").write_text("x")
        os.link(tmp_path / "one", tmp_path / "two")
        (tmp_path / "new\nline").write_text("x")
        (tmp_path / "rtl\u202e").write_text("x")
        Path(os.fsdecode(bytes(tmp_path) + b"/bad\xff")).write_text("x")
        files, skipped = taken(tmp_path)
    assert files == {"good": b"good"}
    assert skipped["link"] == skipped["root"] == "symbolic link"
    assert (skipped["pipe"], skipped["service"]) == ("named pipe", "socket")
    assert str(1 << 40) in skipped["sparse"]
    assert all("hard link" in skipped[name] for name in ("one", "two"))
    assert all(name.isprintable() for name in skipped)
    assert len(skipped) == 10


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"out_files": 2}, "more than 2 files"),
        ({"out_bytes": 8}, "more than 8 bytes in total"),
        ({"out_file_bytes": 3}, "more than 3 for one file"),
    ],
)
def test_caps_hold_and_are_said(tmp_path: Path, limits: dict[str, int], reason: str) -> None:
    """Files come in the order of their names until a cap, and what did not fit is listed."""
    for name in "abc":
        (tmp_path / name).write_bytes(b"1234")
    files, skipped = taken(tmp_path, **limits)
    assert len(files) + len(skipped) == 3
    assert any(reason in words for words in skipped.values())
    assert list(files) == sorted(files)


def test_depth_is_bounded(tmp_path: Path) -> None:
    """A file at the cap comes, one below it does not."""
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/b/in").write_text("x")
    (tmp_path / "a/b/c/below").write_text("x")
    files, skipped = taken(tmp_path, out_depth=3)
    assert list(files) == ["a/b/in"]
    assert "levels deep" in skipped["a/b/c"]


def test_many_skips_are_counted(tmp_path: Path) -> None:
    """A list of reasons is for people: the rest is one line."""
    for number in range(collect.SKIPS_LISTED + 50):
        (tmp_path / f"{number:04}").symlink_to("x")
    _, skipped = taken(tmp_path)
    assert len(skipped) == collect.SKIPS_LISTED + 1
    assert "50 more" in skipped["..."]


def test_a_deep_and_closed_tree_is_removed(tmp_path: Path) -> None:
    """Thousands of levels, closed directories, links: all of it goes, and nothing that a link names."""
    keep = tmp_path / "keep"
    keep.mkdir()
    (keep / "file").write_text("kept")
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(keep)
    (top / "closed").mkdir()
    (top / "closed" / "x").write_text("x")
    (top / "closed").chmod(0)
    (top / ".1").mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(max(3_000, sys.getrecursionlimit() * 2)):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    collect.remove_tree(top)
    assert not top.exists()
    assert (keep / "file").read_text() == "kept"
    collect.remove_tree(top)  # once more is no error


def test_use_of_a_disk_cannot_be_hidden(tmp_path: Path) -> None:
    """Closed directories count, sparse files count what they use, too many or too deep entries count as too much."""
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "big").write_bytes(b"x" * 300_000)
    (tmp_path / "closed").chmod(0)
    with open(tmp_path / "sparse", "wb") as sparse:
        sparse.truncate(1 << 40)
    used = collect.disk_use((tmp_path,), stop_at=1 << 30)
    assert 300_000 <= used < 1 << 20
    for number in range(30):
        (tmp_path / str(number)).write_text("")
    assert collect.disk_use((tmp_path,), stop_at=1 << 30, entries=20) > 1 << 30
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(40):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert collect.disk_use((tmp_path,), stop_at=1 << 30) > 1 << 30
    collect.remove_tree(tmp_path)
