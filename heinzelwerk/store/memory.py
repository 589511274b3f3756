"""The store in plain dicts: the same port and the same answers as the real one, for tests and for reading the rules."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from heinzelwerk.effect import Decision, EffectState, Moved, MoveReply
from heinzelwerk.handoff_job import JobRecord
from heinzelwerk.session import NotClaimed
from heinzelwerk.store import memory_ledger, rules
from heinzelwerk.store import memory_state as ms
from heinzelwerk.store.memory_flights import MemoryFlights
from heinzelwerk.store.memory_holding import MemoryHolding
from heinzelwerk.store.memory_intake import MemoryIntake
from heinzelwerk.store.memory_state import State
from heinzelwerk.store.memory_upkeep import MemoryUpkeep
from heinzelwerk.wake import Wake


class MemoryStore(MemoryIntake, MemoryHolding, MemoryFlights, MemoryUpkeep):
    """The port `Store` without a server. `clock_ms` is the server's clock: tests move it.

    `snapshot()` and `restore()` copy the whole state, as a crash test or a property test wants it.
    """

    def snapshot(self) -> State:
        """A copy of everything."""
        return copy.deepcopy(self._state)

    def restore(self, state: State) -> None:
        """Go back to a copy."""
        self._state = copy.deepcopy(state)

    # -- the store itself --------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Check or write the format mark."""
        if self._state.format > rules.FORMAT:
            raise rules.too_new(self._state.format, rules.FORMAT)
        self._state.format = rules.FORMAT

    async def now_ms(self) -> int:
        """The server's clock."""
        return self._clock_ms()

    async def teams(self) -> tuple[str, ...]:
        """Teams that ever loaded contracts."""
        return tuple(sorted(name for name, team in self._state.teams.items() if team.generation is not None))

    async def server_facts(self) -> dict[str, str]:
        """Nothing is durable here."""
        return {"server": "memory", "version": "", "clock_ms": str(self._clock_ms()), "appendonly": "no"}

    async def close(self) -> None:
        """Nothing to give back."""

    # -- the effect ledger -------------------------------------------------------------------------------------

    async def decide(
        self,
        team: str,
        effect_id: str,
        decision: Decision,
        *,
        by: str,
        digest: str,
        text: str | None = None,
        new_digest: str = "",
        wakes: Sequence[Wake] = (),
        reason: str = "",
    ) -> MoveReply:
        """Decide a planned effect."""
        state, now = self._team(team), self._clock_ms()
        reply = memory_ledger.decide(
            state,
            effect_id,
            decision,
            now,
            self._options,
            by=by,
            digest=digest,
            text=text,
            new_digest=new_digest,
            reason=reason[: rules.REASON_CHARS],
        )
        if reply.moved is Moved.DONE:
            for wake in wakes:
                ms.accept(state, wake, "", now, self._options)
        return reply

    async def start_effect(
        self, team: str, effect_id: str, *, version: int, timeout_ms: int, margin_ms: int, unattended: bool
    ) -> MoveReply:
        """Begin an attempt."""
        return memory_ledger.start(
            self._team(team),
            effect_id,
            self._clock_ms(),
            self._options,
            version=version,
            timeout_ms=timeout_ms,
            margin_ms=margin_ms,
            unattended=unattended,
        )

    async def close_effect(
        self,
        team: str,
        effect_id: str,
        *,
        version: int,
        to: EffectState,
        reason: str = "",
        revision: str = "",
        seen: str = "",
        retry_in_ms: int = 0,
        wakes: Sequence[Wake] = (),
    ) -> MoveReply:
        """Move an effect on."""
        state, now = self._team(team), self._clock_ms()
        reply = memory_ledger.close(
            state,
            effect_id,
            now,
            self._options,
            version=version,
            to=to,
            reason=reason[: rules.REASON_CHARS],
            revision=revision,
            seen=seen,
            retry_in_ms=retry_in_ms,
        )
        placed = reply.moved is Moved.DONE and to is EffectState.COMPLETED
        if placed and reply.record is not None and reply.record.decision is Decision.UNATTENDED:
            for wake in wakes:
                ms.accept(state, wake, "", now, self._options)
        return reply

    # -- jobs --------------------------------------------------------------------------------------------------

    async def claim_job(self, team: str, job_id: str, *, nonce: str, worker: str) -> tuple[JobRecord, str] | NotClaimed:
        """Take a queued job."""
        return memory_ledger.claim_job(self._team(team), job_id, nonce, worker, self._clock_ms(), self._options)

    async def close_job(
        self,
        team: str,
        job_id: str,
        *,
        token: str | None,
        status: str,
        cost_micros: int | None,
        bodies: Mapping[str, bytes],
    ) -> bool:
        """End a job."""
        return memory_ledger.close_job(
            self._team(team),
            job_id,
            self._clock_ms(),
            self._options,
            token=token,
            status=status,
            cost_micros=cost_micros,
            bodies=bodies,
        )
