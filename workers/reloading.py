"""The upkeep of teams' repositories: look on a schedule, and make a new generation only where something changed.

One upkeep process of the deployment looks in each period. A repository that cannot be read changes nothing: the team
goes on with the generation that it has, and the log says why.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import structlog

from config.settings import Team
from heinzelwerk import loading
from heinzelwerk.errors import GiveUp, ReadFailed
from heinzelwerk.generation import Generation
from heinzelwerk.ports import Works
from workers import repositories
from workers.cli import loads
from workers.repositories import Checkout
from workers.root import Runtime

log = structlog.get_logger("heinzelwerk.reloading")


async def reload_all(runtime: Runtime) -> None:
    """Every team with a source whose time it is."""
    for name, table in runtime.settings.teams.items():
        if table.source is None or not table.reload:
            continue
        if await runtime.works.store.take_turns(f"load:{name}", ttl_ms=int(table.reload * 1000)):
            try:
                await reload(name, table, runtime)
            except (GiveUp, ReadFailed) as error:  # this team's trouble; the others' repositories are read all the same
                log.warning("contracts not loaded", team=name, reason=str(error))


async def reload(name: str, table: Team, runtime: Runtime) -> bool:
    """Load a team's repository if it differs from the newest generation; answers whether it did."""
    works = runtime.works_of(name)
    checkout = await repositories.check_out(loads.place_of(name, table, runtime.settings.workers.data))
    if await _is_loaded(name, table, checkout, works):
        return False
    await repositories.load(name, checkout, timezone=table.timezone, publishers=works.publishers, store=works.store)
    return True


async def _is_loaded(name: str, table: Team, checkout: Checkout, works: Works) -> bool:
    """Whether the newest generation says the same as these files; where it was read from does not count."""
    newest = await works.store.generation(name)
    if newest is None:
        return False
    advice = await repositories.skills(checkout.root)
    repository = await asyncio.to_thread(loading.read_repository, checkout.root, skills=advice.packed)
    found, _ = loading.generation_of(
        name,
        repository,
        timezone=table.timezone,
        source=checkout.source,
        installed=repositories.installed(works.publishers, advice),
    )
    return _content(found) == _content(newest)


def _content(generation: Generation) -> Generation:
    return replace(generation, texts={}, source="", number=0)
