"""Claims about leases, commits, waits, mail and bodies, for every body of the store."""

from __future__ import annotations

import asyncio

import pytest

from heinzelwerk.budget import Caps, Reservation, Settlement, Spent
from heinzelwerk.commit import After, Body, Call, CommitState, History, TakenWake
from heinzelwerk.event import line_digest
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail, MailKind, Posting, PostReply
from heinzelwerk.session import ACCEPTED, QUARANTINE, Hold, NotClaimed, Snapshot
from heinzelwerk.turn import TurnState, WaitKind
from heinzelwerk.wake import Cause, Disposition
from tests.support.store_world import TEAM, WEEKLY, World, draft_of, item_of, wake_of

FAR = 10**15


# -- leases ------------------------------------------------------------------------------------------------------


async def test_one_of_many_claims_wins(world: World) -> None:
    """Ten workers hear one doorbell: one holds the session, the others are told that it is held."""
    await world.accept()
    replies = await asyncio.gather(*(world.store.claim(WEEKLY, nonce=f"w{n}") for n in range(10)))
    assert sum(isinstance(reply, Snapshot) for reply in replies) == 1
    assert [reply.reason for reply in replies if isinstance(reply, NotClaimed)] == ["held"] * 9
    assert (await world.store.counters(TEAM))["doorbells_held"] == 9


async def test_a_repeated_claim_gets_the_same_token(world: World) -> None:
    """A claim whose reply was lost is answered again, and is not counted as another dead one."""
    await world.accept()
    first, second = [await world.store.claim(WEEKLY, nonce="mine") for _ in range(2)]
    assert isinstance(first, Snapshot)
    assert isinstance(second, Snapshot)
    assert (first.token, first.dead_claims) == (second.token, second.dead_claims) == ("1-mine", 0)


async def test_nothing_due(world: World) -> None:
    """A doorbell for a session without work answers so, and takes the session out of due."""
    assert await world.store.claim(WEEKLY, nonce="a") == NotClaimed("nothing_due")
    holder = await world.running()
    await holder.end()
    assert await world.store.claim(WEEKLY, nonce="b") == NotClaimed("nothing_due")
    assert await world.store.due(TEAM) == ()


async def test_a_lease_ends_by_the_servers_clock(worlds) -> None:
    """A holder that stops renewing loses its lease; whoever claims then has a higher token and sees the dead claim."""
    world: World = await worlds(lease_ms=80)
    await world.accept()
    holder = await world.claim()
    await world.time.passes(80)
    assert len(await world.store.due(TEAM)) == 1
    later = await world.claim()
    assert later.token.startswith("2-")
    assert later.snapshot.dead_claims == 1
    assert (await holder.commit("late")).state is CommitState.LEASE_LOST
    assert not await world.store.release(WEEKLY, holder.token, handed_back=True, due_ms=None, holds_session=False)
    lost = Hold("session", TEAM, "weekly", holder.token)
    assert await world.store.renew([lost]) == (lost,)


async def test_renewing_keeps_many_leases(world: World) -> None:
    """Leases of two teams are extended in one call, and with them what is due at their end; the lost one is named."""
    await world.load("weekly", team="other")
    ours, theirs = await world.running(), await world.running(session=SessionId("other", "weekly"))
    holds = [Hold("session", one.session.team, "weekly", one.token) for one in (ours, theirs)]
    gone = Hold("session", TEAM, "nobody", "1-x")
    before = [overview.due_ms for one in (ours, theirs) if (overview := await world.store.overview(one.session))]
    await world.time.passes(5)
    assert await world.store.renew([*holds, gone]) == (gone,)
    after = [overview.due_ms for one in (ours, theirs) if (overview := await world.store.overview(one.session))]
    assert all(
        late is not None and early is not None and late > early for early, late in zip(before, after, strict=True)
    )
    assert (await ours.commit("step")).state is CommitState.DONE


