"""How a segment ends: expected ends are values. Each carries the tail that the segment's one last commit stores with it."""

from __future__ import annotations

from dataclasses import dataclass

from heinzelwerk.budget import Settlement
from heinzelwerk.commit import Body, Call, History
from heinzelwerk.event import Note
from heinzelwerk.handoff_job import JobRecord
from heinzelwerk.outcome import Outcome
from heinzelwerk.turn import TurnRecord, WaitItem


@dataclass(frozen=True, slots=True)
class Tail:
    """What the last node made and no checkpoint has stored: `turn` is the record with usage, counters and ordinals up to date."""

    turn: TurnRecord
    notes: tuple[Note, ...] = ()
    history: History | None = None
    calls: tuple[Call, ...] = ()
    bodies: tuple[Body, ...] = ()
    settle: tuple[Settlement, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The turn returned a valid outcome; whether it acts is the contract's and the gate's to say."""

    tail: Tail
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Proposal:
    """A write that a chat turn asked for: operation and arguments, and the tool call that waits for its end."""

    call: str
    operation: str
    arguments: dict[str, str]


@dataclass(frozen=True, slots=True)
class Parked:
    """The turn waits: for handoffs, approvals, an answer, a provider or money. Its worker is freed."""

    tail: Tail
    waits: tuple[WaitItem, ...]
    jobs: tuple[JobRecord, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn cannot go on: `reason` is one short sentence for the spine, `detail` the full text for the body.

    `final` says that running it anew (`hz.retries`) would end the same way: a loop, a model without a price or a key.
    """

    tail: Tail
    reason: str
    detail: str = ""
    final: bool = False


@dataclass(frozen=True, slots=True)
class OverBudget:
    """A cap would be crossed: `cap` is turn, session or team; `needed` micro-dollars is what the next request asked for."""

    tail: Tail
    cap: str
    needed: int = 0


@dataclass(frozen=True, slots=True)
class Overdue:
    """The turn's time is used up."""

    tail: Tail


@dataclass(frozen=True, slots=True)
class Stopped:
    """A person stopped it; what completed is in the tail."""

    tail: Tail
    by: str = ""


@dataclass(frozen=True, slots=True)
class HandedBack:
    """The process ends; the segment stopped at a checkpoint and another process goes on from there."""

    tail: Tail


Ending = Finished | Parked | Failed | OverBudget | Overdue | Stopped | HandedBack
