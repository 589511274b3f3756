"""Which turn goes on, and which wake is next: pure rules over a claimed session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from heinzelwerk import ids
from heinzelwerk.commit import TakenWake
from heinzelwerk.event import Note
from heinzelwerk.session import POISON_CLAIMS, Snapshot
from heinzelwerk.turn import TurnRecord
from heinzelwerk.wake import LONGEST_CHAIN, Cause, QueuedWake, WhenBusy

LATE_MS = 5 * 60 * 1000
"""A slot accepted later than this after its time was missed; `catch_up: skip` drops it."""
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Skip:
    """A wake that ends without a turn: unchanged, paused, catch_up, revoked or loop."""

    queued: QueuedWake
    reason: str

    def note(self) -> Note:
        """Its record on the spine."""
        wake = self.queued.wake
        data = {"wake": wake.id, "cause": wake.cause.value, "reason": self.reason, "key": wake.key}
        return Note("wake.skipped", data, key=wake.key)

    def taken(self) -> TakenWake:
        """Its removal from the inbox."""
        return TakenWake(self.queued.raw, self.queued.wake.id, verdict=f"skipped: {self.reason}")


@dataclass(frozen=True, slots=True)
class Admitted:
    """The wake that the next turn works off, and those that it takes along because they ask for the same."""

    queued: QueuedWake
    merged: tuple[QueuedWake, ...] = ()

    def taken(self, turn: int) -> tuple[TakenWake, ...]:
        """Their removal from the inbox: the first ends with the turn, the others are merged into it now."""
        rest = (TakenWake(entry.raw, entry.wake.id, turn, f"merged: {turn}") for entry in self.merged)
        return (TakenWake(self.queued.raw, self.queued.wake.id, turn), *rest)


@dataclass(frozen=True, slots=True)
class Choice:
    """What the inbox comes to: wakes that end here, and at most one to start."""

    skips: tuple[Skip, ...] = ()
    admitted: Admitted | None = None


def resumable(turns: Sequence[TurnRecord]) -> TurnRecord | None:
    """The oldest open turn that can go on: cut in the middle, or all its waits filled."""
    return next((turn for turn in turns if turn.ready), None)


def held(turns: Sequence[TurnRecord]) -> bool:
    """Whether an open turn keeps the session for itself: a job or a retry is open."""
    return any(turn.holds_session for turn in turns)


def next_deadline_ms(turns: Sequence[TurnRecord]) -> int | None:
    """The first deadline among all open waits of a session, in server time."""
    return min((due for turn in turns if (due := turn.next_deadline_ms) is not None), default=None)


def poisoned(snapshot: Snapshot) -> bool:
    """Whether this claim is the one that ends the turn `failed: poison` instead of running it."""
    return snapshot.dead_claims >= POISON_CLAIMS - 1


def choose(snapshot: Snapshot, *, turns_an_hour: int) -> Choice:
    """Go through the inbox in order of acceptance: end what must not run, and admit the first that may.

    Scheduled and inputs wakes that are in the inbox together merge into the newest of them.
    """
    skips: list[Skip] = []
    mergeable: list[QueuedWake] = []
    first: QueuedWake | None = None
    for queued in snapshot.inbox:
        reason = _refusal(queued, snapshot, turns_an_hour)
        if reason is not None:
            skips.append(Skip(queued, reason))
        elif _merges(queued):
            mergeable.append(queued)
            first = first or queued
        elif first is None:
            first = queued
    if first is None:
        return Choice(tuple(skips))
    if _merges(first):
        newest = mergeable[-1]
        return Choice(tuple(skips), Admitted(newest, tuple(entry for entry in mergeable if entry is not newest)))
    return Choice(tuple(skips), Admitted(first))


def turns_this_hour(snapshot: Snapshot) -> int:
    """How many turns the session has started in the hour that is running, by its memo `hour` (`<hour> <count>`)."""
    hour, _, count = snapshot.memo.get("hour", "").partition(" ")
    return int(count) if hour == str(snapshot.now_ms // HOUR_MS) else 0


def hour_memo(snapshot: Snapshot) -> dict[str, str]:
    """The memo after one more turn was started."""
    return {"hour": f"{snapshot.now_ms // HOUR_MS} {turns_this_hour(snapshot) + 1}"}


def merged_notes(admitted: Admitted, turn: str) -> tuple[Note, ...]:
    """One record for each wake that the turn took along."""
    return tuple(
        Note("wake.merged", {"wake": entry.wake.id, "key": entry.wake.key, "turn": turn}, turn=turn, key=entry.wake.key)
        for entry in admitted.merged
    )


def _merges(queued: QueuedWake) -> bool:
    return queued.wake.when_busy is WhenBusy.MERGE and queued.wake.cause in (Cause.SCHEDULED, Cause.INPUTS)


def _refusal(queued: QueuedWake, snapshot: Snapshot, turns_an_hour: int) -> str | None:
    wake, entry = queued.wake, snapshot.entry
    if entry is None or not entry.acts:
        return "revoked"
    if wake.cause is Cause.SCHEDULED and snapshot.paused:
        return "paused"
    if wake.cause is Cause.SCHEDULED and entry.catch_up == "skip" and _late(queued):
        return "catch_up"
    by_itself = wake.cause not in (Cause.ASKED, Cause.MANUAL)
    if wake.chain >= LONGEST_CHAIN or (by_itself and turns_this_hour(snapshot) >= turns_an_hour):
        return "loop"
    return None


def _late(queued: QueuedWake) -> bool:
    slot = queued.wake.slot
    return slot is not None and queued.accepted_ms - int(slot.timestamp() * 1000) > LATE_MS


def at(ms: int) -> datetime:
    """Server milliseconds as an instant."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def new_turn_id(snapshot: Snapshot) -> str:
    """The name that the session's next turn gets."""
    return ids.turn_id(snapshot.session, snapshot.last_turn + 1)
