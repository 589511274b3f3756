"""A segment's record while it runs: every commit of the engine is made here, and the turn's state moves with it.

One script for each checkpoint: new messages, usage, settlement, events, and the reservation of the request that follows.
Money put aside for attempt `k` of step `s` is `<turn>/<s>/<k>`; an id is never used twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.usage import RequestUsage

from heinzelwerk import mailroom, unanswered
from heinzelwerk.budget import Reservation, Settlement
from heinzelwerk.claim import Claim
from heinzelwerk.commit import Body, Call, CommitReply, CommitState, History
from heinzelwerk.effect import EffectState
from heinzelwerk.ending import HandedBack, OverBudget, Tail
from heinzelwerk.engine import context, messages, steps
from heinzelwerk.engine.leave import Leave
from heinzelwerk.engine.purse import Asked, Charge, Purse
from heinzelwerk.engine.start import Start
from heinzelwerk.engine.steps import Made, Round
from heinzelwerk.engine.trouble import Trouble
from heinzelwerk.event import Note
from heinzelwerk.mail import Mail, MailKind
from heinzelwerk.opening import Opening
from heinzelwerk.ports import Clock
from heinzelwerk.turn import CallRecord, CallState, TurnRecord
from heinzelwerk.unanswered import RESERVED

T = TypeVar("T")


async def durably(work: Coroutine[Any, Any, T]) -> T:
    """Finish the work even where the caller is cancelled meanwhile: a half-known write would make the next one a guess."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error from None
        raise


@dataclass(frozen=True, slots=True)
class Write:
    """What one commit writes beside the turn. `ask`: the messages of the request that it puts money aside for."""

    turn: TurnRecord
    notes: Iterable[Note] = ()
    history: History | None = None
    calls: Sequence[Call] = ()
    bodies: Sequence[Body] = ()
    settle: Sequence[Settlement] = ()
    ask: Sequence[ModelMessage] | None = None
    mail_taken: int = 0
    progress: bool = True

    @property
    def more(self) -> bool:
        """Whether there is anything beside the turn's own record."""
        return bool(self.history or self.calls or self.bodies or self.settle or self.mail_taken)


