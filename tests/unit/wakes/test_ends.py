"""Where wakes end without a turn, or with one that nobody waits for any more."""

from __future__ import annotations

from collections import Counter

import pytest

from heinzelwerk import advance, apply, errors
from heinzelwerk.claim import Claim
from heinzelwerk.client import Client
from heinzelwerk.effect import Decision, Which
from heinzelwerk.ending import Ending, Finished
from heinzelwerk.ids import SessionId
from heinzelwerk.opening import Opening
from heinzelwerk.ports import Policy
from heinzelwerk.testing import house
from heinzelwerk.testing.house import TEAM, House, ScriptedEngine, finish
from heinzelwerk.turn import TurnState
from heinzelwerk.wake import LONGEST_CHAIN, Cause, WhenBusy
from tests.unit.wakes import world

PAGE = SessionId(TEAM, "page")
READER = """---
name: reader
kind: responsibility
description: Reads the page.
hz:
  schema: 1
  title: A reader
  on: [inputs]
  inputs:
    page:
      read: contract:team/page#page
      stage: draft
  outputs:
    summary: {format: markdown}
---
### Goal
Say what the page says.
### Requires
- `page`
### Maintains
- `summary`
### Done when
- It says so.
"""


def ask(opening: Opening, claim: Claim) -> Ending:
    ending = finish()(opening, claim)
    assert isinstance(ending, Finished)
    return Finished(ending.tail, ending.outcome.model_copy(update={"question": "Which page?", "draft": None}))


async def test_a_contract_taken_away_cancels_what_its_turns_wait_for_and_keeps_the_spine() -> None:
    """Its waiting turn ends `cancelled: revoked`, its queued wake `skipped: revoked`; it is refused from then on."""
    home = house.build(engine=ScriptedEngine([ask]))
    await world.load(home, house.page(), house.page("other"))
    client = Client(home.works, TEAM)
    await client.wake("page", key="manual/1")
    await world.work(home)
    await client.wake("page", key="manual/2")
    await world.load(home, house.page("other"))
    assert [entry.name for entry in await home.store.ring(TEAM)] == ["page"]
    await world.work(home)
    turn = await home.store.turn(PAGE, 1)
    assert turn is not None
    assert (turn.state, turn.reason) == (TurnState.CANCELLED, "revoked")
    assert await world.ends(home) == {"manual/1": "turn", "manual/2": "skipped: revoked"}
    reply = await client.wake("page", key="manual/3")
    assert "no such contract" in reply.reason
    with pytest.raises(errors.Refused, match="asks nothing"):
        await client.answer("page", "This one.", by="ada")
    await world.load(home, house.page(), house.page("other"))
    assert (await client.wake("page", key="manual/4")).disposition == "accepted"
    assert (await world.events(home))[0]["seq"] == 1


async def test_a_contract_that_breaks_sleeps_and_its_open_turn_goes_on() -> None:
    """A typing mistake takes nothing away: the question stays open, new wakes are refused with the reason."""
    home = house.build(engine=ScriptedEngine([ask, finish()]))
    await world.load(home, house.page())
    client = Client(home.works, TEAM)
    await client.wake("page", key="manual/1")
    await world.work(home)
    loaded = await world.load(home, house.page().replace("title: One page", "title: [no, text]"))
    (entry,) = (await home.store.entries(TEAM)).values()
    assert not entry.acts
    assert entry.broken[0].startswith("workflows/page.prose.md:7 ")
    assert loaded.report.errors == 1
    assert "has errors" in (await client.wake("page", key="manual/2")).reason
    await client.answer("page", "This one.", by="ada")
    assert await world.work(home) == "completed"


