"""A team's Heinzelmännchen: all of them, one, one of its turns, and what a person may say to them."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from heinzelwerk.client import Client
from heinzelwerk.effect import EffectRecord
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Posting, PostReply
from heinzelwerk.session import QUARANTINE
from heinzelwerk.turn import TurnRecord, TurnState, WaitKind
from heinzelwerk.wake import Disposition
from workers.console import pages
from workers.console.visits import Visit
from workers.show import roster, timeline, turns

_TURNS = 30


async def all_of(visit: Visit) -> Response:
    """The list of a team's Heinzelmännchen, those that are gone too where they left a record."""
    team, client = visit.team(), visit.client()
    entries, seen, now = await client.contracts(), await client.overviews(), await visit.now_ms()
    last = await client.last_turns(seen.values())
    rows = roster.rows(entries, seen, last, now=now)
    return visit.page("team.html", team=team, rows=rows, now=now, zone=visit.zone(team))


async def one(visit: Visit) -> Response:
    """One Heinzelmännchen: when it wakes, what it does now, its newest turns."""
    team, name, client = visit.team(), visit.heinzel(), visit.client()
    session, now = SessionId(team, name), await visit.now_ms()
    entry, seen = (await client.contracts()).get(name), await client.works.store.overview(session)
    if entry is None and seen is None:
        raise HTTPException(404, "there is no Heinzelmännchen of this name")
    newest = seen.last_turn if seen else 0
    shown = await client.works.store.turns(session, before=newest + 1, limit=_TURNS) if newest else ()
    last = shown[0] if shown else None
    return visit.page(
        "heinzel.html",
        team=team,
        row=roster.row(name, entry, seen, last, now=now),
        entry=entry,
        turns=shown,
        hidden=newest - len(shown),
        set_aside=seen.memo.get(QUARANTINE) if seen else None,
        here=pages.link("teams", team, "heinzel", name),
        now=now,
        zone=visit.zone(team),
    )


async def turn(visit: Visit) -> Response:
    """One turn: what it said, what it waits for, and its timeline."""
    team, name, client = visit.team(), visit.heinzel(), visit.client()
    number = int(visit.request.path_params["turn"])
    record = await client.turn(name, number)
    if record is None:
        raise HTTPException(404, f"{name} has no turn {number}")
    words = await client.words(name, number)
    entries = timeline.read(await client.events(name, number))
    return visit.page(
        "turn.html",
        team=team,
        turn=record,
        words={title: (text, pages.rendered(text)) for title, text in words.items()},
        drafts=await _drafts(client, entries),
        rows=timeline.rows(entries),
        asks=_waits(record, WaitKind.QUESTION),
        capped=_waits(record, WaitKind.BUDGET),
        runs=record.state is TurnState.RUNNING,
        here=pages.link("teams", team, "heinzel", name, "turns", number),
        now=await visit.now_ms(),
        zone=visit.zone(team),
    )


async def change(visit: Visit) -> Response:
    """Wake one, pause it, let it go on."""
    team, name, client, verb = visit.team(), visit.heinzel(), visit.client(), visit.step("verb")
    if verb == "wake":
        reply = await client.wake(name, by=visit.person, text=visit.said("text").strip() or None)
        if reply.disposition is Disposition.REFUSED:
            raise HTTPException(409, f"{name} was not woken: {reply.reason}")
    elif verb in ("pause", "resume"):
        await client.pause(name, paused=verb == "pause")
    else:
        raise HTTPException(404, "a Heinzelmännchen knows no such thing")
    return RedirectResponse(pages.link("teams", team, "heinzel", name), 303)


async def change_turn(visit: Visit) -> Response:
    """Answer a turn's question, raise its cap, tell it something, stop it."""
    team, name, client, verb = visit.team(), visit.heinzel(), visit.client(), visit.step("verb")
    number, by = int(visit.request.path_params["turn"]), visit.person
    if verb == "answer":
        reply = await client.answer(name, _words(visit), by=by, turn=number)
    elif verb == "raise":
        reply = await client.raise_budget(name, by=by, turn=number)
    elif verb == "steer":
        reply = await client.steer(name, _words(visit), by=by, turn=number)
    elif verb == "stop":
        reply = await client.stop(name, by=by, turn=number)
    else:
        raise HTTPException(404, "a turn knows no such thing")
    _delivered(reply)
    return RedirectResponse(pages.link("teams", team, "heinzel", name, "turns", number), 303)


async def _drafts(client: Client, entries: Iterable[timeline.Entry]) -> list[EffectRecord]:
    """The effects that a turn's events name, as the ledger has them now."""
    names = dict.fromkeys(str(entry.data["effect"]) for entry in entries if "effect" in entry.data)
    found = [await client.works.store.effect(client.team, name) for name in names]
    return [effect for effect in found if effect is not None]


def _words(visit: Visit) -> str:
    words = visit.said("text").strip()
    if not words:
        raise HTTPException(409, "there are no words in it: nothing was sent")
    return words


def _delivered(reply: PostReply) -> None:
    if reply.posting is not Posting.DELIVERED:
        raise HTTPException(409, f"not delivered: {turns.undelivered(reply)}")


def _waits(record: TurnRecord, kind: WaitKind) -> bool:
    return any(item.open and item.kind is kind for item in record.waits)
