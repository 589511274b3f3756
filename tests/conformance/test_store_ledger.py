"""Claims about effects, jobs, and what operators ask, for every body of the store."""

from __future__ import annotations

import asyncio
import json

import pytest

from heinzelwerk import ids
from heinzelwerk.budget import Caps, Settlement
from heinzelwerk.commit import After, Body, NewDraft
from heinzelwerk.effect import Decision, EffectRecord, EffectState, Moved, MoveReply, Which, approval_digest
from heinzelwerk.errors import FormatTooNew
from heinzelwerk.event import line_digest
from heinzelwerk.generation import Publishing
from heinzelwerk.handoff_job import JobState
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail, MailKind
from heinzelwerk.session import Hold, NotClaimed
from heinzelwerk.turn import TurnState, WaitKind
from tests.support.store_world import (
    PUBLISHES,
    TEAM,
    WEEKLY,
    Holder,
    World,
    draft_of,
    effect_of,
    item_of,
    job_of,
    wake_of,
)

FAR = 10**15


async def offer(world: World, key: str, text: str, **more: object) -> tuple[EffectRecord, Holder]:
    """A turn that ends with a draft and the effect that would place it."""
    holder = await world.running(key)
    assert holder.turn is not None
    effect = effect_of(holder.turn, text, **more)
    number = holder.turn.number
    await holder.end(
        effects=(effect,),
        drafts=(draft_of(number, text),),
        bodies=(Body(number, "outcome", b"o"),),
        expire_bodies=(number,),
    )
    stored = await world.store.effect(TEAM, effect.id)
    assert stored is not None
    return stored, holder


async def approve(world: World, effect: EffectRecord, by: str = "kim") -> EffectRecord:
    """Approve what was shown."""
    reply = await world.store.decide(TEAM, effect.id, Decision.APPROVED, by=by, digest=effect.digest)
    assert reply.moved is Moved.DONE
    assert reply.record is not None
    return reply.record


async def start(
    world: World, effect: EffectRecord, *, timeout_ms: int = 60_000, margin_ms: int = 0, unattended: bool = False
) -> MoveReply:
    """Begin an attempt at the version that the caller has seen."""
    return await world.store.start_effect(
        TEAM, effect.id, version=effect.version, timeout_ms=timeout_ms, margin_ms=margin_ms, unattended=unattended
    )


async def test_from_plan_to_completion(world: World) -> None:
    """An effect is planned, approved, started and completed; text, draft, times and mail tell the same story."""
    effect, _ = await offer(world, "manual/1", "Text")
    assert effect.created_ms > 0
    assert await world.store.effects(TEAM, Which.UNDECIDED) == (effect,)
    assert await world.store.effect_text(TEAM, effect.id[:6]) == "Text"
    assert await world.store.due(TEAM, kind="effect") == ()
    approved = await approve(world, effect)
    assert (approved.decision, approved.decided_by, approved.version) == (Decision.APPROVED, "kim", 2)
    assert [entry.name for entry in await world.store.ring(TEAM) if entry.kind == "effect"] == [effect.id]
    assert await world.store.draft(WEEKLY, "weekly", approved=True) == (1, "Text")
    started = (await start(world, approved)).record
    assert started is not None
    assert (started.state, started.attempts) == (EffectState.STARTED, 1)
    reply = await world.store.close_effect(
        TEAM, effect.id, version=started.version, to=EffectState.COMPLETED, revision="r7"
    )
    assert reply.record is not None
    assert (reply.record.state, reply.record.revision, reply.record.arguments) == (
        EffectState.COMPLETED,
        "r7",
        PUBLISHES.args,
    )
    assert await world.store.effects(TEAM, Which.UNDECIDED) == ()
    assert await world.store.due(TEAM, kind="effect") == ()
    told = [
        (mail.kind, mail.turn, mail.data["state"], mail.data["by"]) for mail in await world.store.unread_mail(WEEKLY)
    ]
    assert told == [(MailKind.EFFECT_MOVED, 1, "planned", "kim"), (MailKind.EFFECT_MOVED, 1, "completed", "kim")]


async def test_the_first_decision_wins(world: World) -> None:
    """Ten people decide at once: one decision stands, the others hear whose."""
    effect, _ = await offer(world, "manual/1", "Text")
    choices = [Decision.APPROVED, Decision.DECLINED] * 5
    replies = await asyncio.gather(
        *(
            world.store.decide(TEAM, effect.id, choice, by=f"p{n}", digest=effect.digest)
            for n, choice in enumerate(choices)
        )
    )
    assert sorted(reply.moved for reply in replies) == [Moved.ALREADY_DECIDED] * 9 + [Moved.DONE]
    (winner,) = [reply.record for reply in replies if reply.moved is Moved.DONE]
    assert winner is not None
    assert all(winner.decided_by in reply.detail for reply in replies if reply.moved is Moved.ALREADY_DECIDED)


