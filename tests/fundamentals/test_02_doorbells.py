"""2. A message only wakes. It may be lost, late or doubled: the state in the store decides."""

from __future__ import annotations

from heinzelwerk import sweep
from heinzelwerk.advance import advance
from heinzelwerk.ids import SessionId
from heinzelwerk.testing.house import House

PAGE = SessionId("core", "page")


async def test_a_lost_doorbell_is_rung_again(home: House) -> None:
    """The ring moves the entry on by five seconds; if nobody came, the next sweep rings once more."""
    await home.wake()
    await sweep.sweep(home.works)
    assert len(home.bell.rung) == 1
    await sweep.sweep(home.works)
    assert len(home.bell.rung) == 1
    home.clock.pass_(6)
    await sweep.sweep(home.works)
    assert len(home.bell.rung) == 2


async def test_a_doubled_doorbell_finds_nothing_to_do(home: House) -> None:
    """The second worker claims, looks, and does nothing."""
    await home.wake()
    assert (await advance(PAGE, home.works)).did == "completed"
    assert (await advance(PAGE, home.works)).did == "nothing_due"
