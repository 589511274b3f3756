"""Skills of a turn: how a generation and a turn's body keep them, and which of the loaded ones a contract gets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, TypeAdapter

from heinzelwerk import errors, skill
from heinzelwerk.opening import SkillText
from heinzelwerk.skill import MAIN_FILE, Layer, Refusal, Resolved, Skill

if TYPE_CHECKING:
    from heinzelwerk.contract import Contract
    from heinzelwerk.ports import Works


class _Packed(BaseModel):
    """A skill as a generation stores it: where it came from, and its files as they were read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    layer: Layer
    files: dict[str, str]


_TEXTS = TypeAdapter(tuple[SkillText, ...])


def pack(found: Skill) -> bytes:
    """As a generation's text; the same skill packs to the same bytes."""
    files = {path: found.files[path].decode("utf-8") for path in sorted(found.files)}
    return _Packed(name=found.name, layer=found.layer, files=files).model_dump_json().encode()


@lru_cache(maxsize=256)
def unpack(data: bytes) -> Skill | Refusal:
    """Read what `pack` wrote, by today's rules: a release that became stricter refuses what an older one took."""
    packed = _Packed.model_validate_json(data)
    return skill.read(packed.name, {path: text.encode() for path, text in packed.files.items()}, layer=packed.layer)


def dump(skills: Iterable[SkillText]) -> bytes:
    """As a turn's body keeps them."""
    return _TEXTS.dump_json(tuple(skills))


def load(data: bytes) -> tuple[SkillText, ...]:
    """Read what `dump` wrote."""
    return _TEXTS.validate_json(data)


async def for_contract(contract: Contract, team: str, works: Works) -> tuple[SkillText, ...]:
    """The skills that a contract names (`hz.uses`) and those that say that they are for it (`hz.applies`).

    General to specific, then by name. Refused where the contract names one that is not loaded: advice that silently
    lacks is worse than a turn that fails with the reason.
    """
    known = await works.store.skills(team)
    found = [unpack(data) for data in await _texts(team, known.values(), works) if data is not None]
    resolved = skill.resolve(entry for entry in found if isinstance(entry, Skill))
    policy = works.policy
    chosen = skill.select(resolved, contract, roles=policy.roles, asset_types=policy.asset_types)
    if chosen.missing:
        raise _missing(contract, chosen.missing[0], resolved, found)
    return tuple(_text(entry) for entry in chosen.skills)


async def _texts(team: str, hashes: Iterable[str], works: Works) -> list[bytes | None]:
    return await asyncio.gather(*(works.store.text(team, sha) for sha in hashes))


def _missing(contract: Contract, name: str, resolved: Resolved, found: Iterable[Skill | Refusal]) -> errors.Refused:
    refusal = next((entry for entry in found if isinstance(entry, Refusal) and entry.name == name), None)
    loaded = ", ".join(sorted(entry.name for entry in resolved.skills)) or "none"
    return errors.Refused(
        f"contract {contract.name} uses the skill {name}, which is not loaded; loaded: {loaded}"
        + (f" ({refusal})" if refusal else ""),
        fix=f"add skills/{name}/{MAIN_FILE} to the team's repository, or correct it, and load again",
    )


def _text(found: Skill) -> SkillText:
    files = {path: data.decode("utf-8") for path, data in found.files.items() if path != MAIN_FILE}
    return SkillText(found.name, found.description, found.body, found.fingerprint, files)