async def test_the_leases_of_a_dead_holder_end_at_once(world: World) -> None:
    """Ended as if their time were over: due now, the claim stays a dead one, the old token writes nothing more."""
    await world.load("weekly", team="other")
    await world.accept()
    ours, theirs = await world.claim(), await world.running(session=SessionId("other", "weekly"))
    holds = [Hold("session", one.session.team, "weekly", one.token) for one in (ours, theirs)]
    assert await world.store.end_leases([]) == 0
    assert await world.store.end_leases([*holds, Hold("session", TEAM, "nobody", "1-x")]) == 2
    assert [entry.name for entry in await world.store.ring(TEAM)] == ["weekly"]
    assert (await ours.commit("late")).state is CommitState.LEASE_LOST
    later = await world.claim()
    assert later.token.startswith("2-")
    assert later.snapshot.dead_claims == 1
    assert await world.store.end_leases(holds) == 0
    assert (await later.commit("step")).state is CommitState.DONE


async def test_dead_claims_lead_to_solo(worlds) -> None:
    """Claims without progress are counted; from the second on the session is rung alone; progress clears them."""
    world: World = await worlds(lease_ms=40)
    await world.accept()
    for dead in range(2):
        assert (await world.claim()).snapshot.dead_claims == dead
        await world.time.passes(40)
    (entry,) = await world.store.ring(TEAM)
    assert entry.solo


async def test_who_killed_workers_is_refused_beside_others(worlds) -> None:
    """A doorbell from before its second death brings it to nobody who runs others beside it: due at once, and rung on solo."""
    world: World = await worlds(lease_ms=40)
    await world.accept()
    for _ in range(2):
        await world.claim()
        await world.time.passes(40)
    assert await world.store.claim(WEEKLY, nonce="beside", solo=False) == NotClaimed("solo")
    assert [entry.solo for entry in await world.store.due(TEAM)] == [True]
    assert [entry.solo for entry in await world.store.ring(TEAM)] == [True]
    assert (await world.claim()).snapshot.dead_claims == 2


async def test_without_a_solo_worker_nobody_waits_for_ever(worlds) -> None:
    """After `solo_wait_ms` it is rung for everybody, and taken; a death there begins a new wait."""
    world: World = await worlds(lease_ms=40, solo_wait_ms=60, ring_first_ms=20)
    await world.accept()
    for _ in range(2):
        await world.claim()
        await world.time.passes(40)
    assert [entry.solo for entry in await world.store.ring(TEAM)] == [True]
    await world.time.passes(60)
    assert [entry.solo for entry in await world.store.ring(TEAM)] == [False]
    snapshot = await world.store.claim(WEEKLY, nonce="beside", solo=False)
    assert isinstance(snapshot, Snapshot)
    assert snapshot.dead_claims == 2
    await world.time.passes(40)
    assert await world.store.claim(WEEKLY, nonce="again", solo=False) == NotClaimed("solo")


async def test_progress_and_hand_back_clear_dead_claims(worlds) -> None:
    """A commit with progress, a hand-back and a release are signs of life; a reservation is none."""
    world: World = await worlds(lease_ms=60_000)

    async def dead() -> int:
        overview = await world.store.overview(WEEKLY)
        assert overview is not None
        return overview.dead_claims

    await world.accept()
    holder = await world.claim()
    await holder.commit(progress=False)
    assert await dead() == 1
    await holder.commit("step")
    assert await dead() == 0
    await world.store.release(WEEKLY, holder.token, handed_back=True, due_ms=None, holds_session=False)
    assert len(await world.store.due(TEAM)) == 1
    holder = await world.claim()
    await world.store.release(WEEKLY, holder.token, handed_back=False, due_ms=None, holds_session=True)
    assert await dead() == 0


