"""Git histories of every shape, read by the real git from real repositories."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from heinzelwerk import errors
from heinzelwerk.capability import git
from tests.support import histories
from tests.support.histories import Change

START = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)


def day(number: int) -> datetime:
    return START + timedelta(days=number)


async def read(top: Path, *, since: datetime | None = None, until: datetime | None = None) -> list[dict[str, object]]:
    rows = await git.GitCodeHost({"app": top}).read(git.METHOD, {"repository": "app"}, since=since, until=until)
    assert isinstance(rows, list)
    return [row for row in rows if isinstance(row, dict)]


def shas(top: Path) -> list[str]:
    return histories.plain_git(top, "rev-list", "--first-parent", "--reverse", "HEAD").split()


async def test_every_commit_of_the_main_line_is_one_entry(tmp_path: Path) -> None:
    """Merges, squashes and direct commits are full entries; the commits of a merged branch are none."""
    top = histories.make(
        tmp_path / "app",
        [
            Change(day(0), b"Begin"),
            Change(day(1), b"Merge pull request #12 from ada/parser\n\nParse dates\n\nBody", merged=3),
            Change(day(2), b"Speed up the parser (#13)\n\n* one\n* two", "Zoë".encode()),
            Change(day(3), b"Fix a typo"),
            Change(day(4), b"Merge branch 'hotfix'", merged=1),
        ],
    )
    rows = await read(top)
    assert [(row["kind"], row["number"], row["title"]) for row in rows] == [
        ("direct", None, "Begin"),
        ("merge", 12, "Parse dates"),
        ("squash", 13, "Speed up the parser"),
        ("direct", None, "Fix a typo"),
        ("merge", None, "Merge branch 'hotfix'"),
    ]
    assert [row["sha"] for row in rows] == shas(top)
    assert rows[2] == {
        "repository": "app",
        "number": 13,
        "title": "Speed up the parser",
        "url": None,
        "author": "Zoë",
        "merged_at": "2026-03-03T08:00:00Z",
        "labels": [],
        "kind": "squash",
        "sha": shas(top)[2],
    }


@pytest.mark.parametrize(
    ("message", "merged", "expected"),
    [
        (b"Merge pull request #7 from x/y", 1, ("merge", 7, "Merge pull request #7 from x/y")),
        (b"Merge pull request 'Add a door' (#8) from x into main", 1, ("merge", 8, "Add a door")),
        (b"Merge branch 'a' into 'main'\n\nAdd a lock\n\nSee merge request g/p!9", 1, ("merge", 9, "Add a lock")),
        (b"Merged in a (pull request #10)\n\nAdd a key", 1, ("merge", 10, "Add a key")),
        (b"Merged PR 11: Add a bell", 0, ("squash", 11, "Add a bell")),
        (b"Pull request #12: Add a mat", 1, ("merge", 12, "Add a mat")),
        (b'Revert "Add a door (#8)" (#14)', 0, ("squash", 14, 'Revert "Add a door (#8)"')),
        (b'Revert "Add a door (#8)"', 0, ("direct", None, 'Revert "Add a door (#8)"')),
        (b"Fix #15", 0, ("direct", None, "Fix #15")),
        (b"(#16)", 0, ("direct", None, "(#16)")),
        (b"", 0, ("direct", None, "(no message)")),
        (b"One line\nand its second\n\nbody (#17)", 0, ("direct", None, "One line and its second")),
        (b"Talk of !3\n\nSee merge request g/p!9", 0, ("direct", None, "Talk of !3")),
        (b"A" * 700, 0, ("direct", None, "A" * 499 + "\u2026")),
    ],
)
async def test_what_a_message_says(
    tmp_path: Path, message: bytes, merged: int, expected: tuple[str, int | None, str]
) -> None:
    """Numbers and titles are read from the subjects that the common hosts write, and from nothing else."""
    top = histories.make(tmp_path / "app", [Change(day(0), b"Root"), Change(day(1), message, merged=merged)])
    row = (await read(top, since=day(1)))[0]
    assert (row["kind"], row["number"], row["title"]) == expected


async def test_only_direct_commits(tmp_path: Path) -> None:
    """A history without pull requests is read whole."""
    top = histories.make(tmp_path / "app", [Change(day(n), b"Change %d" % n) for n in range(20)])
    assert [row["title"] for row in await read(top)] == [f"Change {n}" for n in range(20)]


async def test_only_merges(tmp_path: Path) -> None:
    """A history of merges gives one entry a merge, none for what they brought."""
    top = histories.make(
        tmp_path / "app", [Change(day(0))] + [Change(day(n), b"Merge", merged=2) for n in range(1, 10)]
    )
    rows = await read(top, since=day(1))
    assert [row["kind"] for row in rows] == ["merge"] * 9
    assert [row["sha"] for row in rows] == shas(top)[1:]


async def test_one_root_commit(tmp_path: Path) -> None:
    """A root commit has no parent and is an entry as any other."""
    top = histories.make(tmp_path / "app", [Change(day(0), b"Begin")])
    assert [(row["kind"], row["title"]) for row in await read(top)] == [("direct", "Begin")]
    assert await git.span(top) == (day(0), day(0), 1)


async def test_an_empty_repository(tmp_path: Path) -> None:
    """No commit yet is no error: nothing was merged."""
    assert await read(histories.make(tmp_path / "app", [])) == []
    assert await git.span(tmp_path / "app") is None


async def test_a_head_on_a_missing_branch_is_an_error(tmp_path: Path) -> None:
    """Where HEAD names a branch that does not exist an empty answer would be a wrong one."""
    top = histories.make(tmp_path / "app", [Change(day(0))])
    histories.plain_git(top, "symbolic-ref", "HEAD", "refs/heads/gone")
    with pytest.raises(errors.ReadFailed, match="HEAD names a branch without commits"):
        await read(top)


async def test_an_old_commit_in_between_hides_nothing(tmp_path: Path) -> None:
    """A commit dated years back stands on the line; those behind it are found all the same."""
    dates = [day(0), day(1), day(-2_000), day(2), day(3)]
    top = histories.make(tmp_path / "app", [Change(at, b"Number %d" % n) for n, at in enumerate(dates)])
    assert [row["title"] for row in await read(top, since=day(0))] == ["Number 0", "Number 1", "Number 3", "Number 4"]
    assert await git.span(top) == (day(-2_000), day(3), 5)


async def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    """A declared encoding is honoured; undeclared bytes become replacement characters, and nothing is lost."""
    top = histories.make(
        tmp_path / "app",
        [
            Change(day(0), b"Caf\xe9", b"Jos\xe9", encoding=b"ISO-8859-1"),
            Change(day(1), b"Caf\xe9 (#3)", b"Jos\xe9"),
        ],
    )
    rows = await read(top)
    assert [(row["author"], row["title"], row["number"]) for row in rows] == [
        ("José", "Café", None),
        ("Jos\ufffd", "Caf\ufffd", 3),
    ]


async def test_an_author_is_never_an_address(tmp_path: Path) -> None:
    """A display name that is an address is none; one that holds an address keeps the rest; hidden characters go."""
    names = [b"ada@example.org", b"Ada (ada@example.org)", "Ada\u202e Lovelace".encode(), b""]
    top = histories.make(tmp_path / "app", [Change(day(n), b"x", name) for n, name in enumerate(names)])
    assert [row["author"] for row in await read(top)] == [None, "Ada ([email])", "Ada Lovelace", None]


async def test_the_forms_of_a_repository(tmp_path: Path) -> None:
    """Work tree, linked work tree on its own branch, bare repository and detached HEAD are all read."""
    top = histories.make(tmp_path / "app", [Change(day(0), b"One"), Change(day(1), b"Two")])
    histories.plain_git(top, "worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"), "main~1")
    histories.plain_git(tmp_path, "clone", "-q", "--bare", str(top), "bare.git")
    histories.plain_git(tmp_path, "clone", "-q", str(top), "detached")
    histories.plain_git(tmp_path / "detached", "checkout", "-q", "--detach")
    (tmp_path / "link").symlink_to(top)
    for name, expected in (("app", 2), ("linked", 1), ("bare.git", 2), ("detached", 2), ("link", 2)):
        assert len(await read(tmp_path / name)) == expected, name


async def test_no_repository(tmp_path: Path) -> None:
    """A directory without one, and a path without anything, are told apart and name the repository."""
    (tmp_path / "plain").mkdir()
    with pytest.raises(errors.GitNotARepository, match=r"'app'.*plain is not a git repository"):
        await read(tmp_path / "plain")
    with pytest.raises(errors.GitMissing, match=r"'app'.*no directory"):
        await read(tmp_path / "gone")


async def test_a_shallow_clone_answers_only_what_it_knows(tmp_path: Path) -> None:
    """A window inside the known history is answered; one that reaches over its edge is refused, never cut."""
    top = histories.make(tmp_path / "app", [Change(day(n), b"Change %d" % n) for n in range(10)])
    histories.plain_git(tmp_path, "clone", "-q", "--depth=3", f"file://{top}", "shallow")
    shallow = tmp_path / "shallow"
    assert [row["title"] for row in await read(shallow, since=day(8))] == ["Change 8", "Change 9"]
    for since in (None, day(2), day(7)):
        with pytest.raises(errors.ReadFailed, match=r"shallow clone.*2026-03-08.*narrow the window"):
            await read(shallow, since=since)


async def test_a_shallow_clone_of_the_whole_main_line_is_whole(tmp_path: Path) -> None:
    """Where only side branches were cut off the main line still ends in its true root."""
    top = histories.make(tmp_path / "app", [Change(day(0)), Change(day(1), b"Merge", merged=5)])
    histories.plain_git(tmp_path, "clone", "-q", "--depth=2", f"file://{top}", "shallow")
    assert histories.plain_git(tmp_path / "shallow", "rev-parse", "--is-shallow-repository") == "true"
    assert [row["kind"] for row in await read(tmp_path / "shallow")] == ["direct", "merge"]


async def test_what_a_repository_configures_is_not_run(tmp_path: Path) -> None:
    """Aliases, signature checks and pagers of the repository's own configuration start nothing."""
    top = histories.make(tmp_path / "app", [Change(day(0), b"One")])
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    os.chmod(trap, 0o755)
    for key in ("core.pager", "gpg.program", "core.fsmonitor", "alias.log"):
        histories.plain_git(top, "config", key, str(trap))
    histories.plain_git(top, "config", "log.showSignature", "true")
    assert len(await read(top)) == 1
    assert not (tmp_path / "sprung").exists()


async def test_fifty_thousand_commits(tmp_path: Path) -> None:
    """A long history is read whole, and a week of it is found without the rest; nothing is cut."""
    changes = [Change(START + timedelta(minutes=n), b"Change %d (#%d)" % (n, n + 1)) for n in range(50_000)]
    top = histories.make(tmp_path / "app", changes, bare=True)
    rows = await read(top)
    assert [row["number"] for row in rows] == list(range(1, 50_001))
    week = await read(top, since=START + timedelta(minutes=40_000), until=START + timedelta(minutes=40_500))
    assert [row["number"] for row in week] == list(range(40_001, 40_501))
    span = await git.span(top)
    assert span is not None
    assert span.commits == 50_000
