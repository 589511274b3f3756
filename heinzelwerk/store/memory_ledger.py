"""Effects and jobs of the in-memory store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from heinzelwerk import ids
from heinzelwerk.budget import Caps, Reservation
from heinzelwerk.effect import Decision, EffectRecord, EffectState, Moved, MoveReply
from heinzelwerk.handoff_job import JobRecord, JobState
from heinzelwerk.mail import Mail, MailKind
from heinzelwerk.session import NotClaimed
from heinzelwerk.store import memory_money, rules
from heinzelwerk.store import memory_state as ms
from heinzelwerk.store.memory_state import Lease, TeamState
from heinzelwerk.store.options import StoreOptions

_JOB_MARGIN_MS = 600_000  # what a job's money stays put aside beyond its deadline, until its end is booked


def find(team: TeamState, effect_id: str) -> EffectRecord | None:
    """An effect by id, or by an unambiguous beginning of at least four characters."""
    if effect_id in team.effects:
        return team.effects[effect_id]
    found = [key for key in team.effects if key.startswith(effect_id)] if len(effect_id) >= 4 else []
    return team.effects[found[0]] if len(found) == 1 else None


def _rivals(team: TeamState, effect: EffectRecord) -> Iterator[EffectRecord]:
    """The other effects of the same session, output, action and target that a turn's end planned."""
    for other in list(team.effects.values()):
        same = (other.heinzel, other.output, other.action, other.target) == (
            effect.heinzel,
            effect.output,
            effect.action,
            effect.target,
        )
        if same and other.id != effect.id and other.call is None and effect.call is None:
            yield other


def _question(effect: EffectRecord) -> str:
    return effect.key.rpartition("/")[0]


def plan(team: TeamState, effect: EffectRecord, text: str | None, now: int, options: StoreOptions) -> None:
    """Write a new effect into the ledger; an id that is there already stays as it is."""
    if effect.id in team.effects:
        return
    effect = effect.model_copy(update={"created_ms": now, "expires_ms": now + options.approval_ttl_ms})
    session = team.sessions[effect.heinzel]
    ms.words(session, effect.turn).open_effects += 1
    newest = session.newest.get(effect.output)
    if text is None and newest and ids.digest(newest[1]) == effect.text_sha256.removeprefix("sha256:"):
        text = newest[1]
    if text is not None:
        team.effect_texts[effect.id] = text
    team.effects[effect.id] = effect
    if effect.state.ended:
        end(team, effect, effect.state, now, options)
        return
    team.due[f"effect:{effect.id}"] = effect.expires_ms or now
    for other in _rivals(team, effect):
        if other.turn > effect.turn and (other.undecided or _offered(other)):
            end(
                team,
                effect,
                EffectState.REFUSED,
                now,
                options,
                decision=Decision.SUPERSEDED,
                reason=f"superseded by {other.id}",
            )
            return
        older = other.turn < effect.turn or (other.turn == effect.turn and _question(other) == _question(effect))
        if older and other.undecided:
            end(
                team,
                other,
                EffectState.REFUSED,
                now,
                options,
                decision=Decision.SUPERSEDED,
                reason=f"superseded by {effect.id}",
            )
    if effect.decision.may_start:
        team.due[f"effect:{effect.id}"] = now


def _offered(effect: EffectRecord) -> bool:
    return effect.state in (EffectState.STARTED, EffectState.COMPLETED, EffectState.UNKNOWN) or (
        effect.decision.may_start and not effect.state.ended
    )


def move(team: TeamState, effect: EffectRecord, **changes: object) -> EffectRecord:
    """Store the next version of an effect."""
    record = effect.model_copy(update={"version": effect.version + 1, **changes})
    team.effects[record.id] = record
    return record


def tell(team: TeamState, effect: EffectRecord, now: int) -> None:
    """Mail an effect's session about a transition; the end of a chat proposal fills its wait item."""
    mail = rules.moved_mail(effect)
    turn = team.sessions[effect.heinzel].turn(effect.turn)
    if effect.state.ended and effect.call is not None and turn is not None:
        item = next((item for item in turn.waits if item.call == effect.call), None)
        if item is not None:
            mail = mail.model_copy(update={"fills": item.id, "value": effect.state.value})
    ms.deliver(team, effect.heinzel, mail, now)


