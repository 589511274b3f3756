"""The model of a run as the engine asks it: every attempt reserved, counted and settled, trouble met by the rules.

The vendors' own retries are off, so an attempt of ours is a request of theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic_ai.messages import ModelMessage, ModelResponse, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings, merge_model_settings

from heinzelwerk import budget
from heinzelwerk.ending import Failed, HandedBack, Parked
from heinzelwerk.engine import prices
from heinzelwerk.engine.flights import Flights
from heinzelwerk.engine.leave import Leave
from heinzelwerk.engine.prices import Quote
from heinzelwerk.engine.segment import Segment
from heinzelwerk.engine.steps import FALLBACK, FULL, PARKS
from heinzelwerk.engine.trouble import Circuit, Park, RetryRules, Trouble, Wait, classify, next_step
from heinzelwerk.event import Note
from heinzelwerk.ports import Clock, Interrupt
from heinzelwerk.turn import WaitItem, WaitKind

Readers = Callable[[int, str], Awaitable[None]]
"""Hears a response as it comes: the attempt's number and the next words. A higher attempt starts the text afresh."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may answer: its string, its model, its price."""

    name: str
    model: Model
    quote: Quote


@dataclass(frozen=True, slots=True)
class Patience:
    """How attempts are spread: the rules, the circuits by provider, jitter in [0, 1), and the pause between attempts."""

    rules: RetryRules
    circuits: Callable[[Model], Circuit]
    jitter: Callable[[], float]
    pause: Callable[[float], Awaitable[None]]


