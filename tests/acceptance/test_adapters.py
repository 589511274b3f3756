"""An adapter that another package brings, as an operator meets it: installed, named in the settings, used."""

from pathlib import Path

import pytest

from tests.acceptance import shell
from tests.acceptance.shell import Person

ADAPTER = """
from pydantic import BaseModel

class Channel(BaseModel):
    channel: str

class Chat:
    name = "chat"

    def __init__(self, settings):
        self.town = settings["town"]

    def methods(self):
        return {"messages": Channel}

    async def read(self, method, arguments, *, since, until):
        return [{"title": f"The sky over {self.town} is grey", "channel": arguments["channel"]}]

class Wall:
    action = "wall.hang"
    refuses_late = True

    def target(self, arguments):
        return "wall:1"

    async def view(self, arguments):
        raise NotImplementedError

    async def place(self, placement, *, deadline_s):
        raise NotImplementedError
"""
POINTS = """
[heinzelwerk.capabilities]
weather = acme_weather:Chat
[heinzelwerk.publishers]
wall = acme_weather:wall
"""
CONTRACT = """---
name: sky
kind: responsibility
description: Keeps one line about the sky true.
hz:
  schema: 1
  title: The sky
  requires: [chat:read]
  inputs:
    sky: {read: chat.messages, args: {channel: sky}, window: 7d}
  outputs:
    sky: {format: markdown}
---
### Goal
Say how the sky is.
### Requires
- `sky`
### Maintains
- `sky`
### Done when
- The text holds no e-mail address.
"""


@pytest.fixture
def operator(tmp_path: Path) -> Person:
    """Somebody on whose machine a package with adapters is installed."""
    site = tmp_path / "site"
    (site / "acme_weather-1.0.dist-info").mkdir(parents=True)
    (site / "acme_weather-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-weather\nVersion: 1.0\n"
    )
    (site / "acme_weather-1.0.dist-info" / "entry_points.txt").write_text(POINTS)
    (site / "acme_weather.py").write_text(ADAPTER + "\ndef wall(settings):\n    return Wall()\n")
    (tmp_path / "sky.prose.md").write_text(CONTRACT)
    return Person(tmp_path, {"PYTHONPATH": f"{shell.CHECKOUT}:{site}"})


def settings(operator: Person, text: str) -> None:
    (operator.directory / "heinzelwerk.toml").write_text(text)


def test_an_adapter_is_used_where_its_table_stands(operator: Person) -> None:
    """With the settings of its table, and with nothing else said anywhere."""
    settings(operator, '[adapters.capabilities.weather]\ntown = "Köln"\n[adapters.publishers.wall]\n')
    done = operator.succeeds("try", "sky.prose.md", "--json")
    assert done.data["turn"]["state"] == "completed"
    assert "Köln" in str(done.data["drafts"])


def test_an_installed_adapter_does_nothing_by_itself(operator: Person) -> None:
    """Its contract fails with the reason: installing a package changes no deployment."""
    settings(operator, "")
    done = operator.types("try", "sky.prose.md")
    assert done.code == 1
    assert "chat" in done.out + done.err


def test_an_adapter_that_is_not_installed_is_named(operator: Person) -> None:
    """Exit 78, with what is installed and what to do."""
    settings(operator, "[adapters.publishers.wiki]\n")
    done = operator.types("try", "sky.prose.md")
    assert done.code == 78
    assert "no installed package brings 'wiki' (installed: wall)" in done.err


def test_an_adapter_that_refuses_its_settings_is_named(operator: Person) -> None:
    """What its factory raises stands in the message, with the adapter's name."""
    settings(operator, "[adapters.capabilities.weather]\n")
    done = operator.types("try", "sky.prose.md")
    assert done.code == 78
    assert "'weather'" in done.err
    assert "town" in done.err
