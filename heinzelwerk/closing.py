"""Closing a segment: the gate, the effects, and the one last commit that stores everything together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from heinzelwerk import admission, errors, ids, outcome, planning, text, unheard
from heinzelwerk.claim import Claim
from heinzelwerk.commit import After, Body, History, NewDraft
from heinzelwerk.ending import (
    Ending,
    Failed,
    Finished,
    HandedBack,
    OverBudget,
    Overdue,
    Parked,
    Stopped,
    Tail,
)
from heinzelwerk.event import Note
from heinzelwerk.opening import Opening
from heinzelwerk.outcome import Outcome
from heinzelwerk.planning import Planned
from heinzelwerk.turn import TurnRecord, TurnState, WaitItem, WaitKind
from heinzelwerk.unchanged import Success
from heinzelwerk.wake import Cause

if TYPE_CHECKING:
    from heinzelwerk.ports import Works

REPORT_CHARACTERS = 300
FIRST_RETRY_S = 30.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a segment's ending comes to: the turn's state, why, and what is written with it."""

    state: TurnState
    reason: str = ""
    report: str = ""
    waits: tuple[WaitItem, ...] = ()
    planned: Planned = field(default_factory=Planned)
    drafts: tuple[NewDraft, ...] = ()
    bodies: tuple[Body, ...] = ()
    memo: dict[str, str] | None = None
    notes: tuple[Note, ...] = ()
    anew: bool = False  # the turn runs again from its beginning: its stored history is dropped


async def close_segment(claim: Claim, opening: Opening, ending: Ending, works: Works) -> TurnRecord:
    """Store how the segment ended and release the session, in one script; the turn's record as stored.

    The outcome passes the contract's gate here: what it asks for is planned, not done.
    """
    verdict = _retried(claim, opening, await _judge(claim, opening, ending, works), ending)
    turn = _final(claim, opening, ending.tail, verdict)
    waiting = await _others(claim, turn, works)
    superseded = _superseded(turn, waiting, now_ms=claim.now_ms())
    gone = {record.number for record in superseded}
    others = tuple(record for record in waiting if record.number not in gone)
    jobs = ending.jobs if isinstance(ending, Parked) else ()
    handed_back = isinstance(ending, HandedBack)
    notes = [*ending.tail.notes, *verdict.notes, *verdict.planned.notes]
    if turn.state.ended:
        notes.append(ended_note(turn, turn.state, turn.reason))
    elif turn.state is TurnState.WAITING:
        notes.append(_waiting_note(turn))
    elif handed_back:
        notes.append(Note("turn.handed_back", {"segment": turn.segment}, turn=turn.id()))
    notes.extend(ended_note(record, record.state, record.reason) for record in superseded)
    ends = (*superseded, *((turn,) if turn.state.ended else ()))
    back = await unheard.returned(ends, works.store)
    notes.extend(back.notes)
    open_turns = (*others, *(() if turn.state.ended else (turn,)))
    await claim.commit(
        notes,
        after=After.HAND_BACK if handed_back else After.RELEASE,
        turns=(turn, *superseded),
        bodies=(*ending.tail.bodies, *verdict.bodies, *verdict.planned.bodies),
        histories=_history(turn, ending.tail, anew=verdict.anew),
        calls=ending.tail.calls,
        settle=ending.tail.settle,
        effects=verdict.planned.records,
        jobs=jobs,
        job_caps=works.policy.caps,
        drafts=verdict.drafts,
        memo=verdict.memo or {},
        returned_wakes=back.wakes,
        ended_wakes=tuple((record.wake.id, record.state.value) for record in ends),
        expire_bodies=tuple(record.number for record in ends),
        due_ms=admission.next_deadline_ms(open_turns),
        holds_session=admission.held(open_turns),
    )
    return turn


async def _others(claim: Claim, turn: TurnRecord, works: Works) -> tuple[TurnRecord, ...]:
    """The session's other open turns as they are now: since the claim some have ended, and answers may have come."""
    numbers = (record.number for record in claim.snapshot.turns if record.number != turn.number)
    found = [await works.store.turn(claim.session, number) for number in numbers]
    return tuple(record for record in found if record is not None and not record.state.ended)


def _item_id(kind: WaitKind, turn: TurnRecord) -> str:
    """A name that no other wait of the turn has: what fills the first question must not fill the second."""
    return f"{kind.value}-{turn.segment}"