async def test_a_claim_shows_the_last_stored_line(world: World) -> None:
    """Claim and overview carry the spine's last line with the chain's end, so that a holder sees that they fit."""
    holder = await world.running()
    await holder.commit("step", after=After.HAND_BACK)
    seen, snapshot = await world.store.overview(WEEKLY), (await world.claim()).snapshot
    assert seen is not None
    assert seen.last == snapshot.last == (await world.store.spine(WEEKLY))[-1]
    assert line_digest(snapshot.last) == snapshot.chain.head == seen.head


async def test_a_quarantined_session_is_left_alone(world: World) -> None:
    """Its holder gives the lease up; wakes are kept, no ring and no claim gets it, until the mark is lifted; then it is due."""
    holder = await world.running()
    assert not await world.store.quarantine(WEEKLY, "late", token="9-other")
    assert not await world.store.quarantine(WEEKLY, None)
    assert await world.store.quarantine(WEEKLY, "line 1: why", token=holder.token)
    assert (await holder.commit("step")).state is CommitState.LEASE_LOST
    await world.accept("manual/more")
    assert await world.store.ring(TEAM) == ()
    assert await world.store.claim(WEEKLY, nonce="a") == NotClaimed("quarantined")
    assert await world.store.due(TEAM) == ()
    seen = await world.store.overview(WEEKLY)
    assert seen is not None
    assert (seen.held, seen.dead_claims, seen.memo[QUARANTINE], len(seen.inbox)) == (False, 0, "line 1: why", 1)
    assert await world.store.quarantine(WEEKLY, None)
    assert [entry.name for entry in await world.store.ring(TEAM)] == ["weekly"]
    snapshot = (await world.claim()).snapshot
    assert QUARANTINE not in snapshot.memo
    assert snapshot.memo[ACCEPTED] == f"{snapshot.chain.seq} {snapshot.chain.head or ''}"


async def test_a_reader_may_quarantine_a_held_session(world: World) -> None:
    """The mark of somebody else than the holder leaves the lease; what runs ends, and nothing more is claimed."""
    holder = await world.running()
    assert await world.store.quarantine(WEEKLY, "line 1: why")
    assert (await holder.commit("step", after=After.HAND_BACK)).state is CommitState.DONE
    assert await world.store.claim(WEEKLY, nonce="a") == NotClaimed("quarantined")
    assert await world.store.prune(TEAM, before_ms=(await world.store.now_ms()) + 1, archive=None) == 0


async def test_a_repeated_release_is_true_again(world: World) -> None:
    """A release whose reply was lost is answered as it was; another token is not."""
    holder = await world.running()
    for _ in range(2):
        assert await world.store.release(WEEKLY, holder.token, handed_back=True, due_ms=None, holds_session=False)
    assert not await world.store.release(WEEKLY, "9-other", handed_back=True, due_ms=None, holds_session=False)


async def test_a_newer_format_is_left_alone(worlds) -> None:
    """A session that a newer release wrote is refused uncounted by an older worker."""
    world: World = await worlds(format=2, ring_first_ms=50_000)
    holder = await world.running()
    await holder.commit(after=After.HAND_BACK)
    older = world.of_format(1)
    assert await older.claim(WEEKLY, nonce="old") == NotClaimed("newer")
    overview = await older.overview(WEEKLY)
    assert overview is not None
    assert overview.dead_claims == 0
    assert await older.due(TEAM) == ()
    await older.close()


# -- commits -----------------------------------------------------------------------------------------------------


