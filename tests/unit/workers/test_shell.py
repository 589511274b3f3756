"""Which team a command means."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heinzelwerk import advance, errors
from heinzelwerk.client import Client
from heinzelwerk.ids import SessionId
from heinzelwerk.testing import house
from heinzelwerk.testing.house import TEAM
from workers.cli.shell import Shell
from workers.show.screen import Screen


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Somebody whose settings name two teams."""
    settings = tmp_path / "heinzelwerk.toml"
    settings.write_text(f"[teams.{TEAM}]\n[teams.other]\n")
    return Shell(Screen(io.StringIO(), io.StringIO()), config=str(settings))


async def test_a_draft_says_whose_it_is(shell: Shell) -> None:
    """The commands that an inbox prints run as they are where a deployment has two teams; a draft of nobody needs --team."""
    built = house.build()
    await built.load(house.page())
    client = Client(built.works, TEAM)
    await client.wake("page")
    await advance.advance(SessionId(TEAM, "page"), built.works)
    (item,) = await client.inbox()
    runtime: Any = SimpleNamespace(works=built.works)
    assert await shell.team_name(None, runtime, draft=item.id) == TEAM
    assert await shell.team_name(None, runtime, draft=item.id[:6]) == TEAM
    for draft in (None, "ffffffff"):
        with pytest.raises(errors.Refused, match="there are 2 teams") as refused:
            await shell.team_name(None, runtime, draft=draft)
        assert "core, other" in refused.value.fix
