"""Who ended a run, and when we do it ourselves."""

import asyncio
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from heinzelwerk.handoff import Limits
from heinzelwerk.runner import watching
from heinzelwerk.runner.reading import Reading, Stream
from heinzelwerk.runner.watching import Watcher
from heinzelwerk.sandbox.spec import Ended

LIMITS = Limits(timeout_s=100, idle_s=30)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds


class Said:
    """A reader that says what it is told to."""

    def __init__(self) -> None:
        self.ended = False
        self.cost: Decimal | None = None

    def feed(self, line: bytes, stream: Stream = "stdout") -> None:
        raise AssertionError("nothing is fed here")

    def reading(self) -> Reading:
        return Reading(cost_usd=self.cost)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "TICK_S", 0.001)


def watcher(max_usd: Decimal | None = None) -> tuple[Watcher, Said, Clock]:
    said, clock = Said(), Clock()
    return Watcher(said, clock=clock, max_usd=max_usd), said, clock


async def some_ticks() -> None:
    await asyncio.sleep(0.05)


async def test_a_person_stops_it() -> None:
    """Once `stop` says so the run is halted, and the sandbox's end is the person's."""
    one, _, _ = watcher()
    wanted = False
    async with one.watch(lambda: wanted, cut=lambda: False):
        await some_ticks()
        assert not one.halt.is_set()
        wanted = True
        await asyncio.wait_for(one.halt.wait(), 30)
    assert one.judged(Ended.STOPPED, LIMITS) == "person"


async def test_an_agent_that_lives_on_after_its_final_event_is_ended() -> None:
    """It gets ten seconds to end by itself."""
    one, said, clock = watcher()
    async with one.watch(lambda: False, cut=lambda: False):
        said.ended = True
        one.heard()
        clock.seconds += 9
        await some_ticks()
        assert not one.halt.is_set()
        clock.seconds += 1
        await asyncio.wait_for(one.halt.wait(), 30)
    assert one.judged(Ended.STOPPED, LIMITS) == "after_end"


async def test_an_agent_that_does_not_end_after_its_cut_is_ended() -> None:
    """An agent that asks again and again after a 402 is over its budget, not merely slow."""
    one, _, clock = watcher()
    async with one.watch(lambda: False, cut=lambda: True):
        await some_ticks()
        clock.seconds += 10
        await asyncio.wait_for(one.halt.wait(), 30)
    assert one.judged(Ended.STOPPED, LIMITS) == "budget"


async def test_an_agents_own_account_over_the_limit_ends_it() -> None:
    """Where nothing is metered the agent's cost is held against the limit while it runs."""
    one, said, _ = watcher(Decimal("0.5"))
    async with one.watch(lambda: False, cut=lambda: False):
        said.cost = Decimal("0.5")
        await some_ticks()
        assert not one.halt.is_set()
        said.cost = Decimal("0.51")
        await asyncio.wait_for(one.halt.wait(), 30)
    assert one.judged(Ended.STOPPED, LIMITS) == "budget"


@pytest.mark.parametrize(("said_at", "judged"), [(None, "timeout"), (50, "after_end"), (100.2, "timeout")])
async def test_a_last_word_after_the_clock_ran_out_is_no_end(said_at: float | None, judged: str) -> None:
    """An interrupted agent says how it ended too; only what it said in time is its own end."""
    one, said, clock = watcher()
    async with one.watch(lambda: False, cut=lambda: False):
        if said_at is not None:
            clock.seconds += said_at
            said.ended = True
            one.heard()
    assert one.judged(Ended.TIMEOUT, LIMITS) == judged


@pytest.mark.parametrize(("since", "judged"), [(0.2, "idle"), (30, "after_end")])
async def test_a_last_word_after_the_silence_is_no_end(since: float, judged: str) -> None:
    """The same for a run that was ended for its silence."""
    one, said, clock = watcher()
    said.ended = True
    one.heard()
    clock.seconds += since
    assert one.judged(Ended.IDLE, LIMITS) == judged


@pytest.mark.parametrize(
    ("ended", "judged"),
    [
        (Ended.EXITED, None),
        (Ended.KILLED, None),
        (Ended.SETUP_FAILED, None),
        (Ended.OUTPUT_CAP, "output"),
        (Ended.DISK_CAP, "disk"),
    ],
)
async def test_other_ends_are_the_sandboxs(ended: Ended, judged: str | None) -> None:
    """Caps are ours; an exit, a kill from outside and a failed start are nobody's stop."""
    one, _, _ = watcher()
    assert one.judged(ended, LIMITS) == judged
