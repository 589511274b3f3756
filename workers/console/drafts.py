"""Drafts: the list, one with its text and what it would change, and the decision about exactly what was shown."""

from __future__ import annotations

from typing import Literal

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from heinzelwerk import amending
from heinzelwerk.client import Client
from heinzelwerk.effect import EffectRecord, EffectState, Moved, MoveReply
from workers.console import pages
from workers.console.visits import Visit
from workers.show import decisions, diffs

_LISTED = 100
_ENDS: dict[str, Literal["completed", "failed", "retry"]] = {
    "resolve-completed": "completed",
    "resolve-failed": "failed",
    "resolve-retry": "retry",
}


async def all_of(visit: Visit) -> Response:
    """A team's newest drafts, whatever became of them."""
    team = visit.team()
    found = await visit.client().drafts(limit=_LISTED)
    return visit.page(
        "drafts.html", team=team, drafts=found, most=_LISTED, now=await visit.now_ms(), zone=visit.zone(team)
    )


async def one(visit: Visit) -> Response:
    """One draft: where it goes, its text, what it would change there now, and the decision."""
    team, client = visit.team(), visit.client()
    effect = await client.effect(visit.step("draft"))
    text, view = await client.text(effect), await client.target(effect)
    open_here = effect.undecided and text is not None
    changes = diffs.lines(view.before, text, name=effect.target) if view and text is not None and open_here else []
    return visit.page(
        "draft.html",
        team=team,
        effect=effect,
        text=text,
        rendered=None if text is None or effect.action == amending.ACTION else pages.rendered(text),
        changes=changes,
        unread=open_here and view is None,
        moved_on=open_here and view is not None and view.shown != effect.shown,
        unknown=effect.state is EffectState.UNKNOWN,
        here=pages.link("teams", team, "drafts", effect.id),
        now=await visit.now_ms(),
        zone=visit.zone(team),
    )


async def decide(visit: Visit) -> Response:
    """Approve, approve an edited text, decline, or close what nobody knows the end of. The first decision wins."""
    client, verb = visit.client(), visit.step("verb")
    effect = await client.effect(visit.step("draft"))
    reply = await _decided(visit, client, effect, verb)
    if reply.moved is not Moved.DONE:
        raise HTTPException(409, decisions.refusal(reply))
    return RedirectResponse(pages.link("teams", visit.team(), "drafts", effect.id), 303)


async def _decided(visit: Visit, client: Client, effect: EffectRecord, verb: str) -> MoveReply:
    shown = visit.said("digest")
    if verb == "approve":
        return await client.approve(effect.id, by=visit.person, digest=shown)
    if verb == "edit":
        words = visit.said("text")
        if not words.strip():
            raise HTTPException(409, "the text is empty: nothing was decided; declining places nothing")
        return await client.approve(effect.id, by=visit.person, digest=shown, text=words)
    if verb == "decline":
        return await client.decline(effect.id, by=visit.person, digest=shown, reason=visit.said("reason"))
    if verb in _ENDS:
        return await client.resolve(effect.id, _ENDS[verb], by=visit.person)
    raise HTTPException(404, "a draft knows no such thing")
