"""What may be asked for, by name, and on which queue: messages that carry ids and only wake.

A doorbell may be lost, late or doubled; the state in the store decides. It expires, so that a queue that nobody reads
does not grow for ever: what it rang for is rung again. What Flower and the logs show of it are its ids.
"""

from __future__ import annotations

from dataclasses import dataclass

from heinzelwerk.session import Due

TURN = "heinzelwerk.turn"
EFFECT = "heinzelwerk.effect"
HANDOFF = "heinzelwerk.handoff"
SWEEP = "heinzelwerk.sweep"
PRUNE = "heinzelwerk.prune"

QUEUES = ("turns", "chat", "handoffs", "effects", "upkeep", "solo")
ROUTES = {TURN: "turns", EFFECT: "effects", HANDOFF: "handoffs", SWEEP: "upkeep", PRUNE: "upkeep"}

EXPIRES_S = 900.0
"""Longer than the longest delay of the ring (300 s) plus the clocks of two machines being five minutes apart: expiry is
written by one clock and read by another."""


@dataclass(frozen=True, slots=True)
class Doorbell:
    """One message: the task, its ids, the queue, and what people see of it."""

    task: str
    ids: tuple[str, ...]
    queue: str
    shown: str


def for_due(entry: Due) -> Doorbell | None:
    """The doorbell of an entry that is due; None for one that nobody is rung for (a schedule's slot: the sweep fills it)."""
    if entry.kind == "session":
        session = f"{entry.team}/{entry.name}"
        return Doorbell(TURN, (session,), "solo" if entry.solo else ROUTES[TURN], f"(session={session})")
    task = {"effect": EFFECT, "job": HANDOFF}.get(entry.kind)
    if task is None:
        return None
    return Doorbell(task, (entry.team, entry.name), ROUTES[task], f"(team={entry.team}, {entry.kind}={entry.name})")
