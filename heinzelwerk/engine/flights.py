"""A place among the requests in flight at a provider, where the operator limits them: taken before an attempt, given back after.

The places are leases in the store, which all workers share. Without a limit nothing here costs anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog

from heinzelwerk import errors
from heinzelwerk.claim import Claim
from heinzelwerk.ending import HandedBack
from heinzelwerk.engine import prefixes
from heinzelwerk.engine.leave import Leave
from heinzelwerk.engine.segment import durably
from heinzelwerk.ports import Interrupt

log = structlog.get_logger("heinzelwerk.engine")

SHORT_S: Final = (0.1, 0.2, 0.4, 0.4, 0.4, 0.5, 0.5, 0.5)
"""The pauses between tries inside a segment, in seconds, before jitter; shorter than a team is remembered as asking."""
_PARK_S, _PARK_MOST_S = 2.0, 30.0
_OVERTIME_MS: Final = 5_000  # between the end of a request's own time and the end of its lease


@dataclass(frozen=True, slots=True)
class Flights:
    """A segment's way to places: limits by prefix of a model string, the longest request, jitter in [0, 1), the pause."""

    claim: Claim
    limits: Mapping[str, int]
    timeout_s: float
    jitter: Callable[[], float]
    pause: Callable[[float], Awaitable[None]]

    async def take(self, model: str) -> bool:
        """Take a place for a request of this model, after a few short pauses at most; False: none came free."""
        provider = prefixes.prefix_of(model)
        limit = self.limits.get(provider)
        if limit is None or await self._taken(provider, limit):
            return True
        for seconds in SHORT_S:
            await self.pause(seconds * (1 + self.jitter() / 2))
            if self.claim.interrupted is Interrupt.HAND_BACK:
                raise Leave(HandedBack)
            if await self._taken(provider, limit):
                return True
        return False

    def wait_s(self, parked: int) -> float:
        """How long the next stored wait is, in seconds: growing and spread."""
        return min(_PARK_S * 2.0**parked, _PARK_MOST_S) * (1 + self.jitter() / 2)

    async def _taken(self, provider: str, limit: int) -> bool:
        ttl_ms = int(self.timeout_s * 1000) + _OVERTIME_MS
        try:
            return await self.claim.begin_request(provider, limit=limit, ttl_ms=ttl_ms)
        except BaseException:  # cancelled too: nobody knows whether the place was taken
            await self._give_back(provider)
            raise

    @asynccontextmanager
    async def held(self, model: str) -> AsyncIterator[None]:
        """Give the place back at the end of the block, however it ends."""
        try:
            yield
        finally:
            provider = prefixes.prefix_of(model)
            if provider in self.limits:
                await self._give_back(provider)

    async def _give_back(self, provider: str) -> None:
        try:
            await durably(self.claim.end_request(provider))
        except errors.StoreUnavailable as error:
            log.warning("a place at a provider was not given back: it ends by itself", reason=str(error))
