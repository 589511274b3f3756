"""The store in plain dicts: the same port and the same answers as the real one, for tests and for reading the rules."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from heinzelwerk.commit import Commit, CommitReply
from heinzelwerk.effect import Decision, EffectState, Moved, MoveReply
from heinzelwerk.event import line_digest
from heinzelwerk.generation import ContractEntry, Generation, LoadReply
from heinzelwerk.handoff_job import JobRecord
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail, MailKind, Posting, PostReply
from heinzelwerk.session import Due, Hold, NotClaimed, Snapshot
from heinzelwerk.store import memory_ledger, memory_session, rules
from heinzelwerk.store import memory_state as ms
from heinzelwerk.store.memory_reading import MemoryReading
from heinzelwerk.store.memory_state import State, TeamState
from heinzelwerk.wake import Acceptance, Disposition, Wake


class MemoryStore(MemoryReading):
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

    # -- a session under its lease -----------------------------------------------------------------------------

    async def claim(self, session: SessionId, *, nonce: str, solo: bool = True) -> Snapshot | NotClaimed:
        """Take the lease and read everything."""
        return memory_session.claim(
            self._team(session.team), session, nonce, self._clock_ms(), self._options, solo=solo
        )

    async def renew(self, holds: Sequence[Hold]) -> tuple[Hold, ...]:
        """Extend leases; answers the lost ones."""
        return tuple(hold for hold in holds if not self._renew(hold))

    def _renew(self, hold: Hold) -> bool:
        until = self._clock_ms() + self._options.lease_ms
        renewed = self._let_last(hold, until)
        if renewed and hold.kind == "session":
            self._team(hold.team).slots[hold.name] = until
        return renewed

    async def end_leases(self, holds: Sequence[Hold]) -> int:
        """End the leases of a dead holder."""
        return sum(self._let_last(hold, self._clock_ms()) for hold in holds)

    def _let_last(self, hold: Hold, until_ms: int) -> bool:
        """Let a lease end at that moment; False where it is not this one any more."""
        team = self._team(hold.team)
        session = team.sessions.get(hold.name) if hold.kind == "session" else None
        lease = session.lease if session else team.job_leases.get(hold.name) if hold.kind == "job" else None
        if lease is None or lease.token != hold.token or lease.until_ms <= self._clock_ms():
            return False
        lease.until_ms = until_ms
        team.due[f"{hold.kind}:{hold.name}"] = until_ms
        return True

    async def commit(self, session: SessionId, token: str, commit: Commit) -> CommitReply:
        """Write everything in the commit, or nothing."""
        return memory_session.commit(self._team(session.team), session, token, commit, self._clock_ms(), self._options)

    async def release(
        self, session: SessionId, token: str, *, handed_back: bool, due_ms: int | None, holds_session: bool
    ) -> bool:
        """Give the lease up."""
        state, now = self._session(session), self._clock_ms()
        if state is None:
            return False
        if state.lease is None or not ms.held(state, now) or state.lease.token != token:
            return state.released == token
        memory_session.let_go(
            self._team(session.team),
            session.heinzel,
            handed_back=handed_back,
            due_ms=due_ms,
            holds=holds_session,
            now=now,
        )
        return True

    async def quarantine(self, session: SessionId, why: str | None, *, token: str | None = None) -> bool:
        """Set a session aside, or lift that."""
        return memory_session.quarantine(self._team(session.team), session.heinzel, why, token, self._clock_ms())

    async def urgent(self, sessions: Sequence[SessionId]) -> dict[SessionId, tuple[Mail, ...]]:
        """Unread stops and steers."""
        found: dict[SessionId, tuple[Mail, ...]] = {}
        for session in sessions:
            state = self._session(session)
            urgent = tuple(mail for mail in state.mail if mail.kind in (MailKind.STOP, MailKind.STEER)) if state else ()
            if urgent:
                found[session] = urgent
        return found

    async def post(self, session: SessionId, mail: Mail) -> PostReply:
        """Deliver mail."""
        team, now = self._team(session.team), self._clock_ms()
        name = f"post/{session.heinzel}/{mail.id}"
        kept = team.ops.get(name)
        if kept is not None and kept[0] > now and isinstance(kept[1], PostReply):
            return kept[1]
        reply = self._post(team, session, mail, now)
        if reply.posting not in (Posting.UNKNOWN_TURN, Posting.UNKNOWN_ITEM):
            team.ops[name] = (now + self._options.op_ttl_ms, reply)
        return reply

    def _post(self, team: TeamState, session: SessionId, mail: Mail, now: int) -> PostReply:
        state = team.sessions.get(session.heinzel)
        turn = state.turn(mail.turn) if state is not None and mail.turn is not None else None
        names_turn = mail.turn is not None or mail.kind in (MailKind.STOP, MailKind.ANSWER)
        if state is None or (names_turn and turn is None):
            return PostReply(Posting.UNKNOWN_TURN)
        if turn is not None and turn.state.ended:
            if mail.kind in (MailKind.STOP, MailKind.ANSWER):
                return PostReply(Posting.TURN_ENDED, turn.state.value)
            if mail.kind is MailKind.STEER:
                accepted = ms.accept(team, rules.wake_of(mail, turn.wake), "", now, self._options)
                refused = accepted.disposition is Disposition.REFUSED
                return PostReply(Posting.TURN_ENDED if refused else Posting.DELIVERED, accepted.reason)
        elif turn is not None and mail.fills is not None:
            item = next((item for item in turn.waits if item.id == mail.fills), None)
            if item is None:
                return PostReply(Posting.UNKNOWN_ITEM)
            if item.value is not None:
                return PostReply(Posting.ALREADY_FILLED, item.value)
            if mail.kind is MailKind.ANSWER and item.deadline_ms <= now:
                return PostReply(Posting.EXPIRED)
        ms.deliver(team, session.heinzel, mail, now)
        return PostReply(Posting.DELIVERED)

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

    # -- operators ---------------------------------------------------------------------------------------------

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
