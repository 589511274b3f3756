"""A house whose engine is the real one over a scripted model: what the engine's tests need, and how they crash it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models import Model

from heinzelwerk import advance
from heinzelwerk.commit import Commit, CommitReply
from heinzelwerk.engine import Models, ModelSettings, PydanticEngine
from heinzelwerk.engine.scripted import NAME, PRICE, Reply, Scripted, calls, facts, outcome, says
from heinzelwerk.engine.trouble import RetryRules
from heinzelwerk.ids import SessionId
from heinzelwerk.ports import Policy
from heinzelwerk.store.memory import MemoryStore
from heinzelwerk.testing import house
from heinzelwerk.testing.house import HandClock, House
from heinzelwerk.turn import TurnRecord

__all__ = [
    "NAME", "PRICE", "SESSION", "THREE", "CrashHere", "CrashingStore", "Desk", "Reply", "Scripted",
    "calls", "desk", "facts", "outcome", "returns", "says",
]  # fmt: skip
SESSION = SessionId(house.TEAM, "page")
THREE = """---
name: page
kind: responsibility
description: Keeps one page true from three.
hz:
  schema: 1
  title: One page
  requires: [documents:read]
  inputs:
    one: {read: documents.read, args: {ref: one.md}}
    two: {read: documents.read, args: {ref: two.md}}
    three: {read: documents.read, args: {ref: three.md}}
  outputs:
    page: {format: markdown}
  publishes:
    - {action: notes.place, output: page, args: {place: wall}}
EXTRA---
### Goal
Keep the page true.
### Requires
- `one`
- `two`
- `three`
### Maintains
- `page`
### Done when
- It says what the pages say.
"""


class CrashHere(Exception):
    """The process is gone: nothing after this happens."""


class CrashingStore(MemoryStore):
    """The store of a process that dies at its commit number `at`: before it is written, or right after it."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock.ms)
        self.commits: list[Commit] = []
        self.at: int | None = None
        self.written = True
        self.before_commit: Callable[[Commit], Awaitable[None]] | None = None

    async def commit(self, session: SessionId, token: str, commit: Commit) -> CommitReply:
        self.commits.append(commit)
        if self.before_commit is not None:
            await self.before_commit(commit)
        dies = self.at is not None and len(self.commits) == self.at
        if dies and not self.written:
            self.at = None
            raise CrashHere
        reply = await super().commit(session, token, commit)
        if dies:
            self.at = None
            raise CrashHere
        return reply


@dataclass
class Desk:
    """A house, its scripted model, and its store."""

    house: House
    model: Scripted
    store: CrashingStore
    engine: PydanticEngine

    @property
    def clock(self) -> HandClock:
        return self.house.clock

    async def go(self) -> advance.Advance:
        """Work off what is due once."""
        return await advance.advance(SESSION, self.house.works)

    async def finish(self, *, most: int = 20) -> TurnRecord:
        """Work on, over crashes and waits that end by themselves, until the first turn has ended."""
        for _ in range(most):
            try:
                await self.go()
            except CrashHere:
                self.clock.pass_(20)
            found = await self.turn()
            if found is not None and found.state.ended:
                return found
            if found is not None and found.waits:
                self.clock.pass_(2_000)
        raise AssertionError(f"the turn did not end: {await self.turn()}")

    async def turn(self, number: int = 1) -> TurnRecord | None:
        return await self.store.turn(SESSION, number)

    async def events(self, *kinds: str) -> list[dict[str, Any]]:
        """The data of the spine's events, all or of these kinds."""
        lines = [json.loads(line) for line in await self.store.spine(SESSION)]
        return [line["data"] | {"kind": line["kind"]} for line in lines if not kinds or line["kind"] in kinds]

    async def body(self, name: str, number: int = 1) -> str:
        return (await self.store.body(SESSION, number, name) or b"").decode()


async def desk(
    *replies: Reply,
    policy: Policy | None = None,
    settings: Mapping[str, Any] | None = None,
    contract: str = THREE,
    extra: str = "",
    wake: Mapping[str, Any] | None = None,
    rules: RetryRules | None = None,
    models: Mapping[str, Callable[[str], Model]] | None = None,
    **engine: Any,
) -> Desk:
    """A desk with one wake accepted."""
    clock, policy = HandClock(), policy or Policy()
    model, store = Scripted(replies), CrashingStore(clock)
    prices = {NAME: PRICE, "spare:scripted": PRICE}
    given = ModelSettings(**{"model": NAME, "prices": prices, **(settings or {})})
    factories = {"double": lambda name: model.model(), **(models or {})}
    pages = house.Pages(
        {"one.md": "Hello one.", "two.md": "Hello two.", "three.md": "Hello three.", "page.md": "Hello."}
    )
    built = PydanticEngine(
        Models(given, factories=factories),
        policy,
        {"documents": pages},
        clock=clock,
        rules=rules or RetryRules(short_s=(0.0, 0.0)),
        **engine,
    )
    home = house.build(engine=built, store=store, clock=clock, policy=policy)
    home.pages.pages.update(pages.pages)
    await home.load(contract.replace("EXTRA", extra))
    await home.wake(**(wake or {}))
    return Desk(home, model, store, built)


def returns(messages: Sequence[ModelMessage]) -> dict[str, ToolReturnPart]:
    """Every tool's return in a history, by call id; the last one wins."""
    parts = [p for m in messages if isinstance(m, ModelRequest) for p in m.parts if isinstance(p, ToolReturnPart)]
    return {part.tool_call_id: part for part in parts}
