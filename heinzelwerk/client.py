"""What a person or a program may ask of a team's Heinzelmännchen: wake, read, decide, answer, steer, stop.

The CLI, the console and a team's own programs use this one face over the same store. Nothing runs here: a wake is
stored and rung for, the workers do the rest, and without a bell their own sweep finds it within seconds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from heinzelwerk import advance, apply, errors, ids, inbox
from heinzelwerk.budget import Spent
from heinzelwerk.effect import Decision, EffectRecord, EffectState, MoveReply
from heinzelwerk.generation import ContractEntry
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail, MailKind, Posting, PostReply
from heinzelwerk.ports import Works
from heinzelwerk.session import Overview
from heinzelwerk.text import clean_line
from heinzelwerk.turn import TurnRecord, TurnState, WaitItem, WaitKind
from heinzelwerk.wake import Acceptance, Cause, Disposition, Wake, WhenBusy

_LOOK_EVERY_S = 0.2
_WORDS = ("reply", "question", "failure")
_LOOK_BACK = 500
"""Events at a spine's end among which a wake's start is looked for; a turn writes a few dozen."""
_AT_ONCE = 32
"""Sessions that are read side by side: a team of hundreds is listed in a few round trips, one pool is not flooded."""


@dataclass(frozen=True, slots=True)
class WakeReply:
    """What became of a wake: `wake` is its short name, `turn` the number of the turn that works it off, once there is one."""

    wake: str
    key: str
    disposition: Disposition
    session: str
    turn: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Log:
    """A session's spine lines and the mail that no commit has taken yet."""

    session: SessionId
    lines: tuple[bytes, ...]
    unread: tuple[Mail, ...]


