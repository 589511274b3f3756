"""Unchanged inputs cost nothing: what a turn's fingerprint covers, and whether the last success still stands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from heinzelwerk import errors, ids
from heinzelwerk.effect import Decision, EffectRecord, EffectState
from heinzelwerk.opening import FetchedInput
from heinzelwerk.turn import Pins

if TYPE_CHECKING:
    from heinzelwerk.ids import SessionId
    from heinzelwerk.ports import Works

MEMO = "success"


@dataclass(frozen=True, slots=True)
class Success:
    """The session's last successful turn: its fingerprint, its effects, the output that it drafted ("" for none)."""

    turn: int
    fingerprint: str
    effects: tuple[str, ...] = ()
    output: str = ""

    def memo(self) -> dict[str, str]:
        """As the session's memo keeps it."""
        data = {"turn": self.turn, "fingerprint": self.fingerprint, "effects": self.effects, "output": self.output}
        return {MEMO: json.dumps(data, separators=(",", ":"))}

    @classmethod
    def read(cls, memo: Mapping[str, str]) -> Success | None:
        """From the session's memo; None where no turn has succeeded yet."""
        if MEMO not in memo:
            return None
        data = json.loads(memo[MEMO])
        return cls(data["turn"], data["fingerprint"], tuple(data["effects"]), data["output"])


class Standing(StrEnum):
    """What a matching fingerprint comes to."""

    UNCHANGED = "unchanged"  # everything stands: skip, no model is called
    ASK_AGAIN = "ask_again"  # only an effect ended otherwise: the same draft is asked again, no model is called
    CHANGED = "changed"  # run the turn


def fingerprint(pins: Pins, inputs: Mapping[str, FetchedInput]) -> str:
    """Over structure, never prose: contract, skills, accepted lessons, model, and each input without its volatile fields."""
    parts = {
        "contract": pins.contract,
        "skills": dict(sorted(pins.skills.items())),
        "lessons": pins.lessons,
        "model": pins.model,
        "inputs": {name: inputs[name].fingerprint for name in sorted(inputs)},
    }
    return ids.digest(json.dumps(parts, sort_keys=True, separators=(",", ":")))


async def standing(session: SessionId, success: Success, works: Works) -> tuple[Standing, tuple[EffectRecord, ...]]:
    """Whether the last success still stands, and the effects that must be asked again where only they do not.

    Completed, declined and undecided effects stand, as long as the target still holds what was placed and the draft's
    text is there; anything else is asked again.
    """
    if success.output and await works.store.draft(session, success.output, approved=False) is None:
        return Standing.CHANGED, ()
    again: list[EffectRecord] = []
    for effect_id in success.effects:
        record = await works.store.effect(session.team, effect_id)
        if record is None:
            return Standing.CHANGED, ()
        if not await _stands(record, works):
            again.append(record)
    return (Standing.ASK_AGAIN, tuple(again)) if again else (Standing.UNCHANGED, ())


async def _stands(record: EffectRecord, works: Works) -> bool:
    if record.undecided or record.decision in (Decision.DECLINED, Decision.SUPERSEDED):
        return True
    if record.state is not EffectState.COMPLETED:
        # Approved and not placed yet, or being placed: that is on its way, not lost.
        return record.state in (EffectState.PLANNED, EffectState.STARTED, EffectState.UNKNOWN)
    publisher = works.publishers.get(record.action)
    if publisher is None:
        return True
    try:
        view = await publisher.view(record.arguments)
    except (errors.TargetError, errors.RetryLater):
        return False
    return view.key in ("", record.key) if record.action.endswith(".keep") else view.key == record.key


def effects_of(records: Iterable[EffectRecord]) -> tuple[str, ...]:
    """Their ids."""
    return tuple(record.id for record in records)
