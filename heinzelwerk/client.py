"""What a person or a program may ask of a team's Heinzelmännchen: wake, read, decide, answer, steer, stop.

The CLI, the console and a team's own programs use this one face over the same store. Nothing runs here: a wake is
stored and rung for, the workers do the rest, and without a bell their own sweep finds it within seconds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from heinzelwerk import advance, apply, errors, quarantine
from heinzelwerk.effect import Decision, EffectRecord, EffectState, MoveReply
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail, MailKind, Posting, PostReply
from heinzelwerk.ports import Works
from heinzelwerk.reader import LOOK_EVERY_S, Reader
from heinzelwerk.session import QUARANTINE
from heinzelwerk.text import clean_line
from heinzelwerk.turn import TurnRecord, TurnState, WaitKind
from heinzelwerk.verification import Damage
from heinzelwerk.wake import Acceptance, Cause, Disposition, Wake, WhenBusy

_Record = TypeVar("_Record", bound=BaseModel)

LOOKED_AT_AT_ONCE = 8
"""Sessions whose spines are checked side by side."""
_LOOK_BACK = 500
"""Events at a spine's end among which a wake's start is looked for; a turn writes a few dozen."""


@dataclass(frozen=True, slots=True)
class WakeReply:
    """What became of a wake: `wake` is its short name, `turn` the number of the turn that works it off, once there is one."""

    wake: str
    key: str
    disposition: Disposition
    session: str
    turn: int | None = None
    reason: str = ""


class Client(Reader):
    """One team's Heinzelmännchen, for whoever may speak for its people; who that is stands in each call's `by`."""

    def __init__(self, works: Works, team: str, *, rings: bool = True) -> None:
        super().__init__(works, team)
        self._rings = rings

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
        wake = _fitting(
            Wake,
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
        """Spine lines from the first that names the wake, as they come, until it has ended or its turn waits for a person.

        Of a wake that waits behind another turn: that turn's lines from now on, then its own. Refused where the session
        is set aside: the wake is kept, and nothing runs before a person resumes it.
        """
        session = SessionId.parse(reply.session)
        seen = await self._begin_of(session, reply.wake)
        while True:
            settled = await self.settled(reply)
            lines = await self._store.spine(session, after=seen)
            if lines:
                seen = int(json.loads(lines[-1])["seq"])
                yield lines
            if settled:
                return
            await self._not_set_aside(session)
            await asyncio.sleep(LOOK_EVERY_S)

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

    async def _not_set_aside(self, session: SessionId) -> None:
        overview = await self._store.overview(session)
        if overview is not None and (why := overview.memo.get(QUARANTINE)):
            raise errors.Refused(
                f"{session} is set aside, {why}; what waits for it is kept",
                fix=f"`heinzelwerk doctor` says what to look at; `heinzelwerk resume {session.heinzel}` lets it go on",
            )

    async def _turn_of(self, session: SessionId, wake: str) -> int | str | None:
        """The number of the turn that a wake started or joined, or how it ended without one, by the end of the spine."""
        for event in reversed(await self._newest_events(session)):
            if not _names(event, wake):
                continue
            if event["kind"] == "wake.skipped":
                return f"skipped: {event['data'].get('reason', '')}"
            if event.get("turn"):
                return int(event["turn"].rpartition("/")[2])
        return None

    async def _begin_of(self, session: SessionId, wake: str) -> int:
        """The number of the spine's line before the first that names the wake; of its last one where none does yet."""
        events = await self._newest_events(session)
        named = [int(event["seq"]) - 1 for event in events if _names(event, wake)]
        return min(named, default=int(events[-1]["seq"]) if events else 0)

    async def _newest_events(self, session: SessionId) -> list[dict[str, Any]]:
        seen = await self._store.overview(session)
        lines = await self._store.spine(session, after=max(0, seen.seq - _LOOK_BACK)) if seen else ()
        return [json.loads(event) for event in lines]

    # -- decisions ---------------------------------------------------------------------------------------------------

    async def approve(
        self, effect_id: str, *, by: str, text: str | None = None, digest: str | None = None
    ) -> MoveReply:
        """Approve a draft as it was shown, or with `text` an edited one. The first decision wins.

        `digest` is the record's as the person saw it: where it moved on since, nothing is decided.
        """
        return await self._decide(effect_id, Decision.APPROVED, by=by, text=text, digest=digest)

    async def decline(self, effect_id: str, *, by: str, reason: str = "", digest: str | None = None) -> MoveReply:
        """Decline a draft: nothing is placed. The first decision wins; `digest` as for `approve`."""
        return await self._decide(effect_id, Decision.DECLINED, by=by, reason=clean_line(reason), digest=digest)

    async def _decide(
        self,
        effect_id: str,
        decision: Decision,
        *,
        by: str,
        text: str | None = None,
        reason: str = "",
        digest: str | None = None,
    ) -> MoveReply:
        record = await self.effect(effect_id)
        reply = await apply.decide(
            self.team, record.id, decision, by=by, works=self.works, words=text, reason=reason, digest=digest
        )
        await self._ring()
        return reply

    async def placed(self, effect_id: str) -> EffectRecord:
        """Wait until an approved effect has ended, or nobody knows how it did."""
        while True:
            record = await self.effect(effect_id)
            if record.state.ended or record.state is EffectState.UNKNOWN or record.decision is Decision.DECLINED:
                return record
            await asyncio.sleep(LOOK_EVERY_S)

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
        number, item = found
        return await self._say(heinzel, MailKind.ANSWER, number, fills=item, value="answered", text=text, by=by)

    async def raise_budget(self, heinzel: str, *, by: str, turn: int | None = None) -> PostReply:
        """Let a turn that waits at its cap go on."""
        found = await self._waiting(heinzel, WaitKind.BUDGET, turn)
        if found is None:
            raise errors.Refused(
                f"{self.team}/{heinzel} does not wait for a budget", fix="`heinzelwerk inbox` lists what waits"
            )
        number, item = found
        return await self._say(heinzel, MailKind.BUDGET_RAISED, number, fills=item, value="raised", by=by)

    async def stop(self, heinzel: str, *, by: str, turn: int | None = None) -> PostReply:
        """Stop a turn (the newest open one where none is named); what it completed is kept."""
        number = turn or await self._open_turn(heinzel, "stop")
        return await self._say(heinzel, MailKind.STOP, number, by=by)

    async def steer(self, heinzel: str, text: str, *, by: str, turn: int | None = None) -> PostReply:
        """Tell a running turn something before its next model request; too late, it becomes the next wake."""
        number = turn or await self._open_turn(heinzel, "steer")
        return await self._say(heinzel, MailKind.STEER, number, text=text, by=by)

    async def pause(self, heinzel: str | None, *, paused: bool) -> None:
        """Pause or resume one Heinzelmännchen, or (None) all of the team. Resuming one also lifts its quarantine."""
        session = None if heinzel is None else await self._known(heinzel)
        await self._store.pause(self.team, heinzel, paused=paused)
        if session is not None and not paused and await self._store.quarantine(session, None):
            await self._ring()

    async def inspect(self, heinzel: str) -> Damage | None:
        """Check a session's whole stored spine; the first bad line sets the session aside until it is resumed."""
        return await quarantine.inspect(await self._known(heinzel), self._store)

    async def inspect_all(self, *, newest: int) -> None:
        """Check the newest lines of every session of the team, and set aside those that are damaged."""
        gate = asyncio.Semaphore(LOOKED_AT_AT_ONCE)

        async def look(name: str) -> None:
            async with gate:
                await quarantine.inspect(SessionId(self.team, name), self._store, newest=newest)

        await asyncio.gather(*map(look, await self._store.sessions(self.team)))

    async def _say(self, heinzel: str, kind: MailKind, turn: int, **fields: str) -> PostReply:
        mail = _fitting(Mail, id=self.works.ids.new(), kind=kind, turn=turn, **fields)
        reply = await self._store.post(SessionId(self.team, heinzel), mail)
        if reply.posting is Posting.DELIVERED:
            await self._ring()
        return reply

    async def _ring(self) -> None:
        """Ring for what is due; without a bell the workers' sweep finds it, so a doorbell must not be taken here."""
        if self._rings:
            await advance.ring(self.team, self.works)

    async def _waiting(self, heinzel: str, kind: WaitKind, turn: int | None) -> tuple[int, str] | None:
        """The turn and the item that wait for this, the newest where no turn is named."""
        seen = await self._store.overview(await self._known(heinzel))
        for record in reversed(seen.turns if seen else ()):
            for item in record.waits:
                if item.open and item.kind is kind and turn in (None, record.number):
                    return record.number, item.id
        return None

    async def _open_turn(self, heinzel: str, verb: str) -> int:
        seen = await self._store.overview(await self._known(heinzel))
        if seen is None or not seen.turns:
            raise errors.Refused(
                f"{self.team}/{heinzel} has no turn to {verb}", fix=f"`heinzelwerk log {heinzel}` shows its turns"
            )
        return max(record.number for record in seen.turns)


def _fitting(record: type[_Record], **fields: Any) -> _Record:
    """A record of what people wrote; Refused names the field that does not fit, and never repeats what was in it."""
    try:
        return record(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(step) for step in first["loc"])
        raise errors.Refused(
            f"the {field or record.__name__.lower()} does not fit: {first['msg'][:1].lower()}{first['msg'][1:]}",
            fix="shorten it, or put the long text where the contract reads it",
        ) from None


def _reply(wake: Wake, accepted: Acceptance) -> WakeReply:
    return WakeReply(wake.id, wake.key, accepted.disposition, str(wake.session), accepted.turn, accepted.reason)


def _names(event: dict[str, Any], wake: str) -> bool:
    data = event.get("data", {})
    return wake in (data.get("wake"), *(data.get("merged") or ()))
