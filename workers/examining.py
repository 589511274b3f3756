"""Gathering what the doctor judges: settings, models, targets, sandbox, the store and everything it knows of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import heinzelwerk
from heinzelwerk import contract, errors, gathering, handoff, planning
from heinzelwerk.client import Client
from heinzelwerk.ports import Works
from heinzelwerk.sandbox import git
from heinzelwerk.sandbox.spec import Refusal
from workers import doctor, engine, repositories
from workers.clock import SystemClock, UlidIds
from workers.doctor import Finding, Level

if TYPE_CHECKING:
    from config.settings import Settings
    from heinzelwerk.runner.run import House
    from workers.root import Runtime

OFFLINE = "offline"
"""The model that is always there."""

Connect = Callable[[], AbstractAsyncContextManager["Runtime"]]


async def examine(settings: Settings, connect: Connect) -> tuple[Finding, ...]:
    """Everything, what is down first; what cannot be looked at because something else is down is left out."""
    local = [finding async for finding in _local(settings)]
    try:
        async with connect() as runtime:
            found = [*local, *await _deployment(settings, runtime)]
    except (errors.Refused, errors.StoreUnavailable, errors.ConfigurationError, errors.FormatTooNew) as error:
        found = [*local, Finding(Level.DOWN, "store", str(error), error.fix)]
    rank = {Level.DOWN: 0, Level.WARN: 1, Level.OK: 2}
    return tuple(sorted(found, key=lambda finding: rank[finding.level]))


async def _local(settings: Settings) -> AsyncIterator[Finding]:
    """What this machine can say without a server."""
    for finding in models(settings):
        yield finding
    for name, path in settings.code_host.repositories.items():
        yield await _repository(name, path)
    if settings.documents.directory is not None:
        yield _documents(settings.documents.directory)
    if settings.handoff.runners:
        for finding in await _agents(settings):
            yield finding


def models(settings: Settings) -> list[Finding]:
    """Every configured model: its extra, its key, its price."""
    if not _named(settings) - {OFFLINE}:  # loading an agent library takes a second, and this one needs nothing of it
        return [Finding(Level.OK, "models", "offline: no language model, no key, no cost")]
    from heinzelwerk.engine import Models

    chosen = Models(engine.model_settings(settings))
    found: list[Finding] = []
    for name in chosen.settings.named():
        try:
            chosen.model(name)
            chosen.quote(name)
        except errors.ConfigurationError as error:
            level = Level.DOWN if name == settings.heinzel.model else Level.WARN
            found.append(Finding(level, "models", str(error), error.fix))
        else:
            found.append(Finding(Level.OK, "models", f"{name}: installed, key set, priced"))
    return found


def _named(settings: Settings) -> set[str]:
    heinzel = settings.heinzel
    named = (heinzel.model, heinzel.model_fast, heinzel.fallback, *heinzel.classes.values())
    return {name for name in named if name}


async def _repository(name: str, path: Path) -> Finding:
    try:
        await git.run_git(path, ("rev-parse", "--git-dir"), timeout_s=20, output_cap=4096)
    except errors.GitError as error:
        fix = error.fix or f"correct [code-host.repositories] {name}"
        return Finding(Level.WARN, "targets", f"repository {name}: {error}", fix)
    return Finding(Level.OK, "targets", f"repository {name} is readable")


def _documents(directory: Path) -> Finding:
    if not directory.is_dir():
        fix = f"make it (mkdir -p {directory}), or correct [documents] directory"
        return Finding(Level.DOWN, "targets", f"the documents directory {directory} does not exist", fix)
    return Finding(Level.OK, "targets", f"documents are in {directory}")


async def _agents(settings: Settings) -> list[Finding]:
    """Whether coding agents can be confined here, and which of them could be started, asked as a handoff worker asks."""
    from workers import handoffs

    place = handoffs.house(settings, SystemClock(), UlidIds())
    backend = await place.backend()
    if isinstance(backend, Refusal):
        return [Finding(Level.DOWN, "sandbox", f"coding agents cannot be confined: {backend.detail}", backend.fix)]
    words = f"coding agents are confined by {backend.name}"
    found = [Finding(Level.OK, "sandbox", words)]
    if settings.handoff.backend == "unsafe":
        fix = 'take backend = "unsafe" out of [handoff]'
        found = [Finding(Level.WARN, "sandbox", "coding agents run without walls, as [handoff] backend says", fix)]
    return [*found, *[await _agent(name, settings, place) for name in settings.handoff.runners]]


async def _agent(name: str, settings: Settings, place: House) -> Finding:
    """One runner: its program and version, and how it gets at its model."""
    from workers import handoffs

    table = settings.handoff.runners[name]
    try:
        runner = handoffs.runner(name, settings, place)
        probe = await runner.probe()
    except errors.ConfigurationError as error:
        # Only handoff workers need the agents' keys, and this may be another machine.
        return Finding(Level.WARN, "agents", f"{name} cannot be started here: {error}", error.fix)
    if isinstance(probe, handoff.Refusal):
        return Finding(Level.WARN, "agents", f"{name} cannot be started here: {probe.detail}", probe.fix)
    login = runner.settings.login
    if login is not None and not login.credentials.is_dir():
        fix = "log in once by hand with HOME set to that directory"
        return Finding(Level.WARN, "agents", f"{name}: its login directory {login.credentials} is not there", fix)
    way = f"login in {login.credentials}" if login is not None else "key set" if runner.settings.access else "no model"
    return Finding(Level.OK, "agents", " ".join(f"{name}: {table.agent} {probe.version}".split()) + f", {way}")


async def _deployment(settings: Settings, runtime: Runtime) -> list[Finding]:
    works = runtime.works
    store = works.store
    facts, beats, flag, now = await asyncio.gather(
        store.server_facts(), store.workers(), store.flag("drain"), store.now_ms()
    )
    here_ms = int(works.clock.now().timestamp() * 1000)
    found = doctor.store(facts, appendfsync=settings.store.appendfsync, here_ms=here_ms)
    found += doctor.workers(beats, here=heinzelwerk.__version__, now_ms=now)
    if settings.handoff.runners:
        found += doctor.handoff_workers(beats)
    found += doctor.drained(flag)
    teams = sorted({*await store.teams(), *settings.teams})
    for team in teams:
        found += await _team(team, runtime.works_of(team), now)
    if not teams:
        fix = "`heinzelwerk load DIRECTORY --team NAME`, or [teams.NAME] source = ..."
        found.append(Finding(Level.WARN, "contracts", "no team has loaded contracts yet", fix))
    return found


async def _team(team: str, works: Works, now_ms: int) -> list[Finding]:
    store = works.store
    client = Client(works, team, rings=False)
    await client.inspect_all(newest=doctor.NEWEST_LINES)
    entries, recent, due, seen, troubles = await asyncio.gather(
        store.entries(team),
        client.troubled(),
        store.due(team, limit=doctor.MANY_WAITING),
        client.overviews(),
        repositories.remembered(team, store),
    )
    return [
        *doctor.contracts(team, entries),
        *(Finding(Level.WARN, "contracts", f"team {team}: {found.what}", found.fix) for found in troubles),
        *doctor.sessions(seen.values(), now_ms=now_ms),
        *doctor.queues(team, due, now_ms=now_ms),
        *doctor.effects(team, recent),
        *[finding for name, entry in entries.items() if not entry.broken for finding in await _inputs(client, name)],
        *[
            finding
            for entry in entries.values()
            for publishing in entry.publishes
            if publishing.action in works.publishers
            and publishing.action not in planning.INTERNAL
            and (finding := await _target(f"{team}/{entry.name}", works, publishing.action, publishing.args))
        ],
    ]


async def _inputs(client: Client, name: str) -> list[Finding]:
    """The inputs of a contract that nothing here can read: each of its turns would end with that."""
    entry, text = await client.contract(name)
    read = contract.read(text, file_name=f"{name}{contract.SUFFIX}", file=entry.file).contract
    specs = read.inputs.items() if read is not None else ()
    lacking = [(key, gathering.unserved(spec, client.works.capabilities)) for key, spec in specs]
    return [
        Finding(Level.WARN, "inputs", f"{client.team}/{name} cannot read {key}: {error}", error.fix)
        for key, error in lacking
        if error is not None
    ]


async def _target(who: str, works: Works, action: str, arguments: dict[str, str]) -> Finding | None:
    try:
        await works.publishers[action].view(arguments)
    except errors.HeinzelwerkError as error:
        fix = error.fix or "make the document and its marker, or correct the contract's publishes"
        return Finding(Level.WARN, "targets", f"{who} publishes with {action}: {error}", fix)
    return None
