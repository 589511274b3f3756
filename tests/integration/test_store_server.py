"""Claims about the store when its server misbehaves: dies, restarts, loses replies, is full, refuses."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from heinzelwerk.commit import After, CommitState
from heinzelwerk.errors import ConfigurationError, FormatTooNew, StoreUnavailable
from heinzelwerk.generation import Generation
from heinzelwerk.mail import Mail, MailKind
from heinzelwerk.session import Hold, NotClaimed
from heinzelwerk.store import client
from heinzelwerk.store.client import RedisStore, Renewer
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.wake import Disposition
from tests.support.server import Server
from tests.support.store_world import TEAM, WEEKLY, Holder, Time, World, wake_of


async def world_at(url: str, **options: Any) -> World:
    """A world at an address, with a contract."""
    chosen = StoreOptions(**options)
    world = World(RedisStore(url, chosen), Time(), chosen, url)
    await world.store.prepare()
    await world.load()
    return world


async def until_it_answers(call: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat a call, as it is, until the store answers."""
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0.01)


async def test_a_killed_server_loses_nothing_acknowledged(server: Server) -> None:
    """Commits are there after SIGKILL and restart; in between calls say that the store is down, and how to mend it."""
    world = await world_at(server.url)
    holder = await world.running()
    for _ in range(20):
        assert (await holder.commit("step")).state is CommitState.DONE
    await asyncio.to_thread(server.kill)
    with pytest.raises(StoreUnavailable, match="start the server") as caught:
        await world.store.now_ms()
    assert f"127.0.0.1:{server.port}" in str(caught.value)
    await asyncio.to_thread(server.start)
    assert (await holder.commit("step")).state is CommitState.DONE
    assert len(await world.store.spine(WEEKLY)) == 22
    assert world.audit() == []
    await world.store.close()


async def test_a_server_that_forgot_its_scripts_is_told_again(server: Server) -> None:
    """SCRIPT FLUSH, a restart or a failover costs one more round trip, in single calls and in pipelines."""
    world = await world_at(server.url)
    await world.load("weekly", team="other")
    holder = await world.running()
    with redis.Redis.from_url(server.url) as direct:
        direct.script_flush()
        assert (await holder.commit("step")).state is CommitState.DONE
        direct.script_flush()
        holds = [Hold("session", TEAM, "weekly", holder.token), Hold("session", "other", "weekly", "x")]
        assert await world.store.renew(holds) == (holds[1],)
        direct.script_flush()
    renewer = Renewer(server.url)
    assert renewer.renew(holds) == (holds[1],)
    renewer.close()
    await world.store.close()


async def test_a_text_is_asked_for_once(server: Server) -> None:
    """A hash never names other bytes: each start of a turn reads its contract's text, and only the first asks the server."""
    world = await world_at(server.url)
    await world.store.load(Generation(TEAM, {}, {"sha256:x": b"text"}, {"terse": "sha256:x"}), {})
    with redis.Redis.from_url(server.url) as direct:
        assert await world.store.text(TEAM, "sha256:y") is None
        assert await world.store.text(TEAM, "sha256:x") == b"text"
        asked = direct.info("commandstats")["cmdstat_get"]["calls"]
        assert await world.store.text(TEAM, "sha256:x") == b"text"
        assert direct.info("commandstats")["cmdstat_get"]["calls"] == asked
        assert await world.store.text("other", "sha256:x") is None
    await world.store.close()


async def test_a_full_server_refuses_and_writes_nothing(server: Server) -> None:
    """Out of memory is StoreUnavailable with its fix; what was refused left nothing behind."""
    world = await world_at(server.url)
    holder = await world.running()
    with redis.Redis.from_url(server.url) as direct:
        direct.config_set("maxmemory", "1")
        with pytest.raises(StoreUnavailable, match="raise maxmemory"):
            await holder.commit("step")
        direct.config_set("maxmemory", "0")
    assert (await holder.commit("step")).state is CommitState.DONE
    assert len(await world.store.spine(WEEKLY)) == 2
    await world.store.close()


async def test_a_replica_is_named(server: Server) -> None:
    """Writing to a read-only replica says so, and says where to point."""
    world = await world_at(server.url)
    with redis.Redis.from_url(server.url) as direct:
        direct.replicaof("127.0.0.1", "1")
        with pytest.raises(StoreUnavailable, match="point REDIS_URL at the primary"):
            await world.accept()
        direct.replicaof("NO", "ONE")
    assert (await world.store.accept(wake_of("manual/2"), nonce="n")).disposition is Disposition.ACCEPTED
    await world.store.close()