async def test_only_what_was_shown_is_approved(world: World) -> None:
    """A digest of something else is refused and decides nothing; an unknown effect is not found."""
    effect, _ = await offer(world, "manual/1", "Text")
    reply = await world.store.decide(TEAM, effect.id, Decision.APPROVED, by="kim", digest="other")
    assert reply.moved is Moved.DIGEST_DIFFERS
    assert (await world.store.effect(TEAM, effect.id)) == effect
    assert (await world.store.decide(TEAM, "nothing", Decision.APPROVED, by="kim", digest="x")).moved is Moved.NOT_FOUND


async def test_an_edit_approves_the_edited_text(world: World) -> None:
    """Who edits while approving approves the edit: text, hash, digest and last approved draft are the edited ones."""
    effect, _ = await offer(world, "manual/1", "Text")
    digest = approval_digest("Besser", effect.target, "")
    wake = wake_of("inputs/docs/weekly/1/weekly")
    reply = await world.store.decide(
        TEAM,
        effect.id,
        Decision.APPROVED,
        by="kim",
        digest=effect.digest,
        text="Besser",
        new_digest=digest,
        wakes=[wake],
    )
    assert reply.record is not None
    assert (reply.record.edited, reply.record.digest, reply.record.text_sha256) == (True, digest, ids.digest("Besser"))
    assert await world.store.effect_text(TEAM, effect.id) == "Besser"
    assert await world.store.draft(WEEKLY, "weekly", approved=True) == (1, "Besser")
    assert await world.store.draft(WEEKLY, "weekly", approved=False) == (1, "Text")
    overview = await world.store.overview(WEEKLY)
    assert overview is not None
    assert [queued.wake for queued in overview.inbox] == [wake]


async def test_declining_ends_the_effect(world: World) -> None:
    """A declined effect is refused with its reason, is never started, and approves no text."""
    effect, _ = await offer(world, "manual/1", "Text")
    reply = await world.store.decide(
        TEAM, effect.id, Decision.DECLINED, by="kim", digest=effect.digest, reason="nö" * 400
    )
    assert reply.record is not None
    assert (reply.record.state, reply.record.decision, reply.record.reason) == (
        EffectState.REFUSED,
        Decision.DECLINED,
        "nö" * 150,
    )
    assert (await start(world, reply.record)).moved is Moved.ALREADY_ENDED
    assert await world.store.draft(WEEKLY, "weekly", approved=True) is None
    (mail,) = await world.store.unread_mail(WEEKLY)
    assert (mail.data["decision"], mail.by) == ("declined", "kim")


async def test_an_approval_expires(worlds) -> None:
    """Nobody decides in time: the effect becomes due, is refused as expired, and says so to a late decision."""
    world: World = await worlds(approval_ttl_ms=60)
    effect, _ = await offer(world, "manual/1", "Text")
    await world.time.passes(60)
    assert [entry.name for entry in await world.store.due(TEAM, kind="effect")] == [effect.id]
    reply = await start(world, effect)
    assert reply.record is not None
    assert (reply.moved, reply.record.decision, reply.record.state) == (
        Moved.REFUSED,
        Decision.EXPIRED,
        EffectState.REFUSED,
    )
    other, _ = await offer(world, "manual/2", "Text 2")
    await world.time.passes(60)
    late = await world.store.decide(TEAM, other.id, Decision.APPROVED, by="kim", digest=other.digest)
    assert late.moved is Moved.REFUSED
    assert late.record is not None
    assert late.record.decision is Decision.EXPIRED
    assert await world.store.due(TEAM, kind="effect") == ()


async def test_newer_supersedes_undecided_older(world: World) -> None:
    """A later turn's offer for the same output and target supersedes an undecided earlier one, whose session is told."""
    old, _ = await offer(world, "manual/1", "Old")
    new, _ = await offer(world, "manual/2", "New")
    stored = await world.store.effect(TEAM, old.id)
    assert stored is not None
    assert (stored.state, stored.decision, stored.reason) == (
        EffectState.REFUSED,
        Decision.SUPERSEDED,
        f"superseded by {new.id}",
    )
    assert await world.store.effects(TEAM, Which.UNDECIDED) == (new,)
    assert {record.id for record in await world.store.effects(TEAM)} == {new.id, old.id}
    reply = await world.store.decide(TEAM, old.id, Decision.APPROVED, by="kim", digest=old.digest)
    assert reply.moved is Moved.ALREADY_DECIDED


async def test_an_older_turn_comes_too_late(world: World) -> None:
    """A turn that waited while a later one offered its text has its own offer born superseded."""
    waiting = await world.running("manual/1")
    await waiting.waits(item_of("q", WaitKind.QUESTION, FAR))
    new, _ = await offer(world, "manual/2", "New")
    await world.accept("manual/3")
    holder = await world.claim()
    holder.turn = holder.snapshot.turns[0]
    late = effect_of(holder.turn, "Old")
    await holder.end(effects=(late,), drafts=(draft_of(1, "Old"),))
    stored = await world.store.effect(TEAM, late.id)
    assert stored is not None
    assert (stored.state, stored.decision) == (EffectState.REFUSED, Decision.SUPERSEDED)
    assert await world.store.effects(TEAM, Which.UNDECIDED) == (new,)


