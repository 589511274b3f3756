"""The store on a Redis-protocol server: the port `Store` over the scripts in `lua/`, and the sync face for renewal."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, ResponseError
from redis.retry import Retry

from heinzelwerk.errors import ConfigurationError
from heinzelwerk.event import line_digest
from heinzelwerk.ids import SessionId
from heinzelwerk.session import Hold
from heinzelwerk.store import face, keys, link, rules, sessions
from heinzelwerk.store.flights import Flights
from heinzelwerk.store.ledger import Ledger
from heinzelwerk.store.link import Link, pairs
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.store.sessions import Sessions
from heinzelwerk.store.wakes import Wakes

OLDEST_SERVER = (6, 2)
"""Redis 6.2 has what the scripts use; Valkey always says that it is compatible with a later one."""


def fresh_id() -> str:
    """A name for one operation: what makes a repeated command one."""
    return secrets.token_hex(10)


class RedisStore(Wakes, Sessions, Ledger, Flights):
    """The port `Store` on a server. Connections open lazily, one pool per event loop; share one store per process."""

    def __init__(self, url: str, options: StoreOptions | None = None, *, new_id: Callable[[], str] = fresh_id) -> None:
        self.url = url
        super().__init__(Link(url), options or StoreOptions(), new_id)

    def _global(self, name: str) -> str:
        return keys.glob(self._options.prefix, name)

    async def prepare(self) -> None:
        """Check or write the store's format mark; FormatTooNew where a newer release owns it.

        ConfigurationError where the server is older than the oldest that has what the scripts use.
        """
        await self._check_version()
        await self._link.command("HSETNX", self._global("meta"), "format", rules.FORMAT)
        found = int(await self._link.command("HGET", self._global("meta"), "format"))
        if found > rules.FORMAT:
            raise rules.too_new(found, rules.FORMAT)

    async def _check_version(self) -> None:
        version = (await self._info("server")).get("redis_version", "")
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if numbers and numbers < OLDEST_SERVER:
            oldest = ".".join(map(str, OLDEST_SERVER))
            fix = f"upgrade to Valkey, or to Redis {oldest} or newer, or point REDIS_URL at such a server"
            raise ConfigurationError(
                f"store {self._link.address}: server {version} is older than {oldest}; {fix}", fix=fix
            )

    async def now_ms(self) -> int:
        """The server's clock, in milliseconds."""
        seconds, micros = await self._link.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def close(self) -> None:
        """Give connections back."""
        await self._link.close()

    # -- operators ---------------------------------------------------------------------------------------------

    async def heartbeat(self, worker: str, facts: Mapping[str, str], *, ttl_ms: int) -> None:
        """Say that a worker makes progress."""
        key, now = self._global(f"worker:{worker}"), await self.now_ms()
        fields = [part for pair in facts.items() for part in pair]
        await self._link.transaction(("DEL", key), ("HSET", key, "worker", worker, *fields), ("PEXPIRE", key, ttl_ms))
        await self._link.command("ZADD", self._global("workers"), now + ttl_ms, worker)

    async def workers(self) -> dict[str, dict[str, str]]:
        """The workers whose heartbeat has not expired."""
        await self._link.command("ZREMRANGEBYSCORE", self._global("workers"), "-inf", await self.now_ms())
        names = await self._link.command("ZRANGE", self._global("workers"), 0, -1)
        living = {}
        for name in sorted(raw.decode() for raw in names):
            facts = pairs(await self._link.command("HGETALL", self._global(f"worker:{name}")))
            if facts:
                living[name] = {field: value.decode() for field, value in facts.items() if field != "worker"}
        return living

    async def flag(self, name: str, value: str | None = None, *, clear: bool = False) -> str | None:
        """Read, set or clear a deployment-wide flag."""
        key = self._global(f"flag:{name}")
        if clear:
            await self._link.command("DEL", key)
        elif value is not None:
            await self._link.command("SET", key, value)
        found = await self._link.command("GET", key)
        return None if found is None else found.decode()

    async def take_turns(self, name: str, *, ttl_ms: int) -> bool:
        """True for one caller per `ttl_ms`."""
        key = self._global(f"turns:{name}")
        return await self._link.command("SET", key, "1", "NX", "PX", ttl_ms) is not None

    async def is_taken(self, name: str) -> bool:
        """Whether somebody took that turn and its time has not passed."""
        return bool(await self._link.command("EXISTS", self._global(f"turns:{name}")))

    async def server_facts(self) -> dict[str, str]:
        """Version, durability, eviction policy, clock, memory: what `doctor` judges. What a server does not tell is left out."""
        facts = {"clock_ms": str(await self.now_ms()), "address": self._link.address}
        for section in ("server", "memory", "persistence", "replication"):
            facts |= await self._info(section)
        for setting in ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy", "save"):
            try:
                found = await self._link.command("CONFIG GET", setting)
            except ResponseError:
                continue  # hosted servers often forbid CONFIG
            facts |= {link.text(name): link.text(value) for name, value in found.items()}
        return facts

    async def _info(self, section: str) -> dict[str, str]:
        try:
            found = await self._link.command("INFO", section)
        except ResponseError:
            return {}
        lines = (
            found.decode().splitlines()
            if isinstance(found, bytes)
            else [f"{name}:{value}" for name, value in found.items()]
        )
        return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))

    async def prune(
        self, team: str, *, before_ms: int, archive: Callable[[SessionId, Sequence[bytes]], Awaitable[None]] | None
    ) -> int:
        """Seal whole turns that ended before the instant: archived first, then replaced by `spine.sealed`; answers lines."""
        sealed = 0
        for heinzel in await self.sessions(team):
            sealed += await self._seal(SessionId(team, heinzel), before_ms, archive)
        while await self._run("tidy", team, {"limit": 1000}):
            pass
        return sealed

    async def _seal(
        self,
        session: SessionId,
        before_ms: int,
        archive: Callable[[SessionId, Sequence[bytes]], Awaitable[None]] | None,
    ) -> int:
        token = f"prune-{self._new_id()}"
        if not int(await self._run("hold", session.team, {"heinzel": session.heinzel, "token": token})):
            return 0
        lines = list(
            await self._run("spine", session.team, {"heinzel": session.heinzel, "after": 0, "limit": 1_000_000})
        )
        done = 0
        if lines and rules.is_seal(lines[0]):
            done = rules.sealed_to(lines.pop(0))
        overview = await self.overview(session)
        records = await self.turns(session, before=(overview.last_turn if overview else 0) + 1, limit=1_000_000)
        ended = {record.number: record.ended_ms for record in records}
        count, now = rules.sealable(lines, ended, before_ms), await self.now_ms()
        forget = rules.forgettable(ended, min(before_ms, now - self._options.body_ttl_ms))
        if count and archive is not None:
            try:
                await archive(session, lines[:count])
            except BaseException:
                await self._run(
                    "seal",
                    session.team,
                    {"heinzel": session.heinzel, "token": token, "count": 0, "last": 0, "forget": []},
                )
                raise
        arguments = {"heinzel": session.heinzel, "token": token, "count": count, "last": done + count, "forget": forget}
        seal = [rules.seal_line(done + count, line_digest(lines[count - 1]), now)] if count else []
        return count if int(await self._run("seal", session.team, arguments, seal)) else 0


class Renewer:
    """Renews leases from a thread of its own, over a connection of its own: a busy event loop cannot starve it."""

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        self._options = options or StoreOptions()
        self._address = link.shown(url)
        timeout_s = max(0.5, self._options.lease_ms / 1000 / 5)
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 1),
        )
        self._lock = threading.Lock()

    def renew(self, holds: Sequence[Hold]) -> tuple[Hold, ...]:
        """Extend these leases; answers those that were lost. StoreUnavailable where the server did not answer."""
        groups = sessions.by_team(holds)
        with self._lock, link.translated(self._address):
            replies = [self._renew(team, group) for team, group in groups.items()]
        return sessions.lost_of(groups.values(), replies)

    def _renew(self, team: str, holds: Sequence[Hold]) -> list[int]:
        script = link.script("renew")
        arguments = face.packed(sessions.named(holds))
        words = (keys.base(self._options.prefix, team), face.options_json(self._options, team), arguments)
        try:
            lost = self._client.evalsha(script.sha, 1, *words)
        except NoScriptError:
            lost = self._client.eval(script.source, 1, *words)
        return [int(place) for place in lost]

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()
