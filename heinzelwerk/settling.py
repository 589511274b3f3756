"""What comes first in a claimed session: mail, passed deadlines, stops and poison, written before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from heinzelwerk import admission, closing, handoff_record, lessons, mailroom, planning, unanswered, unheard
from heinzelwerk.claim import Claim
from heinzelwerk.commit import TakenWake
from heinzelwerk.effect import EffectState
from heinzelwerk.event import Note
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail, MailKind
from heinzelwerk.mailroom import Sorted
from heinzelwerk.store import rules
from heinzelwerk.turn import TurnRecord, TurnState, WaitKind
from heinzelwerk.wake import Cause, Wake

if TYPE_CHECKING:
    from heinzelwerk.ports import Works

POISON = "poison"
REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class _End:
    turn: TurnRecord
    state: TurnState
    reason: str


async def settle(claim: Claim, works: Works) -> tuple[TurnRecord, ...]:
    """Move mail onto the spine, end what was stopped, expired or is poison; the open turns that remain, oldest first."""
    # The instant that the snapshot was read at: an answer that the store took after it is not in there, and not too late.
    now = claim.snapshot.now_ms
    found = mailroom.sort(claim.session, claim.snapshot.turns, claim.mail, now_ms=now)
    ends = _revoked(found) if claim.snapshot.entry is None else [*_ends(found), *_poison(claim, found)]
    memo = await _memo(claim, found.moved, works)
    if found.empty and not ends:
        return found.turns
    back = await unheard.returned((end.turn for end in ends), works.store, bodies=found.bodies)
    for mail in found.late:
        back = back.plus(mail, await _wake_of(claim.session, mail, works))
    notes = await _notes(claim, found, works)
    booked = tuple(unanswered.book(end.turn) for end in ends)
    ended = tuple(
        closing.ended(last.turn, end.state, end.reason, now_ms=now) for last, end in zip(booked, ends, strict=True)
    )
    numbers = {record.number for record in ended}
    await claim.commit(
        [
            *notes,
            *back.notes,
            *(note for last in booked for note in last.notes),
            *(closing.ended_note(record, record.state, record.reason) for record in ended),
        ],
        mail_taken=len(claim.mail),
        turns=(*(turn for turn in found.changed if turn.number not in numbers), *ended),
        new_turns=max((claim.snapshot.last_turn, *numbers)),
        taken_wakes=_poisoned_wake(claim, ends),
        returned_wakes=back.wakes,
        ended_wakes=tuple((record.wake.id, record.state.value) for record in ended),
        bodies=found.bodies,
        settle=(*found.settle, *(entry for last in booked for entry in last.settle)),
        memo=memo,
        expire_bodies=tuple(sorted(numbers)),
        progress=bool(ends),
    )
    claim.snapshot = replace(
        claim.snapshot,
        memo={**claim.snapshot.memo, **memo},
        last_turn=max((claim.snapshot.last_turn, *numbers)),
        inbox=tuple(entry for entry in claim.snapshot.inbox if not _is_taken(entry.wake.id, ends)),
    )
    return tuple(turn for turn in found.turns if turn.number not in numbers)


async def _notes(claim: Claim, found: Sorted, works: Works) -> list[Note]:
    """The events of the mail; a handoff's says all that the spine keeps of it."""
    ends = {entry.id: entry for entry in claim.mail if entry.kind is MailKind.JOB_ENDED}
    return [
        await handoff_record.complete(note, ends[note.key], claim.session.team, works) if note.key in ends else note
        for note in found.notes
    ]


def _revoked(found: Sorted) -> list[_End]:
    """Every open turn of a contract that is no longer loaded: what it waits for is waited for no more."""
    return [_End(turn, TurnState.CANCELLED, REVOKED) for turn in found.turns]


def _ends(found: Sorted) -> list[_End]:
    ends = []
    for turn in found.turns:
        if turn.number in found.stopped:
            ends.append(_End(turn, TurnState.CANCELLED, f"stopped by {found.stopped[turn.number]}"))
        elif turn.number in found.expired:
            ends.append(_End(turn, TurnState.BUDGET, "nobody raised the budget in time"))
        elif any(item.kind is WaitKind.QUESTION and item.value == "expired" for item in turn.waits):
            ends.append(_End(turn, TurnState.TIMEOUT, "nobody answered the question in time"))
    return ends


def _poison(claim: Claim, found: Sorted) -> list[_End]:
    """The turn that this session's workers keep dying of: ended without running it."""
    if not admission.poisoned(claim.snapshot):
        return []
    turn = admission.resumable(found.turns)
    if turn is None:
        turn = _unstarted(claim, found.turns)
    if turn is None or turn.number in found.stopped:
        return []
    return [_End(turn, TurnState.FAILED, POISON)]


def _unstarted(claim: Claim, turns: Sequence[TurnRecord]) -> TurnRecord | None:
    """A record for a wake whose turn never got as far as its start."""
    snapshot = claim.snapshot
    if admission.held(turns) or not snapshot.inbox:
        return None
    queued = snapshot.inbox[0]
    return TurnRecord(
        number=snapshot.last_turn + 1,
        state=TurnState.RUNNING,
        wake=queued.wake.model_copy(update={"text": None, "data": None}),
        accepted_ms=queued.accepted_ms,
        as_of_ms=queued.accepted_ms,
        started_ms=snapshot.now_ms,
    )


def _poisoned_wake(claim: Claim, ends: Sequence[_End]) -> tuple[TakenWake, ...]:
    return tuple(
        TakenWake(entry.raw, entry.wake.id, end.turn.number)
        for entry in claim.snapshot.inbox
        for end in ends
        if end.reason == POISON and entry.wake.id == end.turn.wake.id
    )


def _is_taken(wake: str, ends: Sequence[_End]) -> bool:
    return any(end.reason == POISON and end.turn.wake.id == wake for end in ends)


async def _wake_of(session: SessionId, mail: Mail, works: Works) -> Wake:
    """The wake that a late message becomes, in the conversation of the turn that it was for."""
    earlier = await works.store.turn(session, mail.turn) if mail.turn is not None else None
    known = earlier.wake if earlier else Wake(team=session.team, heinzel=session.heinzel, key="late", cause=Cause.ASKED)
    return rules.wake_of(mail, known)


async def _memo(claim: Claim, moved: Sequence[Mail], works: Works) -> dict[str, str]:
    """Lessons that a person has accepted since the last look."""
    memo: dict[str, str] = {}
    for entry in moved:
        if entry.data.get("state") != EffectState.COMPLETED.value:
            continue
        record = await works.store.effect(claim.session.team, str(entry.data.get("effect", "")))
        if record is None or record.action != planning.KEEP_LESSON:
            continue
        words = await works.store.effect_text(record.team, record.id)
        if words is not None:
            memo |= lessons.accept({**claim.snapshot.memo, **memo}, words)
    return memo
