"""The keeper of this process's leases: a thread of its own, with a connection of its own.

Every third of a lease all are renewed together, but only while the event loop is alive and the segment's own time is
not used up: a lease that outlives the ability to work would keep the work from others. A holder whose lease could not
be renewed for 80 % of its length is told to stop before it ends.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from heinzelwerk.errors import HeinzelwerkError
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import MailKind
from heinzelwerk.ports import Held, Interrupt, Store
from heinzelwerk.session import Hold
from workers.journal import LeaseJournal

log = structlog.get_logger("heinzelwerk.keeper")

STOP_AT = 0.8
"""The part of a lease without a renewal after which its holder must stop."""
OVERTIME_S = 120.0


class Renewer(Protocol):
    """The store's blocking face for renewals: a connection that shares nothing with the event loop."""

    def renew(self, holds: Sequence[Hold]) -> tuple[Hold, ...]:
        """Extend these leases; answers those that were lost. StoreUnavailable where nothing is known."""

    def close(self) -> None:
        """Give the connection back."""


@dataclass(slots=True)
class _Kept:
    held: Held
    renewed: float  # monotonic, when the request that renewed it was begun
    ends: float  # monotonic, when the segment has had its time


class LeaseKeeper:
    """Keeps leases alive from `start` to `stop`. `lag_s` tells how long ago the event loop ticked.

    `journal` notes what is held, for whoever finds this process dead.
    """

    def __init__(
        self,
        renewer: Renewer,
        *,
        lease_s: float,
        longest_s: float,
        journal: LeaseJournal | None = None,
        late_s: float = 5.0,
        lag_s: Callable[[], float] = lambda: 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._renewer = renewer
        self._lease_s = lease_s
        self._longest_s = longest_s + OVERTIME_S
        self._journal = journal
        self._late_s = late_s
        self._lag_s = lag_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._leaving = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="heinzelwerk-keeper", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        if self._journal is not None:
            self._journal.open()
        self._thread.start()

    def stop(self) -> None:
        """End renewing; what is still kept runs out."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._renewer.close()
        if self._journal is not None:
            self._journal.close()

    def keep(self, held: Held) -> None:
        """Renew from now on; asks for the hand-back at once where this process is leaving."""
        now = self._monotonic()
        with self._lock:
            self._kept[held.hold.token] = _Kept(held, renewed=now, ends=now + self._longest_s)
            if self._journal is not None:
                self._journal.keep(held.hold)
            leaving = self._leaving
        if leaving:
            _tell(held, Interrupt.HAND_BACK)

    def forget(self, held: Held) -> None:
        """Stop renewing this one."""
        with self._lock:
            self._kept.pop(held.hold.token, None)
            if self._journal is not None:
                self._journal.forget(held.hold)

    @property
    def leaving(self) -> bool:
        """Whether this process hands back and takes nothing more."""
        return self._leaving

    def leave(self) -> None:
        """Ask every holder, and each that still comes, to hand back at its next checkpoint."""
        with self._lock:
            self._leaving = True
        for held in self.holding():
            _tell(held, Interrupt.HAND_BACK)

    def holding(self) -> tuple[Held, ...]:
        """Whoever holds a lease now."""
        with self._lock:
            return tuple(kept.held for kept in self._kept.values())

    def look(self) -> None:
        """One look: stop those whose lease may end soon, renew the rest when a third of the lease has passed."""
        now = self._monotonic()
        with self._lock:
            kept = tuple(self._kept.values())
        self._lose([one for one in kept if now - one.renewed >= STOP_AT * self._lease_s], "not renewed in time")
        if self._lag_s() >= self._late_s:
            return
        alive = [one for one in kept if now - one.renewed < STOP_AT * self._lease_s and now < one.ends]
        if any(now - one.renewed >= self._lease_s / 3 for one in alive):
            self._renew(alive)

    async def watch(self, store: Store, *, every_s: float) -> None:
        """Look for stops of the sessions that run here, for ever; each interrupts its holder."""
        while True:
            await asyncio.sleep(every_s)
            holders = {_session(held.hold): held for held in self.holding() if held.hold.kind == "session"}
            if holders:
                try:
                    await self._pass_on_stops(holders, store)
                except HeinzelwerkError as error:  # a store that is away stops nobody; leases decide that
                    log.debug("could not look for stops", reason=str(error))

    async def _pass_on_stops(self, holders: dict[SessionId, Held], store: Store) -> None:
        for session, mail in (await store.urgent(list(holders))).items():
            running = getattr(holders[session], "running", None)
            stops = [one for one in mail if one.kind is MailKind.STOP]
            if any(running is None or one.turn in (None, running) for one in stops):
                _tell(holders[session], Interrupt.STOPPED)

    def _renew(self, alive: list[_Kept]) -> None:
        begun = self._monotonic()
        try:
            lost = set(self._renewer.renew([one.held.hold for one in alive]))
        except HeinzelwerkError as error:
            log.warning("leases not renewed", count=len(alive), reason=str(error))
            return
        for one in alive:
            one.renewed = begun
        self._lose([one for one in alive if one.held.hold in lost], "taken by another")

    def _lose(self, ones: list[_Kept], why: str) -> None:
        for one in ones:
            self.forget(one.held)
            log.warning(
                "lease lost", kind=one.held.hold.kind, team=one.held.hold.team, name=one.held.hold.name, why=why
            )
            _tell(one.held, Interrupt.LOST)

    def _serve(self) -> None:
        every = min(0.5, self._lease_s / 10)
        while not self._stopping.wait(every):
            try:
                self.look()
            except Exception:  # the keeper must not die: without it every lease of the process runs out
                log.exception("keeper failed")


def _tell(held: Held, why: Interrupt) -> None:
    """Interrupt one holder; one that fails to take it must not keep the others from being told."""
    try:
        held.interrupt(why)
    except Exception:
        log.exception("holder could not be interrupted", kind=held.hold.kind, name=held.hold.name, why=why.value)


def _session(hold: Hold) -> SessionId:
    return SessionId(hold.team, hold.name)


class IdleKeeper:
    """For programs that claim nothing (the CLI, the console): keeps nothing."""

    def keep(self, held: Held) -> None:
        """Nothing to renew: the caller's work is shorter than a lease."""

    def forget(self, held: Held) -> None:
        """Nothing was kept."""
