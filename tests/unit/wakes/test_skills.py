"""Skills on their way from directories through a generation into a turn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from heinzelwerk import contract, errors, skill, skilling
from heinzelwerk.publisher import keeping
from heinzelwerk.skill import Layer, Refusal, Skill
from heinzelwerk.testing import house
from heinzelwerk.testing.house import House
from workers import repositories
from workers.repositories import Checkout, Shelf

CONTRACT = """---
name: page
kind: responsibility
description: Keeps one page true.
hz:
  schema: 1
  title: One page
  requires: [documents:read]
  uses: [style]
  inputs:
    page:
      read: documents.read
      args: {ref: page.md}
  outputs:
    page: {format: markdown}
---
### Goal
Keep the page true.
### Requires
- `page`
### Maintains
- `page`
### Done when
- It says what the page says.
"""


def write(directory: Path, name: str, *, extra: str = "", body: str = "Short sentences.") -> None:
    place = directory / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(f"---\nname: {name}\ndescription: How {name} is done.\n{extra}---\n{body}\n")


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A team's checkout with one contract."""
    (tmp_path / "team" / "workflows").mkdir(parents=True)
    (tmp_path / "team" / "workflows" / "page.prose.md").write_text(CONTRACT)
    return tmp_path / "team"


async def load(home: House, root: Path, *shelves: Shelf) -> repositories.TeamLoad:
    return await repositories.load(
        house.TEAM,
        Checkout(root, str(root)),
        timezone="UTC",
        publishers={"draft.keep": keeping.draft()},
        store=home.store,
        shelves=shelves,
    )


async def chosen(home: House, **policy: tuple[str, ...]) -> list[tuple[str, str]]:
    text = contract.read(CONTRACT.encode(), file_name="page.prose.md").contract
    assert text is not None
    works = replace(home.works, policy=replace(home.works.policy, **policy))
    return [(one.name, one.text) for one in await skilling.for_contract(text, house.TEAM, works)]


async def test_a_turn_gets_the_operators_over_the_teams_over_the_packages(team: Path, tmp_path: Path) -> None:
    """Of one name the most specific; the contract is given them from general to specific."""
    home = house.build()
    for layer in ("package", "operator"):
        write(tmp_path / layer, "style", body=layer)
    write(tmp_path / "package", "tone", body="package", extra="hz: {applies: {capabilities: [documents]}}\n")
    write(team / "skills", "style", body="team")
    shelves = (Shelf(tmp_path / "operator", Layer.OPERATOR), Shelf(tmp_path / "package", Layer.PACKAGE))
    await load(home, team)
    assert await chosen(home) == [("style", "team")]
    await load(home, team, *shelves)
    assert await chosen(home) == [("tone", "package"), ("style", "operator")]


async def test_what_a_skill_says_that_it_is_for_is_compared_with_the_teams_roles_and_assets(team: Path) -> None:
    """Every kind that a skill states must match: capabilities of the contract, roles and asset types of the team."""
    home = house.build()
    write(team / "skills", "style")
    write(team / "skills", "leads", extra="hz: {applies: {roles: [lead], capabilities: [documents]}}\n")
    write(team / "skills", "reports", extra="hz: {applies: {asset_types: [weekly-report]}}\n")
    await load(home, team)
    assert [name for name, _ in await chosen(home)] == ["style"]
    assert [name for name, _ in await chosen(home, roles=("lead",))] == ["leads", "style"]
    assert [name for name, _ in await chosen(home, asset_types=("weekly-report",))] == ["reports", "style"]


async def test_a_refused_skill_is_in_loads_answer_and_in_the_doctors(team: Path) -> None:
    """One that tries to grant something is left out with HZC051; the next good load says that nothing is wrong."""
    home = house.build()
    write(team / "skills", "style", extra="hz: {tools: [everything]}\n")
    done = await load(home, team)
    assert [refusal.code for refusal in done.refused] == ["HZC051"]
    seen = await repositories.remembered(house.TEAM, home.store)
    assert "skill style is not loaded: SKILL.md" in seen[0].what
    assert seen[0].fix
    with pytest.raises(errors.Refused, match="uses the skill style, which is not loaded"):
        await chosen(home)
    write(team / "others", "style")
    (team / "others" / "style" / "SKILL.md").replace(team / "skills" / "style" / "SKILL.md")
    assert (await load(home, team)).refused == ()
    assert await repositories.remembered(house.TEAM, home.store) == ()


def test_a_packed_skill_reads_back_as_it_was() -> None:
    """Files, layer and fingerprint survive; what today's rules refuse reads as a refusal."""
    head = b"---\nname: style\ndescription: How.\n---\nText.\n"
    found = skill.read("style", {"SKILL.md": head, "more/list.md": "Wörter\n".encode()}, layer=Layer.OPERATOR)
    assert isinstance(found, Skill)
    assert skilling.unpack(skilling.pack(found)) == found
    bad = replace(found, files={**found.files, "key.md": b"AKIA" + b"A" * 16})
    assert isinstance(skilling.unpack(skilling.pack(bad)), Refusal)


async def test_a_links_skill_and_a_linked_set_of_contracts_are_never_followed(team: Path, tmp_path: Path) -> None:
    """A linked skill is refused by name; a linked `workflows` refuses the load, it does not put the team to sleep."""
    home = house.build()
    write(tmp_path / "elsewhere", "style")
    (team / "skills").mkdir()
    (team / "skills" / "style").symlink_to(tmp_path / "elsewhere" / "style")
    refused = (await load(home, team)).refused
    assert [(one.name, one.message) for one in refused] == [("style", "the directory is a symbolic link")]
    (team / "workflows").rename(tmp_path / "real")
    (team / "workflows").symlink_to(tmp_path / "real")
    with pytest.raises(errors.Refused, match="symbolic link"):
        repositories.directory(team)
    with pytest.raises(errors.Refused, match="symbolic link"):
        await load(home, team)
    assert list(await home.store.entries(house.TEAM)) == ["page"]


def test_skills_of_a_package_are_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator names it; one that is not installed is a mistake in the settings."""
    write(tmp_path / "manners" / "skills", "style")
    (tmp_path / "manners" / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(tmp_path)
    assert repositories.package_shelf("manners") == Shelf(tmp_path / "manners" / "skills", Layer.PACKAGE)
    for name in ("absent_package", "not a name"):
        with pytest.raises(errors.ConfigurationError, match=r"\[skills\] packages"):
            repositories.package_shelf(name)
