"""A client for a team's own program: the address of the store is all it needs.

It rings for nobody, because doorbells go through the deployment's broker: the workers' own sweep finds what it stored
within seconds.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from heinzelwerk import errors, ids
from heinzelwerk.client import Client
from heinzelwerk.ports import Held, Policy, Works
from heinzelwerk.session import Due
from heinzelwerk.store.client import RedisStore
from heinzelwerk.store.options import StoreOptions

if TYPE_CHECKING:
    from heinzelwerk.claim import Claim
    from heinzelwerk.contract import Contract
    from heinzelwerk.ending import Ending
    from heinzelwerk.opening import Opening
    from heinzelwerk.turn import EnginePins


@asynccontextmanager
async def connect(url: str, *, team: str, prefix: str = "") -> AsyncIterator[Client]:
    """A team's client over the store at `url` (`redis://host:6379/0`); `prefix` as in the deployment's `[store]`.

    ConfigurationError for a wrong address, StoreUnavailable where nothing answers, Refused for what is no team's name.
    """
    if not ids.is_name(team):
        raise errors.Refused(f"{team!r} is no team's name", fix="use a-z, 0-9 and single dashes")
    store = RedisStore(url, StoreOptions(prefix=prefix))
    works = Works(
        store=store,
        bell=_NoBell(),
        keeper=_NoKeeper(),
        engine=_NoEngine(),
        clock=_Clock(),
        ids=_Ids(),
        capabilities={},
        publishers={},
        policy=Policy(),
        timezone=UTC,
    )
    try:
        await store.prepare()
        yield Client(works, team, rings=False)
    finally:
        await store.close()


class _Clock:
    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251 - somebody else's program is the root here; nothing is decided by it

    def monotonic(self) -> float:
        return time.monotonic()


class _Ids:
    def new(self) -> str:
        return secrets.token_hex(13)


class _NoBell:
    async def ring(self, entries: Sequence[Due]) -> None:
        """Nobody is rung for."""


class _NoKeeper:
    def keep(self, held: Held) -> None:
        raise errors.Refused("a client claims nothing")

    def forget(self, held: Held) -> None:
        """Nothing was kept."""


class _NoEngine:
    def pins(self, contract: Contract) -> EnginePins:
        raise errors.Refused("a client runs no turns")

    async def run(self, opening: Opening, claim: Claim) -> Ending:
        raise errors.Refused("a client runs no turns")
