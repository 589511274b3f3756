"""Kill turn workers at random moments under load, many times, and count what was lost or doubled. Resumable.

    python benchmarks/bench_faults.py --kills 1000 --workers 8 --state bench-faults.jsonl

One round is a deployment of its own: its server, its workers, a seed, so many kills, then quiet and the invariants. Each
round that held is one line of the state file, so that a run that was ended goes on with the next seed. Default settings
except for the ports: lease 15 s, sweep 2 s, watch 1 s. Time to progress is from the kill to the next event of a turn that was
hit. Rounds of odd seeds have all workers on one machine; in those of even seeds each is as on a machine of its own, where
only the lease's end tells of a death.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import signal
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

sys.path.insert(0, str(Path(__file__).parents[1]))

from heinzelwerk import errors
from heinzelwerk.effect import EffectState, Which
from heinzelwerk.ids import SessionId
from tests.faults import invariants, targets
from tests.faults.scripts import THINKS_S
from tests.faults.world import TEAM, House, World


async def kill_round(directory: Path, *, seed: int, kills: int, workers: int, heinzels: int) -> dict[str, Any]:
    """One deployment, so many kills; what it came to. AssertionError where something was lost or doubled."""
    chance = random.Random(seed)
    limits = "day_usd = 1000\nslots = 64"
    more = "session_day_usd = 1000\nturns_an_hour = 100000"
    apart = seed % 2 == 0
    world = World(directory, lease_s=15.0, limits=limits, heinzel=more, environ={THINKS_S: "0.7"}, apart=apart)
    world.use_own_times()
    began = time.monotonic()
    try:
        async with world.open() as house:
            for number in range(heinzels):
                world.contract(f"k{number}", chance.choice(("steps-4", "plain", "three")), place="shelf.place")
            profiles = [*["turns"] * workers, "upkeep", "upkeep", "solo"]
            await house.begin(*profiles)
            hits: list[tuple[float, str]] = []
            stop = asyncio.Event()
            loads = asyncio.create_task(_load(house, chance, heinzels, stop))
            for _ in range(kills):
                await asyncio.sleep(chance.uniform(0.5, 2.0))
                hits += await _kill(house, chance)
                world.staff(*profiles)
            stop.set()
            await loads
            unknown = await _settle(house)
            await invariants.check(house)
            recoveries = [await _progress(house, at, name) for at, name in hits]
            return {
                "seed": seed,
                "apart": apart,
                "kills": kills,
                "workers": workers,
                "wakes": len(world.accepted),
                "hit": len(hits),
                "recovery_s": [round(one, 3) for one in recoveries if one is not None],
                "effects": len(targets.placed(house.control)),
                "unknown": unknown,
                "seconds": round(time.monotonic() - began, 1),
            }
    finally:
        world.close()


async def _load(house: House, chance: random.Random, heinzels: int, stop: asyncio.Event) -> None:
    """Wakes and approvals for as long as it lasts; never more than a few queue for one."""
    number = 0
    while not stop.is_set():
        number += 1
        name = f"k{chance.randrange(heinzels)}"
        try:
            seen = await house.store.overview(SessionId(TEAM, name))
            if seen is None or len(seen.inbox) < 3:
                await house.wake(name, f"manual/{name}/{number}")
            for effect in await house.store.effects(TEAM, Which.UNDECIDED):
                await house.client.approve(effect.id, by="ada")
        except (errors.StoreUnavailable, errors.Refused):
            continue
        await asyncio.sleep(0.1)


async def _kill(house: House, chance: random.Random) -> list[tuple[float, str]]:
    """SIGKILL of one turn worker; the sessions that were held then and the moment."""
    living = [worker for worker in house.world.living("turns") if worker.runs]
    if not living:
        return []
    victim = chance.choice(living)
    started = victim.log.read_text()
    victim.signal(signal.SIGKILL)
    at = time.time()
    running: set[str] = set()
    for line in started.splitlines():
        if line.startswith("{"):
            entry = json.loads(line)
            if entry.get("event") == "segment started":
                running.add(entry["session"].partition("/")[2])
            elif entry.get("event") == "segment ended":
                running.discard(entry["session"].partition("/")[2])

    async def dead() -> bool:
        return not victim.alive

    await house.world.until(dead, "the victim's end")
    return [(at, name) for name in running]


async def _settle(house: House) -> int:
    """Wait for the end of everything; effects of which nobody knows are counted (a conditional target leaves none)."""
    while True:
        for effect in await house.store.effects(TEAM, Which.UNDECIDED):
            await house.client.approve(effect.id, by="ada")
        overviews = (await house.client.overviews()).values()
        effects = await house.store.effects(TEAM, limit=10_000)
        busy = any(seen.held or seen.inbox or seen.mail or seen.turns for seen in overviews)
        if not busy and all(one.state.ended or one.state is EffectState.UNKNOWN for one in effects):
            return sum(one.state is EffectState.UNKNOWN for one in effects)
        await asyncio.sleep(0.3)


async def _progress(house: House, at: float, name: str) -> float | None:
    """Seconds from a kill to the next event of a session that it hit."""
    for event in await house.events(name):
        happened = datetime.fromisoformat(event["ts"]).timestamp()
        if happened > at:
            return happened - at
    return None


def summary(lines: list[dict[str, Any]]) -> str:
    """All rounds so far."""
    kills, wakes = sum(line["kills"] for line in lines), sum(line["wakes"] for line in lines)
    effects, unknown = sum(line["effects"] for line in lines), sum(line["unknown"] for line in lines)
    said = [
        f"{kills} kills in {len(lines)} rounds (seeds {', '.join(str(line['seed']) for line in lines)})",
        f"{wakes} wakes accepted, each ended once; {effects} effects, no key twice; {unknown} unknown",
    ]
    for where, apart in (("on one machine", False), ("on machines of their own", True)):
        times = sorted(one for line in lines if line["apart"] is apart for one in line["recovery_s"])
        if len(times) > 1:
            p95 = statistics.quantiles(times, n=20)[-1]
            said.append(
                f"kill to progress of {len(times)} hit turns, workers {where}: median {statistics.median(times):.1f} s, "
                f"p95 {p95:.1f} s, range {times[0]:.1f} to {times[-1]:.1f} s (lease 15 s, sweep 2 s, watch 1 s)"
            )
    return "\n".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description="kill workers, many times")
    parser.add_argument("--kills", type=int, default=16, help="in all, rounds of the state file counted")
    parser.add_argument("--round", type=int, default=16, help="kills of one deployment")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--heinzels", type=int, default=40)
    parser.add_argument("--state", type=Path, help="a file of rounds that held; a run goes on where it ends")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    lines = (
        [json.loads(line) for line in given.state.read_text().splitlines()]
        if given.state and given.state.exists()
        else []
    )
    while (done := sum(line["kills"] for line in lines)) < given.kills:
        seed = max((line["seed"] for line in lines), default=0) + 1
        kills = min(given.round, given.kills - done)
        print(f"seed {seed}: {kills} kills over {given.workers} turn workers", flush=True)
        with tempfile.TemporaryDirectory(prefix="bench-faults-") as made:
            found = asyncio.run(
                kill_round(Path(made) / "w", seed=seed, kills=kills, workers=given.workers, heinzels=given.heinzels)
            )
        lines.append(found)
        if given.state:
            with given.state.open("a") as file:
                file.write(json.dumps(found) + "\n")
        print(f"  {found['wakes']} wakes, {found['hit']} turns hit, {found['seconds']} s", flush=True)
    print(summary(lines))


if __name__ == "__main__":
    main()