async def test_a_commit_writes_everything(world: World) -> None:
    """Lines, turn, words, drafts, memo: all of it can be read back as it was given."""
    holder = await world.running()
    assert holder.turn is not None
    turn = holder.turn.model_copy(update={"counters": {"output": 1}, "merged": (), "steps": 3})
    reply = await holder.commit(
        "step.model",
        "step.tools",
        turns=(turn,),
        bodies=(Body(1, "inputs", b"\x00\xff raw"), Body(1, "outcome", b"{}")),
        histories=(History(1, 0, (b"one", b"two")),),
        calls=(Call(1, "1:c1", b'{"state":"done","tool":"read","result":"{}"}'),),
        drafts=(draft_of(1, "Wörter\n\nmit Leerzeilen "),),
        memo={"last": "1", "quarantine": ""},
    )
    assert reply.state is CommitState.DONE
    store = world.store
    assert await store.turn(WEEKLY, 1) == turn
    assert await store.body(WEEKLY, 1, "inputs") == b"\x00\xff raw"
    assert await store.body(WEEKLY, 1, "nothing") is None
    assert await store.body_names(WEEKLY, 1) == ("inputs", "outcome")
    assert await store.history(WEEKLY, 1) == (b"one", b"two")
    assert (await store.calls(WEEKLY, 1))["1:c1"].tool == "read"
    assert await store.draft(WEEKLY, "weekly", approved=False) == (1, "Wörter\n\nmit Leerzeilen ")
    assert await store.draft(WEEKLY, "weekly", approved=True) is None
    overview = await store.overview(WEEKLY)
    assert overview is not None
    assert (overview.seq, overview.last_turn, overview.memo) == (3, 1, {"last": "1", "quarantine": ""})
    lines = await store.spine(WEEKLY)
    assert line_digest(lines[-1]) == holder.chain.head
    assert await store.spine(WEEKLY, after=1, limit=1) == lines[1:2]


async def test_history_replaces_what_was_provisional(world: World) -> None:
    """The stored tail after `keep` is replaced; keeping nothing rewrites all."""
    holder = await world.running()
    await holder.commit(histories=(History(1, 0, (b"a", b"b", b"provisional")),))
    await holder.commit(histories=(History(1, 2, (b"c",)),))
    assert await world.store.history(WEEKLY, 1) == (b"a", b"b", b"c")
    await holder.commit(histories=(History(1, 0, (b"z",)),))
    assert await world.store.history(WEEKLY, 1) == (b"z",)
    await holder.commit(histories=(History(1, 1, ()),))
    assert await world.store.history(WEEKLY, 1) == (b"z",)


async def test_a_large_commit_lands_whole(world: World, request: pytest.FixtureRequest) -> None:
    """Thousands of lines and messages, and a body of megabytes, are one commit."""
    if "fakeredis" in request.node.name:
        pytest.skip("fakeredis' TCP server reads at most 64 KiB at once")
    holder = await world.running()
    reply = await holder.commit(
        *["step"] * 3_000, histories=(History(1, 0, (b"m",) * 3_000),), bodies=(Body(1, "big", b"x" * 2_000_000),)
    )
    assert reply.state is CommitState.DONE
    assert len(await world.store.history(WEEKLY, 1)) == 3_000
    assert len(await world.store.spine(WEEKLY)) == 3_001
    assert len(await world.store.body(WEEKLY, 1, "big") or b"") == 2_000_000


async def test_a_commit_out_of_sequence_writes_nothing(world: World) -> None:
    """A wrong expected sequence number is refused, whoever holds the lease."""
    holder = await world.running()
    change, _ = holder.change("step")
    stale = type(change)(op="other", expected_seq=0, lines=change.lines, head=change.head)
    assert (await world.store.commit(WEEKLY, holder.token, stale)).state is CommitState.OUT_OF_SEQUENCE
    assert len(await world.store.spine(WEEKLY)) == 1


async def test_a_repeated_commit_lands_once(world: World) -> None:
    """The same operation gets the first answer, also when it gave the lease up."""
    holder = await world.running()
    change, _ = holder.change("turn.ended", after=After.RELEASE, mail_taken=0)
    first, second = [await world.store.commit(WEEKLY, holder.token, change) for _ in range(2)]
    assert first == second
    assert len(await world.store.spine(WEEKLY)) == 2


