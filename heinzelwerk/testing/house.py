"""A whole house in one process: every port's double around the real path, for tests that need no server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import BaseModel, JsonValue

from heinzelwerk import contract, errors
from heinzelwerk.claim import Claim
from heinzelwerk.ending import Ending, Finished, Tail
from heinzelwerk.generation import ContractEntry, Generation, Publishing
from heinzelwerk.ids import SessionId
from heinzelwerk.opening import Opening
from heinzelwerk.outcome import DoneItem, Draft, Outcome
from heinzelwerk.planning import KEEP_LESSON, publishings
from heinzelwerk.ports import Capability, Engine, Held, Placement, Policy, Publisher, Store, TargetView, Works
from heinzelwerk.publisher import keeping
from heinzelwerk.session import Due
from heinzelwerk.store.memory import MemoryStore
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.turn import EnginePins
from heinzelwerk.wake import Cause, Wake

TEAM = "core"
CONTRACT = """---
name: {name}
kind: responsibility
description: Keeps one page true.
hz:
  schema: 1
  title: One page
  requires: [documents:read]
  inputs:
    page:
      read: documents.read
      args: {{ref: page.md}}
  outputs:
    page: {{format: markdown}}
  publishes:
    - action: notes.place
      output: page
      args: {{place: wall}}
{extra}---
### Goal
Keep the page true.
### Requires
- `page`
### Maintains
- `page`
### Done when
- It says what the page says.
"""


@dataclass
class HandClock:
    """A clock that only the test moves."""

    seconds: float = 1_800_000_000.0

    def now(self) -> datetime:
        """The instant that the test has reached."""
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        """The same in seconds."""
        return self.seconds

    def ms(self) -> int:
        """The same in milliseconds: the clock of a memory store."""
        return int(self.seconds * 1000)

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds


@dataclass
class CountingIds:
    """Ids in the order in which they were asked for."""

    count: int = 0

    def new(self) -> str:
        """The next one."""
        self.count += 1
        return f"{self.count:026d}"


@dataclass
class QuietBell:
    """Remembers what was rung for; rings nobody."""

    rung: list[Due] = field(default_factory=list)

    async def ring(self, entries: Sequence[Due]) -> None:
        """Remember them."""
        self.rung.extend(entries)


@dataclass
class HandKeeper:
    """Knows who holds a lease; tests interrupt through it."""

    held: list[Held] = field(default_factory=list)

    def keep(self, held: Held) -> None:
        """Remember the holder."""
        self.held.append(held)

    def forget(self, held: Held) -> None:
        """Forget it."""
        if held in self.held:
            self.held.remove(held)


class _Reference(BaseModel):
    ref: str


@dataclass
class Pages:
    """The capability `documents` over a dict; counts its reads."""

    pages: dict[str, str] = field(default_factory=lambda: {"page.md": "Hello."})
    reads: int = 0
    name: str = "documents"

    def methods(self) -> Mapping[str, type[BaseModel]]:
        """One: `read`."""
        return {"read": _Reference}

    async def read(
        self, method: str, arguments: Mapping[str, str], *, since: datetime | None, until: datetime | None
    ) -> JsonValue:
        """The page as it is now."""
        self.reads += 1
        return {"ref": arguments["ref"], "title": "Page", "text": self.pages[arguments["ref"]]}


@dataclass
class Wall:
    """A publisher over a dict; counts what was placed under which key."""

    action: str = "notes.place"
    refuses_late: bool = True
    held: dict[str, tuple[str, str]] = field(default_factory=dict)
    placed: list[str] = field(default_factory=list)
    before_place: Callable[[Placement], None] = lambda placement: None

    def target(self, arguments: Mapping[str, str]) -> str:
        """The place on the wall."""
        return f"notes:{arguments['place']}"

    async def view(self, arguments: Mapping[str, str]) -> TargetView:
        """What hangs there."""
        words, key = self.held.get(arguments["place"], ("", ""))
        return TargetView(self.target(arguments), shown=words, before=words, key=key)

    async def place(self, placement: Placement, *, deadline_s: float) -> str:
        """Hang it, whatever hung there."""
        self.before_place(placement)
        self.placed.append(placement.key)
        self.held[placement.arguments["place"]] = (placement.text, placement.key)
        return f"r{len(self.placed)}"


def finish(words: str = "The page says hello.", **outcome: object) -> Callable[[Opening, Claim], Ending]:
    """A scripted segment that drafts these words and meets every item."""

    def segment(opening: Opening, claim: Claim) -> Ending:
        done = [DoneItem(item=item, met=True, evidence="I looked.") for item in opening.contract.done_when]
        draft = Draft(text=words, output=opening.contract.output, contract_version=opening.version, done_when=done)
        given: dict[str, object] = {"report": "Wrote the page.", "draft": draft, **outcome}
        return Finished(Tail(opening.turn), Outcome.model_validate(given))

    return segment


@dataclass
class ScriptedEngine:
    """An engine whose segments are functions, taken in order; the last one repeats."""

    segments: list[Callable[[Opening, Claim], Ending]] = field(default_factory=lambda: [finish()])
    openings: list[Opening] = field(default_factory=list)

    def pins(self, contract: contract.Contract) -> EnginePins:
        """Always the same."""
        return EnginePins(model="scripted", engine="scripted:1")

    async def run(self, opening: Opening, claim: Claim) -> Ending:
        """The next segment."""
        self.openings.append(opening)
        segment = self.segments.pop(0) if len(self.segments) > 1 else self.segments[0]
        return segment(opening, claim)


def entry_of(raw: str, name: str) -> ContractEntry:
    """What a load would write for this contract's text."""
    read = contract.read(raw.encode(), file_name=f"{name}.prose.md", namespace="team")
    if read.contract is None:
        raise errors.ContractRefused(f"{name} has errors", diagnostics=tuple(map(str, read.diagnostics)))
    text = read.contract
    return ContractEntry(
        name=name,
        file=f"workflows/{name}.prose.md",
        sha256=text.sha256,
        title=text.title,
        schedule=text.schedule,
        timezone=text.timezone or "UTC",
        catch_up=str(text.catch_up),
        on=text.on,
        publishes=(*publishings(text), Publishing(action=KEEP_LESSON, output="lesson")),
        outputs=tuple(text.outputs),
        reads=tuple(f"{spec.contract[1]}#{spec.contract[2]}" for spec in text.inputs.values() if spec.contract),
    )


