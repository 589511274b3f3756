"""The upkeep of teams' repositories: look on a schedule, and make a new generation only where something changed.

One upkeep process of the deployment looks in each period. A repository that cannot be read changes nothing: the team
goes on with the generation that it has, and log and doctor say why.
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
from workers.repositories import Checkout, Skills, Trouble
from workers.root import Runtime

log = structlog.get_logger("heinzelwerk.reloading")


async def reload_all(runtime: Runtime) -> None:
    """Every team with a source whose time it is, side by side: one remote that hangs keeps no other team waiting."""
    await asyncio.gather(*(_in_turn(name, table, runtime) for name, table in runtime.settings.teams.items()))


async def _in_turn(name: str, table: Team, runtime: Runtime) -> None:
    store = runtime.works.store
    if table.source is None or not table.reload:
        return
    if not await store.take_turns(f"load:{name}", ttl_ms=int(table.reload * 1000)):
        return
    try:
        await reload(name, table, runtime)
    except (GiveUp, ReadFailed) as error:  # this team's trouble; the others' repositories are read all the same
        log.warning("contracts not loaded", team=name, reason=str(error))
        what = f"the contracts of {table.source} could not be read, the team goes on with those it has: {error}"
        await repositories.remember(name, [Trouble(what, error.fix or "correct [teams] source")], store)


async def reload(name: str, table: Team, runtime: Runtime) -> bool:
    """Load a team's repository if it differs from the newest generation; answers whether it did."""
    works, settings = runtime.works_of(name), runtime.settings
    shelves = loads.shelves(settings)
    async with repositories.checked_out(loads.place_of(name, table, settings.workers.data)) as checkout:
        advice = await repositories.skills(checkout.root, shelves)
        if await _is_loaded(name, table, checkout, advice, works):
            await repositories.remember(name, repositories.troubles(advice), works.store)
            return False
        await repositories.load(
            name, checkout, timezone=table.timezone, publishers=works.publishers, store=works.store, shelves=shelves
        )
    return True


async def _is_loaded(name: str, table: Team, checkout: Checkout, advice: Skills, works: Works) -> bool:
    """Whether the newest generation says the same as these files; where it was read from does not count."""
    newest = await works.store.generation(name)
    if newest is None:
        return False
    repository = await asyncio.to_thread(loading.read_repository, checkout.root, skills=advice.counting)
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