async def test_wakes_leave_the_inbox_with_their_verdict(world: World) -> None:
    """A commit takes some wakes from the inbox and ends them; the others wait in order."""
    for key in ("inputs/a/1/x", "inputs/a/2/x", "manual/z"):
        await world.accept(key)
    holder = await world.claim()
    old, new, _ = holder.snapshot.inbox
    taken = (TakenWake(old.raw, old.wake.id, verdict="merged", turn=1), TakenWake(new.raw, new.wake.id, turn=1))
    await holder.commit("turn.started", taken_wakes=taken, after=After.RELEASE)
    overview = await world.store.overview(WEEKLY)
    assert overview is not None
    assert [queued.wake.key for queued in overview.inbox] == ["manual/z"]
    assert (await world.store.accept(old.wake, nonce="n")).turn == 1


async def test_returned_wakes_go_first(world: World) -> None:
    """Unread steers of an ending turn become the session's next wakes, before those that waited."""
    holder = await world.running("asked/web/1")
    await world.accept("manual/later")
    back = tuple(wake_of(f"asked/steer/{n}", text=str(n)) for n in (1, 2))
    await holder.end(returned_wakes=back)
    assert [queued.wake for queued in (await world.claim()).snapshot.inbox][:2] == list(back)


async def test_downstream_wakes_are_accepted_in_the_same_commit(world: World) -> None:
    """The producer's commit wakes its consumers; an unknown or full one is counted, and the commit stands."""
    await world.load("weekly", "reader")
    holder = await world.running()
    wake = wake_of("inputs/docs/weekly/1/weekly", SessionId(TEAM, "reader"))
    lost = wake_of("inputs/docs/weekly/1/other", SessionId(TEAM, "gone"))
    assert (await holder.commit("outcome", wakes=(wake, wake, lost))).state is CommitState.DONE
    overview = await world.store.overview(wake.session)
    assert overview is not None
    assert [queued.wake for queued in overview.inbox] == [wake]
    assert (await world.store.counters(TEAM))["wakes_refused"] == 1


@pytest.mark.parametrize("case", ["mail", "inbox", "ready", "held", "deadline", "nothing"])
async def test_what_is_due_after_a_release(world: World, case: str) -> None:
    """Mail, a wake that may run, a turn that can go on: now. A job that holds the session: at its deadline. Nothing: never."""
    holder = await world.running()
    assert holder.turn is not None
    now, later = await world.store.now_ms(), (await world.store.now_ms()) + 60_000
    if case == "mail":
        await world.store.post(WEEKLY, Mail(id="m", kind=MailKind.REPORT, turn=1))
    if case in ("inbox", "held"):
        await world.accept("manual/2")
    more = {"due_ms": None if case in ("nothing", "ready") else later, "holds_session": case in ("held", "ready")}
    if case == "ready":  # another turn of the session was handed back earlier, and a wake waits behind it
        await holder.commit(after=After.RELEASE, **more)
    elif case == "nothing":
        await holder.end(**more)
    else:
        await holder.waits(item_of("j", WaitKind.JOB, later), **more)
    overview = await world.store.overview(WEEKLY)
    assert overview is not None
    expected = {"mail": 0, "inbox": 0, "ready": 0, "held": later, "deadline": later, "nothing": None}[case]
    if expected == 0:
        assert overview.due_ms is not None
        assert now <= overview.due_ms < later
    else:
        assert overview.due_ms == expected


async def test_ended_turns_are_not_in_the_snapshot(world: World) -> None:
    """A claim sees open turns only, oldest first; ended ones are read by number, newest first."""
    for number in range(1, 4):
        holder = await world.running(f"manual/{number}")
        if number == 2:
            await holder.waits(item_of("q", WaitKind.QUESTION, FAR))
        else:
            await holder.end()
    await world.accept("manual/4")
    assert [turn.number for turn in (await world.claim()).snapshot.turns] == [2]
    assert [turn.number for turn in await world.store.turns(WEEKLY, before=4)] == [3, 2, 1]
    assert [turn.number for turn in await world.store.turns(WEEKLY, before=4, limit=1)] == [3]
    assert await world.store.turn(WEEKLY, 9) is None


