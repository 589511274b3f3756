"""Claims about accepting wakes, schedules and the ring, for every body of the store."""

from __future__ import annotations

import asyncio

import pytest

from heinzelwerk.commit import After
from heinzelwerk.generation import Generation
from heinzelwerk.ids import SessionId
from heinzelwerk.session import NotClaimed
from heinzelwerk.turn import WaitKind
from heinzelwerk.wake import Acceptance, Cause, Disposition, WhenBusy
from tests.support.store_world import TEAM, WEEKLY, World, contract, item_of, wake_of


async def test_a_key_is_accepted_once(world: World) -> None:
    """Ten callers with one key: one is accepted, nine are duplicates, one wake waits."""
    replies = await asyncio.gather(*(world.store.accept(wake_of("manual/a"), nonce=f"caller-{n}") for n in range(10)))
    assert sorted(reply.disposition for reply in replies) == [Disposition.ACCEPTED] + [Disposition.DUPLICATE] * 9
    holder = await world.claim()
    assert [queued.wake.key for queued in holder.snapshot.inbox] == ["manual/a"]
    assert (await world.store.counters(TEAM))["wakes_duplicate"] == 9


async def test_a_repeated_accept_gets_the_first_answer(world: World) -> None:
    """A command that the client library sends again after a lost reply is no duplicate."""
    for _ in range(3):
        assert await world.store.accept(wake_of("manual/a"), nonce="mine") == Acceptance(Disposition.ACCEPTED)


async def test_a_duplicate_knows_its_turn(world: World) -> None:
    """Whoever wakes again with a key is told which turn works it off, also after its end."""
    holder = await world.running("manual/a")
    assert await world.store.accept(wake_of("manual/a"), nonce="x") == Acceptance(Disposition.DUPLICATE, turn=1)
    await holder.end()
    assert await world.store.accept(wake_of("manual/a"), nonce="y") == Acceptance(Disposition.DUPLICATE, turn=1)


async def test_wakes_keep_their_words(world: World) -> None:
    """Text, payload and lists come back as they went in."""
    wake = wake_of("event/hook/1", text="Grüße\n日本", data={"empty": [], "object": {}, "n": 1.5, "none": None})
    await world.store.accept(wake, nonce="n")
    assert (await world.claim()).snapshot.inbox[0].wake == wake


@pytest.mark.parametrize(
    ("session", "word"),
    [
        (SessionId("nobody", "weekly"), "no contracts"),
        (SessionId(TEAM, "other"), "no such contract"),
        (SessionId(TEAM, "broken"), "errors"),
    ],
)
async def test_refusals_name_reason_and_fix(world: World, session: SessionId, word: str) -> None:
    """A wake for an unknown team, an unknown contract or a broken one is refused with the reason, and leaves nothing."""
    await world.store.load(
        Generation(TEAM, {"weekly": contract("weekly"), "broken": contract("broken", broken=("x:1 E",))}), {}
    )
    reply = await world.store.accept(wake_of("manual/a", session), nonce="n")
    assert reply.disposition is Disposition.REFUSED
    assert word in reply.reason
    assert await world.store.overview(session) is None


async def test_a_full_inbox_refuses(worlds) -> None:
    """The inbox has a cap; a key that was refused may come again later."""
    world: World = await worlds(inbox_cap=2)
    await world.accept("manual/1")
    await world.accept("manual/2")
    assert "full" in (await world.store.accept(wake_of("manual/3"), nonce="n")).reason
    holder = await world.claim()
    await holder.start()
    assert (await world.store.accept(wake_of("manual/3"), nonce="n")).disposition is Disposition.ACCEPTED