class Client:
    """One team's Heinzelmännchen, for whoever may speak for its people; who that is stands in each call's `by`."""

    def __init__(self, works: Works, team: str, *, rings: bool = True) -> None:
        self.team = team
        self._rings = rings
        self.works = works
        self._store = works.store

    # -- wakes ---------------------------------------------------------------------------------------------------

    async def wake(
        self,
        heinzel: str,
        *,
        key: str | None = None,
        text: str | None = None,
        data: JsonValue = None,
        cause: Cause = Cause.MANUAL,
        when_busy: WhenBusy = WhenBusy.FOLLOW_UP,
        by: str | None = None,
        slot: datetime | None = None,
        channel: str | None = None,
        conversation: str | None = None,
    ) -> WakeReply:
        """Store a reason to start a turn and ring for it. The same key is accepted once, however often it comes.

        `slot` is for cause scheduled: the instant that the wake stands for, at which its windows end.
        """
        fresh = self.works.ids.new()
        wake = Wake(
            team=self.team,
            heinzel=heinzel,
            key=key or f"{cause.value}/{channel or 'client'}/{fresh}",
            cause=cause,
            when_busy=when_busy,
            text=text,
            data=data,
            by=by,
            slot=slot,
            channel=channel,
            conversation=conversation,
        )
        accepted = await self._store.accept(wake, nonce=fresh)
        if accepted.disposition is not Disposition.REFUSED:
            await self._ring()
        return _reply(wake, accepted)

    async def ask(
        self, heinzel: str, text: str, *, by: str, conversation: str = "cli", channel: str = "cli"
    ) -> WakeReply:
        """Write to a Heinzelmännchen: starts a turn, or steers the conversation's running one."""
        return await self.wake(
            heinzel,
            text=text,
            cause=Cause.ASKED,
            when_busy=WhenBusy.STEER,
            by=by,
            channel=channel,
            conversation=conversation,
        )

    async def event(self, heinzel: str, *, source: str, delivery: str, data: JsonValue = None) -> WakeReply:
        """Deliver an outside event; the same delivery id of a source wakes once."""
        return await self.wake(heinzel, key=f"event/{source}/{delivery}", cause=Cause.EVENT, data=data)

    async def watch(self, reply: WakeReply) -> AsyncIterator[tuple[bytes, ...]]:
        """Spine lines of the wake's session as they come, until the wake has ended or its turn waits for a person."""
        session = SessionId.parse(reply.session)
        seen = 0
        while True:
            settled = await self.settled(reply)
            lines = await self._store.spine(session, after=seen)
            if lines:
                seen += len(lines)
                yield lines
            if settled:
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    async def settled(self, reply: WakeReply) -> TurnRecord | str | None:
        """How a wake ended: its turn once that ended or waits for a person; `skipped: why` without one; None before."""
        session = SessionId.parse(reply.session)
        number = reply.turn or await self._turn_of(session, reply.wake)
        if isinstance(number, str):
            return number
        turn = await self._store.turn(session, number) if number else None
        if turn is None:
            return None
        waits_for_people = any(item.open and not item.kind.holds_session for item in turn.waits)
        return turn if turn.state.ended or (turn.state is TurnState.WAITING and waits_for_people) else None

    async def _turn_of(self, session: SessionId, wake: str) -> int | str | None:
        """The number of the turn that a wake started or joined, or how it ended without one, by the end of the spine."""
        seen = await self._store.overview(session)
        lines = await self._store.spine(session, after=max(0, seen.seq - _LOOK_BACK)) if seen else ()
        for event in map(json.loads, reversed(lines)):
            data = event.get("data", {})
            if wake not in (data.get("wake"), *(data.get("merged") or ())):
                continue
            if event["kind"] == "wake.skipped":
                return f"skipped: {data.get('reason', '')}"
            if event.get("turn"):
                return int(event["turn"].rpartition("/")[2])
        return None

    # -- reading ---------------------------------------------------------------------------------------------------

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
            await asyncio.sleep(_LOOK_EVERY_S)

    async def turn(self, heinzel: str, number: int | None = None) -> TurnRecord | None:
        """A turn's record; without a number the newest one. Refused where the name is unknown."""
        session = await self._known(heinzel)
        return await self.newest_turn(heinzel) if number is None else await self._store.turn(session, number)

    async def text(self, effect: EffectRecord) -> str | None:
        """What an effect would place, or placed; None where it has expired."""
        return await self._store.effect_text(self.team, effect.id)

    async def before(self, effect: EffectRecord) -> str | None:
        """What stands at the effect's target now; None where this process has no publisher for it or cannot read it."""
        publisher = self.works.publishers.get(effect.action)
        if publisher is None:
            return None
        try:
            return (await publisher.view(effect.arguments)).before
        except errors.HeinzelwerkError:
            return None

    async def words(self, heinzel: str, number: int) -> dict[str, str]:
        """What a turn said, by kind (reply, question, failure); an expired one is left out."""
        session = SessionId(self.team, heinzel)
        found = await asyncio.gather(*(self._store.body(session, number, name) for name in _WORDS))
        return {name: body.decode("utf-8", "replace") for name, body in zip(_WORDS, found, strict=True) if body}

    async def undecided(self, turn: TurnRecord) -> tuple[EffectRecord, ...]:
        """The drafts of a turn that wait for a decision."""
        waiting = await self._store.effects(self.team, undecided=True)
        return tuple(one for one in waiting if one.session == turn.wake.session and one.turn == turn.number)

    async def costs(self, *, day: str | None = None) -> tuple[Spent, dict[str, Spent]]:
        """What one UTC day (`YYYY-MM-DD`; None: today) cost: the team, and each session by name."""
        names = await self._store.sessions(self.team)
        whole, *each = await asyncio.gather(
            self._store.spent(self.team, day=day), *(self._store.spent(self.team, name, day=day) for name in names)
        )
        return whole, dict(zip(names, each, strict=True))

    async def now_ms(self) -> int:
        """The server's clock, in milliseconds."""
        return await self._store.now_ms()

    async def drafts(self, *, limit: int = 50) -> tuple[EffectRecord, ...]:
        """The team's effects, newest first, decided or not."""
        return await self._store.effects(self.team, limit=limit)

    async def inbox(self) -> tuple[inbox.Item, ...]:
        """All that waits for a person, oldest first."""
        waiting, recent, sessions = await asyncio.gather(
            self._store.effects(self.team, undecided=True), self._store.effects(self.team), self.overviews()
        )
        return inbox.items(undecided=waiting, recent=recent, sessions=sessions.values())

    # -- decisions ---------------------------------------------------------------------------------------------------

    async def effect(self, effect_id: str) -> EffectRecord:
        """An effect by id or by an unambiguous beginning of it; Refused where there is none."""
        record = await self._store.effect(self.team, effect_id)
        if record is None:
            raise errors.Refused(
                f"no draft {effect_id!r} in team {self.team}",
                fix="`heinzelwerk inbox` lists what waits, `heinzelwerk drafts` what was decided",
            )
        return record

    async def approve(self, effect_id: str, *, by: str, text: str | None = None) -> MoveReply:
        """Approve a draft as it was shown, or with `text` an edited one. The first decision wins."""
        return await self._decide(effect_id, Decision.APPROVED, by=by, text=text)

    async def decline(self, effect_id: str, *, by: str, reason: str = "") -> MoveReply:
        """Decline a draft: nothing is placed. The first decision wins."""
        return await self._decide(effect_id, Decision.DECLINED, by=by, reason=clean_line(reason))

    async def _decide(
        self, effect_id: str, decision: Decision, *, by: str, text: str | None = None, reason: str = ""
    ) -> MoveReply:
        record = await self.effect(effect_id)
        reply = await apply.decide(self.team, record.id, decision, by=by, works=self.works, words=text, reason=reason)
        await self._ring()
        return reply

    async def placed(self, effect_id: str) -> EffectRecord:
        """Wait until an approved effect has ended, or nobody knows how it did."""
        while True:
            record = await self.effect(effect_id)
            if record.state.ended or record.state is EffectState.UNKNOWN or record.decision is Decision.DECLINED:
                return record
            await asyncio.sleep(_LOOK_EVERY_S)

    async def resolve(self, effect_id: str, how: Literal["completed", "failed", "retry"], *, by: str) -> MoveReply:
        """Close an effect whose end nobody knows, as a person found it; `retry` lets code place it again."""
        record = await self.effect(effect_id)
        reply = await apply.resolve(self.team, record.id, how, by=by, works=self.works)
        await self._ring()
        return reply

    # -- mail ----------------------------------------------------------------------------------------------------------

    async def answer(self, heinzel: str, text: str, *, by: str, turn: int | None = None) -> PostReply:
        """Answer the question that a turn waits with (the newest one where no turn is named)."""
        found = await self._waiting(heinzel, WaitKind.QUESTION, turn)
        if found is None:
            raise errors.Refused(
                f"{self.team}/{heinzel} asks nothing" + (f" in turn {turn}" if turn else ""),
                fix=f"`heinzelwerk inbox` lists open questions; `heinzelwerk chat {heinzel} TEXT` writes to it",
            )
        record, item = found
        return await self._post(
            heinzel,
            Mail(
                id=self.works.ids.new(),
                kind=MailKind.ANSWER,
                turn=record.number,
                fills=item.id,
                value="answered",
                text=text,
                by=by,
            ),
        )

    async def raise_budget(self, heinzel: str, *, by: str, turn: int | None = None) -> PostReply:
        """Let a turn that waits at its cap go on."""
        found = await self._waiting(heinzel, WaitKind.BUDGET, turn)
        if found is None:
            raise errors.Refused(
                f"{self.team}/{heinzel} does not wait for a budget", fix="`heinzelwerk inbox` lists what waits"
            )
        record, item = found
        return await self._post(
            heinzel,
            Mail(
                id=self.works.ids.new(),
                kind=MailKind.BUDGET_RAISED,
                turn=record.number,
                fills=item.id,
                value="raised",
                by=by,
            ),
        )

    async def stop(self, heinzel: str, *, by: str, turn: int | None = None) -> PostReply:
        """Stop a turn (the newest open one where none is named); what it completed is kept."""
        number = turn or await self._open_turn(heinzel, "stop")
        return await self._post(heinzel, Mail(id=self.works.ids.new(), kind=MailKind.STOP, turn=number, by=by))

    async def steer(self, heinzel: str, text: str, *, by: str, turn: int | None = None) -> PostReply:
        """Tell a running turn something before its next model request; too late, it becomes the next wake."""
        number = turn or await self._open_turn(heinzel, "steer")
        return await self._post(
            heinzel, Mail(id=self.works.ids.new(), kind=MailKind.STEER, turn=number, text=text, by=by)
        )

    async def pause(self, heinzel: str | None, *, paused: bool) -> None:
        """Pause or resume one Heinzelmännchen, or (None) all of the team."""
        if heinzel is not None:
            await self._known(heinzel)
        await self._store.pause(self.team, heinzel, paused=paused)

    async def _post(self, heinzel: str, mail: Mail) -> PostReply:
        reply = await self._store.post(SessionId(self.team, heinzel), mail)
        if reply.posting is Posting.DELIVERED:
            await self._ring()
        return reply

    async def _ring(self) -> None:
        """Ring for what is due; without a bell the workers' sweep finds it, so a doorbell must not be taken here."""
        if self._rings:
            await advance.ring(self.team, self.works)

    async def _known(self, heinzel: str) -> SessionId:
        if not ids.is_name(heinzel):
            raise errors.Refused(
                f"{heinzel!r} is no name", fix="names are a-z, 0-9 and single dashes; see `heinzelwerk list`"
            )
        session = SessionId(self.team, heinzel)
        if heinzel not in await self._store.entries(self.team) and await self._store.overview(session) is None:
            raise errors.Refused(
                f"team {self.team} has no Heinzelmännchen {heinzel!r}",
                fix="`heinzelwerk list` names those that are loaded; `heinzelwerk load` reads the contracts again",
            )
        return session

    async def _waiting(self, heinzel: str, kind: WaitKind, turn: int | None) -> tuple[TurnRecord, WaitItem] | None:
        seen = await self._store.overview(await self._known(heinzel))
        for record in reversed(seen.turns if seen else ()):
            for item in record.waits:
                if item.open and item.kind is kind and turn in (None, record.number):
                    return record, item
        return None

    async def _open_turn(self, heinzel: str, verb: str) -> int:
        seen = await self._store.overview(await self._known(heinzel))
        if seen is None or not seen.turns:
            raise errors.Refused(
                f"{self.team}/{heinzel} has no turn to {verb}", fix=f"`heinzelwerk log {heinzel}` shows its turns"
            )
        return max(record.number for record in seen.turns)


def _reply(wake: Wake, accepted: Acceptance) -> WakeReply:
    return WakeReply(wake.id, wake.key, accepted.disposition, str(wake.session), accepted.turn, accepted.reason)