async def test_a_refused_login_is_a_configuration_error(server: Server) -> None:
    """A wrong or missing password is a setting to correct, not a server to wait for; the password is not repeated."""
    with redis.Redis.from_url(server.url) as direct:
        direct.config_set("requirepass", "right")
        for url in (server.url, server.url.replace("//", "//:wrong-one@")):
            store = RedisStore(url)
            with pytest.raises(ConfigurationError, match="REDIS_URL") as caught:
                await store.now_ms()
            assert "wrong-one" not in str(caught.value)
            await store.close()
        direct.config_set("requirepass", "")


def test_a_wrong_address_is_refused_at_once() -> None:
    """An address that no server can have is refused where the store is made."""
    with pytest.raises(ConfigurationError, match="write it as redis://"):
        RedisStore("http://example.org")


def test_one_store_serves_one_loop_after_another(server: Server) -> None:
    """A store that outlives an event loop works in the next; connections belong to the loop."""
    store = RedisStore(server.url)

    async def once() -> int:
        now = await store.now_ms()
        await store.close()
        return now

    assert asyncio.run(once()) <= asyncio.run(once())


async def test_a_thread_renews_while_the_loop_is_busy(server: Server) -> None:
    """Leases are renewed from a thread with its own connection; a dead server is said, not swallowed."""
    world = await world_at(server.url)
    holder = await world.running()
    renewer, hold = Renewer(server.url), Hold("session", TEAM, "weekly", holder.token)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(renewer.renew([hold])))
    thread.start()
    thread.join()
    assert answers == [()]
    assert renewer.renew([]) == ()
    await world.store.close()
    await asyncio.to_thread(server.kill)
    with pytest.raises(StoreUnavailable):
        renewer.renew([hold])
    renewer.close()


@asynccontextmanager
async def lossy(server: Server, share: float) -> AsyncIterator[str]:
    """A way to the server on which a share of the replies is lost after the server has done its work."""
    dice = random.Random(7)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, loses: float) -> None:
        while data := await reader.read(65_536):
            if dice.random() < loses:
                break
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", server.port)
        pumps = [asyncio.create_task(pump(reader, back, 0.0)), asyncio.create_task(pump(there, writer, share))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for one in pumps:
            one.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for end in (back, writer):
            end.close()

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{proxy.sockets[0].getsockname()[1]}/0"
    finally:
        proxy.close()


async def test_lost_replies_double_nothing(server: Server) -> None:
    """A tenth of all replies is lost and every call is repeated: each wake, line, message and decision is there once."""
    async with lossy(server, 0.1) as url:
        world = World(RedisStore(url), Time(), StoreOptions(), server.url)
        store = world.store
        await until_it_answers(world.load)
        for number in range(40):
            wake = wake_of(f"manual/{number}")
            reply = await until_it_answers(lambda wake=wake: store.accept(wake, nonce="mine"))
            assert reply.disposition is Disposition.ACCEPTED
        snapshot = await until_it_answers(lambda: store.claim(WEEKLY, nonce="mine"))
        assert not isinstance(snapshot, NotClaimed)
        assert (snapshot.token, snapshot.dead_claims, len(snapshot.inbox)) == ("1-mine", 0, 40)
        chain = snapshot.chain
        holder = Holder(world, snapshot, chain)
        for number in range(40):
            change, chain = holder.change("step", after=After.RELEASE if number == 39 else After.KEEP)
            reply = await until_it_answers(lambda change=change: store.commit(WEEKLY, snapshot.token, change))
            assert reply.state is CommitState.DONE
            holder.chain = chain
        for number in range(40):
            mail = Mail(id=f"m{number}", kind=MailKind.REPORT)
            await until_it_answers(lambda mail=mail: store.post(WEEKLY, mail))
        await store.close()
    direct = RedisStore(server.url)
    assert len(await direct.spine(WEEKLY)) == 40
    assert [mail.id for mail in await direct.unread_mail(WEEKLY)] == [f"m{number}" for number in range(40)]
    assert (await direct.counters(TEAM)) == {}
    await direct.close()


async def test_a_record_of_a_newer_release_is_named(server: Server) -> None:
    """A record with a field that this release does not know is refused with its name, the reason and the fix."""
    world = await world_at(server.url)
    holder = await world.running()
    with redis.Redis.from_url(server.url) as direct:
        raw = direct.hget("hw:{docs}:s:weekly:turns", "1")
        direct.hset("hw:{docs}:s:weekly:turns", "1", raw.replace(b'{"number"', b'{"mood":"good","number"', 1))
    with pytest.raises(FormatTooNew, match=r"turn record: field 'mood'.*upgrade"):
        await world.store.turn(WEEKLY, 1)
    assert (await holder.commit("step")).state is CommitState.DONE
    await world.store.close()


async def test_an_old_server_is_refused_at_the_start(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without what the scripts use is named with its version and the oldest that will do."""
    monkeypatch.setattr(client, "OLDEST_SERVER", (99, 1))
    store = RedisStore(server.url)
    with pytest.raises(ConfigurationError, match=r"is older than 99\.1; upgrade"):
        await store.prepare()
    await store.close()
