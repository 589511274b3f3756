"""A team's repository, from a directory or a git branch, made the team's newest generation.

Who loads is one of few (the command `load`, the upkeep of one host); every other process reads texts from the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from heinzelwerk import errors, loading, planning, skill_directory
from heinzelwerk.contract.sets import Installed
from heinzelwerk.loading import Loaded
from heinzelwerk.opening import SkillText
from heinzelwerk.ports import Publisher, Store
from heinzelwerk.sandbox import git
from heinzelwerk.skill import Refusal, Skill
from heinzelwerk.skilling import PackedSkill

SKILLS = "skills"
_FETCH_S = 120.0


@dataclass(frozen=True, slots=True)
class Checkout:
    """A team's files on this disk: where they lie, and what people call their source (a directory, or URL@commit)."""

    root: Path
    source: str


@dataclass(frozen=True, slots=True)
class Skills:
    """A repository's skills, ready to be stored, and those that were left out."""

    packed: tuple[PackedSkill, ...]
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


async def check_out(place: Path | Branch) -> Checkout:
    """A team's files: a directory as it is, or a branch fetched. Refused, GitError where there is none."""
    if isinstance(place, Path):
        return directory(place)
    commit = await git.fetch_branch(place.url, place.name, place.directory, timeout_s=_FETCH_S, depth=1)
    return Checkout(place.directory, f"{place.url}@{commit[:12]}")


def directory(root: Path) -> Checkout:
    """A team's files in a directory; Refused where that holds no `workflows`."""
    if not (root / loading.WORKFLOWS).is_dir():
        raise errors.Refused(
            f"{root} has no directory {loading.WORKFLOWS}/ with contracts",
            fix="name the team's checkout, or `heinzelwerk new NAME --directory workflows` writes a first contract",
        )
    return Checkout(root.resolve(), str(root.resolve()))


async def skills(root: Path) -> Skills:
    """The skills of a repository; a bad one is left out with its reason."""
    found = await asyncio.to_thread(skill_directory.read_skills, root / SKILLS)
    good = tuple(packed(entry) for entry in found if isinstance(entry, Skill))
    return Skills(good, tuple(entry for entry in found if isinstance(entry, Refusal)))


async def load(
    team: str, checkout: Checkout, *, timezone: str, publishers: Mapping[str, Publisher], store: Store
) -> TeamLoad:
    """Check the files and make them the team's newest generation; what is broken blocks itself only."""
    advice = await skills(checkout.root)
    repository = await asyncio.to_thread(loading.read_repository, checkout.root, skills=advice.packed)
    loaded = await loading.load(
        team,
        repository,
        timezone=timezone,
        source=checkout.source,
        installed=installed(publishers, advice),
        store=store,
    )
    return TeamLoad(loaded, advice.refused)


def installed(publishers: Mapping[str, Publisher], advice: Skills) -> Installed:
    """What contracts may name here: the publishers' actions and the repository's own skills."""
    return Installed(
        actions={action: "write" for action in publishers if action not in planning.INTERNAL},
        skills=frozenset(entry.skill.name for entry in advice.packed),
    )


def packed(skill: Skill) -> PackedSkill:
    """A skill as a generation stores it."""
    files = {path: data.decode("utf-8", "replace") for path, data in skill.files.items() if path != "SKILL.md"}
    text = SkillText(skill.name, skill.description, skill.body, skill.fingerprint, files)
    applies = skill.applies
    return PackedSkill(
        text,
        applies={}
        if applies is None
        else {
            "asset_types": tuple(sorted(applies.asset_types)),
            "roles": tuple(sorted(applies.roles)),
            "capabilities": tuple(sorted(applies.capabilities)),
        },
    )
