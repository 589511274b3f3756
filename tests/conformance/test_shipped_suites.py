"""The suites that the package ships for adapters of others, over our own adapters and their doubles."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, JsonValue

from heinzelwerk.capability.files import FileDocuments
from heinzelwerk.capability.git import GitCodeHost
from heinzelwerk.capability.memory import MemoryDocuments
from heinzelwerk.ports import Placement, TargetView
from heinzelwerk.publisher.documents import DocumentSections
from heinzelwerk.publisher.memory import MemorySections
from heinzelwerk.runner.claude_code import ClaudeCode
from heinzelwerk.runner.codex import Codex
from heinzelwerk.runner.command import Command
from heinzelwerk.runner.pi import Pi
from heinzelwerk.testing.conformance import CapabilitySuite, PublisherSuite, RunnerSuite, WindowSuite
from tests.support import histories

PAGE = "# A page\n\n<!-- heinzelwerk:begin weekly -->\n<!-- heinzelwerk:end weekly -->\n"


class TestDocuments(CapabilitySuite):
    method = "read"
    arguments: ClassVar = {"ref": "page.md"}

    @pytest.fixture(params=["files", "memory"])
    def capability(self, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
        data = "# A page\u200b\n\nWrite to ada@example.org.\n".encode()
        if request.param == "memory":
            return MemoryDocuments({"page.md": data})
        (tmp_path / "page.md").write_bytes(data)
        return FileDocuments(tmp_path)


class TestCodeHost(WindowSuite):
    method = "merged_pull_requests"
    arguments: ClassVar = {"repository": "app"}

    @pytest.fixture
    def capability(self, tmp_path: Path) -> Any:
        changes = [histories.Change(datetime(year, 5, 1, tzinfo=UTC), b"Fix it") for year in (1998, 1999, 2026)]
        return GitCodeHost({"app": histories.make(tmp_path / "app", changes)})


class TestSections(PublisherSuite):
    arguments: ClassVar = {"ref": "page.md", "marker": "weekly"}
    missing: ClassVar = {"ref": "page.md", "marker": "nowhere"}

    @pytest.fixture(params=["files", "memory"])
    def publisher(self, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
        if request.param == "memory":
            return MemorySections({"page.md": PAGE})
        (tmp_path / "page.md").write_text(PAGE)
        return DocumentSections(tmp_path)


class TestClaudeCode(RunnerSuite):
    @pytest.fixture(params=[ClaudeCode, Codex, Pi], ids=lambda kind: kind.name)
    def adapter(self, request: pytest.FixtureRequest) -> Any:
        return request.param()


class TestCommand(RunnerSuite):
    command = ("/bin/cat", "{prompt_file}")

    @pytest.fixture
    def adapter(self) -> Any:
        return Command()


# -- the suites themselves: they find what is wrong ---------------------------------------------------------------


class Careless:
    """A capability with every fault that the suite names."""

    name = "careless"
    asked = 0

    def methods(self) -> Mapping[str, type[BaseModel]]:
        return {"read": BaseModel}

    async def read(self, method: str, arguments: Mapping[str, str], **window: datetime | None) -> JsonValue:
        self.asked += 1
        return {"text": "ada@example.org", "asked": self.asked}


class Overwriting:
    """A publisher that overwrites what it finds."""

    action = "careless.place"
    refuses_late = False

    def __init__(self) -> None:
        self.held = ("", "")

    def target(self, arguments: Mapping[str, str]) -> str:
        return "careless"

    async def view(self, arguments: Mapping[str, str]) -> TargetView:
        return TargetView("careless", self.held[0], *self.held)

    async def place(self, placement: Placement, *, deadline_s: float) -> str:
        self.held = (placement.text, placement.key)
        return ""


async def test_the_capability_suite_finds_faults() -> None:
    """An answer that varies, an address in it, an unknown method that is answered: each fails its own test."""
    suite, careless = TestDocuments(), Careless()
    for test in (suite.test_an_answer_is_data, suite.test_an_answer_is_clean):
        with pytest.raises(AssertionError):
            await test(careless)
    with pytest.raises(pytest.fail.Exception):
        await suite.test_what_it_does_not_know_is_refused(careless)


async def test_the_publisher_suite_finds_faults() -> None:
    """One name for all targets, wrong arguments taken, somebody's words overwritten, a late attempt placed."""
    suite = TestSections()
    with pytest.raises(AssertionError):
        suite.test_a_target_has_one_name(Overwriting())
    with pytest.raises(pytest.fail.Exception):
        suite.test_wrong_arguments_are_refused(Overwriting())
    for test in (
        suite.test_what_changed_since_it_was_shown_is_not_overwritten,
        suite.test_without_time_left_nothing_is_placed,
        suite.test_a_missing_target_is_named,
    ):
        with pytest.raises(pytest.fail.Exception):
            await test(Overwriting())
