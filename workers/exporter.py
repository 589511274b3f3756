"""`heinzelwerk metrics`: an HTTP endpoint that tells Prometheus how a deployment is.

A look reads every session's head, so looks are bounded, not scrapes: one is kept for `[metrics] every`, and for twenty times
as long as it took where that is more, one that failed too. However many scrape, the store is not asked more often.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from heinzelwerk.client import Client
from heinzelwerk.errors import HeinzelwerkError
from workers import gauges, translation
from workers.gauges import MOST_DUE, Facts, TeamFacts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workers.root import Runtime

log = structlog.get_logger("heinzelwerk.metrics")

SHARE = 20
"""Looking takes at most one part of so many of the time."""


class Exporter:
    """The web application over one deployment's ports."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._looking = asyncio.Lock()
        self._seen: Facts | HeinzelwerkError | None = None
        self._fresh_until = 0.0
        self.app = Starlette(routes=[Route("/metrics", self._metrics), Route("/healthz", self._health)])

    async def facts(self) -> Facts:
        """The last look, or a new one where that is too old. HeinzelwerkError where it failed."""
        async with self._looking:
            clock = self._runtime.works.clock
            began = clock.monotonic()
            if self._seen is None or began >= self._fresh_until:
                try:
                    self._seen = await self._look(began)
                except HeinzelwerkError as error:
                    self._seen = error
                took_s = clock.monotonic() - began
                self._fresh_until = clock.monotonic() + max(self._runtime.settings.metrics.every, SHARE * took_s)
            if isinstance(self._seen, HeinzelwerkError):
                raise self._seen
            return self._seen

    async def _look(self, began: float) -> Facts:
        store = self._runtime.works.store
        teams = [await self._team(team) for team in await store.teams()]
        return Facts(
            now_ms=await store.now_ms(),
            teams=teams,
            workers=await store.workers(),
            server=await store.server_facts(),
            drained=await store.flag("drain") is not None,
            took_s=self._runtime.works.clock.monotonic() - began,
        )

    async def _team(self, team: str) -> TeamFacts:
        client, store = Client(self._runtime.works_of(team), team), self._runtime.works.store
        whole, each = await client.costs()
        return TeamFacts(
            team=team,
            contracts=await client.contracts(),
            sessions=await client.overviews(),
            undecided=await client.waiting(),
            recent=await client.troubled(),
            due=await store.due(team, limit=MOST_DUE),
            whole=whole,
            each=each,
            caps=translation.caps(self._runtime.settings, team),
            counts=await store.counters(team),
        )

    async def _metrics(self, request: Request) -> Response:
        try:
            facts = await self.facts()
        except HeinzelwerkError as error:
            log.warning("no metrics", reason=str(error))
            return PlainTextResponse("the store does not answer\n", 503)
        return Response(rendered(facts), media_type=CONTENT_TYPE_LATEST)

    async def _health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")


def rendered(facts: Facts) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Told(facts))
    return generate_latest(registry)


class _Told(Collector):
    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def collect(self) -> Iterable[Metric]:
        return gauges.families(self._facts)
