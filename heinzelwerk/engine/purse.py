"""A turn's money: what it may spend, what the next attempt is put aside for, what a response is charged.

Micro-dollars throughout. Money put aside for attempt `k` of step `s` is `<turn>/<s>/<k>`; an id is never used twice.
Sources: ADR 0050 statement 5, design section 11.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.usage import RequestUsage

from heinzelwerk.budget import MICROS, Caps, Reservation, Settlement
from heinzelwerk.ending import OverBudget
from heinzelwerk.engine import messages, prices
from heinzelwerk.engine.leave import Leave
from heinzelwerk.engine.prices import Quote
from heinzelwerk.opening import Opening
from heinzelwerk.ports import Policy
from heinzelwerk.turn import TurnRecord
from heinzelwerk.wake import Cause

AT_CAP, RAISED = "at_cap", "raised"
"""Counters: the last segment ended at the turn's cap; what people added to it since."""
LEAST_OUTPUT = 256
"""Fewer output tokens than this are not worth a request: the turn is at its cap."""
_LEASE_S = 60.0  # how much longer than its request a reservation lives


@dataclass(frozen=True, slots=True)
class Asked:
    """An attempt that may be sent: its reservation's id, the money put aside, the most output tokens it may bring."""

    id: str
    micros: int
    max_tokens: int
    step: int
    attempt: int

    def settled(self, charged: int, *, possible: bool = False) -> tuple[Settlement, ...]:
        """What the store must book for it; nothing where it was free and cost nothing."""
        return (Settlement(self.id, charged, possible),) if self.micros or charged else ()


@dataclass(frozen=True, slots=True)
class Charge:
    """What a response costs; `unpriced`: nobody can say, so it counts at the cap."""

    micros: int = 0
    unpriced: bool = False


class Purse:
    """The caps of one turn, the quote of the model that is asked, and the sizes that a request has beside its messages."""

    def __init__(self, opening: Opening, policy: Policy, *, quote: Quote, max_tokens: int) -> None:
        self.quote = quote
        self.overhead_tokens = 0  # instructions and tool definitions, which no message holds
        self._opening, self._policy, self._max_tokens = opening, policy, max_tokens

    @property
    def base_cap(self) -> int | None:
        """The turn's cap: the deployment's, or the contract's where that is lower; None: no cap."""
        contract = self._opening.contract
        caps = [] if self._policy.caps.turn is None else [self._policy.caps.turn]
        if contract.agent.max_usd is not None:
            caps.append(int(contract.agent.max_usd * MICROS))
        if not caps:
            return None
        # A scheduled wake may be tried again by itself: all its attempts together stay under the cap.
        share = contract.retries + 1 if self._opening.turn.wake.cause is Cause.SCHEDULED else 1
        return min(caps) // share

    def left(self, turn: TurnRecord) -> int | None:
        """What the turn may still spend; None: no cap."""
        if self.base_cap is None:
            return None
        return max(self.base_cap + turn.counters.get(RAISED, 0) - turn.usage.counted_micros, 0)

    def raised(self, counters: dict[str, int]) -> dict[str, int]:
        """The counters of a turn that goes on: only a person's word leads on from a cap, and buys the turn its cap once more."""
        found = dict(counters)
        if found.pop(AT_CAP, 0) and self.base_cap is not None:
            found[RAISED] = found.get(RAISED, 0) + self.base_cap
        return found

    def ask(self, waiting: Sequence[ModelMessage], turn: TurnRecord) -> Asked:
        """The next attempt with what it may cost at most. Leaves the segment where the turn's cap does not hold it."""
        inputs, left = self._input_tokens(waiting), self.left(turn)
        wanted = self._max_tokens
        if left is not None:
            wanted = prices.affordable_output(self.quote, input_tokens=inputs, micros=left, wanted=wanted)
        most = max(wanted, min(LEAST_OUTPUT, self._max_tokens))
        amount = self.quote.micros(RequestUsage(input_tokens=inputs, output_tokens=most)) or 0
        if left is not None and amount > left:
            raise Leave(lambda tail: OverBudget(tail, "turn", amount))
        step, attempt = turn.steps + 1, turn.attempt + 1
        return Asked(f"{turn.number}/{step}/{attempt}", amount, most, step, attempt)

    def _input_tokens(self, waiting: Sequence[ModelMessage]) -> int:
        """Tokens of the next request: what the provider counted last time, and a guess of what came after."""
        at = messages.last_response(waiting)
        response = waiting[at] if at is not None else None
        if isinstance(response, ModelResponse) and response.usage.input_tokens:
            counted = response.usage.input_tokens + response.usage.output_tokens
            fresh = waiting[(at or 0) + 1 :]
        else:
            counted, fresh = self.overhead_tokens, waiting
        return counted + sum(len(item) for item in messages.dump(fresh)) // 3

    def reservation(self, asked: Asked) -> Reservation | None:
        """What the store must put aside; None for a free model. The turn's own cap is checked here, the days' there."""
        if not asked.micros:
            return None
        caps = Caps(None, self._policy.caps.session_day, self._policy.caps.team_day)
        return Reservation(asked.id, asked.micros, caps, ttl_ms=int((self._policy.request_timeout_s + _LEASE_S) * 1000))

    def charge(self, asked: Asked | None, usage: RequestUsage, turn: TurnRecord) -> Charge:
        """The price of the response that just came."""
        found = prices.cost(self.quote, usage)
        if found is not None:
            return Charge(found)
        return Charge(max(asked.micros if asked else 0, self.left(turn) or 0), unpriced=True)

    def output_ceiling(self, turn: TurnRecord) -> int | None:
        """The output tokens at which the library stops a turn, whatever a provider makes of max_tokens; None: none."""
        left = self.left(turn)
        a_million = self.quote.micros(RequestUsage(output_tokens=1_000_000)) or 0
        if left is None or not a_million:
            return None
        return turn.usage.output_tokens + left * 1_000_000 // a_million
