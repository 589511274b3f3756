"""What the in-memory store takes in: contracts, wakes, slots of schedules; and what it rings for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from heinzelwerk.generation import ContractEntry, Generation, LoadReply
from heinzelwerk.session import Due
from heinzelwerk.store import memory_session, rules
from heinzelwerk.store import memory_state as ms
from heinzelwerk.store.memory_reading import MemoryReading
from heinzelwerk.store.memory_state import TeamState
from heinzelwerk.wake import Acceptance, Wake


class MemoryIntake(MemoryReading):
    """Loading, accepting, and what is due."""

    # -- contracts ---------------------------------------------------------------------------------------------

    async def load(self, generation: Generation, slots: Mapping[str, int]) -> LoadReply:
        """Make this set the newest generation."""
        team, now = self._team(generation.team), self._clock_ms()
        old = team.generation
        unchanged = rules.same(old, generation)
        number = (old.number if old else 0) + (0 if unchanged and old else 1)
        reply = rules.compare(old, generation, number)
        for name in set(generation.entries) | set(old.entries if old else {}):
            member = f"slot:{name}"
            keeps = old is not None and name in old.entries and name in generation.entries
            if keeps and old is not None and rules.schedule_of(old, name) != rules.schedule_of(generation, name):
                team.due.pop(member, None)
            if name in generation.entries and name in slots:
                team.due.setdefault(member, slots[name])
            else:
                team.due.pop(member, None)
        for name in reply.removed:
            session = team.sessions.get(name)
            if session is not None and (session.inbox or session.open_turns()):
                team.due[f"session:{name}"] = now
        team.texts.update(generation.texts)
        team.generation = Generation(
            generation.team,
            dict(generation.entries),
            {},
            dict(generation.skills),
            generation.source,
            generation.timezone,
            number,
        )
        return reply

    async def entries(self, team: str, names: Collection[str] | None = None) -> dict[str, ContractEntry]:
        """The newest generation's contracts, all or those named."""
        generation = self._team(team).generation
        found = generation.entries if generation else {}
        return {name: entry for name, entry in sorted(found.items()) if names is None or name in names}

    async def generation(self, team: str) -> Generation | None:
        """The newest generation without texts."""
        return self._team(team).generation

    async def skills(self, team: str) -> dict[str, str]:
        """The newest generation's skills."""
        generation = self._team(team).generation
        return dict(generation.skills) if generation else {}

    async def text(self, team: str, sha256: str) -> bytes | None:
        """A text by hash."""
        return self._team(team).texts.get(sha256)

    # -- wakes -------------------------------------------------------------------------------------------------

    async def accept(self, wake: Wake, *, nonce: str) -> Acceptance:
        """Take a wake in."""
        return ms.accept(self._team(wake.team), wake, nonce, self._clock_ms(), self._options)

    async def fill_slot(
        self, team: str, heinzel: str, *, expected_ms: int, next_ms: int | None, wakes: Sequence[Wake]
    ) -> bool:
        """Accept a due slot's wakes and move the schedule on."""
        state, now, member = self._team(team), self._clock_ms(), f"slot:{heinzel}"
        if state.due.get(member) != expected_ms:
            return False
        session = state.sessions.get(heinzel)
        fresh = sum(1 for wake in wakes if ms.seen_key(wake) not in state.seen)
        if fresh and len(session.inbox if session else ()) + fresh > self._options.inbox_cap:
            ms.count(state, "slots_waiting")
            return False
        for wake in wakes:
            ms.accept(state, wake, "", now, self._options)
        state.due.pop(member)
        if next_ms is not None:
            state.due[member] = next_ms
        return True

    async def due(self, team: str, *, kind: str = "", limit: int = 100) -> tuple[Due, ...]:
        """What is due now."""
        return tuple(entry for entry in self._due_now(team) if not kind or entry.kind == kind)[:limit]

    def _due_now(self, team: str) -> list[Due]:
        state, now = self._team(team), self._clock_ms()
        entries = []
        for member, at in sorted(state.due.items(), key=lambda entry: (entry[1], entry[0])):
            kind, _, name = member.partition(":")
            if at <= now:
                entries.append(Due(kind, team, name, at, kind == "session" and ms.alone(state.sessions.get(name), now)))
        return entries

    async def ring(self, team: str, *, limit: int = 100) -> tuple[Due, ...]:
        """Take what is due and may run."""
        state, now = self._team(team), self._clock_ms()
        admitted: list[Due] = []
        for entry in self._due_now(team):
            if len(admitted) >= limit:
                break
            if entry.kind == "slot":
                continue
            if entry.kind == "session":
                if not self._admit(state, entry.name, now):
                    continue
            else:
                ms.bump(state, f"{entry.kind}:{entry.name}", now, self._options)
            admitted.append(entry)
        return tuple(admitted)

    def _admit(self, state: TeamState, heinzel: str, now: int) -> bool:
        session, member = state.sessions.get(heinzel), f"session:{heinzel}"
        if session is not None and session.lease is not None and ms.held(session, now):
            state.due[member] = session.lease.until_ms
            return False
        if session is not None and session.quarantined:
            state.due.pop(member, None)
            state.backoff.pop(member, None)
            return False
        if not memory_session.take_slot(state, heinzel, now, now, self._options):
            return False
        delay = ms.bump(state, member, now, self._options)
        state.slots[heinzel] = now + delay
        ms.sent_alone(session, now, self._options)
        return True