def end(
    team: TeamState, effect: EffectRecord, state: EffectState, now: int, options: StoreOptions, **changes: object
) -> EffectRecord:
    """End an effect: out of due, target free, its turn's body may expire, the session is told."""
    record = move(team, effect, state=state, ended_ms=now, **changes)
    team.due.pop(f"effect:{record.id}", None)
    team.backoff.pop(f"effect:{record.id}", None)
    session = team.sessions[record.heinzel]
    entry = ms.words(session, record.turn)
    entry.open_effects -= 1
    if entry.may_expire:
        ms.forget_words(session, record.turn, now, options)
    _wake_target(team, record, now)
    tell(team, record, now)
    return record


def _wake_target(team: TeamState, effect: EffectRecord, now: int) -> None:
    """What waited for this target may go now."""
    for other in team.effects.values():
        if (
            other.target == effect.target
            and other.state is EffectState.PLANNED
            and other.decision.may_start
            and other.id != effect.id
        ):
            team.due[f"effect:{other.id}"] = max(now, other.not_before_ms)


def decide(
    team: TeamState, effect_id: str, decision: Decision, now: int, options: StoreOptions, *,
    by: str, digest: str, text: str | None, new_digest: str, reason: str,
) -> MoveReply:  # fmt: skip
    """Decide a planned effect; the first decision wins."""
    effect = find(team, effect_id)
    if effect is None:
        return MoveReply(Moved.NOT_FOUND)
    if effect.decision is not Decision.PENDING:
        return MoveReply(
            Moved.ALREADY_DECIDED, effect, f"already {effect.decision.value} by {effect.decided_by or 'policy'}"
        )
    if effect.state is not EffectState.PLANNED:
        return MoveReply(Moved.ALREADY_ENDED, effect, effect.state.value)
    if effect.digest != digest:
        return MoveReply(Moved.DIGEST_DIFFERS, effect, "it changed since it was shown: look at it again")
    if effect.expires_ms is not None and effect.expires_ms <= now:
        expired = end(
            team,
            effect,
            EffectState.REFUSED,
            now,
            options,
            decision=Decision.EXPIRED,
            decided_ms=now,
            reason=rules.EXPIRED,
        )
        return MoveReply(Moved.REFUSED, expired, rules.EXPIRED)
    said: dict[str, object] = {"decision": decision, "decided_by": by, "decided_ms": now, "reason": reason}
    if not decision.may_start:
        return MoveReply(Moved.DONE, end(team, effect, EffectState.REFUSED, now, options, **said))
    if text is not None:
        team.effect_texts[effect.id] = text
        said |= {"edited": True, "text_sha256": ids.digest(text), "digest": new_digest}
    record = move(team, effect, **said)
    _approve_text(team, record)
    team.due[f"effect:{record.id}"] = now
    team.backoff.pop(f"effect:{record.id}", None)
    tell(team, record, now)
    return MoveReply(Moved.DONE, record)


def _approve_text(team: TeamState, effect: EffectRecord) -> None:
    text, session = team.effect_texts.get(effect.id), team.sessions[effect.heinzel]
    earlier = session.approved.get(effect.output)
    if effect.call is not None or effect.action in rules.NO_DRAFT:
        return
    if text is not None and effect.output and (earlier is None or earlier[0] <= effect.turn):
        session.approved[effect.output] = (effect.turn, text)


def start(
    team: TeamState, effect_id: str, now: int, options: StoreOptions, *,
    version: int, timeout_ms: int, margin_ms: int, unattended: bool,
) -> MoveReply:  # fmt: skip
    """Begin an attempt, if everything still holds."""
    effect = find(team, effect_id)
    if effect is None:
        team.due.pop(f"effect:{effect_id}", None)
        return MoveReply(Moved.NOT_FOUND)
    blocked = _not_startable(team, effect, now, options, version=version, margin_ms=margin_ms)
    if blocked is not None:
        return blocked
    if effect.expires_ms is not None and effect.expires_ms <= now:
        decision = Decision.EXPIRED if effect.decision is Decision.PENDING else effect.decision
        return MoveReply(
            Moved.REFUSED,
            end(team, effect, EffectState.REFUSED, now, options, decision=decision, reason=rules.EXPIRED),
            rules.EXPIRED,
        )
    if effect.decision is Decision.UNATTENDED and not unattended:
        team.due[f"effect:{effect.id}"] = effect.expires_ms or now
        return MoveReply(Moved.REFUSED, move(team, effect, decision=Decision.PENDING), rules.POLICY_CHANGED)
    if effect.decision is Decision.PENDING and not unattended:
        team.due[f"effect:{effect.id}"] = effect.expires_ms or now
        return MoveReply(Moved.REFUSED, effect, rules.WAITS_FOR_PERSON)
    reason = _no_longer_wanted(team, effect)
    if reason:
        return MoveReply(Moved.REFUSED, end(team, effect, EffectState.REFUSED, now, options, reason=reason), reason)
    decision = Decision.UNATTENDED if effect.decision is Decision.PENDING else effect.decision
    record = move(
        team, effect, state=EffectState.STARTED, decision=decision, attempts=effect.attempts + 1,
        started_ms=now, deadline_ms=now + timeout_ms, reason="",
    )  # fmt: skip
    team.due[f"effect:{record.id}"] = now + timeout_ms + margin_ms
    team.backoff.pop(f"effect:{record.id}", None)
    return MoveReply(Moved.DONE, record)


