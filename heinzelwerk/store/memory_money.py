"""Budgets of the in-memory store: reserve before a request, settle after it, book what ran out as possibly spent."""

from __future__ import annotations

from heinzelwerk.budget import Caps, Reservation, Settlement, Spent
from heinzelwerk.store import rules
from heinzelwerk.store.memory_state import Money, Reserved, TeamState
from heinzelwerk.store.options import DAY_MS, StoreOptions


def _add(counts: dict[str, int], heinzel: str, amount: int) -> None:
    for scope in ("", heinzel):
        counts[scope] = counts.get(scope, 0) + amount


def expire(team: TeamState, now: int, options: StoreOptions) -> None:
    """Book reservations that ran out as possibly spent, and forget what was closed long ago."""
    for name, kept in list(team.reservations.items()):
        if kept.until_ms > now:
            continue
        if kept.state != "open":
            del team.reservations[name]
            continue
        day, heinzel = team.days.setdefault(kept.day, Money()), name.partition("/")[0]
        _add(day.reserved, heinzel, -kept.amount)
        _add(day.possible, heinzel, kept.amount)
        kept.state, kept.until_ms = "possible", now + options.budget_ttl_ms
    oldest = rules.utc_day(now - options.budget_ttl_ms)
    for name in [name for name in team.days if name < oldest]:
        del team.days[name]


def settle(team: TeamState, heinzel: str, settlement: Settlement, now: int, options: StoreOptions) -> None:
    """Book what an attempt cost, once."""
    name = f"{heinzel}/{settlement.id}"
    kept = team.reservations.setdefault(name, Reserved(rules.utc_day(now), 0, now + DAY_MS, "unreserved"))
    if kept.state == "settled":
        return
    day = team.days.setdefault(kept.day, Money())
    if kept.state == "open":
        _add(day.reserved, heinzel, -kept.amount)
    elif kept.state == "possible":
        _add(day.possible, heinzel, -kept.amount)
    _add(day.possible if settlement.possible else day.spent, heinzel, settlement.amount)
    kept.amount = settlement.amount
    kept.state = "possible" if settlement.possible else "settled"
    kept.until_ms = now + (options.budget_ttl_ms if settlement.possible else options.settled_ttl_ms)


def over_cap(
    team: TeamState, heinzel: str, reservation: Reservation | None, settling: tuple[Settlement, ...], now: int
) -> str:
    """The cap that the reservation would break once the settlements are booked: `session`, `team` or ""."""
    if reservation is None:
        return ""
    today = rules.utc_day(now)
    freed = 0
    for settlement in settling:
        kept = team.reservations.get(f"{heinzel}/{settlement.id}")
        if kept is None:
            freed -= settlement.amount
        elif kept.state != "settled" and kept.day == today:
            freed += kept.amount - settlement.amount
    for scope, cap, word in (
        (heinzel, reservation.caps.session_day, "session"),
        ("", reservation.caps.team_day, "team"),
    ):
        if cap is not None and _total(team.days.get(today), scope) - freed + reservation.amount > cap:
            return word
    return ""


def day_left(team: TeamState, heinzel: str, caps: Caps, now: int) -> int | None:
    """What session and team may still spend today; None where neither has a cap."""
    day = team.days.get(rules.utc_day(now))
    left = [
        cap - _total(day, scope) for scope, cap in ((heinzel, caps.session_day), ("", caps.team_day)) if cap is not None
    ]
    return max(0, min(left)) if left else None


def _total(day: Money | None, scope: str) -> int:
    if day is None:
        return 0
    return day.spent.get(scope, 0) + day.reserved.get(scope, 0) + day.possible.get(scope, 0)


def reserve(team: TeamState, heinzel: str, reservation: Reservation, now: int) -> None:
    """Put the money aside; the same id is put aside once."""
    name = f"{heinzel}/{reservation.id}"
    if name in team.reservations:
        return
    today = rules.utc_day(now)
    team.reservations[name] = Reserved(today, reservation.amount, now + reservation.ttl_ms)
    _add(team.days.setdefault(today, Money()).reserved, heinzel, reservation.amount)


def spent(team: TeamState, heinzel: str | None, day: str) -> Spent:
    """What a team or one session spent and put aside on a day."""
    money, scope = team.days.get(day, Money()), heinzel or ""
    return Spent(money.spent.get(scope, 0), money.reserved.get(scope, 0), money.possible.get(scope, 0))
