"""What operators ask of the in-memory store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from heinzelwerk.event import line_digest
from heinzelwerk.ids import SessionId
from heinzelwerk.store import memory_state as ms
from heinzelwerk.store import rules
from heinzelwerk.store.memory_reading import MemoryReading


class MemoryUpkeep(MemoryReading):
    """Pauses, heartbeats, flags, retention."""

    async def pause(self, team: str, heinzel: str | None, *, paused: bool) -> None:
        """Pause or resume."""
        names = self._team(team).paused
        (names.add if paused else names.discard)(heinzel or "")

    async def heartbeat(self, worker: str, facts: Mapping[str, str], *, ttl_ms: int) -> None:
        """Say that a worker makes progress."""
        self._state.workers[worker] = (self._clock_ms() + ttl_ms, dict(facts))

    async def workers(self) -> dict[str, dict[str, str]]:
        """The living workers."""
        now = self._clock_ms()
        return {name: dict(facts) for name, (until, facts) in sorted(self._state.workers.items()) if until > now}

    async def flag(self, name: str, value: str | None = None, *, clear: bool = False) -> str | None:
        """Read, set or clear a flag."""
        if clear:
            self._state.flags.pop(name, None)
        elif value is not None:
            self._state.flags[name] = value
        return self._state.flags.get(name)

    async def take_turns(self, name: str, *, ttl_ms: int) -> bool:
        """True for one caller per period."""
        now = self._clock_ms()
        if self._state.turns_taken.get(name, 0) > now:
            return False
        self._state.turns_taken[name] = now + ttl_ms
        return True

    async def is_taken(self, name: str) -> bool:
        """Whether somebody took that turn and its time has not passed."""
        return self._state.turns_taken.get(name, 0) > self._clock_ms()

    async def prune(
        self, team: str, *, before_ms: int, archive: Callable[[SessionId, Sequence[bytes]], Awaitable[None]] | None
    ) -> int:
        """Seal whole turns."""
        sealed, now = 0, self._clock_ms()
        for heinzel, state in self._team(team).sessions.items():
            if ms.held(state, now) or state.quarantined:
                continue
            ended = {number: record.ended_ms for number, record in state.turns.items()}
            count = rules.sealable(state.spine, ended, before_ms)
            lines = state.spine[:count]
            if lines and archive is not None:
                await archive(SessionId(team, heinzel), lines)
            if lines:
                state.sealed += count
                state.seal = rules.seal_line(state.sealed, line_digest(lines[-1]), now)
                del state.spine[:count]
            for number in rules.forgettable(ended, min(before_ms, now - self._options.body_ttl_ms)):
                del state.turns[number]
                state.words.pop(number, None)
            sealed += count
        return sealed
