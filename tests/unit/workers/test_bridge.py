"""The bridge: one loop per process, reached from any thread, watched."""

import asyncio
import concurrent.futures
import threading
import time

import pytest

from workers.bridge import Bridge


@pytest.fixture
def bridge():
    bridge = Bridge()
    yield bridge
    bridge.close()


def test_all_threads_share_one_loop_that_starts_when_it_is_used(bridge):
    """Nothing runs before the first use; afterwards every caller gets its own result from the same loop."""
    assert bridge.lag_s() == 0.0
    assert "heinzelwerk-loop" not in {thread.name for thread in threading.enumerate()}

    async def loop_and(number):
        await asyncio.sleep(0.01)
        return id(asyncio.get_running_loop()), number

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: bridge.run(loop_and(number), 10.0), range(20)))
    assert len({loop for loop, _ in found}) == 1
    assert [number for _, number in found] == list(range(20))


def test_time_limits_are_ours(bridge):
    """A coroutine that takes too long is cancelled and its caller told."""
    ended = threading.Event()

    async def endless():
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        bridge.run(endless(), 0.05)
    assert ended.wait(10.0)


def test_errors_come_back_to_the_caller(bridge):
    """What a coroutine raises is raised where it was asked for."""

    async def fail():
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        bridge.run(fail(), 1.0)


def test_what_still_runs_can_be_cancelled(bridge):
    """A leaving process takes its runs back from all callers at once."""
    started = threading.Barrier(4)

    async def run():
        await asyncio.get_running_loop().run_in_executor(None, started.wait, 10.0)
        await asyncio.sleep(600)

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(bridge.run, run(), 600.0) for _ in range(3)]
        started.wait(10.0)
        assert bridge.cancel_running() == 3
        assert {type(future.exception()) for future in futures} == {concurrent.futures.CancelledError}


def test_a_loop_that_hangs_ends_the_process():
    """Silence for the given time calls the end; the lag is seen meanwhile."""
    ended = threading.Event()
    bridge = Bridge(silent_s=0.4, end=ended.set)
    release = threading.Event()

    async def hang():
        release.wait(30.0)

    caller = threading.Thread(target=lambda: bridge.run(hang(), 60.0))
    caller.start()
    assert ended.wait(30.0)
    assert bridge.lag_s() >= 0.25
    release.set()
    caller.join()
    bridge.close()


def test_a_loop_that_ticks_is_left_alone():
    """Long waits are no silence."""
    ended = threading.Event()
    bridge = Bridge(silent_s=0.8, end=ended.set)
    bridge.run(asyncio.sleep(2.0), 10.0)
    assert not ended.is_set()
    bridge.close()


def test_closing_runs_the_last_wish_and_ends_the_background(bridge):
    """Connections are given back on the loop that they belong to; what went on beside is cancelled."""
    seen = []

    async def beside():
        try:
            while True:
                await asyncio.sleep(0.01)
        finally:
            seen.append("beside")

    async def last():
        seen.append("last")

    bridge.go_on(beside())
    bridge.run(asyncio.sleep(0.05), 1.0)
    bridge.close(last=last())
    until = time.monotonic() + 10.0
    while len(seen) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert sorted(seen) == ["beside", "last"]


def test_closing_what_never_started_is_nothing():
    """No loop is made only to end it."""
    bridge = Bridge()

    async def last():
        raise AssertionError("not needed")

    bridge.close(last=last())
    assert bridge._loop is None
