"""What a person or a program may read of a team's Heinzelmännchen; nothing here changes anything."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from heinzelwerk import admission, errors, ids, inbox, spending
from heinzelwerk.budget import Spent
from heinzelwerk.effect import EffectRecord, Which
from heinzelwerk.generation import ContractEntry
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail
from heinzelwerk.ports import TargetView, Works
from heinzelwerk.session import Overview
from heinzelwerk.spending import Asked
from heinzelwerk.turn import TurnRecord

LOOK_EVERY_S = 0.2
"""How often somebody who waits looks again."""
_WORDS = ("reply", "question", "failure")
_PAGE = 500
"""Events of a spine that are read at once, from its end."""
MOST_WAITING = 10_000
"""Entries of one kind that an inbox shows; a team that lets more wait has another trouble."""
_AT_ONCE = 32
"""Sessions that are read side by side: a team of hundreds is listed in a few round trips, one pool is not flooded."""


@dataclass(frozen=True, slots=True)
class Log:
    """A session's spine lines and the mail that no commit has taken yet."""

    session: SessionId
    lines: tuple[bytes, ...]
    unread: tuple[Mail, ...]


class Reader:
    """One team, read from the store."""

    def __init__(self, works: Works, team: str) -> None:
        self.team = team
        self.works = works
        self._store = works.store

    async def contracts(self) -> dict[str, ContractEntry]:
        """The contracts of the newest generation by name."""
        return await self._store.entries(self.team)

    async def overviews(self) -> dict[str, Overview]:
        """The sessions that ever had a wake, by name."""
        names = await self._store.sessions(self.team)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def read(name: str) -> tuple[str, Overview | None]:
            async with gate:
                return name, await self._store.overview(SessionId(self.team, name))

        return {name: seen for name, seen in await asyncio.gather(*map(read, names)) if seen is not None}

    async def last_turns(self, seen: Iterable[Overview]) -> dict[str, TurnRecord]:
        """The newest turn of each of these sessions, by name."""
        seen = [one for one in seen if one.last_turn]
        found = await asyncio.gather(*(self._store.turn(one.session, one.last_turn) for one in seen))
        return {one.session.heinzel: turn for one, turn in zip(seen, found, strict=True) if turn is not None}

    async def contract(self, heinzel: str) -> tuple[ContractEntry, bytes]:
        """A contract as loaded, with its text; Refused where none is loaded under this name."""
        entry = (await self._store.entries(self.team)).get(heinzel)
        text = await self._store.text(self.team, entry.sha256) if entry else None
        if entry is None or text is None:
            raise errors.Refused(
                f"team {self.team} has no contract {heinzel!r} loaded",
                fix="`heinzelwerk list` names those that are; `heinzelwerk load` reads the contracts again",
            )
        return entry, text

    async def log(self, heinzel: str) -> Log:
        """A session's spine with the mail on its way; Refused where the name is unknown."""
        session = await self._known(heinzel)
        return Log(session, await self._store.spine(session), await self._store.unread_mail(session))

    async def events(self, heinzel: str, number: int) -> tuple[bytes, ...]:
        """One turn's lines of the spine, read from its end back to the turn's first; sealed ones are left out."""
        session = await self._known(heinzel)
        mark, found = f'"turn":"{session}/{number}"'.encode(), list[bytes]()
        async for page in self._backwards(session):
            found[:0] = [line for line in page if mark in line]
            if any(b'"kind":"turn.started"' in line for line in found):
                break
        return tuple(found)

    async def newest_turn(self, heinzel: str) -> TurnRecord | None:
        """The newest turn of a session; None where it never had one."""
        session = SessionId(self.team, heinzel)
        seen = await self._store.overview(session)
        return await self._store.turn(session, seen.last_turn) if seen and seen.last_turn else None

    async def ended_turn(self, heinzel: str) -> TurnRecord:
        """Wait until a session has a turn and its newest one has ended; for ever, so give it a time of your own."""
        while True:
            turn = await self.newest_turn(heinzel)
            if turn is not None and turn.state.ended:
                return turn
            await asyncio.sleep(LOOK_EVERY_S)

    async def turn(self, heinzel: str, number: int | None = None) -> TurnRecord | None:
        """A turn's record; without a number the newest one. Refused where the name is unknown."""
        session = await self._known(heinzel)
        return await self.newest_turn(heinzel) if number is None else await self._store.turn(session, number)

    async def text(self, effect: EffectRecord) -> str | None:
        """What an effect would place, or placed; None where it has expired."""
        return await self._store.effect_text(self.team, effect.id)

    async def target(self, effect: EffectRecord) -> TargetView | None:
        """The effect's target as it is now; None where this process has no publisher for it or cannot read it."""
        publisher = self.works.publishers.get(effect.action)
        if publisher is None:
            return None
        try:
            return await publisher.view(effect.arguments)
        except errors.HeinzelwerkError:
            return None

    async def before(self, effect: EffectRecord) -> str | None:
        """What stands at the effect's target now; None where that cannot be read here."""
        found = await self.target(effect)
        return None if found is None else found.before

    async def words(self, heinzel: str, number: int) -> dict[str, str]:
        """What a turn said, by kind (reply, question, failure); an expired one is left out."""
        session = SessionId(self.team, heinzel)
        found = await asyncio.gather(*(self._store.body(session, number, name) for name in _WORDS))
        return {name: body.decode("utf-8", "replace") for name, body in zip(_WORDS, found, strict=True) if body}

    async def waiting(self) -> tuple[EffectRecord, ...]:
        """The team's drafts and chat proposals that wait for a decision."""
        return await self._store.effects(self.team, Which.UNDECIDED, limit=MOST_WAITING)

    async def troubled(self) -> tuple[EffectRecord, ...]:
        """The effects among which failures are looked for: the newest, and all of which nobody knows the end, however old."""
        recent, unknown = await asyncio.gather(
            self._store.effects(self.team), self._store.effects(self.team, Which.UNKNOWN, limit=MOST_WAITING)
        )
        return (*recent, *(effect for effect in unknown if effect not in recent))

    async def undecided(self, turn: TurnRecord) -> tuple[EffectRecord, ...]:
        """The drafts of a turn that wait for a decision."""
        return tuple(
            one for one in await self.waiting() if one.session == turn.wake.session and one.turn == turn.number
        )

    async def costs(self, *, day: str | None = None) -> tuple[Spent, dict[str, Spent]]:
        """What one UTC day (`YYYY-MM-DD`; None: today) cost: the team, and each session by name."""
        names = await self._store.sessions(self.team)
        whole, *each = await asyncio.gather(
            self._store.spent(self.team, day=day), *(self._store.spent(self.team, name, day=day) for name in names)
        )
        return whole, dict(zip(names, each, strict=True))

    async def models(self, *, day: str | None = None) -> dict[str, dict[str, Asked]]:
        """What one UTC day (None: today) cost by session and model, from the spines; sealed turns are left out."""
        day = day or admission.at(await self._store.now_ms()).date().isoformat()
        _, each = await self.costs(day=day)
        names = [name for name, spent in each.items() if spent.spent or spent.possible or spent.reserved]
        gate = asyncio.Semaphore(_AT_ONCE)

        async def read(name: str) -> dict[str, Asked]:
            async with gate:
                return spending.by_model(await self._since(SessionId(self.team, name), day), day=day)

        return dict(zip(names, await asyncio.gather(*map(read, names)), strict=True))

    async def _since(self, session: SessionId, day: str) -> list[bytes]:
        """The events of a session from this day on, read from the spine's end: a year of them lies before."""
        lines: list[bytes] = []
        async for page in self._backwards(session):
            lines[:0] = page
            if spending.day_of(lines[0]) < day:
                break
        return lines

    async def _backwards(self, session: SessionId) -> AsyncIterator[tuple[bytes, ...]]:
        """The spine in pages from its end; over where the rest is sealed."""
        seen = await self._store.overview(session)
        end = seen.seq if seen else 0
        while end > 0:
            start = max(0, end - _PAGE)
            page = await self._store.spine(session, after=start, limit=end - start)
            if not page:
                return
            yield page
            end = start

    async def now_ms(self) -> int:
        """The server's clock, in milliseconds."""
        return await self._store.now_ms()

    async def drafts(self, *, limit: int = 50) -> tuple[EffectRecord, ...]:
        """The team's effects, newest first, decided or not."""
        return await self._store.effects(self.team, limit=limit)

    async def inbox(self) -> tuple[inbox.Item, ...]:
        """All that waits for a person, oldest first."""
        waiting, recent, sessions = await asyncio.gather(self.waiting(), self.troubled(), self.overviews())
        return inbox.items(undecided=waiting, recent=recent, sessions=sessions.values())

    async def effect(self, effect_id: str) -> EffectRecord:
        """An effect by id or by an unambiguous beginning of it; Refused where there is none."""
        record = await self._store.effect(self.team, effect_id)
        if record is None:
            raise errors.Refused(
                f"no draft {effect_id!r} in team {self.team}",
                fix="`heinzelwerk inbox` lists what waits, `heinzelwerk drafts` what was decided",
            )
        return record

    async def _known(self, heinzel: str) -> SessionId:
        if not ids.is_name(heinzel):
            raise errors.Refused(
                f"{heinzel!r} is no name", fix="names are a-z, 0-9 and single dashes; see `heinzelwerk list`"
            )
        session = SessionId(self.team, heinzel)
        if heinzel not in await self._store.entries(self.team) and await self._store.overview(session) is None:
            near = difflib.get_close_matches(heinzel, await self._store.entries(self.team), n=1)
            look = "`heinzelwerk list` names those that are loaded; `heinzelwerk load` reads the contracts again"
            raise errors.Refused(
                f"team {self.team} has no Heinzelmännchen {heinzel!r}",
                fix=f"did you mean {near[0]}? {look}" if near else look,
            )
        return session
