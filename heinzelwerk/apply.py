"""Effects through the ledger: decide once, place once, and say honestly when nobody knows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from heinzelwerk import errors, text
from heinzelwerk.effect import (
    MOST_ATTEMPTS,
    Decision,
    EffectRecord,
    EffectState,
    Moved,
    MoveReply,
    approval_digest,
)
from heinzelwerk.ports import Placement
from heinzelwerk.wake import Cause, Wake, WhenBusy, inputs_key

if TYPE_CHECKING:
    from heinzelwerk.ports import Publisher, TargetView, Works

log = structlog.get_logger("heinzelwerk.apply")

_FIRST_RETRY_MS = 5_000
_LONGEST_RETRY_MS = 300_000


async def decide(
    team: str,
    effect_id: str,
    decision: Decision,
    *,
    by: str,
    works: Works,
    words: str | None = None,
    reason: str = "",
    digest: str | None = None,
) -> MoveReply:
    """Record a person's decision about a planned effect; the first one wins, a later one is told who decided.

    `words` approves an edited text instead of the one that was drafted. `digest` is of what the person was shown; None:
    of what the ledger holds now. Approving an output wakes the contracts that read it, in the same script.
    """
    record = await works.store.effect(team, effect_id)
    if record is None:
        return MoveReply(Moved.NOT_FOUND)
    wakes: list[Wake] = []
    if decision is Decision.APPROVED:
        wakes = await readers(record, works)
    edited = text.clean_text(words) if words is not None else None
    reply = await works.store.decide(
        team,
        record.id,
        decision,
        by=by,
        digest=record.digest if digest is None else digest,
        text=edited,
        new_digest=approval_digest(edited, record.target, record.shown) if edited is not None else "",
        wakes=wakes,
        reason=reason,
    )
    _log("effect decided", reply.record or record, answer=reply.moved.value, by=by)
    return reply


async def readers(record: EffectRecord, works: Works) -> list[Wake]:
    """The wakes of contracts of the same team that read this effect's output and want to wake for it."""
    if record.call is not None:
        return []
    turn = await works.store.turn(record.session, record.turn)
    chain = turn.wake.chain + 1 if turn else 1
    read = f"{record.heinzel}#{record.output}"
    entries = await works.store.entries(record.team)
    return [
        Wake(
            team=record.team,
            heinzel=entry.name,
            key=f"{inputs_key(record.session, record.turn, record.output)}/{entry.name}",
            cause=Cause.INPUTS,
            when_busy=WhenBusy.MERGE,
            producer=str(record.session),
            chain=chain,
        )
        for entry in entries.values()
        if entry.acts and "inputs" in entry.on and read in entry.reads
    ]


async def apply(team: str, effect_id: str, works: Works) -> str:
    """Do what is due about one effect; answers one word. Calling it again at any time is safe."""
    record = await works.store.effect(team, effect_id)
    if record is None:
        return "not_found"
    if record.state.ended:
        return record.state.value
    publisher = works.publishers.get(record.action)
    if publisher is None:
        return await _without_publisher(record, works)
    if record.state is EffectState.PLANNED:
        return await _attempt(record, publisher, works)
    return await _read_back(record, publisher, works)


async def _without_publisher(record: EffectRecord, works: Works) -> str:
    """Nothing can be placed or read back here: what was not begun fails, what was begun is in doubt until it is read."""
    reason = f"no publisher {record.action} is set up on this worker"
    if record.state is EffectState.PLANNED:
        return await _close(record, EffectState.FAILED, works, reason=reason)
    if not await _deadline_passed(record, works):
        return Moved.NOT_DUE.value
    seen = f"could not be read back: {reason}"
    return await _close(record, EffectState.UNKNOWN, works, seen=seen, retry_in_ms=_LONGEST_RETRY_MS)


async def _deadline_passed(record: EffectRecord, works: Works) -> bool:
    margin = int(works.policy.effect_margin_s * 1000)
    return record.deadline_ms is None or await works.store.now_ms() >= record.deadline_ms + margin


async def _attempt(record: EffectRecord, publisher: Publisher, works: Works) -> str:
    now = await works.store.now_ms()
    if record.undecided and record.expires_ms is not None and now >= record.expires_ms:
        reply = await works.store.decide(
            record.team, record.id, Decision.EXPIRED, by="", digest=record.digest, reason="nobody decided in time"
        )
        return reply.moved.value
    policy = works.policy
    reply = await works.store.start_effect(
        record.team,
        record.id,
        version=record.version,
        timeout_ms=int(policy.effect_timeout_s * 1000),
        margin_ms=int(policy.effect_margin_s * 1000),
        unattended=(record.action, record.target) in policy.unattended,
    )
    if reply.moved is not Moved.DONE or reply.record is None:
        _log("effect not started", reply.record or record, answer=reply.moved.value, detail=reply.detail)
        return reply.moved.value
    _log("effect started", reply.record)
    return await _place(reply.record, publisher, works)


