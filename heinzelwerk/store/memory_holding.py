"""The in-memory store for the holder of a session's lease, and for those who write to one."""

from __future__ import annotations

from collections.abc import Sequence

from heinzelwerk.commit import Commit, CommitReply
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail, MailKind, Posting, PostReply
from heinzelwerk.session import Hold, NotClaimed, Snapshot
from heinzelwerk.store import memory_session, rules
from heinzelwerk.store import memory_state as ms
from heinzelwerk.store.memory_reading import MemoryReading
from heinzelwerk.store.memory_state import TeamState
from heinzelwerk.wake import Disposition


class MemoryHolding(MemoryReading):
    """Claim, renew, commit, release, mail."""

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
