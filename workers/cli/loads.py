"""Loading teams' contracts as the settings say, for `load`, `up` and `demo`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from config.settings import Team
from heinzelwerk import errors, ids
from heinzelwerk.skill import Layer
from workers import repositories
from workers.repositories import Branch, Shelf, TeamLoad

if TYPE_CHECKING:
    from config.settings import Settings
    from workers.root import Runtime


async def load_all(settings: Settings) -> dict[str, TeamLoad]:
    """Load every team that has a source."""
    from workers import root

    runtime = root.build(settings, profile=root.CLIENT)
    try:
        await runtime.works.store.prepare()
        return await load(settings, runtime, [name for name, table in settings.teams.items() if table.source])
    finally:
        await runtime.close()


async def load(
    settings: Settings, runtime: Runtime, teams: Sequence[str], *, directory: Path | None = None
) -> dict[str, TeamLoad]:
    """Load these teams from `directory`, else from where the settings say. Refused names the team and the fix."""
    results: dict[str, TeamLoad] = {}
    for name in teams:
        if not ids.is_name(name):
            raise errors.Refused(f"{name!r} is no team's name", fix="use a-z, 0-9 and single dashes")
        table = settings.teams.get(name) or Team()
        place = directory or place_of(name, table, settings.workers.data)
        works = runtime.works_of(name)
        async with repositories.checked_out(place) as checkout:
            results[name] = await repositories.load(
                name,
                checkout,
                timezone=table.timezone,
                publishers=works.publishers,
                store=works.store,
                shelves=shelves(settings),
            )
    return results


def shelves(settings: Settings) -> tuple[Shelf, ...]:
    """The operator's skills, which every team gets: those of installed packages and those of directories."""
    chosen = settings.skills
    return (
        *(repositories.package_shelf(name) for name in chosen.packages),
        *(Shelf(directory, Layer.OPERATOR) for directory in chosen.directories),
    )


def place_of(team: str, table: Team, data: Path) -> Path | Branch:
    """Where a team's repository is; a branch is fetched below `data`. Refused where the settings name no source."""
    if table.source is None:
        raise errors.Refused(
            f"team {team} has no source",
            fix=f"`heinzelwerk load DIRECTORY --team {team}`, or [teams.{team}] source = ...",
        )
    if table.source_is_remote:
        return Branch(table.source, table.branch, data / "teams" / team)
    return Path(table.source)


def chosen(tables: Mapping[str, Team], *, named: str | None, directory: Path | None) -> list[str]:
    """Which teams `load` is about: the named one, the only one for a directory, else all with a source."""
    if named is not None:
        return [named]
    if directory is None:
        found = [name for name, table in tables.items() if table.source]
        if not found:
            raise errors.Refused(
                "nothing to load: no team of the settings has a source",
                fix="`heinzelwerk load DIRECTORY --team NAME`, or [teams.NAME] source = ...",
            )
        return found
    if len(tables) != 1:
        known = ", ".join(tables) or "none"
        raise errors.Refused(
            f"whose contracts are in {directory}? (teams in the settings: {known})", fix="name it with --team"
        )
    return list(tables)
