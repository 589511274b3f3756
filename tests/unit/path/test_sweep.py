"""One sweep over many teams: what is broken in one place keeps nobody else asleep."""

from __future__ import annotations

from heinzelwerk import sweep
from heinzelwerk.generation import Generation
from heinzelwerk.ids import SessionId
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.testing import house
from tests.unit.wakes.world import ends, load, work

SCHEDULED = '  schedule: "* * * * *"\n'


async def test_a_zone_that_this_host_does_not_know_stops_one_schedule_alone() -> None:
    """Another contract of the team, and another team, are rung all the same; the schedule stays due for a host that knows."""
    home = house.build()
    entry = house.entry_of(house.page(extra=SCHEDULED), "page")
    strange = entry.model_copy(update={"timezone": "Nowhere/Land"})
    now = await home.store.now_ms()
    for team in ("core", "other"):
        both = {"page": strange, "fine": entry.model_copy(update={"name": "fine"})}
        await home.store.load(Generation(team, both), {"page": now + 1_000, "fine": now + 1_000})
    home.clock.pass_(90)
    swept = await sweep.sweep(home.works)
    assert swept.slots == 4
    assert {(due.team, due.name) for due in home.bell.rung} == {("core", "fine"), ("other", "fine")}
    assert [due.name for due in await home.store.due("core", kind="slot")] == ["page"]


async def test_a_long_downtime_is_caught_up_whatever_the_queue_holds() -> None:
    """A hundred missed minutes and room for thirty wakes: each slot comes to its record, the schedule goes on."""
    home = house.build(options=StoreOptions(inbox_cap=30))
    await load(home, house.page(extra=SCHEDULED))
    home.clock.pass_(100 * 60)
    for _ in range(20):
        await sweep.sweep(home.works)
        await work(home)
    session = await home.store.overview(SessionId(house.TEAM, "page"))
    assert session is not None
    assert session.next_slot_ms is not None
    assert session.next_slot_ms > await home.store.now_ms()
    assert len(await ends(home)) == 100
