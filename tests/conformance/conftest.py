"""Every body of the store behind one fixture: plain dicts, fakeredis with Lua, Valkey, and redis-server where present."""

from __future__ import annotations

import threading
import time as clock
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest

from heinzelwerk.ports import Store
from heinzelwerk.store.client import RedisStore
from heinzelwerk.store.memory import MemoryStore
from heinzelwerk.store.options import StoreOptions
from tests.support import server
from tests.support.store_world import Time, World

BODIES = ("memory", "fakeredis", "valkey", "redis")
Make = Callable[..., Any]


class Servers:
    """The servers of one test process, each started when the first test asks for it."""

    def __init__(self, tmp: pytest.TempPathFactory) -> None:
        self._tmp, self._urls, self._ends = tmp, dict[str, str](), ExitStack()

    def url(self, body: str) -> str:
        """The address of a body; the test is skipped where its server is not installed."""
        if body not in self._urls:
            self._urls[body] = self._fake() if body == "fakeredis" else self._real(body)
        return self._urls[body]

    def _real(self, body: str) -> str:
        binary = server.redis_binary() if body == "redis" else server.valkey_binary()
        if binary is None:
            pytest.skip(f"no {body} server is installed here")
        more = {"cluster-enabled": "yes"} if body == "cluster" else {}
        running = server.Server(binary, self._tmp.mktemp(body), more=more).start()
        self._ends.callback(running.kill)
        if body == "cluster":
            running.own_all_slots()
        return running.url

    def _fake(self) -> str:
        from fakeredis import TcpFakeServer

        running = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
        running.daemon_threads = True
        threading.Thread(target=running.serve_forever, daemon=True).start()
        self._ends.callback(running.server_close)
        self._ends.callback(running.shutdown)
        return f"redis://127.0.0.1:{running.server_address[1]}/0"

    def close(self) -> None:
        """End them."""
        self._ends.close()


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """The servers that this test process started."""
    found = Servers(tmp_path_factory)
    yield found
    found.close()


@pytest.fixture(params=BODIES)
async def worlds(request: pytest.FixtureRequest, servers: Servers) -> AsyncIterator[Make]:
    """Makes worlds with the options that a test needs; afterwards no key may stand outside the key table."""
    made: list[World] = []

    async def make(**options: Any) -> World:
        chosen = StoreOptions(prefix=f"{uuid4().hex}:", **options)
        time, url = Time(), None
        store: Store
        if request.param == "memory":
            time.ms = int(clock.time() * 1000)
            store = MemoryStore(lambda: time.ms or 0, chosen)
        else:
            url = servers.url(request.param)
            store = RedisStore(url, chosen)
        await store.prepare()
        world = World(store, time, chosen, url)
        made.append(world)
        await world.load()
        return world

    yield make
    for world in made:
        await world.store.close()
        assert world.audit() == []


@pytest.fixture
async def world(worlds: Make) -> World:
    """A world with the options of a deployment."""
    made: World = await worlds()
    return made
