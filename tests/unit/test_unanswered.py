"""What a dead process left unanswered is booked by whoever goes on with the turn or ends it."""

from __future__ import annotations

from heinzelwerk import unanswered
from heinzelwerk.budget import Settlement
from heinzelwerk.turn import TurnRecord, TurnState
from heinzelwerk.unanswered import RESERVED
from heinzelwerk.wake import Cause, Wake


def turn(**counters: int) -> TurnRecord:
    wake = Wake(team="core", heinzel="page", key="manual/1", cause=Cause.MANUAL)
    return TurnRecord(
        number=3, state=TurnState.RUNNING, wake=wake, accepted_ms=1, as_of_ms=1, started_ms=1, steps=4, attempt=2,
        counters=counters,
    )  # fmt: skip


def test_an_open_attempt_is_possibly_spent():
    """Its reservation is settled as possible money, the turn's figures say so, and the spine shows which request it was."""
    booked = unanswered.book(turn(**{RESERVED: 700, "tool:x": 1}))
    assert booked.settle == (Settlement("3/5/2", 700, possible=True),)
    assert [(note.kind, note.data) for note in booked.notes] == [
        ("request.unknown", {"step": 5, "attempt": 2, "possible_micros": 700})
    ]
    assert booked.turn.usage.possible_micros == 700
    assert booked.turn.counters == {"tool:x": 1}


def test_a_turn_without_one_stays_as_it_is():
    """Nothing is booked twice."""
    assert unanswered.book(turn()) == unanswered.Booked(turn())
