"""A seeded simulator of store, broker and clock around the real path: every interleaving of crash points up to a depth.

One run plays a scenario with workers that die at chosen calls to the store (before the call, or after it with the reply
lost), with doorbells that are lost, doubled and reordered by a seed, and with a clock that only the simulator moves.
Afterwards `assert_invariants` reads the truth back: spine, ledger, target.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from heinzelwerk import apply, sweep
from heinzelwerk.advance import advance
from heinzelwerk.budget import Caps, Reservation, Settlement
from heinzelwerk.claim import Claim
from heinzelwerk.commit import Body, History
from heinzelwerk.effect import Decision, EffectState, Which
from heinzelwerk.ending import Ending, Finished, Tail
from heinzelwerk.event import Note, line_digest
from heinzelwerk.ids import SessionId
from heinzelwerk.opening import Opening
from heinzelwerk.session import Due
from heinzelwerk.store.memory import MemoryStore
from heinzelwerk.testing import house
from heinzelwerk.testing.house import House
from heinzelwerk.turn import EnginePins, TurnRecord, TurnState, Usage

MUTATIONS = frozenset(
    {"accept", "ring", "claim", "commit", "release", "post", "decide", "start_effect", "close_effect", "fill_slot"}
)
PRICE = 1_000


class Crash(BaseException):
    """A worker dies here. Not an Exception, so that no code of the product can catch it and go on."""


@dataclass
class CrashingStore:
    """The memory store, whose n-th mutation kills the caller: `before` it, or `after` it with the reply lost."""

    inner: MemoryStore
    crashes: dict[int, str] = field(default_factory=dict)
    counted: int = 0
    fired: int = 0
    armed: bool = True

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name not in MUTATIONS:
            return method

        async def call(*arguments: Any, **named: Any) -> Any:
            if not self.armed:
                return await method(*arguments, **named)
            self.counted += 1
            when = self.crashes.get(self.counted)
            if when == "before":
                self.fired += 1
                raise Crash
            answer = await method(*arguments, **named)
            if when == "after":
                self.fired += 1
                raise Crash
            return answer

        return call


@dataclass
class StepEngine:
    """An engine of two paid requests, checkpointed as the real one is: reserve, ask, settle with the reply."""

    asked: list[str] = field(default_factory=list)

    def pins(self, contract: object) -> EnginePins:
        return EnginePins(model="stepped", engine="stepped:1")

    async def run(self, opening: Opening, claim: Claim) -> Ending:
        turn = opening.turn
        steps = len(opening.history)
        words = "The page says hello."
        while steps < 2:
            attempt = f"{turn.number}/{steps + 1}/{claim.token}"
            await claim.commit(
                (),
                progress=False,
                turns=(turn,),
                reserve=Reservation(attempt, PRICE, Caps(team_day=PRICE * 1_000), ttl_ms=60_000),
            )
            self.asked.append(f"{turn.id()}/{steps + 1}")
            steps += 1
            usage = turn.usage.plus(Usage(requests=1, cost_micros=PRICE))
            turn = turn.model_copy(update={"usage": usage, "steps": steps, "ordinal": steps})
            await claim.commit(
                [Note("step.model", {"step": steps}, turn=turn.id())],
                turns=(turn,),
                histories=(History(turn.number, steps - 1, (json.dumps({"reply": steps}).encode(),)),),
                settle=(Settlement(attempt, PRICE),),
                bodies=(Body(turn.number, f"reply/{steps}", b"words"),),
            )
        done = house.finish(words)(replace(opening, turn=turn), claim)
        assert isinstance(done, Finished)
        return Finished(Tail(turn), done.outcome)


@dataclass
class World:
    """One simulated deployment: a house, a broker, people who approve."""

    crashes: dict[int, str]
    seed: int = 0
    wakes: int = 1
    home: House = field(init=False)
    store: CrashingStore = field(init=False)
    engine: StepEngine = field(init=False)
    broker: list[Due] = field(default_factory=list)
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        clock = house.HandClock()
        inner = MemoryStore(clock.ms)
        self.store = CrashingStore(inner, self.crashes)
        self.engine = StepEngine()
        self.home = house.build(engine=self.engine, store=self.store, clock=clock)  # type: ignore[arg-type]
        self.chance = random.Random(self.seed)

    async def play(self) -> None:
        """Bring the wakes in, then let workers, sweeps and an approver run until nothing is left to do."""
        await self.home.load(house.page())
        for number in range(self.wakes):
            await self._as_worker(self._bring(f"manual/{number}"))
            # Whoever brings a wake and gets no answer brings it again: that is what keys are for.
            self.store.armed, armed = False, self.store.armed
            await self.home.wake(key=f"manual/{number}")
            self.store.armed = armed
        for _ in range(400):
            if not await self._round() and await self._quiet():
                break
        else:
            raise AssertionError("the simulated deployment never came to rest")

    async def _bring(self, key: str) -> None:
        await self.home.wake(key=key)

    async def _round(self) -> bool:
        await self._as_worker(self._sweep())
        self.broker.extend(self.home.bell.rung)
        self.home.bell.rung.clear()
        self._shake()
        busy = bool(self.broker)
        for due in self.broker:
            await self._as_worker(self._answer(due))
        self.broker.clear()
        await self._as_worker(self._approve())
        if not busy:
            self.home.clock.pass_(7.0)
        return busy

    def _shake(self) -> None:
        """What a broker does to messages: loses some, doubles some, reorders all. Never the last word."""
        kept = [due for due in self.broker for _ in range(self.chance.choice((0, 1, 1, 1, 2)))]
        self.chance.shuffle(kept)
        self.broker = kept

    async def _sweep(self) -> None:
        await sweep.sweep(self.home.works)

    async def _answer(self, due: Due) -> None:
        if due.kind == "session":
            await advance(SessionId(due.team, due.name), self.home.works)
        elif due.kind == "effect":
            await apply.apply(due.team, due.name, self.home.works)

    async def _approve(self) -> None:
        for record in await self.store.inner.effects(house.TEAM, Which.UNDECIDED):
            await apply.decide(house.TEAM, record.id, Decision.APPROVED, by="ada", works=self.home.works)

    async def _as_worker(self, work: Any) -> None:
        try:
            await work
        except Crash:
            self.home.keeper.held.clear()

    async def _quiet(self) -> bool:
        inner = self.store.inner
        session = SessionId(house.TEAM, "page")
        overview = await inner.overview(session)
        effects = await inner.effects(house.TEAM)
        settled = all(record.state.ended for record in effects)
        idle = overview is not None and not overview.turns and not overview.inbox and not overview.mail
        return settled and idle and overview is not None and not overview.held


async def assert_invariants(world: World) -> None:
    """I1: each wake ended once. I2: no key placed twice. I3: chains whole. I4: money adds up."""
    inner = world.store.inner
    session = SessionId(house.TEAM, "page")
    lines = await inner.spine(session)
    events = [json.loads(line) for line in lines]
    head = None
    for number, (line, event) in enumerate(zip(lines, events, strict=True), 1):
        assert event["seq"] == number
        assert event["prev"] == head
        head = line_digest(line)
    ended = Counter(event["key"] for event in events if event["kind"] == "turn.ended")
    assert ended == Counter({f"manual/{number}": 1 for number in range(world.wakes)}), ended
    effects = await inner.effects(house.TEAM)
    placed = Counter(world.home.wall.placed)
    for record in effects:
        assert placed[record.key] <= 1, placed
        if record.state is EffectState.COMPLETED:
            assert placed[record.key] == 1
    turns = [record for number in range(1, world.wakes + 1) if (record := await inner.turn(session, number))]
    ends = {(turn.state.value, turn.reason) for turn in turns}
    # A turn whose workers die four times in a row is poison by rule; nothing else may come of crashes.
    assert ends <= {("completed", ""), ("failed", "poison")}, ends
    assert ("failed", "poison") not in ends or world.store.fired >= 3
    money = await inner.spent(house.TEAM)
    steps = Counter(event["turn"] for event in events if event["kind"] == "step.model")
    assert all(count == 2 for name, count in steps.items() if name in _completed(turns)), steps
    assert money.reserved == 0 or world.store.fired
    # What was asked and not stored is possible spend; what was stored is spent once.
    assert money.spent - money.possible <= sum(turn.usage.cost_micros for turn in turns)
    assert len(world.engine.asked) <= 2 * world.wakes + world.store.fired


def _completed(turns: Sequence[TurnRecord]) -> set[str]:
    return {turn.id() for turn in turns if turn.state is TurnState.COMPLETED}


def plans(calls: int, depth: int) -> Sequence[dict[int, str]]:
    """All ways to die at up to `depth` of the first `calls` mutations, before or after each."""
    found: list[dict[int, str]] = [{}]
    layer: list[dict[int, str]] = [{}]
    for _ in range(depth):
        layer = [
            {**plan, number: when}
            for plan in layer
            for number in range(max(plan, default=0) + 1, calls + 1)
            for when in ("before", "after")
        ]
        found.extend(layer)
    return found
