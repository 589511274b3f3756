"""The ports of a process: its time, its names, its doorbells, and whoever keeps its leases alive."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from heinzelwerk.session import Due, Hold


class Clock(Protocol):
    """Time of this process. Leases, deadlines and slots are compared by the store's own clock, never by this one."""

    def now(self) -> datetime:
        """The current instant, timezone-aware UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back."""


class Ids(Protocol):
    """Fresh names."""

    def new(self) -> str:
        """26 characters, sortable by time, unique without coordination."""


class Bell(Protocol):
    """Rings for what is due. A ring may be lost, late or doubled without harm: the state in the store decides."""

    async def ring(self, entries: Sequence[Due]) -> None:
        """Publish one doorbell per entry; a broker that does not answer is logged, never raised."""


class Interrupt(StrEnum):
    """Why a running segment must stop before its end."""

    LOST = "lost"  # the lease may be another's: stop at once, write nothing
    STOPPED = "stopped"  # a person said so: stop at once, keep what completed
    HAND_BACK = "hand_back"  # this process ends: stop at the next checkpoint, the session is due again at once
    OVERDUE = "overdue"  # the turn's time is used up: stop at once, end `timeout`


class Held(Protocol):
    """Something that holds a lease in this process."""

    hold: Hold

    def interrupt(self, why: Interrupt) -> None:
        """Ask it to stop; thread-safe, may be called twice, the first reason stands (LOST overrides)."""


class Keeper(Protocol):
    """Renews every lease of this process from a thread of its own, watches for stops, and tells holders to end."""

    def keep(self, held: Held) -> None:
        """Renew from now on; interrupts at once where the process is already ending."""

    def forget(self, held: Held) -> None:
        """Stop renewing; safe to call for one that was never kept."""