async def test_two_targets_do_not_meet(world: World) -> None:
    """Offers for different targets leave each other alone."""
    one, _ = await offer(world, "manual/1", "A")
    two, _ = await offer(world, "manual/2", "B", target="documents:other.md#weekly")
    assert {record.id for record in await world.store.effects(TEAM, Which.UNDECIDED)} == {one.id, two.id}


async def test_planning_twice_is_planning_once(world: World) -> None:
    """The same key planned again leaves the ledger's record as it is."""
    effect, _ = await offer(world, "manual/1", "Text")
    approved = await approve(world, effect)
    holder = await world.running("manual/2")
    await holder.end(effects=(effect,))
    assert await world.store.effect(TEAM, effect.id) == approved


async def test_an_attempt_is_begun_once(world: World) -> None:
    """Ten effect workers start the same version: one begins, the others are turned away."""
    effect, _ = await offer(world, "manual/1", "Text")
    approved = await approve(world, effect)
    replies = await asyncio.gather(*(start(world, approved) for _ in range(10)))
    assert sum(reply.moved is Moved.DONE for reply in replies) == 1
    assert {reply.moved for reply in replies} <= {Moved.DONE, Moved.STALE, Moved.HELD_ELSEWHERE}


async def test_an_undecided_effect_needs_a_person_or_a_policy(world: World) -> None:
    """Without a decision nothing starts; where the operator's policy allows it, it goes unattended."""
    effect, _ = await offer(world, "manual/1", "Text")
    reply = await start(world, effect)
    assert (reply.moved, reply.record) == (Moved.REFUSED, effect)
    begun = (await start(world, effect, unattended=True)).record
    assert begun is not None
    assert (begun.state, begun.decision) == (EffectState.STARTED, Decision.UNATTENDED)
    assert await world.store.draft(WEEKLY, "weekly", approved=True) is None
    await world.store.close_effect(TEAM, effect.id, version=begun.version, to=EffectState.COMPLETED)
    assert await world.store.draft(WEEKLY, "weekly", approved=True) == (1, "Text")


async def test_an_output_that_went_unattended_wakes_its_readers_when_it_is_placed(world: World) -> None:
    """Placed it counts as approved, and its wakes come in the same script; a failure brings none, nor does a person's yes."""
    wake = wake_of("inputs/docs/weekly/1/weekly")
    for number, (to, unattended, woken) in enumerate(
        (
            (EffectState.FAILED, True, False),
            (EffectState.COMPLETED, False, False),
            (EffectState.COMPLETED, True, True),
        )
    ):
        effect, _ = await offer(world, f"manual/{number}", f"Text {number}")
        if not unattended:
            effect = await approve(world, effect)
        begun = (await start(world, effect, unattended=unattended)).record
        assert begun is not None
        closed = await world.store.close_effect(TEAM, effect.id, version=begun.version, to=to, wakes=[wake])
        assert closed.moved is Moved.DONE
        overview = await world.store.overview(WEEKLY)
        assert overview is not None
        assert [queued.wake for queued in overview.inbox] == ([wake] if woken else [])


async def test_a_policy_that_was_taken_back(world: World) -> None:
    """An effect planned as unattended waits for a person where the policy no longer lets it go."""
    effect, _ = await offer(world, "manual/1", "Text", decision=Decision.UNATTENDED)
    assert [entry.name for entry in await world.store.due(TEAM, kind="effect")] == [effect.id]
    assert (await start(world, effect)).moved is Moved.REFUSED
    (waiting,) = await world.store.effects(TEAM, Which.UNDECIDED)
    assert waiting.id == effect.id
    assert await world.store.due(TEAM, kind="effect") == ()


async def test_a_contract_that_no_longer_publishes(world: World) -> None:
    """An approval is void where the newest generation no longer publishes this, or no longer has the contract."""
    for key, load in (("manual/1", {"publishes": (Publishing(action="x", output="weekly"),)}), ("manual/2", None)):
        await world.load()
        effect, _ = await offer(world, key, f"Text {key}")
        approved = await approve(world, effect)
        await (world.load("other") if load is None else world.load("weekly", **load))
        reply = await start(world, approved)
        assert reply.record is not None
        assert (reply.moved, reply.record.state) == (Moved.REFUSED, EffectState.REFUSED)
        assert "publishes" in reply.detail


async def test_a_contract_that_publishes_elsewhere(world: World) -> None:
    """What was approved for one place goes nowhere once the contract names another; a place it still names is the same."""
    here, there = {"document": "a.md", "section": "s"}, {"document": "b.md", "section": "s"}
    for key, now, moved in (
        ("manual/1", here, Moved.DONE),
        ("manual/2", there, Moved.REFUSED),
        ("manual/3", {"document": "a.md"}, Moved.REFUSED),
        ("manual/4", here | {"title": "t"}, Moved.REFUSED),
    ):
        action = f"act.{key[-1]}"
        await world.load("weekly", publishes=(Publishing(action=action, output="weekly", args=here),))
        effect, _ = await offer(world, key, f"Text {key}", action=action, arguments=here, target=f"t:{key}")
        approved = await approve(world, effect)
        await world.load("weekly", publishes=(Publishing(action=action, output="weekly", args=now),))
        reply = await start(world, approved)
        assert reply.moved is moved, (key, reply)
        assert ("another place now" in reply.detail) == (moved is Moved.REFUSED)