class MeteredModel(WrapperModel):
    """A model whose every attempt goes through the segment's record."""

    def __init__(
        self,
        first: Candidate,
        fallback: Callable[[], Candidate | None],
        *,
        segment: Segment,
        patience: Patience,
        flights: Flights,
        clock: Clock,
        timed: Callable[[int], None],
        timeout_s: float,
        readers: Readers | None = None,
    ) -> None:
        super().__init__(first.model)
        self._fallback, self._segment, self._patience, self._flights = fallback, segment, patience, flights
        self._clock, self._timed, self._readers = clock, timed, readers
        self._timeout_s = timeout_s
        self._waited = 0
        self._first = first
        self.sent = False
        self._use(first)

    def use_first(self) -> None:
        """Count with the turn's own model again, after another one was asked."""
        self._use(self._first)

    def _use(self, candidate: Candidate) -> None:
        self.wrapped = candidate.model
        self._segment.model, self._segment.purse.quote = candidate.name, candidate.quote

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """One response, after as many attempts as the rules allow; leaves the segment where they end."""
        while True:
            await self._closed_circuit()
            asked = await self._segment.attempt(messages)
            limits = ModelSettings(max_tokens=asked.max_tokens, max_retries=0)
            model = self._segment.model
            await self._place(model)
            began = self._clock.monotonic()
            self.sent = True
            try:
                settings = merge_model_settings(model_settings, limits)
                async with self._flights.held(model), asyncio.timeout(self._timeout_s):
                    response = await self._answer(messages, settings, model_request_parameters, asked.attempt)
            except Exception as error:
                trouble = classify(error)
                if trouble is None:
                    raise
                self.sent = False
                await self._after(trouble, ms=self._ms(began))
                continue
            self.sent = False
            self._timed(self._ms(began))
            self._patience.circuits(self.wrapped).succeeded()
            response.usage.cost = prices.reported(response)
            response.usage.cost = budget.usd(self._segment.charge(response.usage))
            response.usage.unmeasured_requests = 0  # counted at the cap: to the library's limits it is measured now
            return response

    async def _answer(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        attempt: int,
    ) -> ModelResponse:
        """One attempt: whole, or streamed to readers where somebody reads along.

        It is streamed here, below the library's loop, so that a cut stream is an attempt like any other.
        """
        if self._readers is None:
            return await self.wrapped.request(messages, settings, parameters)
        async with self.wrapped.request_stream(messages, settings, parameters) as stream:
            async for event in stream:
                if words := _words(event):
                    await self._readers(attempt, words)
            return stream.get()

    def _ms(self, began: float) -> int:
        return int((self._clock.monotonic() - began) * 1000)

    async def _closed_circuit(self) -> None:
        """Go on where the provider may be asked; else wait for it in the store, or give up on it."""
        patience = self._patience
        blocked = patience.circuits(self.wrapped).blocked_s(self._clock.monotonic())
        if blocked <= 0:
            return
        if self._segment.turn.counters.get(PARKS, 0) < patience.rules.parks:
            self._park(blocked * (1 + patience.jitter() / 2), "the provider is down")
        await self._give_up(Trouble("unavailable", "The provider has been down for every request of late.", again=True))
        await self._closed_circuit()

    async def _place(self, model: str) -> None:
        """Take a place among the provider's requests in flight, or wait for one in the store. It is no trouble of the
        provider's: it counts for no circuit and leads to no fallback.
        """
        if await self._flights.take(model):
            return
        waited = self._segment.turn.counters.get(FULL, 0)
        self._segment.count(**{FULL: waited + 1})
        self._wait(f"full-{waited + 1}", self._flights.wait_s(waited), "as many requests as allowed are in flight")

    async def _after(self, trouble: Trouble, *, ms: int) -> None:
        """What follows a failed attempt: a pause here, a stored wait, the fallback, or the end of the turn."""
        patience, segment = self._patience, self._segment
        if trouble.again:
            patience.circuits(self.wrapped).failed(self._clock.monotonic(), retry_after_s=trouble.retry_after_s)
        parked = segment.turn.counters.get(PARKS, 0)
        down = patience.circuits(self.wrapped).is_open(self._clock.monotonic())
        waited = len(patience.rules.short_s) if down else self._waited
        step = next_step(trouble, patience.rules, waited=waited, parked=parked, jitter=patience.jitter())
        if isinstance(step, Wait):
            await segment.failed(trouble, ms=ms, then={"wait_s": round(step.seconds, 3)})
            self._waited += 1
            await patience.pause(step.seconds)
            if segment.claim.interrupted is Interrupt.HAND_BACK:
                raise Leave(HandedBack)
            return
        if isinstance(step, Park):
            await segment.failed(trouble, ms=ms, then={"parked_s": round(step.seconds, 3)})
            self._park(step.seconds, trouble.kind)
        await segment.failed(trouble, ms=ms, then={})
        await self._give_up(trouble)

    async def _give_up(self, trouble: Trouble) -> None:
        """Turn to the fallback, once in a turn; without one the turn fails with the provider's words."""
        candidate = None if self._segment.turn.counters.get(FALLBACK) else self._fallback()
        if candidate is None:
            status = f" ({trouble.status})" if trouble.status is not None else ""
            reason = f"provider: {trouble.kind}{status} from {self._segment.model}"
            raise Leave(lambda tail: Failed(tail, reason, trouble.message))
        await self._segment.withdraw()
        before = self._segment.model
        self._use(candidate)
        self._waited = 0
        self._segment.count(**{PARKS: 0, FALLBACK: 1})
        data = {"from": before, "to": candidate.name, "why": trouble.kind}
        self._segment.note(Note("model.fallback", data, turn=self._segment.turn.id()))

    def _park(self, seconds: float, why: str) -> None:
        segment = self._segment
        parked = segment.turn.counters.get(PARKS, 0) + 1
        segment.count(**{PARKS: parked})
        self._wait(str(parked), seconds, why)

    def _wait(self, name: str, seconds: float, why: str) -> None:
        segment = self._segment
        item = WaitItem(
            id=f"retry/{segment.turn.steps + 1}/{name}",
            kind=WaitKind.RETRY,
            deadline_ms=segment.claim.now_ms() + int(seconds * 1000),
        )
        raise Leave(lambda tail: Parked(tail, (item,), reason=f"retry: {why}"))


def _words(event: object) -> str:
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""
