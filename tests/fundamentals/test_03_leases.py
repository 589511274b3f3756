"""3. A session has one writer: whoever holds its lease. Each write carries the lease's token."""

from __future__ import annotations

import pytest

from heinzelwerk import claim, errors
from heinzelwerk.claim import Claim
from heinzelwerk.event import Note
from heinzelwerk.ids import SessionId
from heinzelwerk.session import NotClaimed
from heinzelwerk.testing.house import House

PAGE = SessionId("core", "page")


async def test_two_workers_one_lease(home: House) -> None:
    """The second is told that it is held; its doorbell was not in vain, it was just not needed."""
    await home.wake()
    async with claim.hold(PAGE, home.works) as first:
        assert isinstance(first, Claim)
        async with claim.hold(PAGE, home.works) as second:
            assert isinstance(second, NotClaimed)
            assert second.reason == "held"


async def test_a_zombie_writes_nothing(home: House) -> None:
    """A worker that slept through its lease wakes up, and the store refuses its token."""
    await home.wake()
    async with claim.hold(PAGE, home.works) as zombie:
        assert isinstance(zombie, Claim)
        home.clock.pass_(60)
        async with claim.hold(PAGE, home.works) as owner:
            assert isinstance(owner, Claim)
            with pytest.raises(errors.LeaseLost):
                await zombie.commit([Note("late", {})])
            await owner.commit([Note("mine", {})])
    assert await home.kinds() == ["mine"]
