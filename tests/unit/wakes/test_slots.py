"""Every slot of a schedule ends in one record, whatever was down, paused or changed meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from heinzelwerk import sweep
from heinzelwerk.client import Client
from heinzelwerk.store.memory import MemoryStore
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.testing import house
from heinzelwerk.testing.house import TEAM, HandClock
from tests.unit.wakes import world

EVERY_FIVE = '  schedule: "*/5 * * * *"\n'
THREE_HOURS = timedelta(hours=3).total_seconds()


@pytest.mark.parametrize(
    ("catch_up", "result"), [("latest", {"turn": 1, "merged": 35}), ("skip", {"skipped: catch_up": 35, "turn": 1})]
)
async def test_thirty_six_missed_slots_are_accounted_for(catch_up: str, result: dict[str, int]) -> None:
    """Beat is dead for three hours. `latest`: the newest slot runs and takes the others along. `skip`: only one in time runs."""
    home = house.build(clock=HandClock(1_800_000_000.0 - 1_800_000_000 % 300))
    await world.load(home, house.page(extra=f"{EVERY_FIVE}  catch_up: {catch_up}\n"))
    home.clock.pass_(THREE_HOURS + 1)
    assert (await sweep.sweep(home.works)).slots == 36
    assert await world.work(home) == "completed"
    found = await world.ends(home)
    assert Counter(found.values()) == result
    assert len(found) == 36


async def test_with_skip_none_of_them_runs_where_the_newest_is_old_too() -> None:
    """A slot that nobody saw for more than five minutes was missed."""
    home = house.build(clock=HandClock(1_800_000_000.0 - 1_800_000_000 % 3600))
    await world.load(home, house.page(extra='  schedule: "0 * * * *"\n  catch_up: skip\n'))
    home.clock.pass_(THREE_HOURS + 600)
    await sweep.sweep(home.works)
    await world.work(home)
    assert list((await world.ends(home)).values()) == ["skipped: catch_up"] * 3


async def test_two_beats_at_once_give_one_turn_a_slot() -> None:
    """Both see the same due slot; the store takes one of them."""
    home = house.build()
    await world.load(home, house.page(extra=EVERY_FIVE))
    for _ in range(3):
        home.clock.pass_(300)
        await asyncio.gather(*(sweep.sweep(home.works) for _ in range(4)))
        home.pages.pages["page.md"] += " More."
        await world.work(home)
    assert list((await world.ends(home)).values()) == ["turn"] * 3


async def test_a_slot_while_paused_is_skipped_and_stays_skipped() -> None:
    """`pause` skips with a record; `resume` begins with the next slot; what people ask for runs all the time."""
    home = house.build()
    await world.load(home, house.page(extra=EVERY_FIVE))
    client = Client(home.works, TEAM)
    await client.pause("page", paused=True)
    home.clock.pass_(600)
    await sweep.sweep(home.works)
    await client.wake("page", key="manual/now")
    await world.work(home)
    await client.pause("page", paused=False)
    await world.work(home)
    home.clock.pass_(300)
    await sweep.sweep(home.works)
    home.pages.pages["page.md"] = "Changed."
    await world.work(home)
    assert Counter((await world.ends(home)).values()) == {"skipped: paused": 2, "turn": 2}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (('"0 7 * * *"', "Europe/Berlin"), ('"0 7 * * *"', "America/New_York")),
        (('"0 7 * * *"', "America/New_York"), ('"0 7 * * *"', "Asia/Tokyo")),
        (('"0 7 1 * *"', "UTC"), ('"* * * * *"', "UTC")),
        (('"* * * * *"', "UTC"), ('"0 7 * * *"', "UTC")),
    ],
)
async def test_a_changed_schedule_fires_neither_the_past_nor_a_storm(
    before: tuple[str, str], after: tuple[str, str]
) -> None:
    """Cron or time zone change: the first slot is later than the load, and then one at a time."""
    home = house.build()
    await world.load(home, house.page(extra=f"  schedule: {before[0]}\n  timezone: {before[1]}\n"))
    home.clock.pass_(30)
    changed = home.clock.ms()
    await world.load(home, house.page(extra=f"  schedule: {after[0]}\n  timezone: {after[1]}\n"))
    assert (await sweep.sweep(home.works)).slots == 0
    for _ in range(26):
        home.clock.pass_(3_600)
        await sweep.sweep(home.works)
        await world.work(home)
    slots = sorted(key.rpartition("/")[2] for key in await world.ends(home))
    first = home.works.clock.now().fromtimestamp(changed / 1000, home.works.timezone).strftime("%Y%m%dT%H%M%SZ")
    assert slots
    assert slots[0] > first
    assert len(slots) == (26 * 60 if after[0] == '"* * * * *"' else len(slots[:2]))


async def test_a_change_of_the_teams_time_zone_moves_the_slots_of_contracts_without_their_own() -> None:
    """The same file, another zone: a new first slot, none of the past."""
    home = house.build()
    text = house.page(extra='  schedule: "0 7 * * *"\n')
    await world.load(home, text)
    await world.load(home, text, timezone="Asia/Tokyo")
    home.clock.pass_(86_400)
    await sweep.sweep(home.works)
    await world.work(home)
    assert [key[-7:] for key in await world.ends(home)] == ["220000Z"]


async def test_a_full_inbox_keeps_slots_due_and_refuses_people_with_a_sentence() -> None:
    """Nothing is lost: the schedule stays due and fills later; a person hears at once that the inbox is full."""
    clock = HandClock()
    home = house.build(clock=clock, store=MemoryStore(clock.ms, StoreOptions(inbox_cap=2)))
    await world.load(home, house.page(extra='  schedule: "0 * * * *"\n'))
    client = Client(home.works, TEAM)
    replies = [await client.wake("page", key=f"manual/{number}") for number in range(3)]
    assert [str(reply.disposition) for reply in replies] == ["accepted", "accepted", "refused"]
    assert "inbox is full" in replies[2].reason
    home.clock.pass_(3_600)
    assert (await sweep.sweep(home.works)).slots == 0
    await world.work(home)
    assert (await sweep.sweep(home.works)).slots == 1
    await world.work(home)
    assert len(await world.ends(home)) == 3
