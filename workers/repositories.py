"""A team's repository, from a directory or a git branch, made the team's newest generation.

Who loads is one of few (the command `load`, the upkeep of one host); every other process reads texts from the store.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import json
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from heinzelwerk import errors, loading, planning, skill, skill_directory
from heinzelwerk.contract.sets import Installed
from heinzelwerk.loading import Loaded
from heinzelwerk.ports import Publisher, Store
from heinzelwerk.sandbox import git
from heinzelwerk.skill import Layer, Refusal, Resolved, Skill

SKILLS = "skills"
_FETCH_S = 120.0
_LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Checkout:
    """A team's files on this disk: where they lie, and what people call their source (a directory, or URL@commit)."""

    root: Path
    source: str


@dataclass(frozen=True, slots=True)
class Shelf:
    """A directory of skills beside the teams' own, and how specific they are."""

    directory: Path
    layer: Layer


@dataclass(frozen=True, slots=True)
class Skills:
    """The skills that count for a team, and those that were left out, each with its reason and fix."""

    counting: tuple[Skill, ...]
    refused: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class TeamLoad:
    """What a load did, and the skills that were left out, each with its reason and fix."""

    loaded: Loaded
    refused: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class Branch:
    """Where a team's repository is fetched from, and the directory that keeps it."""

    url: str
    name: str
    directory: Path


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a team's source since somebody last looked at it, and the fix."""

    what: str
    fix: str


@asynccontextmanager
async def checked_out(place: Path | Branch) -> AsyncIterator[Checkout]:
    """A team's files: a directory as it is, or a branch fetched, which nobody else of this host changes meanwhile.

    Refused or GitError where there is none.
    """
    if isinstance(place, Path):
        yield directory(place)
        return
    async with _alone(place.directory):
        commit = await git.fetch_branch(place.url, place.name, place.directory, timeout_s=_FETCH_S, depth=1)
        yield Checkout(directory(place.directory).root, f"{place.url}@{commit[:12]}")


@asynccontextmanager
async def _alone(kept: Path) -> AsyncIterator[None]:
    """Hold the lock beside a fetched branch: `load` and upkeep fetch into the same directory."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(kept.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        for _ in range(int(2 * _FETCH_S / _LOOK_EVERY_S)):
            if _locked(descriptor):
                break
            await asyncio.sleep(_LOOK_EVERY_S)
        else:
            raise errors.Refused(f"{kept} is being fetched by another process", fix="wait for it, then load again")
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def directory(root: Path) -> Checkout:
    """A team's files in a directory; Refused where that holds no `workflows`, because an empty set puts all to sleep."""
    workflows = root / loading.WORKFLOWS
    if workflows.is_symlink():
        raise errors.Refused(f"{workflows} is a symbolic link, and none is followed", fix="make it a directory")
    if not workflows.is_dir():
        raise errors.Refused(
            f"{root} has no directory {loading.WORKFLOWS}/ with contracts",
            fix="name the team's checkout, or `heinzelwerk new NAME --directory workflows` writes a first contract",
        )
    return Checkout(root.resolve(), str(root.resolve()))


def package_shelf(package: str) -> Shelf:
    """The directory `skills` of an installed package, which is not imported. ConfigurationError where there is none."""
    found = importlib.util.find_spec(package) if package.isidentifier() else None
    for place in (found.submodule_search_locations or ()) if found else ():
        if (Path(place) / SKILLS).is_dir():
            return Shelf(Path(place) / SKILLS, Layer.PACKAGE)
    raise errors.ConfigurationError(
        f"[skills] packages: no installed package {package!r} has a directory {SKILLS}",
        fix="install it, or take it out of the settings",
    )


async def skills(root: Path, shelves: Iterable[Shelf] = ()) -> Skills:
    """The skills of a repository and of the shelves that count; a bad one is left out with its reason."""
    places = (Shelf(root / SKILLS, Layer.TEAM), *shelves)
    found = [entry for place in places for entry in await _read(place)]
    resolved = skill.resolve(entry for entry in found if isinstance(entry, Skill))
    refused = (entry for entry in found if isinstance(entry, Refusal))
    return Skills(resolved.skills, (*refused, *_disputed(resolved)))


async def _read(place: Shelf) -> tuple[Skill | Refusal, ...]:
    return await asyncio.to_thread(skill_directory.read_skills, place.directory, layer=place.layer)


def _disputed(resolved: Resolved) -> Iterable[Refusal]:
    hint = "Keep one of them, or put the one that counts into the team's repository."
    return (Refusal(name, name, "two places bring it, and they differ", hint) for name in resolved.disputed)


async def load(
    team: str,
    checkout: Checkout,
    *,
    timezone: str,
    publishers: Mapping[str, Publisher],
    store: Store,
    shelves: Iterable[Shelf] = (),
) -> TeamLoad:
    """Check the files and make them the team's newest generation; what is broken blocks itself only."""
    advice = await skills(checkout.root, shelves)
    repository = await asyncio.to_thread(loading.read_repository, checkout.root, skills=advice.counting)
    loaded = await loading.load(
        team,
        repository,
        timezone=timezone,
        source=checkout.source,
        installed=installed(publishers, advice),
        store=store,
    )
    await remember(team, troubles(advice), store)
    return TeamLoad(loaded, advice.refused)


def installed(publishers: Mapping[str, Publisher], advice: Skills) -> Installed:
    """What contracts may name here: the publishers' actions and the skills that count."""
    return Installed(
        actions={action: "write" for action in publishers if action not in planning.INTERNAL},
        skills=frozenset(entry.name for entry in advice.counting),
    )


def troubles(advice: Skills) -> list[Trouble]:
    """The skills that were left out, as the doctor shows them."""
    return [
        Trouble(f"skill {entry.name} is not loaded: {entry.place}: {entry.message}", entry.hint)
        for entry in advice.refused
    ]


async def remember(team: str, troubles: Iterable[Trouble], store: Store) -> None:
    """Keep what a look at a team's source found wrong, for the doctor on whatever host; nothing clears it."""
    found = [[trouble.what, trouble.fix] for trouble in troubles]
    if found:
        await store.flag(_flag(team), json.dumps(found))
    else:
        await store.flag(_flag(team), clear=True)


async def remembered(team: str, store: Store) -> tuple[Trouble, ...]:
    """What the newest look at a team's source found wrong."""
    found = await store.flag(_flag(team))
    return tuple(Trouble(what, fix) for what, fix in json.loads(found or "[]"))


def _flag(team: str) -> str:
    return f"source:{team}"
