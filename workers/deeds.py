"""What the tasks do: cross the bridge into the core and answer one word."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from heinzelwerk import advance, apply, handing, sweep
from heinzelwerk.ids import SessionId
from heinzelwerk.ports import Works
from workers import archive
from workers.bridge import Bridge

log = structlog.get_logger("heinzelwerk.deeds")

SHORT_S = 300.0
"""A sweep, an effect's step or a pruning that takes longer hangs."""


class CoreDeeds:
    """The deeds over one process's loop. `works_of` gives a team's bundle of ports, `leaving` whether we take nothing more."""

    def __init__(
        self,
        bridge: Bridge,
        works_of: Callable[[str | None], Works],
        *,
        leaving: Callable[[], bool],
        worker: str,
        longest_s: float,
        sweep_every_s: float,
        retention: archive.Retention,
    ) -> None:
        self._bridge = bridge
        self._works_of = works_of
        self._leaving = leaving
        self._worker = worker
        self._longest_s = longest_s
        self._sweep_every_s = sweep_every_s
        self._retention = retention
        self._passes = 0
        self.draining = False

    @property
    def leaving(self) -> bool:
        """Whether this process is ending."""
        return self._leaving()

    @property
    def resting(self) -> bool:
        """Whether the deployment is being drained: what runs is finished, nothing is claimed."""
        return self.draining

    def turn(self, session: str) -> str:
        """Work off what is due in a session; ValueError where that is no session's name."""
        name = SessionId.parse(session)
        return self._run(self._advance(name), self._longest_s)

    def effect(self, team: str, effect_id: str) -> str:
        """One step of an effect."""
        return self._run(apply.apply(team, effect_id, self._works_of(team)), SHORT_S)

    def handoff(self, team: str, job_id: str) -> str:
        """Run one job."""
        works = self._works_of(team)
        return self._run(handing.hand_over(team, job_id, works, worker=self._worker), self._longest_s)

    def sweep(self) -> str:
        """Sweep, unless another process just did."""
        return self._run(self.sweep_in_turn(), SHORT_S)

    def prune(self) -> str:
        """Apply the retention to every team."""
        return self._run(self.prune_all(), self._longest_s)

    async def sweep_in_turn(self) -> str:
        """Sweep if it is time: one process of all does it in each period."""
        works = self._works_of(None)
        if not await works.store.take_turns("sweep", ttl_ms=int(self._sweep_every_s * 900)):
            return "not_my_turn"
        return await self.sweep_now()

    async def sweep_now(self) -> str:
        """Sweep in any case: a starting worker does."""
        self._passes += 1
        swept = await sweep.sweep(self._works_of(None), start=self._passes)
        if swept.rung or swept.slots:
            log.info("swept", rung=swept.rung, slots=swept.slots)
        return "swept"

    async def prune_all(self) -> str:
        """Seal and archive what is past its retention."""
        works = self._works_of(None)
        lines = 0
        for team in await works.store.teams():
            lines += await archive.prune(team, self._retention, works.store)
        log.info("pruned", lines=lines)
        return "pruned"

    async def _advance(self, session: SessionId) -> str:
        with structlog.contextvars.bound_contextvars(team=session.team, session=str(session)):
            return (await advance.advance(session, self._works_of(session.team))).did

    def _run(self, coroutine: Coroutine[Any, Any, str], timeout_s: float) -> str:
        try:
            return self._bridge.run(coroutine, timeout_s)
        except concurrent.futures.CancelledError:  # the process is leaving and its grace was used up
            return "handed_back"