async def _place(record: EffectRecord, publisher: Publisher, works: Works) -> str:
    words = await works.store.effect_text(record.team, record.id)
    if words is None:
        return await _close(record, EffectState.FAILED, works, reason="its text has expired; wake the contract again")
    placement = Placement(record.key, record.arguments, words, record.shown)
    seconds = works.policy.effect_timeout_s
    try:
        async with asyncio.timeout(seconds):
            if not publisher.refuses_late and (view := await _there_already(record, publisher)):
                seen = "was there before this attempt"
                return await _close(record, EffectState.COMPLETED, works, revision=view.revision, seen=seen)
            revision = await publisher.place(placement, deadline_s=seconds)
    except (errors.TargetConflict, errors.TargetMissing) as error:
        return await _close(record, EffectState.FAILED, works, reason=str(error))
    except errors.Refused as error:
        return await _close(record, EffectState.REFUSED, works, reason=str(error))
    except errors.TargetUnavailable as error:
        return await _again(record, works, str(error), retry_after_s=error.retry_after_s)
    except (errors.TargetUnknown, TimeoutError) as error:
        # The attempt may have arrived. It stays started; at its deadline the target is read back.
        _log("effect in doubt", record, detail=str(error))
        return "in_doubt"
    return await _close(record, EffectState.COMPLETED, works, revision=revision)


async def _there_already(record: EffectRecord, publisher: Publisher) -> TargetView | None:
    """What the target holds where that is this very effect: a ledger that lost its last writes does not know it any more."""
    try:
        view = await publisher.view(record.arguments)
    except (errors.TargetConflict, errors.TargetMissing, errors.Refused):
        return None  # placing it will say the same, with the ledger's words for it
    return view if view.key == record.key else None


async def _again(record: EffectRecord, works: Works, reason: str, *, retry_after_s: float | None = None) -> str:
    """An attempt that provably changed nothing goes back to planned, later each time; the fifth is the last."""
    if record.attempts >= MOST_ATTEMPTS:
        return await _close(record, EffectState.FAILED, works, reason=f"{reason} ({record.attempts} attempts)")
    delay = min(_FIRST_RETRY_MS * 4 ** (record.attempts - 1), _LONGEST_RETRY_MS)
    delay = max(delay, int((retry_after_s or 0) * 1000))
    return await _close(record, EffectState.PLANNED, works, reason=reason, retry_in_ms=delay)


async def _read_back(record: EffectRecord, publisher: Publisher, works: Works) -> str:
    """After an attempt's deadline: look at the target, and conclude only what the target can prove."""
    if not await _deadline_passed(record, works):
        return Moved.NOT_DUE.value
    try:
        view = await publisher.view(record.arguments)
    except (errors.TargetError, errors.RetryLater, errors.Refused) as error:
        seen = f"could not be read back: {error}"
        return await _close(record, EffectState.UNKNOWN, works, seen=seen, retry_in_ms=_LONGEST_RETRY_MS)
    if view.key == record.key:
        return await _close(record, EffectState.COMPLETED, works, revision=view.revision, seen="found by reading back")
    seen = f"not there when read back at {works.clock.now().isoformat(timespec='seconds')}"
    if publisher.refuses_late:
        return await _again(record, works, seen)
    return await _close(record, EffectState.UNKNOWN, works, seen=seen)


async def resolve(team: str, effect_id: str, how: str, *, by: str, works: Works) -> MoveReply:
    """A person closes an unknown or failed effect: `completed`, `failed`, or `retry` (planned again, still approved)."""
    record = await works.store.effect(team, effect_id)
    if record is None:
        return MoveReply(Moved.NOT_FOUND)
    if record.state not in (EffectState.UNKNOWN, EffectState.STARTED):
        return MoveReply(Moved.ALREADY_ENDED, record, f"it is {record.state.value}, not in doubt")
    if record.state is EffectState.STARTED and not await _deadline_passed(record, works):
        seconds = works.policy.effect_timeout_s + works.policy.effect_margin_s
        detail = (
            f"its attempt may still run; the target is read back at most {seconds:.0f} s after it began: wait for that"
        )
        return MoveReply(Moved.HELD_ELSEWHERE, record, detail)
    to = {"completed": EffectState.COMPLETED, "failed": EffectState.FAILED, "retry": EffectState.PLANNED}[how]
    return await works.store.close_effect(
        team,
        record.id,
        version=record.version,
        to=to,
        reason=f"resolved as {how} by {by}",
        seen=record.seen,
        wakes=await _caused(record, to, works),
    )


async def _caused(record: EffectRecord, to: EffectState, works: Works) -> list[Wake]:
    """The wakes of an output that nobody had to approve: it counts as approved once it is placed."""
    placed = to is EffectState.COMPLETED and record.decision is Decision.UNATTENDED
    return await readers(record, works) if placed else []


async def _close(
    record: EffectRecord,
    to: EffectState,
    works: Works,
    *,
    reason: str = "",
    revision: str = "",
    seen: str = "",
    retry_in_ms: int = 0,
) -> str:
    reply = await works.store.close_effect(
        record.team,
        record.id,
        version=record.version,
        to=to,
        reason=text.clean_line(reason),
        revision=revision,
        seen=seen,
        retry_in_ms=retry_in_ms,
        wakes=await _caused(record, to, works),
    )
    _log("effect moved", reply.record or record, answer=reply.moved.value)
    return to.value if reply.moved is Moved.DONE else reply.moved.value


def _log(event: str, record: EffectRecord, **more: str) -> None:
    log.info(
        event,
        team=record.team,
        session=str(record.session),
        turn=record.turn,
        effect=record.id,
        state=record.state.value,
        decision=record.decision.value,
        reason=record.reason,
        **more,
    )