@dataclass
class House:
    """The doubles and the works made of them."""

    clock: HandClock
    store: Store
    engine: Engine
    bell: QuietBell
    keeper: HandKeeper
    pages: Pages
    wall: Wall
    works: Works

    async def load(self, *texts: str) -> None:
        """Load these contracts as the team's newest generation."""
        entries: dict[str, ContractEntry] = {}
        stored: dict[str, bytes] = {}
        for raw in texts:
            name = raw.split("name: ", 1)[1].split("\n", 1)[0]
            entries[name] = entry_of(raw, name)
            stored[entries[name].sha256] = raw.encode()
        await self.store.load(Generation(TEAM, entries, stored), {})

    async def wake(self, name: str = "page", key: str = "manual/1", **more: object) -> None:
        """Accept one wake."""
        given: dict[str, object] = {"team": TEAM, "heinzel": name, "key": key, "cause": Cause.MANUAL, **more}
        await self.store.accept(Wake.model_validate(given), nonce=self.works.ids.new())

    async def kinds(self, name: str = "page") -> list[str]:
        """The kinds on a spine, in order."""
        return [json.loads(line)["kind"] for line in await self.store.spine(SessionId(TEAM, name))]


def build(
    *,
    engine: Engine | None = None,
    store: Store | None = None,
    clock: HandClock | None = None,
    policy: Policy | None = None,
    options: StoreOptions | None = None,
) -> House:
    """A house with doubles where nothing is given."""
    clock = clock or HandClock()
    store = store or MemoryStore(clock.ms, options)
    engine = engine or ScriptedEngine()
    bell, keeper, pages, wall = QuietBell(), HandKeeper(), Pages(), Wall()
    capabilities: dict[str, Capability] = {"documents": pages}
    publishers: dict[str, Publisher] = {
        wall.action: wall,
        "draft.keep": keeping.draft(),
        "lesson.keep": keeping.lesson(),
    }
    works = Works(
        store=store,
        bell=bell,
        keeper=keeper,
        engine=engine,
        clock=clock,
        ids=CountingIds(),
        capabilities=capabilities,
        publishers=publishers,
        policy=policy or Policy(),
        timezone=UTC,
    )
    return House(clock, store, engine, bell, keeper, pages, wall, works)


def page(name: str = "page", extra: str = "") -> str:
    """A small valid contract; `extra` are more lines under `hz:`."""
    return CONTRACT.format(name=name, extra=extra)