# -- waits and mail ----------------------------------------------------------------------------------------------


async def test_the_last_item_makes_the_turn_ready(world: World) -> None:
    """Items are filled by whoever brings the value, once; a turn with none open is ready at the next claim."""
    holder = await world.running()
    await holder.waits(item_of("q1", WaitKind.QUESTION, FAR), item_of("q2", WaitKind.QUESTION, FAR))
    assert await world.store.claim(WEEKLY, nonce="early") == NotClaimed("nothing_due")
    one = Mail(id="m1", kind=MailKind.ANSWER, turn=1, fills="q1", value="yes", by="kim")
    assert await world.store.post(WEEKLY, one) == PostReply(Posting.DELIVERED)
    assert await world.store.post(WEEKLY, one) == PostReply(Posting.DELIVERED)
    second = await world.store.post(WEEKLY, one.model_copy(update={"id": "m2", "value": "no"}))
    assert second == PostReply(Posting.ALREADY_FILLED, "yes")
    assert (
        await world.store.post(WEEKLY, one.model_copy(update={"id": "m3", "fills": "q9"}))
    ).posting is Posting.UNKNOWN_ITEM
    await world.store.post(WEEKLY, one.model_copy(update={"id": "m4", "fills": "q2", "value": ""}))
    later = await world.claim()
    (turn,) = later.snapshot.turns
    assert [item.value for item in turn.waits] == ["yes", ""]
    assert turn.ready
    assert [mail.id for mail in later.snapshot.mail] == ["m1", "m4"]
    await later.commit("mail", mail_taken=1)
    assert [mail.id for mail in await world.store.unread_mail(WEEKLY)] == ["m4"]


async def test_a_passed_deadline_makes_the_turn_due(world: World) -> None:
    """A wait whose deadline has passed is claimable; an answer that comes after it is told so."""
    holder = await world.running()
    now = await world.store.now_ms()
    await holder.waits(item_of("q", WaitKind.QUESTION, now + 60))
    await world.time.passes(60)
    assert len(await world.store.due(TEAM)) == 1
    late = Mail(id="m", kind=MailKind.ANSWER, turn=1, fills="q", value="x")
    assert (await world.store.post(WEEKLY, late)).posting is Posting.EXPIRED
    assert (await world.claim()).snapshot.turns[0].next_deadline_ms == now + 60


async def test_mail_to_a_turn_that_ended(world: World) -> None:
    """A stop or an answer is refused, a steer becomes the session's next wake, a report still arrives."""
    holder = await world.running("asked/web/1", channel="web", conversation="c1")
    await holder.end(TurnState.CANCELLED)
    store = world.store
    assert await store.post(WEEKLY, Mail(id="s", kind=MailKind.STOP, turn=1)) == PostReply(
        Posting.TURN_ENDED, "cancelled"
    )
    assert (
        await store.post(WEEKLY, Mail(id="a", kind=MailKind.ANSWER, turn=1, fills="q", value="x"))
    ).posting is Posting.TURN_ENDED
    steer = Mail(id="t", kind=MailKind.STEER, turn=1, text="go on", by="kim")
    for _ in range(2):
        assert await store.post(WEEKLY, steer) == PostReply(Posting.DELIVERED)
    assert (await store.post(WEEKLY, Mail(id="r", kind=MailKind.REPORT, turn=1))).posting is Posting.DELIVERED
    snapshot = (await world.claim()).snapshot
    (queued,) = snapshot.inbox
    assert (queued.wake.key, queued.wake.text, queued.wake.by) == ("asked/steer/t", "go on", "kim")
    assert (queued.wake.channel, queued.wake.conversation, queued.wake.cause) == ("web", "c1", Cause.ASKED)
    assert [mail.id for mail in snapshot.mail] == ["r"]


