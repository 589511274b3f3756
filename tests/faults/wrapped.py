"""The worker's side of the fault suite: the product's ports with failpoints around them, and a model that counts.

python -P -m tests.support.worker PROFILE tests.faults.wrapped:change
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, JsonValue

from heinzelwerk import errors
from heinzelwerk.commit import After, Commit
from heinzelwerk.engine import PydanticEngine
from heinzelwerk.engine.trouble import Circuit, RetryRules
from heinzelwerk.ids import SessionId
from heinzelwerk.ports import Capability, Works
from heinzelwerk.store.client import RedisStore
from tests.faults import scripts
from tests.faults.control import DIRECTORY, Control
from tests.faults.targets import Board
from tests.support.worker import Change
from workers.engine import offered

POINTED = frozenset(
    {"accept", "ring", "claim", "commit", "release", "post", "start_effect", "close_effect", "close_job"}
)
RULES = RetryRules(short_s=(0.05, 0.1), longest_s=2.0, park_s=0.4, park_most_s=1.0, parks=3)
FORMAT, CLOCK_S = "FAULTS_FORMAT", "FAULTS_CLOCK_S"


def change() -> Change:
    """The wrapped ports and the model factory."""
    control = Control(Path(os.environ[DIRECTORY]))
    return Change(
        factories={"fault": lambda name: scripts.model(name, control)}, wrap=lambda works: _wrap(works, control)
    )


def _wrap(works: Works, control: Control) -> Works:
    boards = {
        "wall.place": Board("wall.place", control, conditional=False),
        "shelf.place": Board("shelf.place", control, conditional=True),
    }
    capabilities = cast("dict[str, Capability]", works.capabilities)
    capabilities["code-host"] = Host(control)
    store: Any = works.store
    if FORMAT in os.environ:
        store = RedisStore(store.url, replace(store._options, format=int(os.environ[FORMAT])))
    clock = Shifted(works.clock, float(os.environ[CLOCK_S])) if CLOCK_S in os.environ else works.clock
    room = cast("Any", works.engine)._room
    engine = _Hasty(
        models=room.models,
        policy=works.policy,
        capabilities=capabilities,
        runners=offered(room._settings),
        clock=clock,
        ids=works.ids,
        rules=RULES,
    )
    return replace(
        works, store=Pointed(store, control), publishers={**works.publishers, **boards}, engine=engine, clock=clock
    )


class _Hasty(PydanticEngine):
    """The product's engine with the patience of a test: the same rules, in tenths of seconds."""

    hasty: dict[str, Circuit]

    def circuit(self, model: Any) -> Circuit:
        known: dict[str, Circuit] = self.__dict__.setdefault("hasty", {})
        return known.setdefault(model.system, Circuit(failures=5, first_s=1.0, most_s=2.0))


class Shifted:
    """A machine's clock that is wrong by so many seconds."""

    def __init__(self, clock: Any, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def now(self) -> datetime:
        found: datetime = self._clock.now() + timedelta(seconds=self._seconds)
        return found

    def monotonic(self) -> float:
        found: float = self._clock.monotonic()
        return found


class Pointed:
    """A store with a failpoint before and after each of its mutations: `<method>.before`, `<method>.after`.

    A commit is named by what it brings: `commit:<kind of its last event>`, `commit:call` or `commit:reserve`.
    """

    def __init__(self, inner: Any, control: Control) -> None:
        self._inner, self._control = inner, control

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in POINTED:
            return method

        async def call(*arguments: Any, **named: Any) -> Any:
            point, of = _point(name, arguments), _of(arguments)
            await self._control.hit(f"{point}.before", of)
            answer = await method(*arguments, **named)
            await self._control.hit(f"{point}.after", of)
            return answer

        return call


def _point(name: str, arguments: tuple[Any, ...]) -> str:
    found = next((entry for entry in arguments if isinstance(entry, Commit)), None)
    if found is None:
        return name
    if found.lines:
        return f"commit:{json.loads(found.lines[-1])['kind']}"
    if found.after is not After.KEEP:
        return "commit:last"
    return "commit:call" if found.calls else "commit:reserve"


def _of(arguments: tuple[Any, ...]) -> str:
    first = arguments[0] if arguments else None
    if isinstance(first, SessionId):
        return first.heinzel
    return str(getattr(first, "heinzel", first))


class _Asked(BaseModel):
    repository: str


class Host:
    """A code host whose reads are counted; `<name>/<number>` says whose read it is."""

    name = "code-host"

    def __init__(self, control: Control) -> None:
        self._control = control

    def methods(self) -> Mapping[str, type[BaseModel]]:
        return {"merged_pull_requests": _Asked}

    async def read(
        self, method: str, arguments: Mapping[str, str], *, since: datetime | None, until: datetime | None
    ) -> JsonValue:
        name, _, number = arguments["repository"].partition("/")
        self._control.log("tool", of=name, call=number)
        await self._control.hit(f"tool.{number}", name)
        behaviour = self._control.directory / f"host-{name}"
        if behaviour.exists():
            return await self._behave(json.loads(behaviour.read_text()))
        return [{"number": int(number), "title": f"Change {number}"}]

    async def _behave(self, told: dict[str, Any]) -> JsonValue:
        if "raise" in told:
            raise RuntimeError(told["raise"])
        if "fail" in told:
            raise errors.ReadFailed(told["fail"], fix="")
        if "bytes" in told:
            return [{"number": 1, "title": "x" * told["bytes"]}]
        return cast("JsonValue", told["data"])
