import json

import pytest

from heinzelwerk import advance, apply, errors
from heinzelwerk.client import Client
from heinzelwerk.effect import Decision, EffectState, Moved
from heinzelwerk.ending import Ending, OverBudget, Tail
from heinzelwerk.ids import SessionId
from heinzelwerk.inbox import Waiting
from heinzelwerk.mail import Posting
from heinzelwerk.testing import house
from heinzelwerk.testing.house import TEAM, House, ScriptedEngine, finish
from heinzelwerk.turn import TurnRecord, TurnState
from heinzelwerk.wake import Cause, Disposition

SESSION = SessionId(TEAM, "page")


async def lively(*segments: object, extra: str = "") -> tuple[House, Client]:
    """A house with one contract, whose engine runs these segments, and its client."""
    built = house.build(engine=ScriptedEngine(list(segments)) if segments else None)  # type: ignore[arg-type]
    await built.load(house.page(extra=extra))
    return built, Client(built.works, TEAM)


async def work(built: House) -> None:
    """What a worker would do about the session."""
    await advance.advance(SESSION, built.works)


async def test_a_wake_is_accepted_once_and_rung_for() -> None:
    """The first call of a key is accepted and rings; the second is a duplicate of the same wake."""
    built, client = await lively()
    first = await client.wake("page", key="manual/x", by="ada")
    second = await client.wake("page", key="manual/x")
    assert (first.disposition, second.disposition) == (Disposition.ACCEPTED, Disposition.DUPLICATE)
    assert first.wake == second.wake
    assert [due.name for due in built.bell.rung] == ["page"]


async def test_watching_a_session_that_is_set_aside_does_not_wait_for_ever() -> None:
    """The wake is kept, and whoever waits for its end is told at once why there is none, and what lets it go on."""
    built, client = await lively()
    await client.wake("page", key="manual/1")
    await built.store.quarantine(SESSION, "spine line 3: it is no spine event")
    reply = await client.wake("page", key="manual/2")
    assert reply.disposition is Disposition.ACCEPTED
    with pytest.raises(errors.Refused, match="set aside, spine line 3") as caught:
        [lines async for lines in client.watch(reply)]
    assert "heinzelwerk resume page" in caught.value.fix


async def test_a_wake_of_nobody_is_refused_with_the_reason() -> None:
    """An unknown contract is an answer, not an error, and rings for nobody."""
    built, client = await lively()
    reply = await client.wake("nobody")
    assert reply.disposition is Disposition.REFUSED
    assert "no such contract" in reply.reason
    assert built.bell.rung == []


async def test_a_wake_is_followed_to_its_turn() -> None:
    """`settled` says nothing before the end, then gives the turn; `watch` yields every line of the spine once."""
    built, client = await lively()
    reply = await client.wake("page")
    assert await client.settled(reply) is None
    await work(built)
    ended = await client.settled(reply)
    assert isinstance(ended, TurnRecord)
    assert ended.state is TurnState.COMPLETED
    lines = [line async for piece in client.watch(reply) for line in piece]
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1))


async def test_who_follows_a_wake_is_not_shown_earlier_turns() -> None:
    """The lines begin with the turn that the wake started, whether one follows from before it or asks afterwards."""
    built, client = await lively()
    for _ in range(2):
        await client.wake("page")
        await work(built)
        built.clock.pass_(60)
    reply = await client.wake("page")
    following = client.watch(reply)
    await work(built)
    assert {json.loads(line)["turn"] for line in await anext(following)} == {f"{SESSION}/3"}
    assert {json.loads(line)["turn"] for line in await anext(client.watch(reply))} == {f"{SESSION}/3"}


async def test_a_wake_without_a_turn_says_why() -> None:
    """A scheduled wake whose inputs did not change ends `skipped: unchanged`; the one who waits is told."""
    built, client = await lively()
    await client.wake("page", cause=Cause.SCHEDULED, key="scheduled/page/1", slot=built.clock.now())
    await work(built)
    built.clock.pass_(60)
    again = await client.wake("page", cause=Cause.SCHEDULED, key="scheduled/page/2", slot=built.clock.now())
    await work(built)
    assert await client.settled(again) == "skipped: unchanged"