async def test_a_message_steers_the_running_chat_turn(world: World) -> None:
    """A chat message for a running chat turn of its conversation becomes mail to it; another conversation's queues."""
    await world.running("asked/web/1", conversation="c1")
    reply = await world.store.accept(
        wake_of("asked/web/2", when_busy=WhenBusy.STEER, text="and?", by="kim", conversation="c1"), nonce="n"
    )
    assert reply == Acceptance(Disposition.ACCEPTED, turn=1)
    await world.store.accept(wake_of("asked/web/3", when_busy=WhenBusy.STEER, text="hi", conversation="c2"), nonce="n")
    overview = await world.store.overview(WEEKLY)
    assert overview is not None
    assert [queued.wake.key for queued in overview.inbox] == ["asked/web/3"]
    (mail,) = await world.store.unread_mail(WEEKLY)
    assert (mail.kind, mail.turn, mail.text, mail.by, mail.id) == ("steer", 1, "and?", "kim", wake_of("asked/web/2").id)
    again = await world.store.accept(wake_of("asked/web/2"), nonce="other")
    assert again == Acceptance(Disposition.DUPLICATE, turn=1)


async def test_a_key_may_be_forgotten_only_after_its_end(worlds) -> None:
    """An open wake's key never expires; after its end it does, and the same key is accepted anew."""
    world: World = await worlds(seen_ttl_ms=50)
    holder = await world.running("manual/a")
    await world.time.passes(60)
    assert (await world.store.accept(wake_of("manual/a"), nonce="x")).disposition is Disposition.DUPLICATE
    await holder.end()
    await world.time.passes(60)
    assert (await world.store.accept(wake_of("manual/a"), nonce="y")).disposition is Disposition.ACCEPTED


async def test_load_tells_what_changed_and_keeps_slots(world: World) -> None:
    """A slot stays where schedule and time zone stay; it moves with them and goes with the contract."""
    now = await world.store.now_ms()
    far = now + 10_000_000

    def generation(**entries: str) -> Generation:
        return Generation(
            TEAM, {name: contract(name, schedule=cron) for name, cron in entries.items()}, {"sha256:x": b"text"}
        )

    reply = await world.store.load(generation(weekly="0 9 * * 1", daily="0 9 * * *"), {"weekly": far, "daily": far + 1})
    assert (reply.added, reply.changed, reply.removed) == (("daily",), ("weekly",), ())
    again = await world.store.load(
        generation(weekly="0 9 * * 1", daily="0 9 * * *"), {"weekly": far + 99, "daily": far + 99}
    )
    assert (again.added, again.changed, again.removed, again.number) == ((), (), (), reply.number)
    changed = await world.store.load(generation(weekly="0 8 * * 1"), {"weekly": far + 7})
    assert (changed.changed, changed.removed, changed.number) == (("weekly",), ("daily",), reply.number + 1)
    await world.accept()
    overview = await world.store.overview(WEEKLY)
    assert overview is not None
    assert overview.next_slot_ms == far + 7
    assert await world.store.text(TEAM, "sha256:x") == b"text"
    assert TEAM in await world.store.teams()
    assert (await world.store.entries(TEAM))["weekly"].schedule == "0 8 * * 1"


async def test_the_skills_of_the_newest_generation(world: World) -> None:
    """They are read without the contracts; those of an earlier generation are gone, an unknown team has none."""
    await world.store.load(Generation(TEAM, {}, {"sha256:x": b"text"}, {"terse": "sha256:x"}), {})
    assert await world.store.skills(TEAM) == {"terse": "sha256:x"}
    await world.store.load(Generation(TEAM, {}), {})
    assert await world.store.skills(TEAM) == {}
    assert await world.store.skills("nobody") == {}


async def test_a_revoked_contract_is_looked_at_and_refuses_wakes(world: World) -> None:
    """What is missing in a generation wakes no more; what it had open is due now, so that it can be ended."""
    holder = await world.running()
    later = await world.store.now_ms() + 60_000
    await holder.waits(item_of("question-1", WaitKind.QUESTION, later))
    assert await world.store.due(TEAM) == ()
    await world.load("other")
    assert [entry.name for entry in await world.store.due(TEAM)] == ["weekly"]
    assert (await world.claim()).snapshot.entry is None


