"""When a run is ended by us although its clock has not run out, and why."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal

from heinzelwerk.handoff import Limits
from heinzelwerk.ports import Clock
from heinzelwerk.runner.ending import StoppedBy
from heinzelwerk.runner.reading import Reader
from heinzelwerk.sandbox.spec import Ended

TICK_S = 0.2
LINGER_S = 10.0
"""How long an agent may live on after its final event, or after its budget was cut."""


class Watcher:
    """Sets `halt` when a person stops the run, when its agent does not end by itself, or when its own cost is over."""

    def __init__(self, reader: Reader, *, clock: Clock, max_usd: Decimal | None) -> None:
        self.halt = asyncio.Event()
        self.last_traffic = clock.monotonic()
        self._reader = reader
        self._clock = clock
        self._max_usd = max_usd
        self._began = clock.monotonic()
        self._ended_at: float | None = None
        self._why: StoppedBy | None = None

    def traffic(self) -> None:
        """Something passed between the agent and its model, or its tools."""
        self.last_traffic = self._clock.monotonic()

    def heard(self) -> None:
        """The reader was given a line; call it after each."""
        if self._ended_at is None and self._reader.ended:
            self._ended_at = self._clock.monotonic()

    @asynccontextmanager
    async def watch(self, stop: Callable[[], bool], *, cut: Callable[[], bool]) -> AsyncIterator[None]:
        """Look around for as long as the block lasts. `cut`: whether the proxy has refused for the budget."""
        self._began = self._clock.monotonic()
        looking = asyncio.create_task(self._look(stop, cut))
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self, stop: Callable[[], bool], cut: Callable[[], bool]) -> None:
        cut_at: float | None = None
        while self._why is None:
            if stop():
                self._why = "person"
            elif self._over_budget():
                self._why = "budget"
            elif self._reader.ended and self._since(self._ended_at) >= LINGER_S:
                self._why = "after_end"
            elif cut():
                cut_at = cut_at or self._clock.monotonic()
                self._why = "budget" if self._since(cut_at) >= LINGER_S else None
            if self._why is None:
                await asyncio.sleep(TICK_S)
        self.halt.set()

    def _since(self, moment: float | None) -> float:
        return 0.0 if moment is None else self._clock.monotonic() - moment

    def _over_budget(self) -> bool:
        if self._max_usd is None:
            return False
        cost = self._reader.reading().cost_usd
        return cost is not None and cost > self._max_usd

    def judged(self, ended: Ended, limits: Limits) -> StoppedBy | None:
        """Who ended the run, given how the sandbox saw it end.

        An agent that is interrupted says its last word too: only one that was said before is the agent's own end.
        """
        match ended:
            case Ended.STOPPED:
                return self._why
            case Ended.TIMEOUT:
                in_time = self._ended_at is not None and self._ended_at < self._began + limits.timeout_s
                return "after_end" if in_time else "timeout"
            case Ended.IDLE:
                return "after_end" if self._since(self._ended_at) >= limits.idle_s else "idle"
            case Ended.OUTPUT_CAP:
                return "output"
            case Ended.DISK_CAP:
                return "disk"
        return None