def _not_startable(
    team: TeamState, effect: EffectRecord, now: int, options: StoreOptions, *, version: int, margin_ms: int
) -> MoveReply | None:
    if effect.state.ended:
        team.due.pop(f"effect:{effect.id}", None)
        return MoveReply(Moved.ALREADY_ENDED, effect, effect.state.value)
    if effect.version != version:
        return MoveReply(Moved.STALE, effect)
    if effect.state is not EffectState.PLANNED:
        running = effect.state is EffectState.STARTED and (effect.deadline_ms or 0) + margin_ms > now
        return MoveReply(Moved.HELD_ELSEWHERE if running else Moved.STALE, effect, effect.state.value)
    member = f"effect:{effect.id}"
    if effect.not_before_ms > now:
        team.due[member] = effect.not_before_ms
        return MoveReply(Moved.NOT_DUE, effect)
    for other in team.effects.values():
        if other.target != effect.target or other.id == effect.id:
            continue
        free_ms = (other.deadline_ms or 0) + margin_ms
        if other.state is EffectState.STARTED:
            # One past its deadline is in doubt until it was read back: placing over it would hide whether it had arrived.
            team.due[member] = free_ms if free_ms > now else now + options.ring_first_ms
            return MoveReply(Moved.TARGET_BUSY, effect, rules.TARGET_IN_USE)
        waits = other.state is EffectState.PLANNED and other.decision.may_start and (other.expires_ms or now + 1) > now
        if waits and other.heinzel == effect.heinzel and other.turn < effect.turn:
            team.due[member] = now + options.ring_first_ms
            return MoveReply(Moved.TARGET_BUSY, effect, rules.EARLIER_FIRST)
    return None


def _no_longer_wanted(team: TeamState, effect: EffectRecord) -> str:
    """Why the effect must not happen any more, or ""."""
    entry = team.generation.entries.get(effect.heinzel) if team.generation else None
    published = entry.publishes if entry else ()
    same = [wanted.args for wanted in published if (wanted.action, wanted.output) == (effect.action, effect.output)]
    if entry is None or (effect.call is None and not same):
        return rules.NOT_PUBLISHED
    # What Heinzelwerk keeps itself is declared without arguments.
    if effect.call is None and {} not in same and effect.arguments not in same:
        return rules.PUBLISHED_ELSEWHERE
    newer = any(o.turn > effect.turn and o.state is EffectState.COMPLETED for o in _rivals(team, effect))
    return rules.NEWER_PLACED if newer else ""


def close(
    team: TeamState, effect_id: str, now: int, options: StoreOptions, *,
    version: int, to: EffectState, reason: str, revision: str, seen: str, retry_in_ms: int,
) -> MoveReply:  # fmt: skip
    """Move an effect on after an attempt or a look at its target."""
    effect = find(team, effect_id)
    if effect is None:
        return MoveReply(Moved.NOT_FOUND)
    if effect.state.ended:
        return MoveReply(Moved.ALREADY_ENDED, effect, effect.state.value)
    if effect.version != version:
        return MoveReply(Moved.STALE, effect)
    changes: dict[str, object] = {
        "reason": reason,
        "revision": revision or effect.revision,
        "seen": seen or effect.seen,
    }
    if to.ended:
        record = end(team, effect, to, now, options, **changes)
        if to is EffectState.COMPLETED and record.decision is Decision.UNATTENDED:
            _approve_text(team, record)
        return MoveReply(Moved.DONE, record)
    member = f"effect:{effect.id}"
    team.backoff.pop(member, None)
    if to is EffectState.PLANNED:
        changes |= {"not_before_ms": now + retry_in_ms, "deadline_ms": None}
    record = move(team, effect, state=to, **changes)
    if to is EffectState.PLANNED or retry_in_ms:
        team.due[member] = now + retry_in_ms
    else:
        team.due.pop(member, None)
    _wake_target(team, record, now)
    if effect.state is not to:
        tell(team, record, now)
    return MoveReply(Moved.DONE, record)