async def test_an_output_that_goes_back_and_forth_wakes_its_reader_each_time() -> None:
    """f1, f2, f1: three approvals, three wakes, three turns of the reader; the same text approved is a new output."""
    home = house.build()
    await world.load(home, house.page(), READER)
    for number, words in enumerate(("f1", "f2", "f1"), 1):
        home.engine.segments = [finish(words)]  # type: ignore[attr-defined]
        home.pages.pages["page.md"] = f"Version {number}"
        await home.wake(key=f"manual/{number}")
        await world.work(home)
        (draft,) = [one for one in await home.store.effects(TEAM, Which.UNDECIDED) if one.heinzel == "page"]
        await apply.decide(TEAM, draft.id, Decision.APPROVED, by="ada", works=home.works)
        home.engine.segments = [finish("read")]  # type: ignore[attr-defined]
        assert await world.work(home, "reader") == "completed"
        opening = home.engine.openings[-1]  # type: ignore[attr-defined]
        assert opening.inputs["page"].data["text"] == words
    found = await world.ends(home, "reader")
    assert list(found.values()) == ["turn"] * 3
    assert all(key.startswith("inputs/core/page/") for key in found)


async def test_an_output_that_needs_no_approval_wakes_its_reader_when_it_is_placed() -> None:
    """Where the operator lets a target go unattended, placing is the approval: then the reader wakes, not before."""
    home = house.build(policy=Policy(unattended=frozenset({("notes.place", "notes:wall")})))
    await world.load(home, house.page(), READER)
    await home.wake(key="manual/1")
    await world.work(home)
    (effect,) = [one for one in await home.store.effects(TEAM) if one.heinzel == "page"]
    assert await world.work(home, "reader") == ""
    assert await apply.apply(TEAM, effect.id, home.works) == "completed"
    assert await world.work(home, "reader") == "completed"
    assert list(await world.ends(home, "reader")) == ["inputs/core/page/1/page/reader"]


async def test_a_wake_that_came_through_too_many_outputs_is_a_loop() -> None:
    """The chain is counted from contract to contract and ends without a model; so does a session that wakes too often."""
    home = house.build(policy=Policy(turns_an_hour=2))
    await world.load(home, house.page())
    await home.wake(key="inputs/x/1", cause=Cause.INPUTS, chain=LONGEST_CHAIN)
    await world.work(home)
    for number in range(4):
        home.pages.pages["page.md"] = f"Version {number}"
        await home.wake(key=f"event/x/{number}", cause=Cause.EVENT)
        await world.work(home)
    await home.wake(key="manual/1")
    await world.work(home)
    assert list((await world.ends(home)).values()) == ["skipped: loop", "turn", "turn", *["skipped: loop"] * 2, "turn"]


async def test_scheduled_and_inputs_wakes_in_the_inbox_merge_into_the_newest() -> None:
    """Five of them are one turn; what people ask for is never merged."""
    home = house.build()
    await world.load(home, house.page())
    for number in range(5):
        await home.wake(key=f"inputs/x/{number}", cause=Cause.INPUTS, when_busy=WhenBusy.MERGE)
    for number in range(2):
        await home.wake(key=f"manual/{number}")
    await world.work(home)
    found = await world.ends(home)
    assert Counter(found.values()) == {"turn": 3, "merged": 4}
    assert found["inputs/x/4"] == "turn"


class Interrupted(ScriptedEngine):
    """An engine whose first run is written to while it runs."""

    async def run(self, opening: Opening, claim: Claim) -> Ending:
        if not self.openings:
            self.replies = [
                await self.client.ask("page", "And why?", by="ada", conversation=c) for c in ("cli", "other")
            ]
        return await super().run(opening, claim)


async def test_a_chat_message_steers_the_running_turn_of_its_conversation() -> None:
    """It joins that turn; read too late it becomes the next wake; another conversation's message is a wake of its own."""
    engine = Interrupted()
    home = house.build(engine=engine)
    await world.load(home, house.page())
    engine.client = client = Client(home.works, TEAM)  # type: ignore[attr-defined]
    await client.ask("page", "What changed?", by="ada")
    await world.work(home)
    assert [reply.turn for reply in engine.replies] == [1, None]
    assert [(opening.turn.number, opening.message) for opening in engine.openings] == [
        (1, "What changed?"),
        (2, "And why?"),
        (3, "And why?"),
    ]


