"""A contract tried in this process: a store of plain dicts, the real inputs and the real model, nothing placed anywhere.

`opening` makes what a turn would start from without starting one; `Trial` runs a whole turn to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from config.settings import Settings
from heinzelwerk import (
    admission,
    advance,
    contract,
    errors,
    gathering,
    handing,
    loading,
    looking_back,
    skilling,
    starting,
)
from heinzelwerk.capability import registry as capabilities
from heinzelwerk.client import Client, WakeReply
from heinzelwerk.contract import Contract
from heinzelwerk.ids import SessionId
from heinzelwerk.loading import Repository
from heinzelwerk.opening import Opening
from heinzelwerk.ports import Publisher, Works
from heinzelwerk.publisher import keeping
from heinzelwerk.publisher import registry as publishers
from heinzelwerk.publisher.contracts import ContractFiles
from heinzelwerk.session import Due
from heinzelwerk.store.memory import MemoryStore
from heinzelwerk.turn import Pins, TurnRecord, TurnState
from heinzelwerk.wake import Cause, Wake
from workers import repositories, translation
from workers.clock import SystemClock, UlidIds
from workers.engine import EngineAtFirstUse, EngineRoom
from workers.keeper import IdleKeeper

TEAM = "trial"
_LOOK_EVERY_S = 0.1


class _SilentBell:
    async def ring(self, entries: Sequence[Due]) -> None:
        """Nobody is rung for: the trial looks itself."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One contract in a store of its own."""

    works: Works
    name: str

    def client(self) -> Client:
        """A client over the trial's store."""
        return Client(self.works, TEAM, rings=False)

    async def run(self, *, by: str, text: str | None = None) -> TurnRecord:
        """Wake it and work until its turn has ended or waits for a person."""
        client = self.client()
        reply = await client.wake(self.name, by=by, text=text)
        while True:
            ended = await self._step(client, reply)
            if ended is not None:
                return ended
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _step(self, client: Client, reply: WakeReply) -> TurnRecord | None:
        for due in await self.works.store.due(TEAM):
            if due.kind == "session":
                await advance.advance(SessionId(TEAM, due.name), self.works)
            elif due.kind == "job":
                await handing.hand_over(TEAM, due.name, self.works, worker="trial")
        ended = await client.settled(reply)
        if isinstance(ended, str):
            raise errors.Refused(f"{self.name} did not start: {ended}")
        return ended


def assemble(settings: Settings, *, model: str | None = None) -> Works:
    """The ports of a trial: everything real but the store, which is this process's own."""
    if model is not None:
        settings = settings.model_copy(
            update={"heinzel": settings.heinzel.model_copy(update={"model": model, "classes": {}})}
        )
    clock, ids = SystemClock(), UlidIds()
    adapters = capabilities.build(
        repositories=settings.code_host.repositories,
        documents=settings.documents.directory,
        plugins=settings.adapters.capabilities,
    )
    policy = replace(translation.policy(settings, None), unattended=frozenset())
    room = EngineRoom(settings, capabilities=adapters, clock=clock, ids=ids, factories=None)
    store = MemoryStore(lambda: int(clock.now().timestamp() * 1000), translation.store_options(settings))
    own: tuple[Publisher, ...] = (
        keeping.draft(),
        keeping.lesson(),
        ContractFiles({}, partial(loading.text_of, store=store)),  # nothing is written: a trial changes no file
    )
    kept = {one.action: one for one in own}
    return Works(
        store=store,
        bell=_SilentBell(),
        keeper=IdleKeeper(),
        engine=EngineAtFirstUse(room, policy),
        clock=clock,
        ids=ids,
        capabilities=adapters,
        publishers=kept
        | publishers.build(documents=settings.documents.directory, plugins=settings.adapters.publishers),
        policy=policy,
        timezone=translation.zone(settings, None),
    )


async def prepare(file: Path, works: Works) -> Trial:
    """Load one contract file, with the skills of its repository. ContractRefused where it has errors."""
    data = await asyncio.to_thread(file.read_bytes)
    reading = contract.read(data, file_name=file.name, file=str(file))
    if reading.contract is None:
        raise errors.ContractRefused(
            f"{file} has errors and cannot be tried",
            diagnostics=tuple(str(found) for found in reading.diagnostics),
            fix=f"`heinzelwerk check {file}` says how to correct each",
        )
    works.engine.pins(reading.contract)  # a model that cannot run is an operator's error, said before anything starts
    skills = await repositories.skills(file.parent.parent)
    repository = Repository((reading,), {reading.sha256: data}, skills.counting)
    await loading.load(
        TEAM, repository, timezone="UTC", source=str(file), installed=contract.Installed(), store=works.store
    )
    return Trial(works, reading.name)


async def opening(text: Contract, team: str, works: Works, *, model: str) -> Opening:
    """What a turn of this contract woken now would start from: its inputs are read, nothing is stored or sent."""
    now = await works.store.now_ms()
    session = SessionId(team, text.name)
    seen = await works.store.overview(session)
    turn = TurnRecord(
        number=(seen.last_turn if seen else 0) + 1,
        state=TurnState.RUNNING,
        wake=Wake(team=team, heinzel=text.name, key="manual/dry-run", cause=Cause.MANUAL),
        accepted_ms=now,
        as_of_ms=now,
        started_ms=now,
        pins=Pins(contract=text.sha256, generation=0, model=model, engine=""),
    )
    skills = await skilling.for_contract(text, team, works)
    inputs = await gathering.gather(text, team=team, as_of=admission.at(now), works=works)
    return Opening(
        turn=turn,
        contract=text,
        version=starting.contract_version(text.sha256),
        model=model,
        inputs=inputs,
        skills=skills,
        earlier=await looking_back.earlier(turn, works),
        approved=await looking_back.approved(text, session, works),
    )