class Segment:
    """The state of one segment; `turn` is the record as it was last stored."""

    def __init__(self, opening: Opening, claim: Claim, clock: Clock, purse: Purse) -> None:
        self.opening, self.claim, self.purse = opening, claim, purse
        self.turn: TurnRecord = opening.turn
        self.model = opening.model
        self.asked: Asked | None = None
        self.stored = len(opening.history)  # entries of the stored history, the provisional one included
        self.mail_waits = bool(claim.mail)
        self.late: list[str] = []
        self._clock = clock
        self._began = clock.monotonic()
        self._active_ms = opening.turn.active_ms
        self._lock = asyncio.Lock()
        self._notes: list[Note] = []
        self._call_notes: dict[str, list[Note]] = {}
        self._charge = Charge()
        self._carried: Write | None = None

    # -- checkpoints -------------------------------------------------------------------------------------------

    async def book_unanswered(self) -> None:
        """Book what a dead process sent and nobody answered, where something else is asked before the first request."""
        booked = unanswered.book(self.turn)
        if booked.notes:
            await self.write(booked.turn, notes=booked.notes, settle=booked.settle, progress=False)

    async def begin(self, begun: Start) -> None:
        """The segment's first commit: the history as this run takes it, an unanswered request booked, the first one reserved."""
        booked, carried = unanswered.book(self.turn), self._carried
        counters = self.purse.raised(booked.turn.counters)
        self.late = list(begun.late)
        turn = booked.turn.model_copy(update={"counters": counters, "messages": len(begun.messages) - 1})
        fresh = messages.dump(begun.messages[begun.keep :])
        instructions = [Body(turn.number, "instructions", self._instructions)] if not self.opening.history else []
        if not fresh and not booked.notes and not begun.requests and counters == self.turn.counters:
            return
        history = History(turn.number, begun.keep, fresh) if fresh or len(self.opening.history) > begun.keep else None
        await self.write(
            turn,
            notes=booked.notes,
            history=history,
            settle=[*booked.settle, *(carried.settle if carried else ())],
            bodies=[*instructions, *(carried.bodies if carried else ())],
            ask=begun.messages if begun.requests else None,
            progress=False,  # booking what a dead process sent is none: a request that kills its workers must be seen as poison
        )

    _instructions = b""

    def told(self, instructions: str, tool_definitions: int) -> None:
        """What every request carries beside its messages; `tool_definitions` in characters."""
        self._instructions = instructions.encode()
        self.purse.overhead_tokens = (len(instructions) + tool_definitions) // 3

    def charge(self, usage: RequestUsage) -> int:
        """Micro-dollars of the response that just came."""
        self._charge = self.purse.charge(self.asked, usage, self.turn)
        return self._charge.micros

    async def response(self, found: Sequence[ModelMessage], *, ms: int) -> None:
        """A model answered: the request as it was sent and the response, paid and settled, in one commit."""
        made = self._answered(found, self._taken(), ms=ms)
        await self.write(made.turn, notes=made.notes, history=self._history(found), settle=made.settle)

    def _answered(self, found: Sequence[ModelMessage], asked: Asked, *, ms: int) -> Made:
        """The turn after the last response of these messages."""
        at = messages.last_response(found)
        response = found[at] if at is not None else None
        if not isinstance(response, ModelResponse):
            raise TypeError("an answered request has a response in its history")
        ordinal = self.turn.ordinal + 1
        made = steps.paid(self.turn, response, asked, self._charge, model=self.model, ms=ms, ordinal=ordinal)
        heard = (*made.turn.heard, *made.turn.steers)
        update = {"ordinal": ordinal, "messages": len(found), "steers": (), "heard": heard}
        return replace(made, turn=made.turn.model_copy(update=update))

    def adopt(self, response: ModelResponse, *, purpose: str, words: str) -> None:
        """A response beside the conversation: paid, on the spine, its words in the body, all of it with the next write."""
        made = steps.paid(self.turn, response, self._taken(), self._charge, model=self.model, ms=0, purpose=purpose)
        self.turn = made.turn
        self._notes.extend(made.notes)
        body = Body(self.turn.number, purpose, words.encode())
        self._carried = Write(self.turn, settle=made.settle, bodies=[body])

    async def tools(self, found: Sequence[ModelMessage], round_: Round, *, again: bool) -> None:
        """A round of tools ended: `found` ends with their results, provisional until sent; reserves the request that follows.

        `again` False: no request will follow in this segment, nothing is reserved.
        """
        made = steps.tools(self.turn, round_)
        turn = made.turn.model_copy(update={"messages": len(found) - 1})
        notes = [*self._take_notes(), *made.notes]
        await self.write(turn, notes=notes, history=self._history(found), ask=found if again else None)

    def _history(self, found: Sequence[ModelMessage]) -> History:
        keep = self.turn.messages
        return History(self.turn.number, keep, messages.dump(found[keep:]))

    # -- calls -------------------------------------------------------------------------------------------------

    def note_call(self, key: str, note: Note) -> None:
        """An event of one call, stored together with that call's result or with the round's checkpoint."""
        self._call_notes.setdefault(key, []).append(note)

    def _take_notes(self, key: str | None = None) -> list[Note]:
        if key is not None:
            return self._call_notes.pop(key, [])
        notes = [note for entry in self._call_notes.values() for note in entry]
        self._call_notes.clear()
        return notes

    async def call(self, key: str, record: CallRecord) -> None:
        """Store what became of one call, with its events."""
        notes = self._take_notes(key) if record.state is CallState.DONE else ()
        await self.write(
            self.turn, notes=notes, calls=(Call(self.turn.number, key, record.model_dump_json().encode()),)
        )

    # -- attempts ----------------------------------------------------------------------------------------------

    async def attempt(self, waiting: Sequence[ModelMessage]) -> Asked:
        """The attempt that may be sent now; reserved here where no checkpoint before it did."""
        if self.asked is None:
            await self.write(self.turn, ask=waiting, progress=False)
        return self.asked or self._taken()

    def _taken(self) -> Asked:
        asked, self.asked = self.asked, None
        if asked is None:
            raise RuntimeError("no attempt was put aside for this request")
        return asked

    async def failed(self, trouble: Trouble, *, ms: int, then: dict[str, JsonValue]) -> None:
        """An attempt brought no response: settled, on the spine; `then` says what follows."""
        made = steps.failed(self.turn, trouble, self._taken(), model=self.model, ms=ms, then=then)
        await self.write(made.turn, notes=made.notes, settle=made.settle)

    async def withdraw(self) -> None:
        """Give back what was put aside for an attempt that is not sent."""
        asked, self.asked = self.asked, None
        if asked is not None:
            made = steps.left_open(self.turn, asked, sent=False)
            await self.write(made.turn, settle=made.settle, progress=False)

    def count(self, **counters: int) -> None:
        """Remember counters with the next write."""
        self.turn = self.turn.model_copy(update={"counters": {**self.turn.counters, **counters}})

    def note(self, note: Note) -> None:
        """An event that is stored with the next write, or with the segment's end."""
        self._notes.append(note)

    # -- mail --------------------------------------------------------------------------------------------------

    async def take_mail(self, sent: Sequence[ModelMessage]) -> list[str]:
        """Move the mail at the front of the box onto the spine; answers the words that this request must carry.

        A message is durable, on the spine and in the stored history, before the model sees it. A stop stays: it
        comes by interrupt. `sent` are the messages of the request, as it stands.
        """
        words, self.late = self.late, []
        if not self.mail_waits:
            return words
        self.mail_waits = False
        box = await self.claim.fetch_mail()
        taken = self._front(box)
        if not words and self._held_up(box[len(taken) :]):
            raise Leave(HandedBack)
        if not taken:
            return words
        steers = [mail for mail in taken if mail.kind is MailKind.STEER]
        said = [context.steer(mail.id, mail.text or "", mail.by) for mail in steers]
        bodies = [body for mail in taken if (body := mailroom.body(mail)) is not None]
        keep = len(sent) if said else 0
        history = History(self.turn.number, keep, messages.dump([messages.prompt(w) for w in [*words, *said]]))
        turn = self.turn.model_copy(update={"steers": (*self.turn.steers, *(mailroom.steer(mail) for mail in steers))})
        await self.write(
            turn,
            notes=[mailroom.note(mail, self.claim.session) for mail in taken],
            bodies=bodies,
            history=history if said else None,
            mail_taken=len(taken),
        )
        return [*words, *said]

    def _front(self, box: Sequence[Mail]) -> list[Mail]:
        """The mail that can be moved while a turn runs. What else a session must do with a piece stays for its next claim:
        a stop, another turn's message, a handoff's cost, and an effect that completed (it may be a lesson to keep).
        """
        taken = []
        for mail in box:
            foreign = mail.kind is MailKind.STEER and mail.turn != self.turn.number
            kept = mail.kind is MailKind.EFFECT_MOVED and mail.data.get("state") == EffectState.COMPLETED.value
            if mail.kind in (MailKind.STOP, MailKind.JOB_ENDED) or foreign or kept:
                break
            taken.append(mail)
        return taken

    def _held_up(self, rest: Sequence[Mail]) -> bool:
        """Whether words for this turn stand behind what only a claim can take: then the session is claimed anew at once.

        A stop of this turn holds nothing up: it is on its way as an interrupt.
        """
        number = self.turn.number
        if not rest or (rest[0].kind is MailKind.STOP and rest[0].turn in (None, number)):
            return False
        return any(mail.kind is MailKind.STEER and mail.turn == number for mail in rest)

    # -- writing -----------------------------------------------------------------------------------------------

    async def write(self, turn: TurnRecord, **parts: Any) -> None:
        """Write a turn and these parts (fields of `Write`) in one script, also where the caller is cancelled meanwhile.

        With `ask` the money of the request that those messages make is put aside too. Where a cap refuses the money
        everything else is written all the same, and the segment ends over budget.
        """
        await durably(self._write(Write(turn, **parts)))

    async def _write(self, wanted: Write) -> None:
        async with self._lock:
            notes = (*self._notes, *wanted.notes)
            self._notes = []
            turn = wanted.turn.model_copy(update={"active_ms": self._elapsed()})
            refused = None
            if wanted.ask is not None:
                refused = await self._write_asking(wanted, wanted.ask, turn, notes)
                if refused is None:
                    return
            if notes or wanted.more or turn != self.turn:
                await self._commit(wanted, turn, notes)
            if refused is not None:
                raise refused

    async def _write_asking(
        self, wanted: Write, ask: Sequence[ModelMessage], turn: TurnRecord, notes: tuple[Note, ...]
    ) -> Leave | None:
        """Write with the reservation of the next attempt; how the segment must end where a cap does not hold it."""
        try:
            asked = self.purse.ask(ask, turn)
        except Leave as leave:
            return leave
        counters = {**turn.counters, RESERVED: asked.micros}
        reserved = turn.model_copy(update={"attempt": asked.attempt, "counters": counters})
        reply = await self._commit(wanted, reserved, notes, reserve=self.purse.reservation(asked))
        if reply.state is CommitState.DONE:
            self.asked = asked
            return None
        return Leave(lambda tail: OverBudget(tail, reply.over, asked.micros))

    async def _commit(
        self, wanted: Write, turn: TurnRecord, notes: tuple[Note, ...], *, reserve: Reservation | None = None
    ) -> CommitReply:
        history = wanted.history
        reply = await self.claim.commit(
            notes,
            turns=(turn,),
            reserve=reserve,
            histories=(history,) if history is not None else (),
            calls=tuple(wanted.calls),
            bodies=tuple(wanted.bodies),
            settle=tuple(wanted.settle),
            mail_taken=wanted.mail_taken,
            progress=wanted.progress,
        )
        if reply.state is CommitState.DONE:
            self.turn = turn
            self.mail_waits = reply.mail > 0
            if history is not None:
                self.stored = history.keep + len(history.items)
        return reply

    def _elapsed(self) -> int:
        return self._active_ms + int((self._clock.monotonic() - self._began) * 1000)

    # -- the end -----------------------------------------------------------------------------------------------

    def tail(
        self,
        found: Sequence[ModelMessage] | None = None,
        *,
        notes: Iterable[Note] = (),
        bodies: Iterable[Body] = (),
        turn: TurnRecord | None = None,
        sent: bool = False,
    ) -> Tail:
        """What no checkpoint stored yet. `found` are the run's messages; a request that was `sent` unanswered may have been
        spent, one that was put aside and not sent costs nothing.
        """
        made = Made(turn or self.turn)
        asked, self.asked = self.asked, None
        answered = found is not None and any(isinstance(m, ModelResponse) for m in found[self.turn.messages :])
        if asked is not None and answered and found is not None:
            made = self._answered(found, asked, ms=0)  # paid for, and the run ended before its checkpoint
        elif asked is not None:
            made = steps.left_open(made.turn, asked, sent=sent)
        turn = made.turn
        history = None
        if found is not None and len(found) > self.turn.messages:
            history = self._history(found)
            turn = turn.model_copy(update={"messages": len(found)})
        turn = turn.model_copy(update={"active_ms": self._elapsed()})
        told = (*self._notes, *made.notes, *self._take_notes(), *notes)
        return Tail(turn, told, history, (), tuple(bodies), made.settle)
