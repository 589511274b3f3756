"""One segment of a turn: from the stored history to an outcome, a wait or a stop. Read this file first in this room."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic_ai.models import Model

from heinzelwerk import errors, text
from heinzelwerk.claim import Claim
from heinzelwerk.contract import Contract
from heinzelwerk.ending import Ending, Failed, Tail
from heinzelwerk.engine import models, start, steps, tools
from heinzelwerk.engine.metered import Candidate, Readers
from heinzelwerk.engine.models import Models
from heinzelwerk.engine.purse import Purse
from heinzelwerk.engine.running import Run
from heinzelwerk.engine.segment import Segment
from heinzelwerk.engine.trouble import Circuit, RetryRules
from heinzelwerk.ids import SessionId
from heinzelwerk.opening import Opening
from heinzelwerk.ports import Capability, Clock, Ids, Policy
from heinzelwerk.turn import EnginePins
from heinzelwerk.wake import Cause

log = structlog.get_logger("heinzelwerk.engine")


@dataclass(frozen=True, slots=True)
class Fragment:
    """Words of a chat's response as they come. A higher token or attempt starts the text afresh."""

    session: SessionId
    turn: int
    token: str
    attempt: int
    text: str


class PydanticEngine:
    """The turn engine (`ports.Engine`): builds one agent for each segment, checkpoints through the claim, never waits long.

    `fragments` hears the responses of chats as they come; what it raises is its own trouble and stops no turn.

    `runners` are the names of the coding agents that a handoff may use, the preferred first; `lends` are patterns of the
    turn's read tools that it may call over MCP. `jitter` gives numbers in
    [0, 1) that spread the waits of turns which failed together.
    """

    def __init__(
        self,
        models: Models,
        policy: Policy,
        capabilities: Mapping[str, Capability],
        *,
        clock: Clock,
        ids: Ids | None = None,
        runners: Sequence[str] = (),
        lends: Sequence[str] = (),
        jitter: Callable[[], float] = lambda: 0.0,
        rules: RetryRules | None = None,
        operations: Sequence[tools.Operation] = (),
        fragments: Callable[[Fragment], Awaitable[None]] | None = None,
    ) -> None:
        self._fragments = fragments
        self._models, self._policy, self._capabilities = models, policy, dict(capabilities)
        self._clock, self._runners = clock, tuple(runners)
        self._lends = tuple(lends)
        self._jitter, self._rules = jitter, rules or RetryRules()
        self._operations = tuple(operations)

    def pins(self, contract: Contract) -> EnginePins:
        """What a new turn of this contract is pinned to; ConfigurationError where its model cannot run or has no price."""
        name = self._models.settings.for_class(contract.agent.model_class)
        self._models.model(name)
        self._models.quote(name)
        return EnginePins(model=name, engine=models.version(), prices=self._models.prices_digest)

    async def run(self, opening: Opening, claim: Claim) -> Ending:
        """Run one segment. LeaseLost, StoreUnavailable and FormatTooNew escape; every other end is a value."""
        try:
            first = self._candidate(opening)
            begun = start.start(opening, budget=self._policy.history_tokens)
        except errors.ConfigurationError as error:
            return Failed(Tail(opening.turn), text.clean_line(str(error)), f"{error}\n{error.fix}")
        purse = Purse(opening, self._policy, quote=first.quote, max_tokens=self._models.settings.max_tokens)
        segment = Segment(opening, claim, self._clock, purse)
        segment.model = first.name
        return await Run(self, segment, begun, first).end()

    async def close(self) -> None:
        """Give the providers' connections back."""
        await self._models.close()

    def _candidate(self, opening: Opening) -> Candidate:
        fallback = self._models.settings.fallback
        name = fallback if fallback and opening.turn.counters.get(steps.FALLBACK) else opening.model
        return self.candidate(name)

    def candidate(self, name: str) -> Candidate:
        """A model that may be asked, with its price; ConfigurationError where it may not."""
        return Candidate(name, self._models.model(name), self._models.quote(name))

    def fallback(self, opening: Opening) -> Candidate | None:
        """The configured fallback, where it is another model than the turn's and can run."""
        name = self._models.settings.fallback
        if name is None or name == opening.model:
            return None
        try:
            return self.candidate(name)
        except errors.ConfigurationError:
            return None

    def fast(self) -> Candidate | None:
        """The configured fast model, where it can run."""
        name = self._models.settings.model_fast
        try:
            return self.candidate(name) if name is not None else None
        except errors.ConfigurationError:
            return None

    def circuit(self, model: Model) -> Circuit:
        """What this process knows of the provider behind a model."""
        return self._models.circuit(model)

    def readers(self, segment: Segment) -> Readers | None:
        """Where this turn's responses are streamed to; None where nobody reads along."""
        fragments, claim = self._fragments, segment.claim
        if fragments is None or segment.turn.wake.cause is not Cause.ASKED:
            return None

        async def tell(attempt: int, words: str) -> None:
            try:
                await fragments(Fragment(claim.session, segment.turn.number, claim.token, attempt, text.safe(words)))
            except Exception as error:  # noqa: BLE001  (whatever a reader's side raises, the turn goes on)
                log.warning("a reader could not be told", session=str(claim.session), reason=str(error))

        return tell

    @property
    def patience(self) -> tuple[RetryRules, Callable[[], float]]:
        """How long this engine tries, and the jitter of its waits."""
        return self._rules, self._jitter

    @property
    def policy(self) -> Policy:
        """What the operator allows."""
        return self._policy

    @property
    def clock(self) -> Clock:
        """This process's time."""
        return self._clock

    @property
    def runner(self) -> str | None:
        """The coding agent that a handoff uses; None where none is bound."""
        return self._runners[0] if self._runners else None

    @property
    def lends(self) -> Sequence[str]:
        """Patterns of the turn's read tools that its coding agent may call."""
        return self._lends

    def toolbox(self, opening: Opening) -> list[Any]:
        """The tools of a turn."""
        return tools.generate(
            opening,
            self._policy,
            self._capabilities,
            handoff=self.runner is not None,
            operations=self._operations,
        )

    @property
    def operations(self) -> Sequence[tools.Operation]:
        """What people may ask for in a chat."""
        return self._operations

    @property
    def capabilities(self) -> Mapping[str, Capability]:
        """The read handles by capability."""
        return self._capabilities