# -- jobs --------------------------------------------------------------------------------------------------------


def queue_job(team: TeamState, job: JobRecord, caps: Caps, now: int, options: StoreOptions) -> None:
    """Write a new job; its `deadline_ms` came as a duration and becomes an instant, its money is put aside."""
    if job.id in team.jobs:
        return
    memory_money.expire(team, now, options)
    left, most = memory_money.day_left(team, job.heinzel, caps, now), job.max_micros
    if left is not None:
        most = min(int(left * job.share) if most is None else most, left)
    if most:
        wanted = Reservation(f"{job.turn}/job/{job.id}", most, caps, job.deadline_ms + _JOB_MARGIN_MS)
        memory_money.reserve(team, job.heinzel, wanted, now)
    team.jobs[job.id] = job.model_copy(
        update={"created_ms": now, "deadline_ms": now + job.deadline_ms, "max_micros": most}
    )
    team.due[f"job:{job.id}"] = now


def claim_job(
    team: TeamState, job_id: str, nonce: str, worker: str, now: int, options: StoreOptions
) -> tuple[JobRecord, str] | NotClaimed:
    """Take a queued job, once for its life."""
    job, lease = team.jobs.get(job_id), team.job_leases.get(job_id)
    if job is None or job.state is JobState.ENDED:
        team.due.pop(f"job:{job_id}", None)
        return NotClaimed("nothing_due")
    if lease is not None and lease.until_ms > now:
        return (job, lease.token) if lease.nonce == nonce else NotClaimed("held")
    turn = team.sessions[job.heinzel].turns.get(job.turn)
    gone = turn is None or turn.state.ended
    if job.state is JobState.RUNNING or job.deadline_ms <= now or gone:
        status = "cancelled" if gone and job.state is JobState.QUEUED else rules.INTERRUPTED
        end_job(team, job, status, None, {}, now, options)
        return NotClaimed("nothing_due")
    record = job.model_copy(update={"state": JobState.RUNNING, "started_ms": now, "worker": worker})
    team.jobs[job_id] = record
    team.job_leases[job_id] = Lease(f"1-{nonce}", nonce, now + options.lease_ms)
    team.due[f"job:{job_id}"] = now + options.lease_ms
    team.backoff.pop(f"job:{job_id}", None)
    return record, f"1-{nonce}"


def close_job(
    team: TeamState, job_id: str, now: int, options: StoreOptions, *,
    token: str | None, status: str, cost_micros: int | None, bodies: Mapping[str, bytes],
) -> bool:  # fmt: skip
    """End a job under its lease, or without one where none is held."""
    job, lease = team.jobs.get(job_id), team.job_leases.get(job_id)
    if job is None or job.state is JobState.ENDED:
        return False
    holder = lease.token if lease is not None and lease.until_ms > now else None
    if holder != token:
        return False
    end_job(team, job, status, cost_micros, bodies, now, options)
    return True


def end_job(
    team: TeamState,
    job: JobRecord,
    status: str,
    cost: int | None,
    bodies: Mapping[str, bytes],
    now: int,
    options: StoreOptions,
) -> None:
    """Write the end, keep the bodies with the turn's, fill the wait item."""
    team.jobs[job.id] = job.model_copy(
        update={"state": JobState.ENDED, "status": status, "ended_ms": now, "cost_micros": cost}
    )
    team.job_leases.pop(job.id, None)
    team.due.pop(f"job:{job.id}", None)
    team.backoff.pop(f"job:{job.id}", None)
    session = team.sessions[job.heinzel]
    ms.words(session, job.turn).body.update(bodies)
    data: dict[str, str | int | bool | None] = {"job": job.id, "status": status, "cost_micros": cost}
    if job.started_ms is not None:
        data |= {"started_ms": job.started_ms, "ended_ms": now}
        # A cost that nobody knows counts at the cap; a job that never ran cost nothing.
        if cost is None and status != rules.REFUSED and job.max_micros is not None:
            data["possible_micros"] = job.max_micros
    if job.max_micros is not None:
        data["reserved_micros"] = job.max_micros
    mail = Mail(id=f"job/{job.id}", kind=MailKind.JOB_ENDED, turn=job.turn, fills=job.wait, value=status, data=data)
    ms.deliver(team, job.heinzel, mail, now)
