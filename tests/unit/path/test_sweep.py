"""One sweep over many teams: what is broken in one place keeps nobody else asleep."""

from __future__ import annotations

from heinzelwerk import sweep
from heinzelwerk.generation import Generation
from heinzelwerk.testing import house

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
