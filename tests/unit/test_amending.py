"""An approved change of a contract's own text: what is written, what is refused, and the patch that people apply."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from heinzelwerk import amending, errors, ids, loading
from heinzelwerk.contract.sets import Installed
from heinzelwerk.ports import Placement
from heinzelwerk.publisher import contracts
from heinzelwerk.publisher.contracts import ContractFiles
from heinzelwerk.store.memory import MemoryStore
from heinzelwerk.testing import house

TEAM, NAME = "crew", "page"
ARGUMENTS = {"team": TEAM, "contract": NAME}
OLD = house.page()
NEW = OLD.replace("Keep the page true.", "Keep the page true and short.")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "team" / "workflows").mkdir(parents=True)
    (tmp_path / "team" / "workflows" / "page.prose.md").write_text(OLD)
    return tmp_path / "team"


async def loaded(team: str, name: str) -> bytes | None:
    return OLD.encode() if (team, name) == (TEAM, NAME) else None


def placement(text: str = NEW, shown: str = OLD) -> Placement:
    return Placement("k", ARGUMENTS, text, ids.digest(shown))


def file(root: Path) -> Path:
    return root / amending.place(NAME)


async def test_an_amendment_is_written_and_the_next_load_makes_it_act(root: Path) -> None:
    """The file is replaced whole, with its mode; writing again changes nothing; the load's generation holds the new text."""
    publisher = ContractFiles({TEAM: root}, loaded)
    os.chmod(file(root), 0o640)
    view = await publisher.view(ARGUMENTS)
    assert (view.before, view.shown, view.target) == (OLD, ids.digest(OLD), "contract:page")
    assert await publisher.place(placement(), deadline_s=5) == ids.digest(NEW)
    assert await publisher.place(placement(), deadline_s=5) == ids.digest(NEW)
    assert file(root).read_text() == NEW
    assert file(root).stat().st_mode & 0o777 == 0o640
    assert sorted(found.name for found in root.rglob("*")) == ["page.prose.md", "workflows"]
    store = MemoryStore(lambda: 0)
    found = loading.read_repository(root)
    await loading.load(TEAM, found, timezone="UTC", source="x", installed=Installed(), store=store)
    assert await loading.text_of(TEAM, NAME, store=store) == NEW.encode()


async def test_a_file_that_changed_since_it_was_shown_is_left_alone(root: Path) -> None:
    """Somebody's edit after the proposal wins: a conflict, and their words stand."""
    file(root).write_text(OLD + "\nMine.\n")
    with pytest.raises(errors.TargetConflict, match="changed since"):
        await ContractFiles({TEAM: root}, loaded).place(placement(), deadline_s=5)
    assert file(root).read_text() == OLD + "\nMine.\n"


async def test_a_text_with_errors_is_not_written(root: Path) -> None:
    """A text that was edited into something broken would put the contract to sleep: refused with its first error."""
    with pytest.raises(errors.TargetConflict, match="line 1: HZC"):
        await ContractFiles({TEAM: root}, loaded).place(placement("no contract"), deadline_s=5)
    assert file(root).read_text() == OLD


async def test_a_link_is_not_followed_and_a_missing_file_is_said(root: Path, tmp_path: Path) -> None:
    """A contract's file that is a link, or gone, is an answer for the ledger and no write elsewhere."""
    (tmp_path / "elsewhere.md").write_text(OLD)
    publisher = ContractFiles({TEAM: root}, loaded)
    file(root).unlink()
    with pytest.raises(errors.TargetMissing, match=r"no workflows/page\.prose\.md"):
        await publisher.view(ARGUMENTS)
    file(root).symlink_to(tmp_path / "elsewhere.md")
    with pytest.raises(errors.TargetConflict):
        await publisher.place(placement(), deadline_s=5)
    assert (tmp_path / "elsewhere.md").read_text() == OLD


async def test_writers_take_turns(root: Path) -> None:
    """While another writer holds the directory an attempt waits for it, and past its time has changed nothing."""
    descriptor = os.open(root / "workflows", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        publisher = ContractFiles({TEAM: root}, loaded)
        with pytest.raises(errors.TargetUnavailable, match="another writer held"):
            await publisher.place(placement(), deadline_s=0.1)
        waiting = asyncio.create_task(publisher.place(placement(), deadline_s=60))
        await asyncio.sleep(0.1)
        assert not waiting.done()
    finally:
        os.close(descriptor)
    assert await waiting == ids.digest(NEW)


async def test_without_a_directory_nothing_is_written_and_the_loaded_text_counts(tmp_path: Path) -> None:
    """For a git repository approving records the decision, as long as the loaded contract is what was shown."""
    publisher = ContractFiles({}, loaded)
    assert (await publisher.view(ARGUMENTS)).before == OLD
    assert await publisher.place(placement(), deadline_s=5) == ids.digest(NEW)
    with pytest.raises(errors.TargetConflict, match="changed since"):
        await publisher.place(placement(shown="another"), deadline_s=5)
    with pytest.raises(errors.TargetMissing):
        await publisher.view({"team": TEAM, "contract": "gone"})
    elsewhere = ContractFiles({TEAM: tmp_path / "not-mounted-here"}, loaded)
    assert (await elsewhere.view(ARGUMENTS)).shown == ids.digest(OLD)
    with pytest.raises(errors.TargetUnavailable):
        await elsewhere.place(placement(), deadline_s=5)


async def test_a_directory_that_is_mounted_read_only_is_left_to_people(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the shipped compose file mounts it: the decision is recorded over the file as it is, and people apply the patch."""
    monkeypatch.setattr(contracts.os, "access", lambda path, mode: False)
    publisher = ContractFiles({TEAM: root}, loaded)
    assert contracts.by_hand(root)
    assert not contracts.by_hand(root / "elsewhere")
    assert await publisher.place(placement(), deadline_s=5) == ids.digest(NEW)
    assert file(root).read_text() == OLD
    file(root).write_text(OLD + "\nMine.\n")
    with pytest.raises(errors.TargetConflict, match="changed since"):
        await publisher.place(placement(), deadline_s=5)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (OLD, NEW),
        (OLD, NEW.rstrip("\n")),
        (OLD.rstrip("\n"), NEW),
        (OLD, NEW.replace("short", "short\x0cand\u2028wide")),
    ],
)
def test_the_patch_is_one_that_git_applies(root: Path, before: str, after: str) -> None:
    """What people are given turns the old file into the new one, byte for byte, whatever ends its last line."""
    file(root).write_text(before)
    (root / "change.patch").write_text(amending.patch(before, after, name=NAME))
    subprocess.run(["git", "apply", "change.patch"], cwd=root, check=True, env={"PATH": os.environ["PATH"]})
    assert file(root).read_text() == after
    assert amending.patch(before, before, name=NAME) == ""
