"""Requests in flight at providers, in the in-memory store."""

from __future__ import annotations

from collections.abc import Sequence

from heinzelwerk.session import Hold
from heinzelwerk.store import rules
from heinzelwerk.store.memory_reading import MemoryReading
from heinzelwerk.store.memory_state import Flights


class MemoryFlights(MemoryReading):
    """Places among a provider's requests."""

    async def begin_request(self, provider: str, hold: Hold, *, limit: int, ttl_ms: int) -> bool:
        """Take a place."""
        flights = self._state.flights.setdefault(provider, Flights())
        return flights.begin(rules.flight(hold), hold.team, limit=limit, ttl_ms=ttl_ms, now=self._clock_ms())

    async def end_requests(self, provider: str, holds: Sequence[Hold]) -> int:
        """Give places back."""
        flights = self._state.flights.setdefault(provider, Flights())
        ends = [flights.ends.pop(rules.flight(hold), None) for hold in holds]
        return sum(end is not None for end in ends)
