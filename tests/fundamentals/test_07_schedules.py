"""7. A contract's next slot is one more entry in `due`; each slot ends in exactly one record."""

from __future__ import annotations

import json
from datetime import timedelta

from heinzelwerk import sweep
from heinzelwerk.advance import advance
from heinzelwerk.generation import Generation
from heinzelwerk.ids import SessionId
from heinzelwerk.schedule import Schedule
from heinzelwerk.testing import house
from heinzelwerk.testing.house import House

PAGE = SessionId("core", "page")


async def load_hourly(home: House) -> None:
    raw = house.page(extra='  schedule: "0 * * * *"\n')
    entry = house.entry_of(raw, "page")
    first = Schedule.parse("0 * * * *", timezone="UTC").next_slot(home.clock.now())
    assert first is not None
    generation = Generation("core", {"page": entry}, {entry.sha256: raw.encode()})
    await home.store.load(generation, {"page": int(first.timestamp() * 1000)})


async def test_missed_slots_become_one_turn_and_each_has_its_record(home: House) -> None:
    """Three hours of downtime: the newest slot runs, the others are merged into its turn."""
    await load_hourly(home)
    home.clock.pass_(timedelta(hours=3, minutes=1).total_seconds())
    assert (await sweep.sweep(home.works)).slots == 3
    assert (await advance(PAGE, home.works)).did == "completed"
    kinds = [json.loads(line)["kind"] for line in await home.store.spine(PAGE)]
    assert kinds.count("wake.merged") == 2
    assert kinds.count("turn.started") == 1


async def test_two_beats_fill_a_slot_once(home: House) -> None:
    """The slot is a compare-and-set in the store; who sweeps does not matter."""
    await load_hourly(home)
    home.clock.pass_(3_700)
    await sweep.sweep(home.works)
    await sweep.sweep(home.works)
    overview = await home.store.overview(PAGE)
    assert overview is not None
    assert len(overview.inbox) <= 2
    assert (await sweep.sweep(home.works)).slots == 0
