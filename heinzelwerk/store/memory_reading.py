"""The reading half of the in-memory store."""

from __future__ import annotations

from collections.abc import Callable

from heinzelwerk.budget import Spent
from heinzelwerk.effect import EffectRecord, Which
from heinzelwerk.handoff_job import JobRecord
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail
from heinzelwerk.session import Overview
from heinzelwerk.store import memory_ledger, memory_money, rules
from heinzelwerk.store import memory_state as ms
from heinzelwerk.store.memory_state import State, TeamState
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.turn import CallRecord, TurnRecord


class MemoryReading:
    """What readers ask of the store; nothing here changes a session."""

    def __init__(self, clock_ms: Callable[[], int], options: StoreOptions | None = None) -> None:
        self._clock_ms = clock_ms
        self._options = options or StoreOptions()
        self._state = State()

    def _team(self, team: str) -> TeamState:
        return self._state.teams.setdefault(team, TeamState(team))

    def _session(self, session: SessionId) -> ms.SessionState | None:
        return self._team(session.team).sessions.get(session.heinzel)

    async def overview(self, session: SessionId) -> Overview | None:
        """A session for readers."""
        team, state, now = self._team(session.team), self._session(session), self._clock_ms()
        if state is None:
            return None
        return Overview(
            session=session,
            last_turn=state.last_turn,
            seq=state.seq,
            turns=state.open_turns(),
            inbox=ms.inbox(state),
            mail=len(state.mail),
            paused=bool({"", session.heinzel} & team.paused),
            held=ms.held(state, now),
            due_ms=team.due.get(f"session:{session.heinzel}"),
            next_slot_ms=team.due.get(f"slot:{session.heinzel}"),
            dead_claims=state.dead,
            memo=dict(state.memo),
            head=state.head,
            last=state.last,
        )

    async def sessions(self, team: str) -> tuple[str, ...]:
        """Who ever had a wake."""
        return tuple(sorted(self._team(team).sessions))

    async def turn(self, session: SessionId, number: int) -> TurnRecord | None:
        """A turn's record."""
        state = self._session(session)
        return state.turn(number) if state else None

    async def turns(self, session: SessionId, *, before: int, limit: int = 50) -> tuple[TurnRecord, ...]:
        """Earlier turns, newest first."""
        records = (await self.turn(session, number) for number in range(before - 1, max(0, before - 1 - limit), -1))
        return tuple([record async for record in records if record is not None])

    async def spine(self, session: SessionId, *, after: int = 0, limit: int = 10_000) -> tuple[bytes, ...]:
        """Spine lines in order."""
        state = self._session(session)
        if state is None:
            return ()
        seal = (state.seal,) if state.seal and after < state.sealed else ()
        return (*seal, *state.spine[max(0, after - state.sealed) :])[:limit]

    async def unread_mail(self, session: SessionId) -> tuple[Mail, ...]:
        """Mail that no commit has taken yet."""
        state = self._session(session)
        return tuple(state.mail) if state else ()

    def _words(self, session: SessionId, turn: int) -> ms.Words:
        return ms.live_words(self._team(session.team), session, turn, self._clock_ms())

    async def body(self, session: SessionId, turn: int, name: str) -> bytes | None:
        """An entry of a turn's body."""
        return self._words(session, turn).body.get(name)

    async def body_names(self, session: SessionId, turn: int) -> tuple[str, ...]:
        """The names of the entries."""
        return tuple(sorted(self._words(session, turn).body))

    async def history(self, session: SessionId, turn: int) -> tuple[bytes, ...]:
        """The stored messages."""
        return tuple(self._words(session, turn).history)

    async def calls(self, session: SessionId, turn: int) -> dict[str, CallRecord]:
        """The call ledger."""
        return dict(self._words(session, turn).calls)

    async def draft(self, session: SessionId, output: str, *, approved: bool) -> tuple[int, str] | None:
        """The newest or last approved text."""
        state = self._session(session)
        return (state.approved if approved else state.newest).get(output) if state else None

    async def spent(self, team: str, heinzel: str | None = None, *, day: str | None = None) -> Spent:
        """Money of one day."""
        return memory_money.spent(self._swept(team), heinzel, day or rules.utc_day(self._clock_ms()))

    def _swept(self, team: str) -> TeamState:
        state = self._team(team)
        memory_money.expire(state, self._clock_ms(), self._options)
        return state

    async def counters(self, team: str) -> dict[str, int]:
        """Counts that are no events."""
        return dict(self._team(team).counters)

    async def effect(self, team: str, effect_id: str) -> EffectRecord | None:
        """An effect."""
        return memory_ledger.find(self._team(team), effect_id)

    async def effects(self, team: str, which: Which = Which.ALL, *, limit: int = 200) -> tuple[EffectRecord, ...]:
        """Effects, newest first."""
        records = sorted(
            self._team(team).effects.values(), key=lambda record: (record.created_ms, record.id), reverse=True
        )
        return tuple(record for record in records if which.has(record))[:limit]

    async def effect_text(self, team: str, effect_id: str) -> str | None:
        """The text of an effect."""
        record = memory_ledger.find(self._team(team), effect_id)
        return self._team(team).effect_texts.get(record.id) if record else None

    async def job(self, team: str, job_id: str) -> JobRecord | None:
        """A job."""
        return self._team(team).jobs.get(job_id)
