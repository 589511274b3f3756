"""A turn: one wake worked off, from claim to outcome, and what it may wait for in between."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from heinzelwerk import ids
from heinzelwerk.wake import Wake

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class TurnState(StrEnum):
    """Where a turn is; the last six are ends. `docs/state-machine.md` draws the transitions."""

    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    SKIPPED = "skipped"
    FAILED = "failed"
    BUDGET = "budget"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        return self not in (TurnState.RUNNING, TurnState.WAITING)


class WaitKind(StrEnum):
    """What a turn may wait for. A job or a retry holds the session; people and money never do."""

    JOB = "job"
    PROPOSAL = "proposal"
    QUESTION = "question"
    RETRY = "retry"
    BUDGET = "budget"

    @property
    def holds_session(self) -> bool:
        """Whether other wakes of the session wait as long as this is open."""
        return self in (WaitKind.JOB, WaitKind.RETRY)


class WaitItem(BaseModel):
    """One thing that a turn waits for. It is filled once, by one script, with `value` (a short word or a JSON text).

    `deadline_ms` is server time, written by the commit that makes the item. `call` names the tool call
    (`<ordinal of the response>:<call id>`) that the value answers, where there is one.
    """

    model_config = _FROZEN

    id: str
    kind: WaitKind
    deadline_ms: int
    call: str | None = None
    value: str | None = None

    @property
    def open(self) -> bool:
        """Whether it still waits."""
        return self.value is None


class Usage(BaseModel):
    """What a turn has used so far, over all its segments and attempts. Money is micro-dollars, rounded up per request."""

    model_config = _FROZEN

    requests: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_micros: int = 0
    possible_micros: int = 0  # requests that were sent and never answered: counted, marked as possible
    unpriced: int = 0

    def plus(self, other: Usage) -> Usage:
        """The sum of both, field by field."""
        mine, theirs = self.model_dump(), other.model_dump()
        return Usage(**{name: mine[name] + theirs[name] for name in mine})

    @property
    def counted_micros(self) -> int:
        """What counts against caps: spent and possibly spent."""
        return self.cost_micros + self.possible_micros


class Pins(BaseModel):
    """What a turn was started with, by hash; an edited contract acts from the next turn on."""

    model_config = _FROZEN

    contract: str  # sha256:<hex> of the contract file's bytes
    generation: int
    model: str
    engine: str  # e.g. pydantic-ai:2.68.0
    prices: str = ""
    skills: dict[str, str] = Field(default_factory=dict)
    lessons: str = ""


class EnginePins(BaseModel):
    """What an engine pins for a turn: the model string, its own version, and the hash of the prices it counts with."""

    model_config = _FROZEN

    model: str
    engine: str
    prices: str = ""


class Steer(BaseModel):
    """A message that reached an open turn: its mail's id, and who sent it. Its words are in the body as `steer/<id>`."""

    model_config = _FROZEN

    id: str
    by: str | None = None


class TurnRecord(BaseModel):
    """The state of a turn as its lease holder last stored it. Words are not in here; they live in the turn's body.

    `ordinal` counts the model's responses so far, `steps` the steps on the spine. `active_ms` is the time that counts
    against the contract's timeout: segments and handoffs, never waits for people, retries or budget.
    `counters` carry retry budgets over a resume (`<tool>` -> attempts, `output` -> attempts). `attempt` counts the
    requests that were sent for the next response; `messages` is what `History.keep` may keep.
    """

    model_config = _FROZEN

    number: int = Field(ge=1)
    state: TurnState
    wake: Wake
    accepted_ms: int
    as_of_ms: int
    started_ms: int
    merged: tuple[str, ...] = ()
    pins: Pins | None = None
    inputs_digest: str = ""
    segment: int = 1
    steps: int = 0
    ordinal: int = 0
    attempt: int = 0
    messages: int = 0  # entries of the stored history that are final; what stands behind them is provisional
    active_ms: int = 0
    usage: Usage = Usage()
    counters: dict[str, int] = Field(default_factory=dict)
    waits: tuple[WaitItem, ...] = ()
    steers: tuple[Steer, ...] = ()  # on the spine, and no response of the model has followed them yet
    heard: tuple[Steer, ...] = ()  # those that one followed; a turn that runs anew must hear them again
    ended_ms: int | None = None
    reason: str = ""
    report: str = ""
    retries_left: int = 0  # of the contract's `retries`: runs anew after a failure, under the same caps

    @property
    def holds_session(self) -> bool:
        """Whether other wakes of the session must wait: it runs, or has a job or a retry open."""
        if self.state is TurnState.RUNNING:
            return True
        return self.state is TurnState.WAITING and any(item.open and item.kind.holds_session for item in self.waits)

    @property
    def ready(self) -> bool:
        """Whether a segment can start now: it was running, or waits for nothing any more."""
        if self.state is TurnState.RUNNING:
            return True
        return self.state is TurnState.WAITING and not any(item.open for item in self.waits)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first open wait runs out, in server time; None where nothing is open."""
        return min((item.deadline_ms for item in self.waits if item.open), default=None)

    def id(self) -> str:
        """Its name on the spine: `<team>/<heinzel>/<number>`."""
        return ids.turn_id(self.wake.session, self.number)


class CallState(StrEnum):
    """The ledger of a tool call; `started` is stored only before a call that is not replay-safe."""

    STARTED = "started"
    DONE = "done"


class CallRecord(BaseModel):
    """What is stored of one tool call, keyed `<ordinal of the response in the turn>:<call id>`.

    `result` is the call's return as JSON text, ready to be given to the model again instead of a second run.
    """

    model_config = _FROZEN

    state: CallState
    tool: str
    result: str | None = None
    outcome: str = "success"
