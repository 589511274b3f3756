"""The one path: work off what is due in one session. `docs/data-path.md` follows a wake through it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from heinzelwerk import admission, claim, closing, errors, quarantine, resuming, settling, starting, unanswered, unheard
from heinzelwerk.claim import Claim
from heinzelwerk.commit import Body
from heinzelwerk.opening import Opening
from heinzelwerk.ports import Interrupt
from heinzelwerk.session import NotClaimed
from heinzelwerk.turn import TurnRecord, TurnState

if TYPE_CHECKING:
    from heinzelwerk.ids import SessionId
    from heinzelwerk.ports import Works

log = structlog.get_logger("heinzelwerk.advance")

LEAVE_NEWER_MS = 60_000
"""A turn whose body this release cannot read is looked at again after this long: in a rolling deploy somebody else can."""


@dataclass(frozen=True, slots=True)
class Advance:
    """What happened: `did` is one word (a turn's state, `held`, `nothing_due`, `no_slot`, `newer`, `solo`, `quarantined`,
    `lost`), `turn` its number."""

    did: str
    turn: int | None = None


async def advance(session: SessionId, works: Works) -> Advance:
    """Work off what is due in one session, under its lease; calling it again at any time is safe."""
    async with claim.hold(session, works) as held:
        if isinstance(held, NotClaimed):
            if held.reason == "solo":
                await ring(session.team, works)
            return Advance(held.reason)
        try:
            why = quarantine.at_end(held.snapshot) or quarantine.stuck(held.snapshot)
            if why is not None:
                held.released = True
                await quarantine.set_aside(session, why, works.store, token=held.token)
                return Advance("quarantined")
            did = await _segment(held, works)
        except errors.LeaseLost as lost:
            log.warning("lease lost", session=str(session), reason=str(lost))
            return Advance("lost")
    await ring(session.team, works)
    return did


async def _segment(held: Claim, works: Works) -> Advance:
    """One segment: mail and deadlines first, then the oldest turn that can go on, else the next wake."""
    turns = await settling.settle(held, works)
    opening, turns = await _open(held, turns, works)
    if opening is None:
        return await _let_go(held, turns)
    held.running = opening.turn.number
    _log("segment started", held, opening.turn)
    try:
        with _overdue(held, opening):
            ending = await works.engine.run(opening, held)
    except errors.FormatTooNew as newer:
        return await _leave_to_newer(held, turns, newer)
    turn = await closing.close_segment(held, opening, ending, works)
    _log("segment ended", held, turn)
    return Advance(turn.state.value, turn.number)


async def _open(
    held: Claim, turns: tuple[TurnRecord, ...], works: Works
) -> tuple[Opening | None, tuple[TurnRecord, ...]]:
    """What runs now, and the turns that are open then: one that cannot be resumed ends here and holds nobody up."""
    turn = admission.resumable(turns)
    if turn is not None:
        try:
            return await resuming.reopen(turn, works), turns
        except errors.GiveUp as gone:
            await _end_unresumable(held, turn, gone, works)
            return None, tuple(record for record in turns if record.number != turn.number)
    if admission.held(turns):
        return None, turns
    return await starting.open_next(held, works), turns


async def _end_unresumable(held: Claim, turn: TurnRecord, error: errors.GiveUp, works: Works) -> None:
    reason = closing.failure_line(error)
    if isinstance(error, errors.BodyExpired):
        reason = f"body_expired: {reason}"
    last = unanswered.book(turn)
    back = await unheard.returned([turn], works.store)
    await held.commit(
        [
            *last.notes,
            closing.ended_note(last.turn, TurnState.FAILED, reason),
            *back.notes,
        ],
        turns=(closing.ended(last.turn, TurnState.FAILED, reason, now_ms=held.now_ms()),),
        returned_wakes=back.wakes,
        ended_wakes=((turn.wake.id, TurnState.FAILED.value),),
        bodies=(Body(turn.number, "failure", f"{error}\n{error.fix}".encode()),),
        settle=last.settle,
        expire_bodies=(turn.number,),
    )


async def _let_go(held: Claim, turns: tuple[TurnRecord, ...]) -> Advance:
    """Nothing can run now: give the session back, due at its first deadline; what waits in the inbox makes it due at once."""
    another = admission.resumable(turns) is not None  # behind one that just ended because it could not be resumed
    await held.release(
        handed_back=another, due_ms=admission.next_deadline_ms(turns), holds_session=admission.held(turns)
    )
    return Advance("nothing_due")


async def _leave_to_newer(held: Claim, turns: tuple[TurnRecord, ...], newer: errors.FormatTooNew) -> Advance:
    """Leave a turn alone that a newer release wrote: nothing was spent, nothing is counted, a newer worker may come."""
    log.warning("left to a newer release", session=str(held.session), reason=str(newer))
    due_ms = held.now_ms() + LEAVE_NEWER_MS
    await held.release(handed_back=False, due_ms=due_ms, holds_session=admission.held(turns))
    return Advance("newer")


@contextmanager
def _overdue(held: Claim, opening: Opening) -> Iterator[None]:
    """Interrupt the run when the contract's time is used up; segments and handoffs count, waits do not."""
    left_s = max(0.0, opening.contract.timeout_s - opening.turn.active_ms / 1000)
    timer = asyncio.get_running_loop().call_later(left_s, held.interrupt, Interrupt.OVERDUE)
    try:
        yield
    finally:
        timer.cancel()


async def ring(team: str, works: Works) -> None:
    """Ring for what is due in a team; a broker or store that does not answer only delays, the sweep rings again."""
    try:
        entries = await works.store.ring(team)
        if entries:
            await works.bell.ring(entries)
    except errors.StoreUnavailable as error:
        log.warning("could not ring", team=team, reason=str(error))


def _log(event: str, held: Claim, turn: TurnRecord) -> None:
    log.info(
        event,
        team=held.session.team,
        session=str(held.session),
        turn=turn.number,
        wake=turn.wake.id,
        cause=turn.wake.cause.value,
        state=turn.state.value,
        reason=turn.reason,
        segment=turn.segment,
    )