async def test_a_slot_is_filled_once(world: World) -> None:
    """Two sweeps see the same due slot: its wake is accepted once, the schedule moves on once."""
    now = await world.store.now_ms()
    await world.store.load(Generation(TEAM, {"weekly": contract("weekly", schedule="* * * * *")}), {"weekly": now - 5})
    (slot,) = await world.store.due(TEAM, kind="slot")
    assert (slot.kind, slot.name, slot.due_ms) == ("slot", "weekly", now - 5)
    wake = wake_of("scheduled/weekly/20261130T090000Z")
    fill = {"expected_ms": now - 5, "next_ms": now + 60_000, "wakes": [wake]}
    assert sorted([await world.store.fill_slot(TEAM, "weekly", **fill) for _ in range(3)]) == [False, False, True]
    overview = await world.store.overview(WEEKLY)
    assert overview is not None
    assert (len(overview.inbox), overview.next_slot_ms) == (1, now + 60_000)


async def test_due_slots_do_not_crowd_out_what_can_run(world: World) -> None:
    """At a full hour every schedule is due, and earlier than the wakes: ringing is about work, the sweep about slots."""
    now = await world.store.now_ms()
    names = [f"hourly{number}" for number in range(20)]
    entries = {name: contract(name, schedule="0 * * * *") for name in names} | {"weekly": contract("weekly")}
    await world.store.load(Generation(TEAM, entries), dict.fromkeys(names, now - 1_000))
    await world.accept()
    assert [(entry.kind, entry.name) for entry in await world.store.ring(TEAM, limit=5)] == [("session", "weekly")]
    assert len(await world.store.due(TEAM, kind="slot")) == 20


async def test_contracts_are_read_all_or_by_name(world: World) -> None:
    """A sweep with one slot due reads one contract of thousands; a name that is gone is left out."""
    await world.load("weekly", "daily", "hourly")
    assert list(await world.store.entries(TEAM)) == ["daily", "hourly", "weekly"]
    assert list(await world.store.entries(TEAM, ["weekly", "gone", "daily"])) == ["daily", "weekly"]
    assert await world.store.entries(TEAM, []) == {}
    assert await world.store.entries("nobody", ["weekly"]) == {}


async def test_a_slot_waits_for_room(worlds) -> None:
    """A slot that finds the queue full stays due and is filled when there is room."""
    world: World = await worlds(inbox_cap=1)
    now = await world.store.now_ms()
    await world.store.load(Generation(TEAM, {"weekly": contract("weekly", schedule="* * * * *")}), {"weekly": now - 5})
    await world.accept("manual/1")
    fill = {"expected_ms": now - 5, "next_ms": None, "wakes": [wake_of("scheduled/weekly/1")]}
    assert not await world.store.fill_slot(TEAM, "weekly", **fill)
    assert [entry.kind for entry in await world.store.due(TEAM, kind="slot")] == ["slot"]
    await (await world.claim()).start()
    assert await world.store.fill_slot(TEAM, "weekly", **fill)
    assert await world.store.due(TEAM, kind="slot") == ()


async def test_the_ring_moves_on_and_doubles(worlds) -> None:
    """A doorbell that nobody hears is rung again, each time later; progress starts afresh."""
    world: World = await worlds(ring_first_ms=60, ring_most_ms=100_000)
    await world.accept()
    assert [entry.name for entry in await world.store.ring(TEAM)] == ["weekly"]
    await world.time.passes(60)
    before = await world.store.now_ms()
    assert len(await world.store.ring(TEAM)) == 1
    overview = await world.store.overview(WEEKLY)
    assert overview is not None
    assert overview.due_ms is not None
    assert overview.due_ms >= before + 120
    holder = await world.claim()
    await holder.start()
    await holder.commit(after=After.HAND_BACK)
    before = await world.store.now_ms()
    assert len(await world.store.ring(TEAM)) == 1
    overview = await world.store.overview(WEEKLY)
    assert overview is not None
    assert overview.due_ms is not None
    assert overview.due_ms - before >= 60