async def test_what_is_declared_without_arguments_takes_any(world: World) -> None:
    """What Heinzelwerk keeps itself has arguments that no contract can know; none at all stay none."""
    for key, arguments in (("manual/1", {"sha256": "sha256:0"}), ("manual/2", {})):
        await world.load("weekly", publishes=(Publishing(action="lesson.keep", output="weekly"),))
        effect, _ = await offer(world, key, key, action="lesson.keep", arguments=arguments, target=f"t:{key}")
        reply = await start(world, await approve(world, effect))
        assert reply.record is not None
        assert (reply.moved, reply.record.arguments) == (Moved.DONE, arguments)


async def test_one_target_at_a_time_in_turn_order(world: World) -> None:
    """Approved effects of one target go one after another, the earlier turn's first; its end makes the next due."""
    first, _ = await offer(world, "manual/1", "One")
    first = await approve(world, first)
    second, _ = await offer(world, "manual/2", "Two")
    second = await approve(world, second)
    assert (await start(world, second)).moved is Moved.TARGET_BUSY
    begun = (await start(world, first)).record
    assert begun is not None
    assert (await start(world, second)).moved is Moved.TARGET_BUSY
    assert await world.store.due(TEAM, kind="effect") == ()
    await world.store.close_effect(TEAM, first.id, version=begun.version, to=EffectState.COMPLETED)
    assert [entry.name for entry in await world.store.due(TEAM, kind="effect")] == [second.id]
    assert (await start(world, second)).moved is Moved.DONE


async def test_nothing_newer_is_overwritten(world: World) -> None:
    """An earlier turn's effect that comes back from a failed attempt after a later one was placed is refused."""
    first, _ = await offer(world, "manual/1", "One")
    begun = (await start(world, await approve(world, first))).record
    assert begun is not None
    back = await world.store.close_effect(
        TEAM, first.id, version=begun.version, to=EffectState.UNKNOWN, seen="nothing at 12:00"
    )
    assert back.record is not None
    second, _ = await offer(world, "manual/2", "Two")
    started = (await start(world, await approve(world, second))).record
    assert started is not None
    await world.store.close_effect(TEAM, second.id, version=started.version, to=EffectState.COMPLETED)
    again = await world.store.close_effect(TEAM, first.id, version=back.record.version, to=EffectState.PLANNED)
    assert again.record is not None
    reply = await start(world, again.record)
    assert reply.moved is Moved.REFUSED
    assert "later turn" in reply.detail


async def test_an_attempt_that_changed_nothing_comes_back(world: World) -> None:
    """Planned again: not before its delay, then due; the count of attempts stays."""
    effect, _ = await offer(world, "manual/1", "Text")
    begun = (await start(world, await approve(world, effect))).record
    assert begun is not None
    back = await world.store.close_effect(
        TEAM, effect.id, version=begun.version, to=EffectState.PLANNED, reason="no connection", retry_in_ms=80
    )
    assert back.record is not None
    assert (back.record.state, back.record.attempts, back.record.deadline_ms) == (EffectState.PLANNED, 1, None)
    early = await start(world, back.record)
    await world.time.passes(80)
    assert early.moved in (Moved.NOT_DUE, Moved.DONE)
    if early.moved is Moved.NOT_DUE:
        assert [entry.name for entry in await world.store.due(TEAM, kind="effect")] == [effect.id]
        assert (await start(world, back.record)).record is not None


async def test_a_started_effect_is_looked_at_after_its_deadline(world: World) -> None:
    """Nobody touches a running attempt before deadline and margin; then it is due, and unknown until it is resolved."""
    effect, _ = await offer(world, "manual/1", "Text")
    begun = (await start(world, await approve(world, effect), timeout_ms=40, margin_ms=40)).record
    assert begun is not None
    assert begun.deadline_ms is not None
    await world.time.passes(90)
    assert [entry.name for entry in await world.store.ring(TEAM) if entry.kind == "effect"] == [effect.id]
    unknown = (
        await world.store.close_effect(TEAM, effect.id, version=begun.version, to=EffectState.UNKNOWN, seen="absent")
    ).record
    assert unknown is not None
    assert (unknown.state, unknown.seen) == (EffectState.UNKNOWN, "absent")
    stale = await world.store.close_effect(TEAM, effect.id, version=begun.version, to=EffectState.FAILED)
    assert stale.moved is Moved.STALE
    done = await world.store.close_effect(TEAM, effect.id, version=unknown.version, to=EffectState.COMPLETED)
    assert done.moved is Moved.DONE
    again = await world.store.close_effect(TEAM, effect.id, version=unknown.version, to=EffectState.FAILED)
    assert again.moved is Moved.ALREADY_ENDED