async def test_mail_needs_a_known_turn(world: World) -> None:
    """Mail to a session or turn that never was is refused, as is a stop that names no turn; to the session itself it arrives."""
    nobody = SessionId(TEAM, "nobody")
    assert (await world.store.post(nobody, Mail(id="m", kind=MailKind.STOP, turn=1))).posting is Posting.UNKNOWN_TURN
    holder = await world.running()
    assert (await world.store.post(WEEKLY, Mail(id="m", kind=MailKind.STOP, turn=7))).posting is Posting.UNKNOWN_TURN
    assert (await world.store.post(WEEKLY, Mail(id="s", kind=MailKind.STOP))).posting is Posting.UNKNOWN_TURN
    await holder.end()
    raised = Mail(id="n", kind=MailKind.BUDGET_RAISED, data={"micros": 5, "all": True, "none": None})
    assert (await world.store.post(WEEKLY, raised)).posting is Posting.DELIVERED
    assert (await world.claim()).snapshot.mail == (raised,)


async def test_fifty_posts_at_once_keep_their_order_and_number(world: World) -> None:
    """Steers from many sides arrive once each; stops and steers are urgent, others are not."""
    holder = await world.running()
    mails = [
        Mail(id=f"m{n}", kind=MailKind.STEER if n % 2 else MailKind.REPORT, turn=1, text=str(n)) for n in range(50)
    ]
    await asyncio.gather(*(world.store.post(WEEKLY, mail) for mail in mails for _ in range(2)))
    assert sorted(mail.id for mail in await world.store.unread_mail(WEEKLY)) == sorted(mail.id for mail in mails)
    found = await world.store.urgent([WEEKLY, SessionId(TEAM, "other"), SessionId("nobody", "weekly")])
    assert list(found) == [WEEKLY]
    assert len(found[WEEKLY]) == 25
    assert await world.store.urgent([]) == {}
    assert (await holder.commit("mail", mail_taken=20)).mail == 30
    assert (await holder.commit("mail", mail_taken=30)).mail == 0
    assert await world.store.unread_mail(WEEKLY) == ()


# -- bodies ------------------------------------------------------------------------------------------------------


async def test_bodies_expire_after_the_turn(worlds) -> None:
    """A turn's words stay while it is open and go after the retention; spine and record stay; drafts stay."""
    world: World = await worlds(body_ttl_ms=80)
    holder = await world.running()
    words = {
        "bodies": (Body(1, "inputs", b"x"),),
        "histories": (History(1, 0, (b"m",)),),
        "drafts": (draft_of(1, "text"),),
    }
    await holder.commit("step", **words)
    await world.time.passes(80)
    assert await world.store.body(WEEKLY, 1, "inputs") == b"x"
    await holder.end(expire_bodies=(1,))
    await world.time.passes(80)
    assert await world.store.body(WEEKLY, 1, "inputs") is None
    assert await world.store.body_names(WEEKLY, 1) == ()
    assert await world.store.history(WEEKLY, 1) == ()
    assert await world.store.draft(WEEKLY, "weekly", approved=False) == (1, "text")
    assert len(await world.store.spine(WEEKLY)) == 3
    assert (await world.store.turn(WEEKLY, 1)) is not None


# -- money -------------------------------------------------------------------------------------------------------


async def test_reserve_and_settle(world: World) -> None:
    """Money is put aside before a request and settled with the checkpoint after it, once for each attempt."""
    holder = await world.running()
    caps = Caps(session_day=100, team_day=150)
    await holder.commit(reserve=Reservation("1/1/1", 60, caps, 60_000), progress=False)
    assert await world.store.spent(TEAM) == Spent(0, 60, 0)
    over = await holder.commit(reserve=Reservation("1/2/1", 60, caps, 60_000))
    assert (over.state, over.over) == (CommitState.OVER_CAP, "session")
    await holder.commit("step", settle=(Settlement("1/1/1", 30),), reserve=Reservation("1/2/1", 60, caps, 60_000))
    await holder.commit("step", settle=(Settlement("1/1/1", 30),))
    assert await world.store.spent(TEAM) == await world.store.spent(TEAM, "weekly") == Spent(30, 60, 0)
    await holder.commit("step", settle=(Settlement("1/2/1", 7, possible=True),))
    assert await world.store.spent(TEAM, "weekly") == Spent(30, 0, 7)
    assert await world.store.spent(TEAM, day="2001-01-01") == Spent()