def _retried(claim: Claim, opening: Opening, verdict: Verdict, ending: Ending) -> Verdict:
    """A failure that the contract wants tried again waits a while and runs anew, under the same caps and keys."""
    left = ending.tail.turn.retries_left
    if verdict.state is not TurnState.FAILED or left == 0 or (isinstance(ending, Failed) and ending.final):
        return verdict
    tried = opening.contract.retries - left
    item = WaitItem(
        id=f"retry-{tried + 1}", kind=WaitKind.RETRY, deadline_ms=claim.now_ms() + _ms(FIRST_RETRY_S * 4**tried)
    )
    note = Note(
        "turn.retried",
        {"reason": verdict.reason, "tried": tried + 1, "of": opening.contract.retries},
        turn=opening.turn.id(),
    )
    return Verdict(
        TurnState.WAITING, verdict.reason, verdict.report, (item,), bodies=verdict.bodies, notes=(note,), anew=True
    )


def _superseded(turn: TurnRecord, waiting: Sequence[TurnRecord], *, now_ms: int) -> tuple[TurnRecord, ...]:
    """Questions of earlier turns that nobody asked for end with the next such turn; a person's own chat keeps its own."""
    if turn.wake.cause is Cause.ASKED or turn.state not in (TurnState.COMPLETED, TurnState.WAITING, TurnState.SKIPPED):
        return ()
    return tuple(
        ended(record, TurnState.CANCELLED, f"its question was superseded by turn {turn.number}", now_ms=now_ms)
        for record in waiting
        if record.wake.cause is not Cause.ASKED
        and any(item.kind is WaitKind.QUESTION and item.open for item in record.waits)
    )


def _history(turn: TurnRecord, tail: Tail, *, anew: bool) -> tuple[History, ...]:
    if anew:
        return (History(turn.number, 0, ()),)
    return (tail.history,) if tail.history else ()


async def _judge(claim: Claim, opening: Opening, ending: Ending, works: Works) -> Verdict:
    match ending:
        case Finished():
            return await _finished(claim, opening, ending, works)
        case Parked():
            return await _parked(claim, opening, ending, works)
        case Failed():
            detail = Body(opening.turn.number, "failure", (ending.detail or ending.reason).encode())
            return Verdict(TurnState.FAILED, text.clean_line(ending.reason), bodies=(detail,))
        case OverBudget():
            return _over_budget(claim, opening, ending, works)
        case Overdue():
            return Verdict(TurnState.TIMEOUT, f"its {opening.contract.timeout_s:.0f} s were used up")
        case Stopped():
            return Verdict(TurnState.CANCELLED, f"stopped by {ending.by}" if ending.by else "stopped")
        case HandedBack():
            return Verdict(TurnState.RUNNING)
        case _:
            assert_never(ending)


async def _finished(claim: Claim, opening: Opening, ending: Finished, works: Works) -> Verdict:
    found, turn = ending.outcome, opening.turn
    report = text.clean_line(found.report, limit=REPORT_CHARACTERS)
    body = Body(turn.number, "outcome", found.model_dump_json().encode())
    reply = Body(turn.number, "reply", text.safe(_reply(found)).encode())
    contract = opening.contract
    fault = outcome.faults(found, version=opening.version, outputs=contract.outputs, done_when=contract.done_when)
    if fault is not None:
        return Verdict(TurnState.FAILED, f"outcome: {text.clean_line(fault)}", report, bodies=(body,))
    unmet = outcome.unmet(found)
    if unmet:
        reason = text.clean_line(f"not done: {unmet[0]}" + (f" (and {len(unmet) - 1} more)" if unmet[1:] else ""))
        return Verdict(TurnState.SKIPPED, reason, report, bodies=(body, reply))
    planned = await planning.plan(opening, found, works)
    drafts: tuple[NewDraft, ...] = ()
    if found.draft is not None:
        words = text.clean_text(found.draft.text)
        drafts = (NewDraft(found.draft.output, turn.number, words, ids.digest(words)),)
    if found.question is not None:
        item = WaitItem(
            id=_item_id(WaitKind.QUESTION, turn),
            kind=WaitKind.QUESTION,
            deadline_ms=claim.now_ms() + _ms(works.policy.question_ttl_s),
        )
        asked = Body(turn.number, "question", text.safe(found.question).encode())
        note = Note("question.asked", {"item": item.id, "text_sha256": ids.digest(found.question)}, turn=turn.id())
        return Verdict(
            TurnState.WAITING, "answer", report, (item,), planned, drafts, (body, reply, asked), notes=(note,)
        )
    effects = tuple(record.id for record in planned.records if not planning.is_internal(record))
    success = Success(turn.number, turn.inputs_digest, effects, found.draft.output if found.draft else "")
    return Verdict(
        TurnState.COMPLETED,
        text.clean_line(found.reason or "") if found.nothing_to_do else "",
        report,
        planned=planned,
        drafts=drafts,
        bodies=(body, reply),
        memo=_newest(success, claim),
    )


