"""What the holder of a session's lease does in the in-memory store: claim, commit, release."""

from __future__ import annotations

from heinzelwerk.commit import After, Commit, CommitReply, CommitState
from heinzelwerk.event import Chain
from heinzelwerk.ids import SessionId
from heinzelwerk.session import ACCEPTED, QUARANTINE, NotClaimed, Snapshot
from heinzelwerk.store import memory_ledger, memory_money, rules
from heinzelwerk.store import memory_state as ms
from heinzelwerk.store.memory_state import Lease, SessionState, TeamState
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.turn import CallRecord, TurnRecord
from heinzelwerk.wake import Wake


def claim(
    team: TeamState, session_id: SessionId, nonce: str, now: int, options: StoreOptions, *, solo: bool
) -> Snapshot | NotClaimed:
    """Take the lease and read everything, or say why not."""
    heinzel = session_id.heinzel
    session = team.sessions.get(heinzel)
    member = f"session:{heinzel}"
    if session is not None and session.lease is not None and ms.held(session, now):
        if session.lease.nonce == nonce:
            return _snapshot(team, session_id, session, session.dead - 1, now)
        ms.count(team, "doorbells_held")
        return NotClaimed("held")
    if session is not None and session.quarantined:
        _leave_alone(team, heinzel)
        return NotClaimed("quarantined")
    revoked = team.generation is None or heinzel not in team.generation.entries
    if session is None or not _anything_due(session, now, revoked=revoked):
        ms.count(team, "doorbells_idle")
        _settle_due(team, heinzel, session)
        return NotClaimed("nothing_due")
    if session.format > options.format:
        ms.bump(team, member, now, options)
        team.slots.pop(heinzel, None)
        return NotClaimed("newer")
    if not solo and ms.sent_alone(session, now, options):
        team.due[member] = now
        team.slots.pop(heinzel, None)
        ms.count(team, "doorbells_solo")
        return NotClaimed("solo")
    if not take_slot(team, heinzel, now, now + options.lease_ms, options):
        ms.count(team, "doorbells_no_slot")
        return NotClaimed("no_slot")
    session.counter += 1
    session.lease = Lease(f"{session.counter}-{nonce}", nonce, now + options.lease_ms)
    session.dead += 1
    session.solo_until = None
    team.due[member] = now + options.lease_ms
    team.backoff.pop(member, None)
    return _snapshot(team, session_id, session, session.dead - 1, now)


def _anything_due(session: SessionState, now: int, *, revoked: bool) -> bool:
    if session.mail or session.inbox:
        return True
    # What a revoked contract's turns wait for is waited for no more.
    return any(revoked or turn.ready or (turn.next_deadline_ms or now + 1) <= now for turn in session.open_turns())


def _leave_alone(team: TeamState, heinzel: str) -> None:
    for entries in (team.due, team.backoff):
        entries.pop(f"session:{heinzel}", None)
    team.slots.pop(heinzel, None)


def quarantine(team: TeamState, heinzel: str, why: str | None, token: str | None, now: int) -> bool:
    """Set a session with a damaged spine aside, or lift that."""
    session = team.sessions.get(heinzel)
    if session is None:
        return False
    if why is None:
        if not session.quarantined:
            return False
        del session.memo[QUARANTINE]
        session.memo[ACCEPTED] = f"{session.seq} {session.head or ''}"
        team.due[f"session:{heinzel}"] = now
        return True
    if token is not None:
        if session.lease is None or not ms.held(session, now) or session.lease.token != token:
            return False
        session.lease, session.dead = None, 0
        _leave_alone(team, heinzel)
    session.memo[QUARANTINE] = why
    return True


def _settle_due(team: TeamState, heinzel: str, session: SessionState | None) -> None:
    """Nothing is due: look again at the next deadline, or never."""
    member = f"session:{heinzel}"
    deadlines = [turn.next_deadline_ms for turn in session.open_turns() if turn.next_deadline_ms] if session else []
    team.due.pop(member, None)
    team.backoff.pop(member, None)
    team.slots.pop(heinzel, None)
    if deadlines:
        team.due[member] = min(deadlines)


def take_slot(team: TeamState, heinzel: str, now: int, until: int, options: StoreOptions) -> bool:
    """Admit a session against its team's slots."""
    for name in [name for name, end in team.slots.items() if end <= now]:
        del team.slots[name]
    if heinzel not in team.slots and len(team.slots) >= options.slots_of(team.team):
        return False
    team.slots[heinzel] = max(until, team.slots.get(heinzel, 0))
    return True


def _snapshot(team: TeamState, session_id: SessionId, session: SessionState, dead: int, now: int) -> Snapshot:
    generation = team.generation
    assert session.lease is not None  # noqa: S101 - the caller has just taken it
    return Snapshot(
        session=session_id,
        token=session.lease.token,
        now_ms=now,
        chain=Chain(session.seq, session.head),
        dead_claims=dead,
        last_turn=session.last_turn,
        turns=session.open_turns(),
        inbox=ms.inbox(session),
        mail=tuple(session.mail),
        entry=generation.entries.get(session_id.heinzel) if generation else None,
        generation=generation.number if generation else 0,
        paused=bool({"", session_id.heinzel} & team.paused),
        memo=dict(session.memo),
        last=session.last,
    )