async def test_a_held_session_is_not_rung(world: World) -> None:
    """Mail for a session that runs makes it due; the ring leaves it to its holder, and looks again at the lease's end."""
    await world.running()
    await world.accept("manual/2")
    assert len(await world.store.due(TEAM)) == 1
    assert await world.store.ring(TEAM) == ()
    assert await world.store.due(TEAM) == ()


async def test_slots_admit_a_team_fairly(worlds) -> None:
    """A team runs no more sessions than it has slots; a segment's end frees one for the next."""
    world: World = await worlds(team_slots=2)
    names = ("a", "b", "c")
    await world.load(*names)
    for name in names:
        await world.accept(f"manual/{name}", SessionId(TEAM, name))
    assert [entry.name for entry in await world.store.ring(TEAM)] == ["a", "b"]
    assert await world.store.ring(TEAM) == ()
    assert await world.store.claim(SessionId(TEAM, "c"), nonce="c") == NotClaimed("no_slot")
    holder = await world.claim(SessionId(TEAM, "a"))
    await holder.start()
    await holder.end()
    assert [entry.name for entry in await world.store.ring(TEAM)] == ["c"]


async def test_a_lost_doorbell_gives_its_slot_back(worlds) -> None:
    """A slot that was taken for a doorbell which never arrived is free again with the next ring of it."""
    world: World = await worlds(team_slots=1, ring_first_ms=50)
    await world.load("a", "b")
    await world.accept("manual/a", SessionId(TEAM, "a"))
    assert len(await world.store.ring(TEAM)) == 1
    await world.accept("manual/b", SessionId(TEAM, "b"))
    await world.time.passes(60)
    holder = await world.claim(SessionId(TEAM, "b"))
    assert holder.token


async def test_ring_limit_and_teams_apart(world: World) -> None:
    """A ring takes at most its limit, and never another team's."""
    await world.load("a", "b", "c")
    await world.load("a", team="other")
    await world.accept("manual/x", SessionId("other", "a"))
    for name in "abc":
        await world.accept(f"manual/{name}", SessionId(TEAM, name))
    first = await world.store.ring(TEAM, limit=2)
    assert len(first) == 2
    assert len({entry.name for entry in (*first, *await world.store.ring(TEAM, limit=2))}) == 3
    assert [entry.team for entry in await world.store.ring("other")] == ["other"]


async def test_messages_to_a_running_turn_have_a_cap_too(worlds) -> None:
    """A flood of chat messages while a turn is stuck is refused like any other flood, and nothing of it is remembered."""
    world: World = await worlds(inbox_cap=3)
    await world.running("asked/web/1", conversation="c")
    replies = [
        await world.store.accept(
            wake_of(f"asked/web/{n}", when_busy=WhenBusy.STEER, conversation="c", text="?"), nonce=world.nonce()
        )
        for n in range(2, 7)
    ]
    assert [reply.disposition for reply in replies] == [Disposition.ACCEPTED] * 3 + [Disposition.REFUSED] * 2
    assert "inbox is full" in replies[-1].reason
    assert len(await world.store.unread_mail(WEEKLY)) == 3


async def test_a_new_input_finds_a_place_in_a_full_inbox(worlds) -> None:
    """One of them, which reads whatever is new when it runs; the next one would tell nothing more, and the cap holds."""
    world: World = await worlds(inbox_cap=2)
    for n in range(2):
        await world.store.accept(wake_of(f"manual/{n}"), nonce=world.nonce())
    inputs = [wake_of(f"inputs/{n}", when_busy=WhenBusy.MERGE) for n in range(3)]
    replies = [await world.store.accept(wake, nonce=world.nonce()) for wake in inputs]
    assert [reply.disposition for reply in replies] == [Disposition.ACCEPTED] + [Disposition.REFUSED] * 2
    assert (await world.store.accept(wake_of("manual/9"), nonce=world.nonce())).disposition is Disposition.REFUSED
    seen = await world.store.overview(WEEKLY)
    assert seen is not None
    assert [entry.wake.cause for entry in seen.inbox] == [Cause.MANUAL, Cause.MANUAL, Cause.INPUTS]
