"""The first page: what waits for this person, over all their teams."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from heinzelwerk.inbox import Item, Waiting
from workers.console import pages
from workers.console.visits import Visit

_DRAFTS = (Waiting.DRAFT, Waiting.UNKNOWN, Waiting.FAILED)
_SAYS = {
    Waiting.DRAFT: "a draft to decide about",
    Waiting.QUESTION: "a question",
    Waiting.BUDGET: "a cap is reached",
    Waiting.UNKNOWN: "nobody knows whether it was placed",
    Waiting.FAILED: "could not be placed",
    Waiting.QUARANTINE: "set aside",
}


async def inbox(visit: Visit) -> Response:
    """What waits, oldest first within each team; each entry leads to where the wait is ended."""
    found = await asyncio.gather(*(visit.client(team).inbox() for team in visit.teams))
    groups = [
        (team, visit.zone(team), [(item, _SAYS[item.kind], _place(team, item)) for item in items])
        for team, items in zip(visit.teams, found, strict=True)
        if items
    ]
    return visit.page("inbox.html", groups=groups, now=await visit.now_ms())


def _place(team: str, item: Item) -> str:
    if item.kind in _DRAFTS:
        return pages.link("teams", team, "drafts", item.id)
    if item.kind is Waiting.QUARANTINE:
        return pages.link("teams", team, "heinzel", item.heinzel)
    return pages.link("teams", team, "heinzel", item.heinzel, "turns", item.turn)
