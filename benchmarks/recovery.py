"""Recovery after SIGKILL, side by side: Heinzelwerk, a bare Celery task with acks_late, and DBOS on SQLite.

    python benchmarks/recovery.py --trials 5 [--systems ours,apart,celery,dbos] [--dbos-python /path/to/venv/bin/python]

Each does the same: two requests of half a second to a model, then one effect. In each trial the only worker is killed at a
random moment of the work and another is started at once; counted outside are the requests and effects per key, and the time
from the kill to the end. `apart` is Heinzelwerk with the next worker as on another machine, where only the lease's end tells
of a death. Celery gets a visibility timeout of 15 s, which is our lease's default (its own default is an hour), and looks
every second for what it must give back (its own default is about 100 s). DBOS runs where it is installed; it is no
dependency of ours: `python -m venv d && d/bin/pip install dbos`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.faults import targets
from tests.faults.scripts import THINKS_S
from tests.faults.world import World
from workers.server import EmbeddedServer

WORK = """
import json, os, time
def log(kind, key):
    with open(os.environ["LOG"], "a") as file:
        file.write(json.dumps({"kind": kind, "key": key, "at": time.time()}) + "\\n")
def ask(key, step):
    log("request", f"{key}/{step}")
    time.sleep(0.5)
def place(key):
    log("effect", key)
    time.sleep(0.05)
"""
CELERY = (
    WORK
    + """
from celery import Celery
app = Celery("bare", broker=os.environ["BROKER"])
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1, task_ignore_result=True,
    broker_connection_retry_on_startup=True, broker_transport_options={"visibility_timeout": 15, "unacked_restore_interval": 1,
    "unacked_restore_throttle": 1, "unacked_mutex_expire": 5})
@app.task(name="turn")
def turn(key):
    ask(key, 1)
    ask(key, 2)
    place(key)
    log("done", key)
"""
)
DBOS = (
    WORK
    + """
import sys
from dbos import DBOS, SetWorkflowID
DBOS(config={"name": "bare", "system_database_url": f"sqlite:///{os.environ['DATABASE']}", "run_admin_server": False})
@DBOS.step()
def asks(key, step): ask(key, step)
@DBOS.step()
def places(key): place(key)
@DBOS.workflow()
def turn(key):
    asks(key, 1)
    asks(key, 2)
    places(key)
    log("done", key)
DBOS.launch()
print("ready", flush=True)
for line in sys.stdin:
    with SetWorkflowID(line.strip()):
        DBOS.start_workflow(turn, line.strip())
"""
)


@dataclass
class Result:
    """What one system came to."""

    name: str
    times: list[float] = field(default_factory=list)
    requests: int = 0
    effects: int = 0

    def add(self, seconds: float, requests: Counter[str], effects: int) -> None:
        self.times.append(seconds)
        self.requests += sum(count - 1 for count in requests.values())
        self.effects += max(0, effects - 1)

    def line(self) -> str:
        trials, per = len(self.times), 100 / len(self.times)
        median, least, most = statistics.median(self.times), min(self.times), max(self.times)
        return (
            f"{self.name:12s} {trials:3d} kills  recovery median {median:6.1f} s ({least:.1f} to {most:.1f})  "
            f"per 100 kills: {self.requests * per:5.0f} requests and {self.effects * per:5.0f} effects twice"
        )


def logged(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(path: Path, kind: str, key: str, *, seconds: float = 240) -> float:
    """The moment at which something was logged."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for entry in logged(path):
            if entry["kind"] == kind and entry["key"] == key:
                return float(entry["at"])
        time.sleep(0.02)
    raise SystemExit(f"{kind} of {key} was not seen within {seconds:.0f} s")


def count(result: Result, log: Path, key: str, killed: float) -> None:
    done = wait_for(log, "done", key)
    entries = logged(log)
    asked = Counter(e["key"] for e in entries if e["kind"] == "request" and e["key"].startswith(f"{key}/"))
    result.add(max(0.0, done - killed), asked, sum(e["kind"] == "effect" and e["key"] == key for e in entries))