async def test_a_chat_proposals_end_fills_its_wait(world: World) -> None:
    """The wait item of a proposed call is filled by the effect's end, not by the decision."""
    await world.load("weekly", publishes=())
    holder = await world.running("asked/web/1")
    assert holder.turn is not None
    effect = effect_of(holder.turn, "{}", call="1:c1", output="", key="docs/weekly/asked/web/1/1/c1/1")
    item = item_of("p", WaitKind.PROPOSAL, FAR, call="1:c1")
    await holder.waits(item, effects=(effect,), bodies=(Body(1, "arguments/1:c1", b"{}"),))
    assert await world.store.effect_text(TEAM, effect.id) == "{}"
    stored = await world.store.effect(TEAM, effect.id)
    assert stored is not None
    begun = (await start(world, await approve(world, stored))).record
    turn = await world.store.turn(WEEKLY, 1)
    assert turn is not None
    assert turn.waits[0].open
    assert begun is not None
    await world.store.close_effect(TEAM, effect.id, version=begun.version, to=EffectState.COMPLETED)
    turn = (await world.claim()).snapshot.turns[0]
    assert (turn.ready, turn.waits[0].value) == (True, "completed")


async def test_bodies_wait_for_the_last_effect(worlds) -> None:
    """A turn's words stay while one of its effects is open, and begin their retention when it ends."""
    world: World = await worlds(body_ttl_ms=60)
    effect, _ = await offer(world, "manual/1", "Text")
    await world.time.passes(60)
    assert await world.store.body(WEEKLY, 1, "outcome") == b"o"
    await world.store.decide(TEAM, effect.id, Decision.DECLINED, by="kim", digest=effect.digest)
    await world.time.passes(60)
    assert await world.store.body(WEEKLY, 1, "outcome") is None


async def test_the_same_draft_is_asked_again(world: World) -> None:
    """A new ask without a new draft carries the newest draft's text."""
    first, _ = await offer(world, "manual/1", "Text")
    await world.store.decide(TEAM, first.id, Decision.DECLINED, by="kim", digest=first.digest)
    holder = await world.running("manual/2")
    assert holder.turn is not None
    again = effect_of(holder.turn, "Text", ask=2)
    await holder.end(effects=(again,))
    assert await world.store.effect_text(TEAM, again.id) == "Text"


async def test_effects_are_found_by_their_beginning(world: World) -> None:
    """Four characters name an effect where no other begins like it; an ambiguous or shorter beginning names none."""
    holder = await world.running()
    assert holder.turn is not None
    twins = tuple(effect_of(holder.turn, "T", id=f"abcd{n}000", key=f"k/{n}", target=f"t:{n}") for n in range(2))
    await holder.end(effects=twins, drafts=(NewDraft("weekly", 1, "T", ids.digest("T")),))
    assert await world.store.effect(TEAM, "abcd") is None
    assert (await world.store.effect(TEAM, "abcd1")) is not None
    assert await world.store.effect(TEAM, "abc") is None
    assert await world.store.effect("nobody", "abcd1") is None


# -- jobs --------------------------------------------------------------------------------------------------------


async def queue(world: World, **more: object) -> Holder:
    """A turn that waits for a handoff."""
    holder = await world.running()
    assert holder.turn is not None
    await holder.waits(item_of("job", WaitKind.JOB, FAR), jobs=(job_of(holder.turn, **more),), holds_session=True)
    return holder


async def test_a_job_runs_once(world: World) -> None:
    """A job is claimed once, closed under its lease; its bodies and its status reach the turn."""
    await queue(world)
    assert [(entry.kind, entry.name) for entry in await world.store.ring(TEAM)] == [("job", "job-1")]
    claimed = await world.store.claim_job(TEAM, "job-1", nonce="mine", worker="h1")
    assert not isinstance(claimed, NotClaimed)
    record, token = claimed
    assert (record.state, record.worker) == (JobState.RUNNING, "h1")
    assert record.deadline_ms == record.created_ms + 60_000
    assert await world.store.claim_job(TEAM, "job-1", nonce="mine", worker="h1") == (record, token)
    assert await world.store.claim_job(TEAM, "job-1", nonce="other", worker="h2") == NotClaimed("held")
    assert await world.store.renew([Hold("job", TEAM, "job-1", token)]) == ()
    end = {"status": "completed", "cost_micros": 12, "bodies": {"handoff/1:c1": b"\xffreport"}}
    assert not await world.store.close_job(TEAM, "job-1", token=None, **end)
    assert not await world.store.close_job(TEAM, "job-1", token="1-other", **end)
    assert await world.store.close_job(TEAM, "job-1", token=token, **end)
    assert not await world.store.close_job(TEAM, "job-1", token=token, **end)
    stored = await world.store.job(TEAM, "job-1")
    assert stored is not None
    assert (stored.state, stored.status, stored.cost_micros) == (JobState.ENDED, "completed", 12)
    assert await world.store.body(WEEKLY, 1, "handoff/1:c1") == b"\xffreport"
    snapshot = (await world.claim()).snapshot
    assert snapshot.turns[0].waits[0].value == "completed"
    assert [(mail.kind, mail.data["status"]) for mail in snapshot.mail] == [(MailKind.JOB_ENDED, "completed")]
    assert await world.store.claim_job(TEAM, "job-1", nonce="again", worker="h3") == NotClaimed("nothing_due")


