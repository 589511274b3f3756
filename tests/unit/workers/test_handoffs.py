"""The coding agents of one process: one answer about the sandbox, and nothing left of dead workers."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from heinzelwerk.errors import ConfigurationError
from heinzelwerk.sandbox import leftovers
from heinzelwerk.sandbox.spec import Refusal
from heinzelwerk.testing.house import CountingIds, HandClock
from workers import engine, handoffs


def settings(directory: Path, **runner: Any) -> Settings:
    table = {"agent": "command", "command": ["/bin/ls"], "trust_command": True, **runner}
    return Settings.model_validate({"handoff": {"directory": directory, "runners": {"lint": table}}})


async def test_the_sandbox_is_tested_once_however_many_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Handoffs that start together share one self-test and its answer."""
    asked: list[Path] = []

    async def choose(*, root: Path, **more: Any) -> Refusal:
        asked.append(root)
        await asyncio.sleep(0)
        return Refusal(detail="none here", fix="install one")

    monkeypatch.setattr(handoffs.choose, "choose_backend", choose)
    house = handoffs.house(settings(tmp_path), HandClock(), CountingIds())
    answers = await asyncio.gather(*(house.backend() for _ in range(5)))
    assert asked == [tmp_path / "runs"]
    assert {answer.detail for answer in answers if isinstance(answer, Refusal)} == {"none here"}


async def test_a_starting_worker_clears_what_dead_ones_left(tmp_path: Path) -> None:
    """A dead worker's run and old transcripts go; a living one's stay, whatever their age."""
    clock = HandClock()
    (tmp_path / "runs" / "dead").mkdir(parents=True)
    (tmp_path / "runs" / "dead.json").write_text(json.dumps({}))
    (tmp_path / "runs" / "living").mkdir()
    held = leftovers.claim(tmp_path / "runs" / "living")
    for name in ("dead", "living"):
        (tmp_path / "transcripts" / name).mkdir(parents=True)
        os.utime(tmp_path / "transcripts" / name, (1, 1))
    try:
        await handoffs.clear(settings(tmp_path), clock)
    finally:
        os.close(held)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["living", "living.json"]
    assert [path.name for path in (tmp_path / "transcripts").iterdir()] == ["living"]


def test_turns_get_the_chosen_runner_and_what_it_may_read(tmp_path: Path) -> None:
    """The name that jobs carry, and the patterns of the tools that it is lent."""
    found = settings(tmp_path, turn_tools=["read_*"])
    assert list(handoffs.runners(found, HandClock(), CountingIds())) == ["lint"]
    assert (engine.offered(found), engine.lent(found)) == (("lint",), ("read_*",))
    assert engine.lent(Settings()) == ()


def test_a_runner_without_its_key_names_it(tmp_path: Path) -> None:
    """Nothing starts with half of its settings."""
    with pytest.raises(ConfigurationError, match=r"handoff\.runners\.lint.*ANTHROPIC_API_KEY"):
        handoffs.runners(settings(tmp_path, agent="claude-code"), HandClock(), CountingIds())
