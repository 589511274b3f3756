"""The example team and the example history are what they say: valid, loadable, and made by the script beside them."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from config import sources
from heinzelwerk import contract, skill_directory
from heinzelwerk.capability import git
from heinzelwerk.capability.files import FileDocuments
from heinzelwerk.contract import Installed, directory, sets
from heinzelwerk.engine import offline_draft
from heinzelwerk.engine.offline_draft import Source
from heinzelwerk.publisher.documents import DocumentSections
from heinzelwerk.sandbox.git import fetch_branch
from heinzelwerk.skill import Skill
from tests.support import histories

EXAMPLES = Path(__file__).parents[2] / "examples"
TEAM = EXAMPLES / "team"
CONTRACTS = ("changelog", "weekly-digest")


@pytest.mark.parametrize("name", CONTRACTS)
def test_each_contract_is_read_without_a_word(name: str) -> None:
    """No diagnostic, not even a warning, alone."""
    path = TEAM / "workflows" / f"{name}.prose.md"
    reading = contract.read(path.read_bytes(), file_name=path.name)
    assert reading.diagnostics == ()
    assert reading.contract is not None
    assert reading.contract.done_when


def test_the_set_fits_together() -> None:
    """Every input is maintained, every action and skill is there, nothing writes into another's section."""
    readings = directory.read_directory(TEAM / "workflows")
    installed = Installed(
        actions={DocumentSections.action: "write"}, skills=frozenset(path.name for path in (TEAM / "skills").iterdir())
    )
    report = sets.check_set(readings, installed=installed)
    assert [reading.name for reading in report.readings] == list(CONTRACTS)
    assert report.diagnostics == ()


def test_the_skill_passes_its_checks() -> None:
    """The skill that both contracts use is loaded, and applies to what reads a code host."""
    found = skill_directory.read_skills(TEAM / "skills")
    assert [entry.name for entry in found if isinstance(entry, Skill)] == ["release-notes"]
    assert len(found) == 1


def test_the_settings_load() -> None:
    """The deployment's file is accepted, and its paths are beside it: contracts, pages, and this very checkout."""
    settings = sources.load(TEAM / "heinzelwerk.toml", environment={}).settings
    assert settings.teams["crew"].source == str(TEAM)
    assert settings.documents.directory == TEAM / "documents"
    assert settings.code_host.repositories == {"this": EXAMPLES.parent}


async def test_every_page_that_a_contract_names_is_ready() -> None:
    """Each publish target has its section, empty and unplaced; each document input can be read."""
    for name in CONTRACTS:
        path = TEAM / "workflows" / f"{name}.prose.md"
        found = contract.read(path.read_bytes(), file_name=path.name).contract
        assert found is not None
        for publish in found.publishes:
            view = await DocumentSections(TEAM / "documents").view(publish.args)
            assert (view.shown, view.key) == ("", "")
        for wanted in found.inputs.values():
            if wanted.read == "documents.read":
                await FileDocuments(TEAM / "documents").read("read", wanted.args, since=None, until=None)


async def test_the_bundle_is_a_history_of_every_kind(tmp_path: Path) -> None:
    """Fetched as the product fetches, it gives merges, squashes and direct commits of several people in four weeks."""
    top = tmp_path / "history"
    await fetch_branch(str(EXAMPLES / "history.bundle"), "main", top, timeout_s=60)
    span = await git.span(top)
    assert span is not None
    assert span.newest - span.oldest < timedelta(days=28)
    # `as_of` is the end of a half-open window: one second after the newest commit includes it.
    as_of = span.newest + timedelta(seconds=1)
    host = git.GitCodeHost({"this": top})
    rows = await host.read(git.METHOD, {"repository": "this"}, since=as_of - timedelta(days=30), until=as_of)
    assert isinstance(rows, list)
    entries = [row for row in rows if isinstance(row, dict)]
    assert len(entries) == span.commits == 31
    assert {entry["kind"] for entry in entries} == {"merge", "squash", "direct"}
    assert len({entry["author"] for entry in entries}) == 5
    assert len({entry["sha"] for entry in entries}) == len(entries)


async def test_every_item_of_done_when_is_one_that_a_rule_can_check(tmp_path: Path) -> None:
    """Without a language model both contracts end with a draft whose items are all met, each by counting."""
    top = tmp_path / "history"
    await fetch_branch(str(EXAMPLES / "history.bundle"), "main", top, timeout_s=60)
    merged = await git.GitCodeHost({"this": top}).read(git.METHOD, {"repository": "this"}, since=None, until=None)
    pages = FileDocuments(TEAM / "documents")
    audience = await pages.read("read", {"ref": "audience.md"}, since=None, until=None)
    sources = {
        "changelog": [Source("merged", merged)],
        "weekly-digest": [Source("changes", None, gap="nobody has approved one"), Source("audience", audience)],
    }
    for name in CONTRACTS:
        path = TEAM / "workflows" / f"{name}.prose.md"
        found = contract.read(path.read_bytes(), file_name=path.name).contract
        assert found is not None
        assert set(found.inputs) == {source.name for source in sources[name]}
        written = offline_draft.write(found.title, sources[name])
        checks = [offline_draft.check(item, written) for item in found.done_when]
        assert [check for check in checks if not check.met] == []


async def test_the_bundle_is_what_its_script_makes(tmp_path: Path) -> None:
    """The commits in the bundle are those that the script beside it writes, byte for byte."""
    spec = importlib.util.spec_from_file_location("example_history", EXAMPLES / "history.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    made = histories.make(tmp_path / "made", [], bare=True)
    histories.plain_git(made, "fast-import", "--quiet", "--date-format=raw", stdin=b"".join(module.stream()))
    listed = histories.plain_git(tmp_path, "bundle", "list-heads", str(EXAMPLES / "history.bundle"))
    assert f"{histories.plain_git(made, 'rev-parse', 'main')} refs/heads/main" in listed.splitlines()


async def test_making_the_bundle_again_changes_nothing(tmp_path: Path) -> None:
    """Run twice, the script writes the same file."""
    hashes = set()
    for number in range(2):
        copy = tmp_path / str(number)
        copy.mkdir()
        for name in ("history.py", "make_history.sh"):
            shutil.copy(EXAMPLES / name, copy / name)
        await asyncio.to_thread(subprocess.run, ["sh", str(copy / "make_history.sh")], check=True, capture_output=True)
        hashes.add(hashlib.sha256((copy / "history.bundle").read_bytes()).hexdigest())
    assert len(hashes) == 1