async def test_a_job_whose_worker_is_known_to_be_dead_is_interrupted_at_once(world: World) -> None:
    """Its lease ended before its time: due now, and whoever looks closes it."""
    await queue(world)
    claimed = await world.store.claim_job(TEAM, "job-1", nonce="mine", worker="h1")
    assert not isinstance(claimed, NotClaimed)
    token = claimed[1]
    assert await world.store.end_leases([Hold("job", TEAM, "job-1", "1-other")]) == 0
    assert await world.store.end_leases([Hold("job", TEAM, "job-1", token)]) == 1
    assert ("job", "job-1") in [(entry.kind, entry.name) for entry in await world.store.ring(TEAM)]
    assert await world.store.claim_job(TEAM, "job-1", nonce="other", worker="h2") == NotClaimed("nothing_due")
    stored = await world.store.job(TEAM, "job-1")
    assert stored is not None
    assert (stored.state, stored.status) == (JobState.ENDED, "interrupted")


async def test_a_dead_workers_job_is_interrupted(worlds) -> None:
    """A running job whose lease ended is closed by whoever looks, and never run again."""
    world: World = await worlds(lease_ms=1_500)
    await queue(world)
    assert not isinstance(await world.store.claim_job(TEAM, "job-1", nonce="a", worker="h1"), NotClaimed)
    await world.time.passes(1_500)
    assert [entry.name for entry in await world.store.ring(TEAM) if entry.kind == "job"] == ["job-1"]
    assert await world.store.claim_job(TEAM, "job-1", nonce="b", worker="h2") == NotClaimed("nothing_due")
    assert (await world.claim()).snapshot.turns[0].waits[0].value == "interrupted"


async def test_a_job_that_nobody_took_in_time(world: World) -> None:
    """A queued job past its deadline is closed as interrupted by the claim that finds it."""
    await queue(world, deadline_ms=40)
    await world.time.passes(40)
    assert await world.store.claim_job(TEAM, "job-1", nonce="a", worker="h") == NotClaimed("nothing_due")
    stored = await world.store.job(TEAM, "job-1")
    assert stored is not None
    assert stored.status == "interrupted"


async def test_a_job_of_a_stopped_turn_never_starts(world: World) -> None:
    """A job that is still queued when its turn ends is closed as cancelled."""
    holder = await world.running()
    assert holder.turn is not None
    await holder.commit("step", jobs=(job_of(holder.turn),))
    await holder.end(TurnState.CANCELLED)
    assert await world.store.claim_job(TEAM, "job-1", nonce="a", worker="h") == NotClaimed("nothing_due")
    stored = await world.store.job(TEAM, "job-1")
    assert stored is not None
    assert stored.status == "cancelled"


async def test_words_that_come_late_end_with_the_rest(worlds) -> None:
    """What a job or a commit stores after the turn's retention began expires with the turn's other words."""
    world: World = await worlds(body_ttl_ms=400)
    holder = await world.running()
    assert holder.turn is not None
    await holder.commit("step", jobs=(job_of(holder.turn),))
    claimed = await world.store.claim_job(TEAM, "job-1", nonce="a", worker="h")
    assert not isinstance(claimed, NotClaimed)
    await holder.end(TurnState.CANCELLED, expire_bodies=(1,), after=After.KEEP)
    end = {"status": "cancelled", "cost_micros": None, "bodies": {"handoff/job-1/result": b"r"}}
    assert await world.store.close_job(TEAM, "job-1", token=claimed[1], **end)
    await holder.commit("mail", bodies=(Body(1, "note", b"n"),))
    await world.time.passes(400)
    assert await world.store.body_names(WEEKLY, 1) == ()