async def test_a_draft_waits_in_the_inbox_until_somebody_decides() -> None:
    """It names the command; after the approval it is placed once, and the inbox is empty."""
    built, client = await lively()
    await client.wake("page")
    await work(built)
    (item,) = await client.inbox()
    assert (item.kind, item.next) == (Waiting.DRAFT, f"heinzelwerk approve {item.id}")
    reply = await client.approve(item.id[:6], by="ada")
    assert reply.moved is Moved.DONE
    assert await apply.apply(TEAM, item.id, built.works) == "completed"
    assert (await client.placed(item.id)).decided_by == "ada"
    assert await client.inbox() == ()
    late = await client.decline(item.id, by="grace")
    assert late.moved is not Moved.DONE
    assert late.record is not None
    assert late.record.decided_by == "ada"


async def test_an_edited_draft_is_approved_as_edited() -> None:
    """The text that a person wrote is what is placed."""
    built, client = await lively()
    await client.wake("page")
    await work(built)
    (item,) = await client.inbox()
    reply = await client.approve(item.id, by="ada", text="Mine.")
    await apply.apply(TEAM, item.id, built.works)
    assert reply.record is not None
    assert reply.record.edited
    assert built.wall.held["wall"][0] == "Mine."


async def test_a_declined_draft_keeps_its_reason() -> None:
    """Nothing is placed; why stands in the ledger."""
    built, client = await lively()
    await client.wake("page")
    await work(built)
    (item,) = await client.inbox()
    await client.decline(item.id, by="ada", reason="too long")
    record = await client.effect(item.id)
    assert (record.decision, record.reason) == (Decision.DECLINED, "too long")
    assert built.wall.placed == []


async def test_a_draft_that_does_not_exist_is_refused_with_the_way_to_find_one() -> None:
    """The fix names the commands that list drafts."""
    _, client = await lively()
    with pytest.raises(errors.Refused, match="no draft") as refused:
        await client.approve("abcdef", by="ada")
    assert "heinzelwerk inbox" in refused.value.fix


async def test_a_question_is_answered_once_and_the_turn_goes_on() -> None:
    """It waits in the inbox by turn; the answer reaches the next segment; a second answer has nothing to answer."""
    asks = finish(draft=None, question="Which week?")
    built, client = await lively(asks, finish("This week."))
    reply = await client.wake("page")
    await work(built)
    settled = await client.settled(reply)
    assert isinstance(settled, TurnRecord)
    assert settled.state is TurnState.WAITING
    (item,) = await client.inbox()
    assert (item.kind, item.turn) == (Waiting.QUESTION, 1)
    assert (await client.words("page", 1))["question"] == "Which week?"
    assert (await client.answer("page", "The last one.", by="ada")).posting is Posting.DELIVERED
    await work(built)
    assert (await client.turn("page", 1)).state is TurnState.COMPLETED  # type: ignore[union-attr]
    with pytest.raises(errors.Refused, match="asks nothing"):
        await client.answer("page", "Again.", by="ada")


async def test_a_turn_at_its_cap_goes_on_when_somebody_raises_it() -> None:
    """`on_budget: ask`: the inbox says so, and the raise leads on."""

    def over(opening: object, claim: object) -> Ending:
        return OverBudget(Tail(opening.turn), "turn", 100)  # type: ignore[attr-defined]

    built, client = await lively(over, finish(), extra="  on_budget: ask\n")
    await client.wake("page")
    await work(built)
    (item,) = await client.inbox()
    assert (item.kind, item.next) == (Waiting.BUDGET, "heinzelwerk answer page --turn 1 --raise")
    assert (await client.raise_budget("page", by="ada")).posting is Posting.DELIVERED
    await work(built)
    assert (await client.turn("page")).state is TurnState.COMPLETED  # type: ignore[union-attr]