def bare_celery(directory: Path, trials: int, chance: random.Random) -> Result:
    """A task with acks_late on the same server and pool as ours."""
    (directory / "bare.py").write_text(CELERY)
    log, result = directory / "celery.log", Result("celery")
    with EmbeddedServer.start(directory / "celery-server") as server:
        environment = {**os.environ, "LOG": str(log), "BROKER": server.url, "PYTHONWARNINGS": "ignore"}
        words = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "bare",
            "worker",
            "-P",
            "threads",
            "-c",
            "4",
            "--loglevel",
            "ERROR",
        ]

        def start() -> subprocess.Popen[bytes]:
            null = subprocess.DEVNULL
            return subprocess.Popen(words, cwd=directory, env=environment, stdout=null, stderr=null)

        worker = start()
        for trial in range(trials):
            key = f"c{trial}"
            send = f"import bare; bare.turn.delay({key!r})"
            subprocess.run([sys.executable, "-c", send], cwd=directory, env=environment, check=True)
            wait_for(log, "request", f"{key}/1")
            time.sleep(chance.uniform(0, 1.0))
            worker.kill()
            killed = time.time()
            worker.wait()
            worker = start()
            count(result, log, key, killed)
        worker.kill()
        worker.wait()
    return result


def dbos(directory: Path, trials: int, chance: random.Random, python: Path) -> Result:
    """A workflow of three steps on SQLite; the next process recovers what the last one left."""
    (directory / "durable.py").write_text(DBOS)
    log, result = directory / "dbos.log", Result("dbos sqlite")
    environment = {**os.environ, "LOG": str(log), "DATABASE": str(directory / "dbos.sqlite")}

    def start() -> subprocess.Popen[bytes]:
        found = subprocess.Popen(
            [python, "durable.py"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert found.stdout is not None
        while b"ready" not in (line := found.stdout.readline()):
            if not line:
                raise SystemExit("DBOS did not start")
        return found

    process = start()
    for trial in range(trials):
        key = f"d{trial}"
        assert process.stdin is not None
        process.stdin.write(f"{key}\n".encode())
        process.stdin.flush()
        wait_for(log, "request", f"{key}/1")
        time.sleep(chance.uniform(0, 1.0))
        process.kill()
        killed = time.time()
        process.wait()
        process = start()
        count(result, log, key, killed)
    process.kill()
    process.wait()
    return result


async def ours(directory: Path, trials: int, chance: random.Random, *, apart: bool) -> Result:
    """A turn of two requests and an unattended effect, at the product's own lease and sweep."""
    unattended = '\n[[effects.unattended]]\naction = "shelf.place"\ntarget = "shelf.place:r"\n'
    limits, thinks = "day_usd = 1000", {THINKS_S: "0.5"}
    world = World(directory, lease_s=15.0, limits=limits, more=unattended, environ=thinks, apart=apart)
    world.use_own_times()
    result = Result("ours, apart" if apart else "heinzelwerk")
    try:
        async with world.open() as house:
            world.contract("r", "steps-1", place="shelf.place")
            await house.begin("all")
            for trial in range(1, trials + 1):
                before = len(house.control.logged("request"))
                await house.wake("r", f"manual/r/{trial}")
                while len(house.control.logged("request")) == before:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(chance.uniform(0, 1.0))
                (worker,) = world.living("all")
                worker.signal(signal.SIGKILL)
                killed = time.time()
                worker.leashed.stop(0)
                world.staff("all")
                effect = await house.settled(await house.draft("r", trial))
                asked = Counter(str(entry["ordinal"]) for entry in house.control.logged("request")[before:])
                placed = sum(line["key"] == effect.key for line in targets.placed(house.control))
                result.add(max(0.0, (effect.ended_ms or 0) / 1000 - killed), asked, placed)
    finally:
        world.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="recovery after SIGKILL, side by side")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dbos-python", type=Path, help="a Python that has dbos installed")
    parser.add_argument("--systems", default="ours,apart,celery,dbos", help="which of them, with commas")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory(prefix="recovery-") as made:
        for system in given.systems.split(","):
            directory = Path(made) / system
            directory.mkdir()
            print(_measured(system, directory, given), flush=True)


def _measured(system: str, directory: Path, given: argparse.Namespace) -> str:
    chance = random.Random(given.seed)
    if system == "celery":
        return bare_celery(directory, given.trials, chance).line()
    if system != "dbos":
        return asyncio.run(ours(directory / "w", given.trials, chance, apart=system == "apart")).line()
    if given.dbos_python is None:
        return "dbos sqlite  not run: name a Python that has it with --dbos-python"
    return dbos(directory, given.trials, chance, given.dbos_python).line()


if __name__ == "__main__":
    main()