async def test_the_team_cap_counts_all_sessions(world: World) -> None:
    """Two sessions share their team's day."""
    await world.load("weekly", "daily")
    first, second = await world.running(), await world.running(session=SessionId(TEAM, "daily"))
    caps = Caps(session_day=100, team_day=100)
    assert (await first.commit(reserve=Reservation("1/1/1", 60, caps, 60_000))).state is CommitState.DONE
    over = await second.commit("step", reserve=Reservation("1/1/1", 60, caps, 60_000))
    assert (over.state, over.over) == (CommitState.OVER_CAP, "team")
    assert len(await world.store.spine(second.session)) == 1
    assert (await second.commit(reserve=Reservation("1/1/1", 40, caps, 60_000))).state is CommitState.DONE


async def test_a_reservation_that_runs_out_is_possibly_spent(world: World) -> None:
    """A dead worker's reservation is booked as possible, and corrected by a settlement that comes later."""
    holder = await world.running()
    await holder.commit(reserve=Reservation("1/1/1", 60, Caps(), 40))
    await world.time.passes(40)
    assert await world.store.spent(TEAM, "weekly") == Spent(0, 0, 60)
    await holder.commit("step", settle=(Settlement("1/1/1", 25),))
    assert await world.store.spent(TEAM, "weekly") == Spent(25, 0, 0)
    assert await world.store.spent(TEAM) == Spent(25, 0, 0)


async def test_overshoot_is_at_most_what_is_in_flight(world: World) -> None:
    """Twenty sessions reserve against one cap at once: what is admitted never exceeds it."""
    names = [f"s{n}" for n in range(20)]
    await world.load(*names)
    holders = [await world.running(session=SessionId(TEAM, name)) for name in names]
    ask = Reservation("1/1/1", 30, Caps(team_day=100), 60_000)
    replies = await asyncio.gather(*(holder.commit(reserve=ask) for holder in holders))
    assert sum(reply.state is CommitState.DONE for reply in replies) == 3
    assert await world.store.spent(TEAM) == Spent(0, 90, 0)


async def test_a_wake_for_a_waiting_session_runs_meanwhile(world: World) -> None:
    """A question holds nobody up: another wake's turn runs while the first waits."""
    holder = await world.running("manual/1")
    await holder.waits(item_of("q", WaitKind.QUESTION, FAR))
    other = await world.running("manual/2")
    assert other.turn is not None
    assert other.turn.number == 2
    assert (await world.store.accept(wake_of("manual/1"), nonce="x")).disposition is Disposition.DUPLICATE


async def test_release_leaves_a_turn_due_whose_wait_was_filled_meanwhile(world: World) -> None:
    """The holder of a session took the mail that filled another turn's wait: that turn is due now, not at its deadline."""
    first = await world.running("asked/1")
    assert first.turn is not None
    number, late = first.turn.number, await world.store.now_ms() + 3_600_000
    await first.waits(item_of("question-1", WaitKind.QUESTION, late))
    second = await world.running("asked/2")
    answer = Mail(id="m1", kind=MailKind.ANSWER, turn=number, fills="question-1", value="answered", text="Yes.")
    await world.store.post(WEEKLY, answer)
    await second.end(mail_taken=1, due_ms=late)
    (due,) = await world.store.due(TEAM, kind="session")
    assert due.name == "weekly"
    assert (await world.claim()).snapshot.turns[0].ready
