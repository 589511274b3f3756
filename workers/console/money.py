"""What a day cost, over all of a person's teams."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.responses import Response

from workers import translation
from workers.console.visits import Visit
from workers.show import costs as told


async def costs(visit: Visit) -> Response:
    """One UTC day: each team, its Heinzelmännchen, the caps, the models."""
    day = visit.request.query_params.get("day") or None
    if day is not None and not told.is_day(day):
        raise HTTPException(409, "this is no day: write YYYY-MM-DD")
    groups = await asyncio.gather(*(_team(visit, team, day) for team in visit.teams))
    return visit.page("costs.html", day=day, groups=groups)


async def _team(visit: Visit, team: str, day: str | None) -> dict[str, object]:
    client = visit.client(team)
    whole, each = await client.costs(day=day)
    spent = {name: found for name, found in each.items() if found.spent or found.possible or found.reserved}
    models = [
        (name, model, asked)
        for name, found in (await client.models(day=day)).items()
        for model, asked in sorted(found.items())
    ]
    caps = translation.caps(visit.doors.runtime.settings, team)
    return {"team": team, "whole": whole, "each": spent, "models": models, "caps": caps}
