"""Faces of the scripts that count requests in flight; a provider's keys share a hash tag of their own."""

from __future__ import annotations

from collections.abc import Sequence

from heinzelwerk.session import Hold
from heinzelwerk.store import rules
from heinzelwerk.store.face import Face


class Flights(Face):
    """Places among a provider's requests."""

    async def begin_request(self, provider: str, hold: Hold, *, limit: int, ttl_ms: int) -> bool:
        """Take a place among the requests in flight at a provider."""
        arguments = {
            "holder": rules.flight(hold),
            "team": hold.team,
            "limit": limit,
            "ttl_ms": ttl_ms,
            "asking_ms": rules.ASKING_MS,
        }
        return bool(int(await self._run("begin_request", f"provider:{provider}", arguments)))

    async def end_requests(self, provider: str, holds: Sequence[Hold]) -> int:
        """Give the places of these holders back."""
        arguments = {"holders": [rules.flight(hold) for hold in holds]}
        return int(await self._run("end_requests", f"provider:{provider}", arguments)) if holds else 0
