"""Money: caps, reservations before a request, settlements after it. All amounts are whole micro-dollars."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

MICROS = 1_000_000


def micros(usd: Decimal) -> int:
    """Dollars as micro-dollars, rounded up, so that no sum of requests is booked lower than it was."""
    return int((usd * MICROS).to_integral_value(rounding=ROUND_CEILING))


def usd(amount: int) -> Decimal:
    """Micro-dollars as dollars."""
    return Decimal(amount) / MICROS


@dataclass(frozen=True, slots=True)
class Caps:
    """What may be spent, in micro-dollars; None: no cap. A day is a UTC day of the server's clock."""

    turn: int | None = None
    session_day: int | None = None
    team_day: int | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Money put aside for one attempt of one request; `id` is `<turn number>/<step>/<attempt>`.

    Unsettled at `ttl_ms` after it was made it is booked as spent, marked possible.
    """

    id: str
    amount: int
    caps: Caps
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a reserved attempt really cost; settling the same id twice books it once.

    `possible` marks money that may have been spent: the request was sent and no answer was stored.
    """

    id: str
    amount: int
    possible: bool = False


@dataclass(frozen=True, slots=True)
class Spent:
    """What a team or session has spent and put aside on one UTC day, in micro-dollars."""

    spent: int = 0
    reserved: int = 0
    possible: int = 0
