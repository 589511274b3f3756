"""A whole store as release 0.1.0 left it is read by today's code as it was then, and today's workers go on with it.

`tests/data/golden/v1/store.json` holds every key of a real server (leases and heartbeats left out) and what the readers said
of them. It is never rewritten: an upgrade meets exactly these keys.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
import redis

from heinzelwerk import verification
from heinzelwerk.advance import advance
from heinzelwerk.event import Chain
from heinzelwerk.ids import SessionId
from heinzelwerk.ports import Store
from heinzelwerk.store import keys
from heinzelwerk.store.client import RedisStore
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.turn import TurnState
from tests.conformance.conftest import Servers
from tests.unit.engine.desk import desk, outcome
from tests.unit.test_golden import V1, meant, plain

TEAM = "core"


async def seen(store: Store) -> dict[str, Any]:
    """What readers say of the team, without what depends on today's date."""
    team: dict[str, Any] = {
        "entries": plain(await store.entries(TEAM)),
        "effects": plain(await store.effects(TEAM)),
        "texts": {one.id: await store.effect_text(TEAM, one.id) for one in await store.effects(TEAM)},
        "job": plain(await store.job(TEAM, "job-1")),
        "spent": (await store.spent(TEAM, "done", day="2026-12-01")).spent,
        "sessions": {},
    }
    for name in await store.sessions(TEAM):
        team["sessions"][name] = await _session(SessionId(TEAM, name), store)
    return team


async def _session(session: SessionId, store: Store) -> dict[str, Any]:
    found = await store.overview(session)
    assert found is not None
    turns = await store.turns(session, before=found.last_turn + 1)
    return {
        "overview": {
            "last_turn": found.last_turn,
            "seq": found.seq,
            "head": found.head,
            "memo": found.memo,
            "paused": found.paused,
            "next_slot_ms": found.next_slot_ms,
            "inbox": plain(found.inbox),
        },
        "mail": plain(await store.unread_mail(session)),
        "turns": plain(turns),
        "bodies": {
            str(turn.number): {
                name: (await store.body(session, turn.number, name) or b"").decode()
                for name in await store.body_names(session, turn.number)
            }
            for turn in turns
        },
        "history": {str(turn.number): len(await store.history(session, turn.number)) for turn in turns},
        "calls": {str(turn.number): plain(await store.calls(session, turn.number)) for turn in turns},
        "drafts": [await store.draft(session, "page", approved=approved) for approved in (False, True)],
        "spine": [line.decode() for line in await store.spine(session)],
    }


def restore(url: str, prefix: str, stored: dict[str, Any]) -> None:
    """Write the keys into a server; those that had a time to live have it again."""
    with closing(redis.Redis.from_url(url)) as server:
        for name, (kind, ttl_ms, value) in stored.items():
            key = prefix + name
            if kind == "string":
                server.set(key, value)
            elif kind == "hash":
                server.hset(key, mapping=value)
            elif kind == "list":
                server.rpush(key, *value)
            elif kind == "set":
                server.sadd(key, *value)
            else:
                server.zadd(key, value)
            if ttl_ms is not None:
                server.pexpire(key, ttl_ms)


@pytest.fixture(params=["fakeredis", "valkey", "redis"])
async def left(request: pytest.FixtureRequest, servers: Servers) -> AsyncIterator[RedisStore]:
    """A store over the keys that release 0.1.0 left."""
    prefix, url = f"{uuid4().hex}:", servers.url(request.param)
    restore(url, prefix, json.loads((V1 / "store.json").read_text("utf-8"))["keys"])
    store = RedisStore(url, StoreOptions(prefix=prefix))
    yield store
    await store.close()


def test_every_golden_key_stands_in_the_key_table() -> None:
    """A key that an older release wrote keeps its row, its type and its rule for as long as upgrades from it are possible."""
    stored = json.loads((V1 / "store.json").read_text("utf-8"))["keys"]
    assert [fault for name, (kind, ttl, _) in stored.items() if (fault := keys.audit(name, kind, ttl or -1))] == []


async def test_what_the_release_left_is_read_as_it_was(left: RedisStore) -> None:
    """Contracts, sessions, turns, words, spines, effects, drafts, jobs and money; every chain holds."""
    await left.prepare()
    then = json.loads((V1 / "store.json").read_text("utf-8"))["seen"]
    now = json.loads(json.dumps(await seen(left)))
    assert meant(now, then) == then
    assert now["sessions"].keys() == then["sessions"].keys()
    for name, one in now["sessions"].items():
        damage = verification.verify_stored([line.encode() for line in one["spine"]], Chain())
        assert damage is None, (name, damage)


async def test_workers_go_on_with_what_the_release_left(left: RedisStore) -> None:
    """A turn that was cut in the middle, and one that was answered, go on and do not begin again; a wake is worked off."""
    found = await desk(outcome(), wake={"name": "nobody"})
    works = found.house.works
    object.__setattr__(works, "store", left)
    before = await left.turn(SessionId(TEAM, "cut"), 1)
    assert before is not None
    assert (before.state, before.usage.requests) == (TurnState.RUNNING, 1)
    for name, responses in (("cut", 2), ("answered", 2), ("queued", 1)):
        assert (await advance(SessionId(TEAM, name), works)).did == "completed"
        record = await left.turn(SessionId(TEAM, name), 1)
        assert record is not None
        assert (record.state, record.ordinal) == (TurnState.COMPLETED, responses)
    assert len(found.model.requests) == 3
