"""A claim: one session held under its lease, the only writer of its spine for as long as it lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from heinzelwerk import errors
from heinzelwerk.commit import After, Commit, CommitReply, CommitState
from heinzelwerk.event import Chain, Note
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail
from heinzelwerk.ports import Interrupt
from heinzelwerk.session import Hold, NotClaimed, Snapshot

if TYPE_CHECKING:
    from heinzelwerk.ports import Clock, Store, Works


class Claim:
    """A held session: what it was when it was claimed (`snapshot`), and the one way to write to it (`commit`).

    `mail` is the unread mail in order of arrival; a commit takes pieces from its front. After `interrupt` the holder
    stops; after LOST it also writes nothing more.
    """

    def __init__(self, snapshot: Snapshot, store: Store, clock: Clock) -> None:
        self.snapshot = snapshot
        self.session = snapshot.session
        self.token = snapshot.token
        self.hold = Hold("session", self.session.team, self.session.heinzel, snapshot.token)
        self.chain: Chain = snapshot.chain
        self.mail: list[Mail] = list(snapshot.mail)
        self.released = False
        self.interrupted: Interrupt | None = None
        self.running: int | None = None  # the turn that a segment runs: a stop names its turn
        self._store = store
        self._clock = clock
        self._listeners: list[Callable[[Interrupt], None]] = []
        self._offset_ms = snapshot.now_ms - int(clock.monotonic() * 1000)
        self._written = 0

    def now_ms(self) -> int:
        """Server time, carried forward from the claim by this process's monotonic clock."""
        return self._offset_ms + int(self._clock.monotonic() * 1000)

    def interrupt(self, why: Interrupt) -> None:
        """Ask the segment to stop; the first reason stands, but LOST overrides. Safe from any thread."""
        if self.interrupted is Interrupt.LOST or (self.interrupted is not None and why is not Interrupt.LOST):
            return
        self.interrupted = why
        for listener in tuple(self._listeners):
            listener(why)

    def on_interrupt(self, listener: Callable[[Interrupt], None]) -> None:
        """Call the listener at the interrupt, at once where it has already come."""
        self._listeners.append(listener)
        if self.interrupted is not None:
            listener(self.interrupted)

    async def commit(
        self,
        notes: Iterable[Note] = (),
        *,
        mail_taken: int = 0,
        after: After = After.KEEP,
        **parts: Any,
    ) -> CommitReply:
        """Write notes and parts (fields of `Commit`) in one script. LeaseLost where the session is no longer ours.

        A reservation over its cap is an answer (`OVER_CAP`), not an error: nothing was written.
        """
        if self.interrupted is Interrupt.LOST:
            raise errors.LeaseLost(f"the lease of {self.session} was lost; nothing was written")
        lines, chain = self.chain.extend(notes, at=self._clock.now())
        commit = Commit(
            op=f"{self.token}:{self._written + 1}",
            expected_seq=self.chain.seq,
            lines=lines,
            head=chain.head,
            mail_taken=mail_taken,
            after=after,
            **parts,
        )
        reply = await self._store.commit(self.session, self.token, commit)
        if reply.state is CommitState.OVER_CAP:
            return reply
        if reply.state is not CommitState.DONE:
            self.interrupt(Interrupt.LOST)
            raise errors.LeaseLost(
                f"{self.session}: the store refused the commit ({reply.state}); another process holds it"
            )
        self._written += 1
        self.chain = chain
        del self.mail[:mail_taken]
        self.released = after is not After.KEEP
        return reply

    async def fetch_mail(self) -> list[Mail]:
        """Read the unread mail anew; what is in `mail` already keeps its place."""
        known = {entry.id for entry in self.mail}
        self.mail.extend(entry for entry in await self._store.unread_mail(self.session) if entry.id not in known)
        return self.mail

    async def body(self, turn: int, name: str) -> bytes | None:
        """An entry of a turn's body; None where it never was or has expired."""
        return await self._store.body(self.session, turn, name)

    async def begin_request(self, provider: str, *, limit: int, ttl_ms: int) -> bool:
        """Take a place among the requests in flight at a provider; False where there is none now."""
        return await self._store.begin_request(provider, self.hold, limit=limit, ttl_ms=ttl_ms)

    async def end_request(self, provider: str) -> None:
        """Give it back."""
        await self._store.end_requests(provider, (self.hold,))

    async def release(self, *, handed_back: bool, due_ms: int | None = None, holds_session: bool = False) -> None:
        """Give the session back without a commit; nothing happens where it was released or lost before."""
        if self.released or self.interrupted is Interrupt.LOST:
            return
        self.released = True
        await self._store.release(
            self.session, self.token, handed_back=handed_back, due_ms=due_ms, holds_session=holds_session
        )


@asynccontextmanager
async def hold(session: SessionId, works: Works) -> AsyncIterator[Claim | NotClaimed]:
    """Claim a session for the length of the block, kept alive by the keeper.

    A block that ends without a releasing commit (an error, a crash of the code in it) leaves the lease to run out,
    so that the claim counts as a dead one and poison is seen; LeaseLost is the caller's to note.
    """
    snapshot = await works.store.claim(session, nonce=works.ids.new(), solo=works.solo)
    if isinstance(snapshot, NotClaimed):
        yield snapshot
        return
    claim = Claim(snapshot, works.store, works.clock)
    works.keeper.keep(claim)
    try:
        yield claim
    finally:
        works.keeper.forget(claim)
