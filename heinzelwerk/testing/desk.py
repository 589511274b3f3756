"""One contract tried with the real engine over a scripted model: everything is real but the model, the store and the world."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

from heinzelwerk import advance, apply, contract, errors, loading, skill_directory
from heinzelwerk.client import Client
from heinzelwerk.contract import Installed
from heinzelwerk.effect import EffectRecord
from heinzelwerk.engine.run import PydanticEngine
from heinzelwerk.engine.scripted import Reply, Scripted
from heinzelwerk.ids import SessionId
from heinzelwerk.loading import Repository
from heinzelwerk.ports import Capability, Policy, Publisher, Works
from heinzelwerk.publisher import keeping
from heinzelwerk.session import Due
from heinzelwerk.skill import Skill
from heinzelwerk.store.memory import MemoryStore
from heinzelwerk.testing.house import CountingIds, HandClock, HandKeeper, QuietBell
from heinzelwerk.turn import TurnRecord

TEAM = "test"
_MOST_STEPS = 100
_SECONDS_BETWEEN = 5.0


@dataclass
class Desk:
    """A loaded contract. `model` remembers what it was asked; `client` is the team's, for drafts, words and decisions."""

    name: str
    works: Works
    clock: HandClock
    model: Scripted

    @property
    def client(self) -> Client:
        """The team's client over the store of this desk."""
        return Client(self.works, TEAM, rings=False)

    async def run(self, *, text: str | None = None, by: str = "test") -> TurnRecord:
        """Wake the contract and work until its turn has ended or waits for a person.

        The clock moves while nothing is due, so that waits for a provider pass. Refused where the wake ends without a turn.
        """
        reply = await self.client.wake(self.name, by=by, text=text)
        for _ in range(_MOST_STEPS):
            await self.work()
            settled = await self.client.settled(reply)
            if isinstance(settled, str):
                raise errors.Refused(f"{self.name} did not start: {settled}")
            if settled is not None:
                return settled
            self.clock.pass_(_SECONDS_BETWEEN)
        raise errors.Refused(f"{self.name} did not end in {_MOST_STEPS} steps")

    async def drafts(self) -> list[tuple[EffectRecord, str]]:
        """What the turns so far want placed, with its text, oldest first."""
        found = reversed(await self.client.drafts())
        return [(draft, await self.client.text(draft) or "") for draft in found]

    async def approve(self, draft: EffectRecord, *, by: str = "test") -> EffectRecord:
        """Approve a draft and place it through its publisher; the record after that."""
        await self.client.approve(draft.id, by=by)
        await self.work()
        return await self.client.effect(draft.id)

    async def work(self) -> None:
        """Do everything that is due now."""
        while due := [entry for entry in await self.works.store.due(TEAM) if entry.kind in ("session", "effect")]:
            for entry in due:
                await self._do(entry)

    async def _do(self, entry: Due) -> None:
        if entry.kind == "session":
            await advance.advance(SessionId(TEAM, entry.name), self.works)
        else:
            await apply.apply(TEAM, entry.name, self.works)


async def desk(
    source: Path | str,
    *,
    replies: Sequence[Reply],
    capabilities: Mapping[str, Capability] | None = None,
    publishers: Sequence[Publisher] = (),
    policy: Policy | None = None,
) -> Desk:
    """A desk with this contract (its file with the skills of its repository, or its text) and these adapters.

    `replies` are the model's, in order; the last one repeats. ContractRefused where the contract has errors.
    """
    data, skills = await asyncio.to_thread(_read, source)
    name = source.name.removesuffix(contract.SUFFIX) if isinstance(source, Path) else _name_in(source)
    reading = contract.read(data, file_name=f"{name}{contract.SUFFIX}")
    if reading.contract is None:
        lines = tuple(str(found) for found in reading.diagnostics)
        raise errors.ContractRefused(f"{name} has errors: {lines[0] if lines else ''}", diagnostics=lines)
    clock, ids, model, rules = HandClock(), CountingIds(), Scripted(replies), policy or Policy()
    bound = dict(capabilities or {})
    works = Works(
        store=MemoryStore(clock.ms),
        bell=QuietBell(),
        keeper=HandKeeper(),
        engine=PydanticEngine(model.models(), rules, bound, clock=clock, ids=ids),
        clock=clock,
        ids=ids,
        capabilities=bound,
        publishers={one.action: one for one in (keeping.draft(), keeping.lesson(), *publishers)},
        policy=rules,
        timezone=UTC,
    )
    repository = Repository((reading,), {reading.sha256: data}, skills)
    await loading.load(TEAM, repository, timezone="UTC", source="a test", installed=Installed(), store=works.store)
    return Desk(name, works, clock, model)


def _read(source: Path | str) -> tuple[bytes, tuple[Skill, ...]]:
    """A contract's bytes, and the good skills of the repository that its file stands in."""
    if isinstance(source, str):
        return source.encode(), ()
    found = skill_directory.read_skills(source.resolve().parent.parent / "skills")
    return source.read_bytes(), tuple(one for one in found if isinstance(one, Skill))


def _name_in(text: str) -> str:
    """The `name:` of a contract's text; "" where there is none, which the reading then reports."""
    found = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("name:")]
    return found[0] if found else ""
