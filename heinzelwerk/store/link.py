"""The connection to the server: one pool per event loop, scripts by hash, and every failure as an error of ours."""

from __future__ import annotations

import asyncio
import hashlib
import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from heinzelwerk.errors import ConfigurationError, StoreUnavailable

_REASONS: Final = {
    "OOM": "the server is out of memory: raise maxmemory or remove other data (the policy must stay noeviction)",
    "READONLY": "the server is a read-only replica: point REDIS_URL at the primary",
    "LOADING": "the server is loading its data: wait until it is up",
    "MISCONF": "the server cannot write to its disk: free space, then look at its log",
    "NOREPLICAS": "the server lacks the replicas that min-replicas-to-write asks for: bring them back",
    "MASTERDOWN": "the replica has lost its primary: bring the primary back",
    "CLUSTERDOWN": "the cluster is down: bring its nodes back",
    "BUSY": "the server runs a long script: wait, or look at what else uses this server",
    "TRYAGAIN": "the cluster moves slots: wait",
}
_CODES: Final = ((OutOfMemoryError, "OOM"), (ReadOnlyError, "READONLY"), (BusyLoadingError, "LOADING"))
"""The client library takes these codes off the message and gives the error a class instead."""
_ACCESS: Final = ("NOAUTH", "WRONGPASS", "NOPERM", "DENIED")
_USES: Final = re.compile(r"^-- uses: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script with the libraries it uses, and the hash that the server knows it by."""

    name: str
    source: str
    sha: str


@cache
def script(name: str) -> Script:
    """Read `lua/<name>.lua` with its libraries in front; the line `-- uses: a b` names `lib_a.lua` and `lib_b.lua`."""
    folder = resources.files("heinzelwerk.store") / "lua"
    body = (folder / f"{name}.lua").read_text()
    found = _USES.search(body)
    libraries = ["lib", *(f"lib_{use}" for use in (found.group(1).split() if found else ()))]
    source = "\n".join([*((folder / f"{library}.lua").read_text() for library in libraries), body])
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


@contextmanager
def translated(address: str) -> Iterator[None]:
    """Raise what the client library raises as StoreUnavailable or ConfigurationError, with place, reason and fix."""
    try:
        yield
    except AuthenticationError as error:
        raise _no_access(address, error) from error
    except (ResponseError, BusyLoadingError) as error:
        raise _translate(address, error) from error
    except (RedisError, OSError, TimeoutError) as error:
        fix = "start the server, or correct REDIS_URL"
        raise StoreUnavailable(f"store {address}: {str(error) or type(error).__name__}; {fix}", fix=fix) from error


def _no_access(address: str, error: Exception) -> ConfigurationError:
    fix = "correct user and password in REDIS_URL, and the user's rights"
    return ConfigurationError(f"store {address}: access refused ({error}); {fix}", fix=fix)


def _translate(address: str, error: RedisError) -> Exception:
    words = str(error) or type(error).__name__
    known = next((code for kind, code in _CODES if isinstance(error, kind)), "")
    if "unknown command" in words and "HELLO" in words:
        fix = "upgrade to Valkey, or to Redis 6.2 or newer, or point REDIS_URL at such a server"
        return ConfigurationError(f"store {address}: the server is older than 6.2 ({words}); {fix}", fix=fix)
    for code, fix in _REASONS.items():
        if code == known or re.search(rf"\b{code}\b", words):
            return StoreUnavailable(f"store {address}: {words.splitlines()[0]}; {fix}", fix=fix)
    if any(re.search(rf"\b{code}\b", words) for code in _ACCESS):
        return _no_access(address, error)
    return error


def shown(url: str) -> str:
    """The address without user and password."""
    return re.sub(r"//[^@/]*@", "//", url).partition("?")[0]


@dataclass(frozen=True, slots=True)
class Call:
    """One script call: the team's key beginning, and what comes after the hash and the key count."""

    script: Script
    base: str
    args: tuple[str | bytes, ...]

    def words(self) -> tuple[str | bytes | int, ...]:
        """The arguments of EVALSHA."""
        return (self.script.sha, 1, self.base, *self.args)


class Link:
    """Connections to one server, opened lazily and once per event loop; safe to share between tasks of a loop."""

    def __init__(self, url: str, *, connections: int = 64, timeout_s: float = 4.0) -> None:
        self.address = shown(url)
        self._url, self._connections, self._timeout_s = url, connections, timeout_s
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, redis.asyncio.Redis] = (
            weakref.WeakKeyDictionary()
        )
        self._check()

    def _check(self) -> None:
        try:
            redis.connection.parse_url(self._url)  # type: ignore[no-untyped-call]
        except ValueError as error:
            fix = "write it as redis://[user:password@]host:port/db, rediss://... or unix://path"
            raise ConfigurationError(f"REDIS_URL {self.address!r}: {error}; {fix}", fix=fix) from error

    def client(self) -> redis.asyncio.Redis:
        """The client of the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._clients.get(loop)
        if found is None:
            found = self._clients[loop] = self._open()
        return found

    def _open(self) -> redis.asyncio.Redis:
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            self._url,
            max_connections=self._connections,
            timeout=self._timeout_s,
            socket_timeout=self._timeout_s,
            socket_connect_timeout=3,
            socket_keepalive=True,
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), 2),
            decode_responses=False,
        )
        return redis.asyncio.Redis.from_pool(pool)

    async def run(self, call: Call) -> Any:
        """Run one script; a server that forgot it is told again."""
        with translated(self.address):
            client = self.client()
            try:
                return await client.evalsha(*call.words())  # type: ignore[arg-type]
            except NoScriptError:
                await client.script_load(call.script.source)
                return await client.evalsha(*call.words())  # type: ignore[arg-type]

    async def run_all(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts of several teams in one round trip; they are no transaction."""
        if len(calls) == 1:
            return [await self.run(calls[0])]
        with translated(self.address):
            replies = await self._pipelined(calls)
            if any(isinstance(reply, NoScriptError) for reply in replies):
                for source in {call.script.source for call in calls}:
                    await self.client().script_load(source)
                replies = await self._pipelined(calls)
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
            return replies

    async def _pipelined(self, calls: Sequence[Call]) -> list[Any]:
        async with self.client().pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.evalsha(*call.words())  # type: ignore[arg-type]
            return list(await pipeline.execute(raise_on_error=False))

    async def command(self, *words: str | bytes | int) -> Any:
        """Run one plain command."""
        with translated(self.address):
            return await self.client().execute_command(*words)  # type: ignore[no-untyped-call]

    async def transaction(self, *commands: tuple[str | int, ...]) -> None:
        """Run plain commands on one key, all or none."""
        with translated(self.address):
            async with self.client().pipeline(transaction=True) as pipeline:
                for words in commands:
                    pipeline.execute_command(*words)
                await pipeline.execute()

    async def close(self) -> None:
        """Close the running loop's connections."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose(close_connection_pool=True)


def pairs(flat: Sequence[bytes] | Mapping[bytes, bytes]) -> dict[str, bytes]:
    """A hash's fields: scripts answer them flat, RESP3 commands as a map."""
    if isinstance(flat, Mapping):
        return {key.decode(): value for key, value in flat.items()}
    return {flat[at].decode(): flat[at + 1] for at in range(0, len(flat), 2)}


def text(value: str | bytes) -> str:
    """A reply as text: the client library decodes those of a few commands by itself."""
    return value if isinstance(value, str) else value.decode()
