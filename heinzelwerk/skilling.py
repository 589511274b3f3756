"""Skills of a turn: which of the loaded ones apply to a contract, and how they travel in store and body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from heinzelwerk import errors
from heinzelwerk.opening import SkillText

if TYPE_CHECKING:
    from heinzelwerk.contract import Contract
    from heinzelwerk.ports import Works


@dataclass(frozen=True, slots=True)
class PackedSkill:
    """A skill as a generation stores it: its words, and where it says that it applies by itself."""

    skill: SkillText
    layer: str = "team"
    applies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


_PACKED = TypeAdapter(PackedSkill)
_TEXTS = TypeAdapter(tuple[SkillText, ...])
LAYERS = ("package", "team", "operator")
"""General to specific; this is the order of rendering, and a later layer's skill of one name replaces an earlier one's."""


def pack(skill: PackedSkill) -> bytes:
    """As a generation's text; the same skill packs to the same bytes."""
    return _PACKED.dump_json(skill)


def unpack(data: bytes) -> PackedSkill:
    """Read what `pack` wrote."""
    return _PACKED.validate_json(data)


def dump(skills: Iterable[SkillText]) -> bytes:
    """As a turn's body keeps them."""
    return _TEXTS.dump_json(tuple(skills))


def load(data: bytes) -> tuple[SkillText, ...]:
    """Read what `dump` wrote."""
    return _TEXTS.validate_json(data)


async def for_contract(contract: Contract, team: str, works: Works) -> tuple[SkillText, ...]:
    """The skills that a contract names (`hz.uses`) and those that apply to it by themselves, in layer order, then by name.

    Refused where the contract names one that is not loaded: advice that silently lacks is worse than a turn that waits.
    """
    generation = await works.store.generation(team)
    known = generation.skills if generation else {}
    missing = [name for name in contract.uses if name not in known]
    if missing:
        loaded = ", ".join(sorted(known)) or "none"
        raise errors.Refused(
            f"contract {contract.name} uses the skill {missing[0]}, which is not loaded; loaded: {loaded}",
            fix=f"add skills/{missing[0]}/SKILL.md to the team's repository and load again",
        )
    packed = [unpack(data) for sha in known.values() if (data := await works.store.text(team, sha)) is not None]
    chosen = [entry for entry in packed if entry.skill.name in contract.uses or applies(entry, contract)]
    chosen.sort(key=lambda entry: (LAYERS.index(entry.layer), entry.skill.name))
    return tuple(entry.skill for entry in chosen)


def applies(packed: PackedSkill, contract: Contract) -> bool:
    """Whether a skill's `hz.applies` matches: one of its capabilities is one that the contract requires or reads."""
    wanted = set(packed.applies.get("capabilities", ()))
    used = {text.partition(":")[0] for text in contract.requires}
    used |= {spec.read.partition(".")[0] for spec in contract.inputs.values() if spec.contract is None}
    return bool(wanted & used)