async def test_stop_and_steer_need_a_turn_and_say_so() -> None:
    """Without an open turn both are refused with the command that shows the turns."""
    _, client = await lively()
    for call in (client.stop("page", by="ada"), client.steer("page", "Hurry.", by="ada")):
        with pytest.raises(errors.Refused, match="has no turn") as refused:
            await call
        assert "heinzelwerk log page" in refused.value.fix


async def test_a_waiting_turn_is_stopped() -> None:
    """A stop by name ends it `cancelled`."""
    built, client = await lively(finish(draft=None, question="Which week?"))
    await client.wake("page")
    await work(built)
    assert (await client.stop("page", by="ada")).posting is Posting.DELIVERED
    await work(built)
    assert (await client.turn("page")).state is TurnState.CANCELLED  # type: ignore[union-attr]


async def test_a_name_that_is_unknown_is_refused_with_the_list() -> None:
    """Whoever asks about nobody is told how to see who there is."""
    _, client = await lively()
    for name in ("nobody", "No Name"):
        with pytest.raises(errors.Refused) as refused:
            await client.log(name)
        assert "heinzelwerk list" in refused.value.fix


async def test_an_unknown_end_is_closed_by_a_person() -> None:
    """What nobody knows waits in the inbox until somebody who looked says so."""
    built, client = await lively()
    await client.wake("page")
    await work(built)
    (item,) = await client.inbox()
    await client.approve(item.id, by="ada")
    record = await client.effect(item.id)
    moved = await built.store.start_effect(
        TEAM, item.id, version=record.version, timeout_ms=1000, margin_ms=1000, unattended=False
    )
    assert moved.record is not None
    await built.store.close_effect(
        TEAM, item.id, version=moved.record.version, to=EffectState.UNKNOWN, seen="not there"
    )
    (found,) = await client.inbox()
    assert found.kind is Waiting.UNKNOWN
    assert (await client.resolve(item.id, "completed", by="ada")).moved is Moved.DONE
    assert (await client.effect(item.id)).state is EffectState.COMPLETED
    assert await client.inbox() == ()


async def test_costs_and_lists_read_every_session() -> None:
    """Sessions are listed with their newest turn; a day's costs name each of them."""
    built, client = await lively()
    await client.wake("page")
    await work(built)
    seen = await client.overviews()
    assert set(seen) == {"page"}
    assert (await client.last_turns(seen.values()))["page"].number == 1
    whole, each = await client.costs()
    assert (whole.spent, set(each)) == (0, {"page"})


async def test_without_a_bell_nothing_is_taken_from_what_is_due() -> None:
    """A program that cannot ring leaves what it stored to the workers' sweep."""
    built, _ = await lively()
    client = Client(built.works, TEAM, rings=False)
    await client.wake("page")
    assert built.bell.rung == []
    assert [due.name for due in await built.store.ring(TEAM)] == ["page"]


@pytest.mark.parametrize("deed", ["wake", "key", "answer", "steer", "by"])
async def test_what_is_too_long_is_refused_with_its_limit(deed: str) -> None:
    """A person's text over the limit is no bug of ours: the field and the limit are named, and the text is not repeated."""
    built, client = await lively(finish(draft=None, question="Which week?"))
    await client.wake("page")
    await work(built)
    large = "x" * 40_000
    deeds = {
        "wake": lambda: client.wake("page", text=large),
        "key": lambda: client.wake("page", key=large),
        "answer": lambda: client.answer("page", large, by="ada"),
        "steer": lambda: client.steer("page", large, by="ada"),
        "by": lambda: client.stop("page", by=large),
    }
    with pytest.raises(errors.Refused, match=r"at most \d+ characters") as refused:
        await deeds[deed]()
    assert "xxxx" not in str(refused.value)
