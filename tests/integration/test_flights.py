"""Claims about the limit of requests in flight, with real workers and a provider that counts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from heinzelwerk.turn import TurnState
from tests.faults.provider import HANG, Provider
from tests.faults.world import World

LIMIT = 2


class Counting(Provider):
    """Takes a while for each answer, and counts how many wait for one."""

    def __init__(self) -> None:
        self.now = self.most = 0
        super().__init__()

    async def _answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0.1)
        finally:
            self.now -= 1  # before the answer: its reader may ask again at once
        await super()._answer(body, writer)


def limited(directory: Path, near: Provider) -> World:
    table = f'base_url = "{near.url}"\nrequest_timeout = "10m"\nin_flight = {json.dumps({"openai-chat": LIMIT})}\n'
    return World(directory, model="openai-chat:fake", heinzel=table.replace('":', '" ='), lease_s=600.0)


async def test_never_more_than_the_limit_and_every_turn_ends(tmp_path: Path) -> None:
    """Four turns on two workers, two places: the provider never sees a third request, and all turns end."""
    near = Counting()
    world = limited(tmp_path / "w", near)
    try:
        async with world.open() as house:
            names = [f"page-{n}" for n in range(4)]
            for name in names:
                world.contract(name, "plain", place="")
            await house.begin("turns", "turns", "upkeep")
            for name in names:
                await house.wake(name)
            for name in names:
                assert (await house.ended(name)).state is TurnState.COMPLETED
            assert near.most == LIMIT
    finally:
        world.close()
        near.close()


async def test_a_killed_workers_places_are_free_at_once(tmp_path: Path) -> None:
    """Two requests hang in a worker that is killed; their leases would last ten minutes, the next worker needs none of it."""
    near = Provider()
    world = limited(tmp_path / "w", near)
    try:
        async with world.open() as house:
            for name in ("one", "two"):
                world.contract(name, "plain", place="")
            near.behaves(HANG, HANG)
            await house.begin("turns", "upkeep")
            (worker,) = world.living("turns")
            await house.wake("one")
            await house.wake("two")
            while near.done.count("hang") < LIMIT:
                await asyncio.sleep(0.02)
            worker.signal(9)
            while worker.alive:
                await asyncio.sleep(0.02)
            world.staff("turns", "upkeep")
            for name in ("one", "two"):
                assert (await house.ended(name)).state is TurnState.COMPLETED
    finally:
        world.close()
        near.close()