async def test_unchanged_costs_nothing_on_a_quiet_day() -> None:
    """Ten contracts, 24 wakes each, one change at the start: one turn each, the rest `skipped: unchanged`, no model asked."""
    home = house.build()
    names = [f"page{number}" for number in range(10)]
    await world.load(home, *(house.page(name) for name in names))
    for name in names:
        for hour in range(25):
            await home.wake(name, f"scheduled/{name}/{hour}", cause=Cause.SCHEDULED, when_busy=WhenBusy.MERGE)
            await world.work(home, name)
            home.clock.pass_(360)
    found: Counter[str] = Counter()
    for name in names:
        found.update((await world.ends(home, name)).values())
    assert found == {"turn": 10, "skipped: unchanged": 240}
    assert len(home.engine.openings) == 10  # type: ignore[attr-defined]
    spent = await home.store.spent(TEAM)
    assert (spent.spent, spent.possible) == (0, 0)


async def scheduled(home: House, key: str) -> str:
    await home.wake(key=f"scheduled/page/{key}", cause=Cause.SCHEDULED, when_busy=WhenBusy.MERGE)
    await world.work(home)
    return (await world.ends(home))[f"scheduled/page/{key}"]


async def approved(home: House) -> str:
    (draft,) = await home.store.effects(TEAM, Which.UNDECIDED)
    await apply.decide(TEAM, draft.id, Decision.APPROVED, by="ada", works=home.works)
    return await apply.apply(TEAM, draft.id, home.works)


async def test_a_target_that_somebody_set_back_is_asked_again_without_a_model() -> None:
    """The placed text is gone from the target: the same draft waits for a yes again, and is placed again."""
    home = house.build()
    await world.load(home, house.page())
    assert await scheduled(home, "1") == "turn"
    assert await approved(home) == "completed"
    await world.work(home)
    assert await scheduled(home, "2") == "skipped: unchanged"
    assert await home.store.effects(TEAM, Which.UNDECIDED) == ()
    del home.wall.held["wall"]
    assert await scheduled(home, "3") == "skipped: unchanged"
    assert await approved(home) == "completed"
    assert home.wall.held["wall"][0] == "The page says hello."
    assert len(home.engine.openings) == 1  # type: ignore[attr-defined]


async def test_a_failed_effect_is_asked_again_without_a_model() -> None:
    """It was approved and could not be placed: the next wake offers the same words, and a declined one it leaves alone."""
    home = house.build()
    await world.load(home, house.page())
    await scheduled(home, "1")
    works, publishers = home.works, dict(home.works.publishers)
    del home.works.publishers["notes.place"]  # type: ignore[attr-defined]
    assert await approved(home) == "failed"
    home.works.publishers.update(publishers)  # type: ignore[attr-defined]
    assert await scheduled(home, "2") == "skipped: unchanged"
    (draft,) = await home.store.effects(TEAM, Which.UNDECIDED)
    await apply.decide(TEAM, draft.id, Decision.DECLINED, by="ada", works=works)
    await world.work(home)
    assert await scheduled(home, "3") == "skipped: unchanged"
    assert await home.store.effects(TEAM, Which.UNDECIDED) == ()
    assert len(home.engine.openings) == 1  # type: ignore[attr-defined]


async def test_retries_of_the_contract_share_one_cap() -> None:
    """`hz.retries: 2` runs a failed turn twice more as the same turn: one wake, one budget, one record of its end."""
    from heinzelwerk.ending import Failed, Tail

    home = house.build(engine=ScriptedEngine([lambda opening, claim: Failed(Tail(opening.turn), "it broke")]))
    await world.load(home, house.page(extra="  retries: 2\n"))
    await home.wake()
    for _ in range(6):
        await advance.advance(PAGE, home.works)
        home.clock.pass_(3_600)
    assert {opening.turn.number for opening in home.engine.openings} == {1}  # type: ignore[attr-defined]
    assert len(home.engine.openings) == 3  # type: ignore[attr-defined]
    turn = await home.store.turn(PAGE, 1)
    assert turn is not None
    assert turn.state is TurnState.FAILED