def _newest(success: Success, claim: Claim) -> dict[str, str]:
    """The memo of a success, unless a later turn's is there: this one waited for an answer meanwhile."""
    known = Success.read(claim.snapshot.memo)
    return {} if known is not None and known.turn > success.turn else success.memo()


def _reply(found: Outcome) -> str:
    parts = [found.report, found.question or "", found.draft.text if found.draft else ""]
    return "\n\n".join(part for part in parts if part)


async def _parked(claim: Claim, opening: Opening, ending: Parked, works: Works) -> Verdict:
    """Approvals of a chat become effects in the ledger; handoffs became jobs in the engine's ending."""
    planned = await planning.propose(opening, ending.proposals, works)
    now = claim.now_ms()
    items = tuple(
        WaitItem(
            id=record.id,
            kind=WaitKind.PROPOSAL,
            deadline_ms=now + _ms(works.policy.approval_ttl_s),
            call=record.call,
            # One that cannot be made (no such target) is no question for a person: the model hears of it at once.
            value=record.state.value if record.state.ended else None,
        )
        for record in planned.records
    )
    waits = (*ending.waits, *items)
    reason = ending.reason or ", ".join(sorted({item.kind.value for item in waits}))
    return Verdict(TurnState.WAITING, reason, waits=waits, planned=planned)


def _over_budget(claim: Claim, opening: Opening, ending: OverBudget, works: Works) -> Verdict:
    reason = f"the {ending.cap} cap would be crossed"
    if opening.contract.on_budget != "ask":
        return Verdict(TurnState.BUDGET, reason)
    item = WaitItem(
        id=_item_id(WaitKind.BUDGET, opening.turn),
        kind=WaitKind.BUDGET,
        deadline_ms=claim.now_ms() + _ms(works.policy.budget_ttl_s),
    )
    note = Note("budget.asked", {"cap": ending.cap, "needed_micros": ending.needed}, turn=opening.turn.id())
    return Verdict(TurnState.WAITING, reason, waits=(item,), notes=(note,))


def _final(claim: Claim, opening: Opening, tail: Tail, verdict: Verdict) -> TurnRecord:
    record = tail.turn
    used = max(0, claim.now_ms() - claim.snapshot.now_ms)
    return record.model_copy(
        update={
            "state": verdict.state,
            "reason": verdict.reason,
            "report": verdict.report or record.report,
            "waits": verdict.waits,
            "active_ms": 0 if verdict.anew else opening.turn.active_ms + used,
            "messages": 0 if verdict.anew else record.messages,
            "retries_left": record.retries_left - 1 if verdict.anew else record.retries_left,
            "counters": {} if verdict.anew else record.counters,
            "steers": (*record.heard, *record.steers) if verdict.anew else record.steers,
            "heard": () if verdict.anew else record.heard,
            "ended_ms": claim.now_ms() if verdict.state.ended else None,
        }
    )


def ended(turn: TurnRecord, state: TurnState, reason: str, *, now_ms: int) -> TurnRecord:
    """The record of a turn that ends outside a run."""
    return turn.model_copy(update={"state": state, "reason": reason, "ended_ms": now_ms, "waits": ()})


def ended_note(turn: TurnRecord, state: TurnState, reason: str) -> Note:
    """The last event of a turn: its verdict, its one-sentence report, and what it cost."""
    usage = turn.usage
    return Note(
        "turn.ended",
        {
            "verdict": state.value,
            "reason": reason,
            "report": turn.report,
            "requests": usage.requests,
            "tool_calls": usage.tool_calls,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cost_micros": usage.cost_micros,
            "possible_micros": usage.possible_micros,
            "active_ms": turn.active_ms,
            "segments": turn.segment,
        },
        turn=turn.id(),
        key=turn.wake.key,
    )


def _waiting_note(turn: TurnRecord) -> Note:
    items = [{"id": item.id, "kind": item.kind.value, "deadline_ms": item.deadline_ms} for item in turn.waits]
    return Note("turn.waiting", {"for": turn.reason, "items": json.loads(json.dumps(items))}, turn=turn.id())


def failure_line(error: errors.HeinzelwerkError) -> str:
    """An error as one sentence for the spine: cleaned, redacted, short."""
    return text.clean_line(str(error), limit=REPORT_CHARACTERS)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
