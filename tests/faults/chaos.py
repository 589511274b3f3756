"""Chaos: many Heinzelmännchen under random faults of the matrix, workers of two formats, then quiet, then the invariants.

    python -m tests.faults.chaos --seconds 120 --seed 1

The seed decides which faults come when; what they meet depends on the machine. Everything that was done is printed, and
everything that was found is asserted: each accepted wake ended once, no key was placed twice, chains whole, books right.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from heinzelwerk import errors
from heinzelwerk.effect import EffectState, Which
from tests.faults import invariants, targets
from tests.faults.proxy import Proxy
from tests.faults.world import TEAM, House, World
from tests.faults.wrapped import FORMAT

SCRIPTS = ("plain", "three", "steps-4", "searches", "nothing")
STAFF = ("turns", "turns", "upkeep", "solo")
POINTS = (
    "claim.after",
    "commit:turn.started.after",
    "model.sent",
    "model.replied",
    "commit:step.model.before",
    "commit:step.model.after",
    "commit:call.after",
    "commit:step.tools.after",
    "commit:turn.ended.before",
    "commit:turn.ended.after",
    "start_effect.after",
    "place.before",
    "place.after",
    "close_effect.after",
)


@dataclass
class Chaos:
    """One run. `heinzels` sessions; `counts` says what was done to them."""

    house: House
    proxy: Proxy
    chance: random.Random
    seconds: float
    heinzels: int = 24
    counts: Counter[str] = field(default_factory=Counter)
    _keys: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def world(self) -> World:
        return self.house.world

    async def run(self) -> None:
        """Faults and work side by side for so long, then peace."""
        for number in range(self.heinzels):
            place = self.chance.choice(("wall.place", "shelf.place"))
            self.world.contract(f"h{number}", self.chance.choice(SCRIPTS), place=place)
        await self.house.store.prepare()
        await self.house.load()
        self._staff()
        self.world.start("beat", url=self.proxy.url)
        await self.house.working(len(STAFF))
        until = time.monotonic() + self.seconds
        await asyncio.gather(*(self._repeat(work, until) for work in (self._wakes, self._decides, self._breaks)))
        await self._peace()

    async def _repeat(self, work: Callable[[], object], until: float) -> None:
        while time.monotonic() < until:
            try:
                await work()  # type: ignore[misc]
            except errors.StoreUnavailable:
                self.counts["callers told that the store was away"] += 1
            except errors.Refused:
                self.counts["callers refused"] += 1

    async def _wakes(self) -> None:
        name = f"h{self.chance.randrange(self.heinzels)}"
        key = f"manual/{name}/{next(self._keys)}"
        for _ in range(
            self.chance.choice((1, 1, 1, 2, 5))
        ):  # who is not answered asks again: that is what keys are for
            await self._accepted(name, key)
        await asyncio.sleep(self.chance.uniform(0.02, 0.15))

    async def _accepted(self, name: str, key: str) -> None:
        while True:
            try:
                reply = await self.house.client.wake(name, key=key)
                break
            except errors.StoreUnavailable:
                self.counts["callers told that the store was away"] += 1
                await asyncio.sleep(0.2)
        self.counts[f"wakes {reply.disposition}"] += 1
        if (name, key) not in self.world.accepted and str(reply.disposition) != "refused":
            self.world.accepted.append((name, key))

    async def _decides(self) -> None:
        for effect in await self.house.store.effects(TEAM, Which.UNDECIDED):
            approve = self.chance.random() < 0.9
            decide = self.house.client.approve if approve else self.house.client.decline
            reply = await decide(effect.id, by="ada")
            self.counts[f"decisions {reply.moved}"] += 1
        await asyncio.sleep(0.2)

    async def _breaks(self) -> None:
        await asyncio.sleep(self.chance.uniform(0.4, 1.6))
        fault = self.chance.choice(
            (self._kill, self._kill, self._kill_at, self._kill_at, self._kill_at, self._term, self._sleep, self._server,
             self._cut, self._silence, self._stop_turn)
        )  # fmt: skip
        await fault()
        self._staff()

    def _staff(self) -> None:
        """Replace the dead, now and then by a worker of the next format."""
        for worker in self.world.workers:
            if not worker.alive:
                worker.leashed.stop(0)
        left = [worker.profile for worker in self.world.workers if worker.alive]
        for profile in STAFF:
            if profile in left:
                left.remove(profile)
            else:
                newer = {FORMAT: "2"} if self.chance.random() < 0.4 else {}
                self.world.start(profile, url=self.proxy.url, **newer)
                self.counts["workers started" + (" of format 2" if newer else "")] += 1

    async def _kill(self) -> None:
        await self._signal(signal.SIGKILL, "SIGKILL at a random moment")

    async def _term(self) -> None:
        await self._signal(signal.SIGTERM, "SIGTERM")

    async def _signal(self, number: int, what: str) -> None:
        running = [worker for worker in self.world.workers if worker.alive and worker.runs]
        if running:
            self.chance.choice(running).signal(number)
            self.counts[what] += 1
            await asyncio.sleep(0.2)

    async def _kill_at(self) -> None:
        self.house.control.arm(self.chance.choice(POINTS), "kill")
        self.counts["failpoints armed"] += 1

    async def _sleep(self) -> None:
        running = [worker for worker in self.world.living("turns") + self.world.living("upkeep") if worker.runs]
        if running:
            worker = self.chance.choice(running)
            worker.signal(signal.SIGSTOP)
            await asyncio.sleep(self.world.lease_s * 2)
            if worker.alive and worker.runs:
                worker.signal(signal.SIGCONT)
            self.counts["SIGSTOP for two leases"] += 1

    async def _server(self) -> None:
        self.world.server.kill()
        await asyncio.sleep(self.chance.uniform(0.1, 1.0))
        await asyncio.to_thread(self.world.server.restart)
        self.counts["SIGKILL of the server"] += 1

    async def _cut(self) -> None:
        self.proxy.cut()
        self.counts["all connections reset"] += 1

    async def _silence(self) -> None:
        self.proxy.blackhole()
        await asyncio.sleep(self.chance.uniform(0.5, 2.5 * self.world.lease_s))
        self.proxy.pass_on()
        self.counts["blackholes"] += 1

    async def _stop_turn(self) -> None:
        name = f"h{self.chance.randrange(self.heinzels)}"
        reply = await self.house.client.stop(name, by="eve")
        self.counts[f"stops {reply.posting}"] += 1

    async def _peace(self) -> None:
        """No faults any more; effects in doubt at plain targets are closed by a person, as they must be."""
        fired = sum(1 for _ in (self.house.control.directory / "fired").iterdir())
        self.counts["failpoints fired"] = fired
        self.house.control.disarm()
        self.proxy.pass_on()
        for worker in self.world.workers:
            if worker.alive and worker.runs:
                worker.signal(signal.SIGCONT)
        for worker in self.world.workers:
            worker.leashed.stop(5)
        for profile in STAFF:  # the deploy is done: everybody reads the newest format
            self.world.start(profile, url=self.proxy.url, **{FORMAT: "2"})
        end = time.monotonic() + 120
        while time.monotonic() < end:
            await self._decides()
            await self._close_unknown()
            if await self._rests():
                break
        await invariants.quiet(self.house)
        await invariants.check(self.house)

    async def _close_unknown(self) -> None:
        placed = {line["key"] for line in targets.placed(self.house.control)}
        due = {entry.name for entry in await self.house.store.due(TEAM, kind="effect", limit=1000)}
        for effect in await self.house.store.effects(TEAM, limit=10_000):
            if effect.state is EffectState.UNKNOWN and effect.id not in due:
                how = "completed" if effect.key in placed else "failed"
                await self.house.client.resolve(effect.id, how, by="ada")  # type: ignore[arg-type]
                self.counts[f"unknown effects resolved as {how}"] += 1

    async def _rests(self) -> bool:
        effects = await self.house.store.effects(TEAM, limit=10_000)
        overviews = (await self.house.client.overviews()).values()
        busy = any(seen.held or seen.inbox or seen.mail or seen.turns for seen in overviews)
        return not busy and all(effect.state.ended for effect in effects)

    async def report(self) -> str:
        """What was done, and what came of it."""
        turns: Counter[str] = Counter()
        for name in await self.house.names():
            for event in await self.house.events(name):
                if event["kind"] == "turn.ended":
                    verdict = event["data"]["verdict"]
                    turns[verdict if verdict != "failed" else f"failed: {event['data']['reason']}"] += 1
        effects = Counter(effect.state.value for effect in await self.house.store.effects(TEAM, limit=10_000))
        lines = [f"  {count:6d}  {what}" for what, count in sorted(self.counts.items())]
        lines += [f"  {len(self.world.accepted):6d}  wakes accepted in all, each ended once"]
        lines += [f"  {count:6d}  turns {what}" for what, count in sorted(turns.items())]
        lines += [f"  {count:6d}  effects {what}" for what, count in sorted(effects.items())]
        lines += [f"  {len(targets.placed(self.house.control)):6d}  writes at the targets, each key once"]
        return "\n".join(lines)


async def run(directory: Path, *, seconds: float, seed: int, heinzels: int = 24) -> str:
    """One chaos run in a directory; its report. AssertionError where an invariant does not hold."""
    world = World(
        directory, limits="day_usd = 1000\nslots = 16", heinzel="session_day_usd = 1000\nturns_an_hour = 100000"
    )
    proxy = Proxy(world.server.port)
    try:
        async with world.open() as house:
            chaos = Chaos(house, proxy, random.Random(seed), seconds, heinzels)
            try:
                await chaos.run()
            except BaseException:
                print(await chaos.report(), flush=True)
                raise
            return await chaos.report()
    finally:
        proxy.pass_on()
        world.close()
        proxy.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="random faults, then the invariants")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a directory for servers' files and logs, kept")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    print(f"chaos: {given.seconds:.0f} s, seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="chaos-") as made:
        directory = given.keep or Path(made) / "w"
        print(asyncio.run(run(directory, seconds=given.seconds, seed=given.seed)))
    print("chaos: all invariants hold")


if __name__ == "__main__":
    main()