async def test_a_jobs_money_is_put_aside_with_it_and_booked_with_its_end(world: World) -> None:
    """What a handoff may cost is reserved by the commit that queues it; its end leaves what it did cost."""
    holder = await world.running()
    assert holder.turn is not None
    number = holder.turn.number
    await holder.commit("step", jobs=(job_of(holder.turn, max_micros=400),), job_caps=Caps(team_day=1_000))
    assert (await world.store.spent(TEAM)).reserved == 400
    assert (await world.store.spent(TEAM, holder.session.heinzel)).reserved == 400
    claimed = await world.store.claim_job(TEAM, "job-1", nonce="a", worker="h")
    assert not isinstance(claimed, NotClaimed)
    assert claimed[0].max_micros == 400
    assert await world.store.close_job(TEAM, "job-1", token=claimed[1], status="completed", cost_micros=30, bodies={})
    (mail,) = await world.store.unread_mail(holder.session)
    assert (mail.data["cost_micros"], mail.data["reserved_micros"]) == (30, 400)
    await holder.commit("step", settle=(Settlement(f"{number}/job/job-1", 30),), mail_taken=1)
    spent = await world.store.spent(TEAM)
    assert (spent.spent, spent.reserved, spent.possible) == (30, 0, 0)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ([{"max_micros": 800}, {"max_micros": 800}], [800, 200]),
        ([{"share": 0.5}, {"share": 0.5}], [500, 250]),
        ([{"max_micros": 5_000}, {"max_micros": 1}], [1_000, 0]),
    ],
)
async def test_a_job_may_spend_no_more_than_the_day_still_has(
    world: World, asked: list[dict[str, float]], given: list[int]
) -> None:
    """A share of the turn's cap is cut to what the day's caps leave; a turn without a cap gets a share of that."""
    holder = await world.running()
    assert holder.turn is not None
    jobs = tuple(job_of(holder.turn, f"job-{at}", **one) for at, one in enumerate(asked))
    await holder.commit("step", jobs=jobs, job_caps=Caps(session_day=1_000, team_day=10_000))
    stored = [await world.store.job(TEAM, job.id) for job in jobs]
    assert [job.max_micros for job in stored if job is not None] == given
    assert (await world.store.spent(TEAM)).reserved == sum(given)


async def test_a_job_without_a_lease_can_be_closed(world: World) -> None:
    """Who stops a queued job needs no lease, because nobody holds one."""
    await queue(world)
    assert await world.store.close_job(TEAM, "job-1", token=None, status="cancelled", cost_micros=None, bodies={})
    assert await world.store.due(TEAM, kind="job") == ()


# -- operators ---------------------------------------------------------------------------------------------------


async def test_pausing_is_seen_by_claims(world: World) -> None:
    """One Heinzelmännchen or a whole team is paused and resumed; wakes are accepted all the same."""
    await world.accept()
    await world.store.pause(TEAM, "weekly", paused=True)
    holder = await world.claim()
    assert holder.snapshot.paused
    await holder.commit(after=After.HAND_BACK)
    await world.store.pause(TEAM, "weekly", paused=False)
    await world.store.pause(TEAM, None, paused=True)
    overview = await world.store.overview(WEEKLY)
    assert overview is not None
    assert overview.paused
    await world.store.pause(TEAM, None, paused=False)
    assert not (await world.claim()).snapshot.paused


async def test_heartbeats_end_by_themselves(world: World) -> None:
    """A worker that is silent is no longer listed."""
    await world.store.heartbeat("w1", {"version": "1", "queues": "turns,chat"}, ttl_ms=60)
    await world.store.heartbeat("w2", {"version": "1"}, ttl_ms=60_000)
    await world.time.passes(60)
    await world.store.heartbeat("w2", {"version": "2"}, ttl_ms=60_000)
    assert await world.store.workers() == {"w2": {"version": "2"}}


async def test_flags_and_taking_turns(world: World) -> None:
    """A flag is read, set and cleared; of many callers one takes the turn until its period is over."""
    assert await world.store.flag("drain") is None
    assert await world.store.flag("drain", "yes") == "yes"
    assert await world.store.flag("drain") == "yes"
    assert await world.store.flag("drain", clear=True) is None
    taken = await asyncio.gather(*(world.store.take_turns("sweep", ttl_ms=60_000) for _ in range(5)))
    assert sorted(taken) == [False] * 4 + [True]
    assert await world.store.is_taken("sweep")
    assert not await world.store.is_taken("short")
    assert await world.store.take_turns("short", ttl_ms=40)
    await world.time.passes(40)
    assert not await world.store.is_taken("short")
    assert await world.store.take_turns("short", ttl_ms=40)
    assert int((await world.store.server_facts())["clock_ms"]) > 0


async def test_prune_seals_whole_turns(world: World) -> None:
    """Turns that ended before the instant are archived and replaced by one line; an open turn and what follows stay."""
    first = await world.running("manual/1")
    await first.end()
    second = await world.running("manual/2")
    await second.end()
    third = await world.running("manual/3")
    await third.waits(item_of("q", WaitKind.QUESTION, FAR))
    before = await world.store.spine(WEEKLY)
    archived: list[bytes] = []

    async def archive(session: SessionId, lines) -> None:
        assert session == WEEKLY
        archived.extend(lines)

    await world.time.passes(5)
    instant = await world.store.now_ms() + 3_600_000
    sealed = await world.store.prune(TEAM, before_ms=instant, archive=archive)
    after = await world.store.spine(WEEKLY)
    assert archived == list(before[:sealed])
    assert after[1:] == before[sealed:]
    seal = json.loads(after[0])
    assert seal["kind"] == "spine.sealed"
    assert seal["data"] == {"from": 1, "to": sealed, "count": sealed, "last": line_digest(before[sealed - 1])}
    assert json.loads(after[1])["prev"] == seal["data"]["last"]
    assert await world.store.spine(WEEKLY, after=sealed) == before[sealed:]
    assert await world.store.prune(TEAM, before_ms=instant, archive=None) == 0


