"""What the tests of wakes share: contracts loaded as `load` does it, and a session's records read back."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from heinzelwerk import advance, contract, loading
from heinzelwerk.contract.sets import Installed
from heinzelwerk.ids import SessionId
from heinzelwerk.loading import Loaded, Repository
from heinzelwerk.testing.house import TEAM, House


async def load(home: House, *texts: str, timezone: str = "UTC") -> Loaded:
    """Make these texts the team's contracts, with the next slot of each schedule."""
    readings, stored = [], {}
    for raw in texts:
        name = raw.split("name: ", 1)[1].split("\n", 1)[0]
        reading = contract.read(raw.encode(), file_name=f"{name}.prose.md", file=f"workflows/{name}.prose.md")
        readings.append(reading)
        stored[reading.sha256] = raw.encode()
    repository = Repository(tuple(readings), stored)
    return await loading.load(
        TEAM, repository, timezone=timezone, source=str(Path("team")), installed=Installed(), store=home.store
    )


async def work(home: House, name: str = "page") -> str:
    """Work the session off until nothing is due; answers what the last segment did."""
    did = ""
    for _ in range(1000):
        done = await advance.advance(SessionId(TEAM, name), home.works)
        if done.did in ("nothing_due", "no_slot"):
            return did
        did = done.did
    raise AssertionError("it never comes to rest")


async def events(home: House, name: str = "page") -> list[dict[str, Any]]:
    """A session's spine, read."""
    return [json.loads(line) for line in await home.store.spine(SessionId(TEAM, name))]


async def ends(home: House, name: str = "page") -> dict[str, str]:
    """How each wake came to a record, by its key: `turn`, `merged` or `skipped: why`; each key may have one only."""
    found: list[tuple[str, str]] = []
    for event in await events(home, name):
        if event["kind"] == "turn.started":
            found.append((event["key"], "turn"))
        elif event["kind"] == "wake.merged":
            found.append((event["key"], "merged"))
        elif event["kind"] == "wake.skipped":
            found.append((event["key"], f"skipped: {event['data']['reason']}"))
    twice = [key for key, count in Counter(key for key, _ in found).items() if count > 1]
    assert twice == []
    return dict(found)
