"""A house whose engine is the real one over a scripted model: what the engine's tests need, and how they crash it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from heinzelwerk import advance
from heinzelwerk.commit import Commit, CommitReply
from heinzelwerk.engine import Models, ModelSettings, Price, PydanticEngine
from heinzelwerk.engine.trouble import RetryRules
from heinzelwerk.ids import SessionId
from heinzelwerk.ports import Policy
from heinzelwerk.store.memory import MemoryStore
from heinzelwerk.turn import TurnRecord
from tests.support import house
from tests.support.house import HandClock, House

SESSION = SessionId(house.TEAM, "page")
NAME = "double:scripted"
PRICE = Price(Decimal(1), Decimal(5))
Reply = Callable[[list[ModelMessage], AgentInfo], ModelResponse | Awaitable[ModelResponse]]

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


@dataclass
class Scripted:
    """A model that answers by script; the last reply repeats. Remembers every request."""

    replies: Sequence[Reply]
    requests: list[tuple[list[ModelMessage], AgentInfo]] = field(default_factory=list)
    usage: RequestUsage | None = None
    answered: int = 0

    def model(self) -> Model:
        return FunctionModel(self._answer, model_name="scripted")

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests.append((messages, info))
        # By what the history holds, not by how often it was asked: a process that died asks again.
        at = sum(isinstance(message, ModelResponse) for message in messages)
        reply = self.replies[min(at, len(self.replies) - 1)](messages, info)
        found = reply if isinstance(reply, ModelResponse) else await reply
        found.usage = self.usage or RequestUsage(input_tokens=1000, output_tokens=100)
        self.answered += 1
        return found

    def heard(self, index: int = -1) -> str:
        """Everything that a request said, as one text."""
        messages, info = self.requests[index]
        parts = [str(getattr(p, "content", "")) for m in messages for p in m.parts]
        return "\n".join([info.instructions or "", *parts])


def calls(*wanted: tuple[str, dict[str, Any]] | str, prefix: str = "c") -> Reply:
    """A response that calls these tools at once."""

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        named = [(entry, {}) if isinstance(entry, str) else entry for entry in wanted]
        parts = [ToolCallPart(name, args, tool_call_id=f"{prefix}{i}") for i, (name, args) in enumerate(named)]
        return ModelResponse(parts=parts)

    return reply


def says(words: str) -> Reply:
    """A response in plain text, which is no outcome."""
    return lambda messages, info: ModelResponse(parts=[TextPart(words)])


def facts(info: AgentInfo) -> dict[str, Any]:
    """The facts of the turn, as the instructions give them."""
    words = (info.instructions or "").rpartition("<turn-facts>")[2].partition("</turn-facts>")[0]
    found: dict[str, Any] = json.loads(words)
    return found


def outcome(**changes: Any) -> Reply:
    """A response that ends the turn with a draft that fits; `changes` replace fields, `draft` fields by `draft__<name>`."""

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        told = facts(info)
        draft = {
            "text": "The pages say hello.",
            "output": next(iter(told["outputs"])),
            "contract_version": told["contract_version"],
            "done_when": [{"item": item, "met": True, "evidence": "read"} for item in told["done_when"]],
        }
        draft |= {key.removeprefix("draft__"): value for key, value in changes.items() if key.startswith("draft__")}
        given = {"report": "Wrote it.", "draft": draft}
        given |= {key: value for key, value in changes.items() if not key.startswith("draft__")}
        return ModelResponse(parts=[ToolCallPart("final_result", given, tool_call_id="end")])

    return reply


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