async def test_a_full_archive_loses_nothing(world: World) -> None:
    """An archive that cannot take the lines leaves them where they are, and the session free."""
    holder = await world.running("manual/1")
    await holder.end()
    before = await world.store.spine(WEEKLY)

    async def archive(session: SessionId, lines) -> None:
        raise OSError("no space left on device")

    await world.time.passes(5)
    instant = await world.store.now_ms() + 3_600_000
    with pytest.raises(OSError, match="no space"):
        await world.store.prune(TEAM, before_ms=instant, archive=archive)
    assert await world.store.spine(WEEKLY) == before
    await world.accept("manual/2")
    assert (await world.claim()).snapshot.chain.seq == 2


async def test_a_held_session_is_not_pruned(world: World) -> None:
    """Sealing takes the session's lease; who works in it goes on undisturbed."""
    holder = await world.running("manual/1")
    await holder.end()
    await world.running("manual/2")
    assert await world.store.prune(TEAM, before_ms=FAR // 1000, archive=None) == 0


async def test_a_newer_store_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that does not know the store's format refuses to start and says what to do."""
    monkeypatch.setattr("heinzelwerk.store.rules.FORMAT", 0)
    with pytest.raises(FormatTooNew, match="install the release"):
        await world.store.prepare()


async def test_an_effect_that_is_born_failed_has_ended(world: World) -> None:
    """No publisher, no target: it is out of due, its turn's words may expire, an older offer stays open, the session is told."""
    older, _ = await offer(world, "manual/1", "One")
    effect, _ = await offer(world, "manual/2", "Two", state=EffectState.FAILED, reason="no such document")
    assert (effect.state, effect.ended_ms is not None) == (EffectState.FAILED, True)
    assert [record.id for record in await world.store.effects(TEAM, Which.UNDECIDED)] == [older.id]
    await world.time.passes(1)
    assert effect.id not in [entry.name for entry in await world.store.due(TEAM, kind="effect")]
    mail = await world.store.unread_mail(WEEKLY)
    assert [(one.kind, one.data["state"]) for one in mail] == [(MailKind.EFFECT_MOVED, "failed")]


async def test_a_chat_proposal_that_is_born_failed_fills_its_wait(world: World) -> None:
    """The turn goes on at once; it does not wait for a person who can decide nothing."""
    holder = await world.running("asked/1")
    assert holder.turn is not None
    effect = effect_of(holder.turn, "Text", call="1:c1", state=EffectState.FAILED, reason="no publisher")
    await holder.waits(item_of(effect.id, WaitKind.PROPOSAL, FAR, call="1:c1"), effects=(effect,), bodies=())
    turn = await world.store.turn(WEEKLY, holder.turn.number)
    assert turn is not None
    assert turn.ready
    assert [item.value for item in turn.waits] == ["failed"]


async def test_looking_again_at_an_effect_in_doubt_tells_nobody_anew(world: World) -> None:
    """A target that cannot be read is looked at again and again; only the first look changes the effect's state."""
    effect, _ = await offer(world, "manual/1", "Text")
    begun = await start(world, await approve(world, effect))
    told = []
    for look in range(3):
        assert begun.record is not None
        begun = await world.store.close_effect(
            TEAM,
            effect.id,
            version=begun.record.version,
            to=EffectState.UNKNOWN,
            reason="",
            seen=f"look {look}",
            retry_in_ms=9,
        )
        told.append(len(await world.store.unread_mail(WEEKLY)))
    assert begun.record is not None
    assert begun.record.seen == "look 2"
    assert told[0] == told[1] == told[2]


async def test_the_newest_draft_is_the_latest_turns(world: World) -> None:
    """A turn that waited and drafts after a later turn does not take that turn's draft away."""
    waiting = await world.running("asked/1")
    assert waiting.turn is not None
    await waiting.waits(item_of("question-1", WaitKind.QUESTION, FAR))
    later = await world.running("asked/2")
    await later.end(drafts=(draft_of(2, "Later"),))
    answer = Mail(id="m1", kind=MailKind.ANSWER, turn=1, fills="question-1", value="answered", text="Yes.")
    await world.store.post(WEEKLY, answer)
    resumed = await world.claim()
    resumed.turn = resumed.snapshot.turns[0]
    await resumed.end(drafts=(draft_of(1, "Earlier"),), mail_taken=1)
    assert await world.store.draft(WEEKLY, "weekly", approved=False) == (2, "Later")


async def test_an_unknown_end_is_found_however_old_it_is(world: World) -> None:
    """It has a list of its own, which newer effects push nothing out of, until somebody knows."""
    effect, _ = await offer(world, "manual/1", "One")
    begun = (await start(world, await approve(world, effect))).record
    assert begun is not None
    reply = await world.store.close_effect(TEAM, effect.id, version=begun.version, to=EffectState.UNKNOWN)
    assert reply.record is not None
    await offer(world, "manual/2", "Two")
    assert [one.id for one in await world.store.effects(TEAM, Which.UNKNOWN)] == [effect.id]
    await world.store.close_effect(TEAM, effect.id, version=reply.record.version, to=EffectState.FAILED)
    assert await world.store.effects(TEAM, Which.UNKNOWN) == ()