def commit(
    team: TeamState, session_id: SessionId, token: str, change: Commit, now: int, options: StoreOptions
) -> CommitReply:
    """Check everything, then write everything."""
    heinzel = session_id.heinzel
    session = team.sessions.get(heinzel)
    if session is None:
        return CommitReply(CommitState.LEASE_LOST, now)
    if session.last_op == change.op and isinstance(session.last_reply, CommitReply):
        return session.last_reply
    if session.lease is None or not ms.held(session, now) or session.lease.token != token:
        return CommitReply(CommitState.LEASE_LOST, now)
    if session.seq != change.expected_seq:
        return CommitReply(CommitState.OUT_OF_SEQUENCE, now)
    memory_money.expire(team, now, options)
    over = memory_money.over_cap(team, heinzel, change.reserve, change.settle, now)
    if over:
        return CommitReply(CommitState.OVER_CAP, now, over)
    _write(team, session_id, session, change, now, options)
    reply = CommitReply(CommitState.DONE, now, mail=len(session.mail))
    session.last_op, session.last_reply = change.op, reply
    return reply


def _write(
    team: TeamState, session_id: SessionId, session: SessionState, change: Commit, now: int, options: StoreOptions
) -> None:
    heinzel = session_id.heinzel
    session.spine.extend(change.lines)
    session.seq += len(change.lines)
    session.head = change.head if change.lines else session.head
    session.format = max(session.format, options.format)
    session.memo.update(change.memo)
    _write_turns(session, change)
    _write_wakes(team, heinzel, session, change, now, options)
    del session.mail[: change.mail_taken]
    _write_words(session, change)
    for settlement in change.settle:
        memory_money.settle(team, heinzel, settlement, now, options)
    if change.reserve is not None:
        memory_money.reserve(team, heinzel, change.reserve, now)
    for draft in change.drafts:
        # A turn that waited for an answer may draft after a later one: newest is the later turn's.
        if session.newest.get(draft.output, (0, ""))[0] <= draft.turn:
            session.newest[draft.output] = (draft.turn, draft.text)
    for effect in change.effects:
        memory_ledger.plan(team, effect, rules.text_of(effect, change.drafts, change.bodies), now, options)
    for job in change.jobs:
        memory_ledger.queue_job(team, job, change.job_caps, now, options)
    for wake in change.wakes:
        ms.accept(team, wake, change.op, now, options)
    for number in change.expire_bodies:
        ms.forget_words(session, number, now, options)
    if change.progress:
        session.dead = 0
        team.backoff.pop(f"session:{heinzel}", None)
    if change.after is not After.KEEP:
        let_go(
            team,
            heinzel,
            # A turn that can go on: handed back earlier, or its wait was filled while the session was held.
            handed_back=change.after is After.HAND_BACK or any(turn.ready for turn in session.open_turns()),
            due_ms=change.due_ms,
            holds=change.holds_session,
            now=now,
        )


def _write_turns(session: SessionState, change: Commit) -> None:
    for record in change.turns:
        session.turns[record.number] = TurnRecord.model_validate_json(record.model_dump_json())
    if change.new_turns is not None:
        session.last_turn = change.new_turns


def _write_wakes(
    team: TeamState, heinzel: str, session: SessionState, change: Commit, now: int, options: StoreOptions
) -> None:
    for taken in change.taken_wakes:
        if taken.raw in session.inbox:
            session.inbox.remove(taken.raw)
        seen = team.seen.setdefault(f"{heinzel}/{taken.wake_id}", ms.Seen(""))
        seen.turn = taken.turn if taken.turn is not None else seen.turn
        if taken.verdict is not None:
            seen.verdict, seen.forget_ms = taken.verdict, now + options.seen_ttl_ms
    for wake_id, verdict in change.ended_wakes:
        seen = team.seen.setdefault(f"{heinzel}/{wake_id}", ms.Seen(""))
        seen.verdict, seen.forget_ms = verdict, now + options.seen_ttl_ms
    session.inbox[:0] = [_returned(team, wake, now) for wake in change.returned_wakes]


def _returned(team: TeamState, wake: Wake, now: int) -> str:
    team.seen.setdefault(ms.seen_key(wake), ms.Seen(""))
    return rules.queued(wake, now)


def _write_words(session: SessionState, change: Commit) -> None:
    for body in change.bodies:
        ms.words(session, body.turn).body[body.name] = body.content
    for history in change.histories:
        kept = ms.words(session, history.turn).history
        kept[history.keep :] = history.items
    for call in change.calls:
        ms.words(session, call.turn).calls[call.key] = CallRecord.model_validate_json(call.record)


def let_go(team: TeamState, heinzel: str, *, handed_back: bool, due_ms: int | None, holds: bool, now: int) -> None:
    """End the lease, free the team's slot, and say when somebody must look again."""
    session, member = team.sessions[heinzel], f"session:{heinzel}"
    session.released = session.lease.token if session.lease else ""
    session.lease, session.dead = None, 0
    team.slots.pop(heinzel, None)
    waking = session.mail or (session.inbox and not holds)
    if handed_back or waking:
        team.due[member] = now
    elif due_ms is not None:
        team.due[member] = due_ms
    else:
        team.due.pop(member, None)
        team.backoff.pop(member, None)
