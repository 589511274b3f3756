"""A request that was put aside or sent by a process that died, and never answered: booked as possibly paid, shown as such.

Whoever goes on with such a turn, or ends it, books it with the same commit; otherwise its money would stay reserved
until the reservation runs out, and the turn's own figures would never mention it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from heinzelwerk.budget import Settlement
from heinzelwerk.event import Note
from heinzelwerk.turn import TurnRecord, Usage

RESERVED = "reserved"
"""The counter that holds the micro-dollars of the attempt that was put aside and not settled; absent where none is."""


@dataclass(frozen=True, slots=True)
class Booked:
    """A turn without an open attempt, with the event and the settlement that go into the same commit."""

    turn: TurnRecord
    notes: tuple[Note, ...] = ()
    settle: tuple[Settlement, ...] = ()


def book(turn: TurnRecord) -> Booked:
    """Book the open attempt of a turn, if it has one, as possibly spent."""
    micros = turn.counters.get(RESERVED)
    if micros is None:
        return Booked(turn)
    step = turn.steps + 1
    data: dict[str, JsonValue] = {"step": step, "attempt": turn.attempt, "possible_micros": micros}
    counters = {name: value for name, value in turn.counters.items() if name != RESERVED}
    usage = turn.usage.plus(Usage(requests=1, possible_micros=micros))
    return Booked(
        turn.model_copy(update={"counters": counters, "usage": usage}),
        (Note("request.unknown", data, turn=turn.id()),),
        (Settlement(f"{turn.number}/{step}/{turn.attempt}", micros, possible=True),),
    )
