"""What release 0.1.0 stored is read by today's code, means what it meant, and is written back as it was.

`tests/data/golden/v1/records.jsonl` holds one of every kind of record, with every field filled somewhere. It is never
rewritten: an upgrade meets exactly these bytes. `tests/conformance/test_golden_store.py` does the same with a whole store.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from heinzelwerk import lessons, skilling
from heinzelwerk.effect import EffectRecord
from heinzelwerk.event import Event
from heinzelwerk.generation import ContractEntry
from heinzelwerk.handoff import HandoffResult
from heinzelwerk.handoff_job import JobRecord, Read, Task
from heinzelwerk.mail import Mail
from heinzelwerk.opening import FetchedInput, SkillText
from heinzelwerk.outcome import Outcome
from heinzelwerk.ports import Placement
from heinzelwerk.publisher import section
from heinzelwerk.skill import Skill
from heinzelwerk.store import rules
from heinzelwerk.turn import CallRecord, TurnRecord
from heinzelwerk.unchanged import MEMO, Success
from heinzelwerk.verification import verify
from heinzelwerk.wake import QueuedWake

V1 = Path(__file__).parents[1] / "data" / "golden" / "v1"
AT = section.Where("notes/changes.md", "weekly")
FRESH = "# Changes\n\n<!-- heinzelwerk:begin weekly -->\n<!-- heinzelwerk:end weekly -->\n"


@dataclass(frozen=True, slots=True)
class Form:
    """How one kind of record is read from its stored text, and written again."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]


def _model(kind: type[BaseModel]) -> Form:
    """A record that is stored whole: a field that came later is not in the old one, and has a default."""
    return Form(kind.model_validate_json, lambda value: value.model_dump_json(exclude_unset=True))


def _list(kind: Any) -> Form:
    found: TypeAdapter[Any] = TypeAdapter(kind)
    return Form(found.validate_json, lambda value: found.dump_json(value, exclude_unset=True).decode())


def _inputs(found: dict[str, FetchedInput]) -> str:
    return json.dumps({name: one.model_dump(mode="json", exclude_unset=True) for name, one in found.items()})


def _skill(text: str) -> Skill:
    found = skilling.unpack(text.encode())
    assert isinstance(found, Skill), found
    return found


def _event(text: str) -> Event:
    document = json.loads(text)
    found = verify(text.encode(), seq=document["seq"] - 1, head=document["prev"])
    assert found.ok, found
    return found.events[0]


def _placed(found: section.Section) -> str:
    return section.place(FRESH, AT, Placement(found.key, {}, found.text, ""))


def _learned(found: tuple[str, ...]) -> str:
    memo: dict[str, str] = {}
    for sentence in found:
        memo = lessons.accept(memo, sentence)
    return memo[lessons.MEMO]


FORMS: dict[str, Form] = {
    "inbox": Form(QueuedWake.read, lambda queued: rules.queued(queued.wake, queued.accepted_ms)),
    "mail": Form(Mail.model_validate_json, lambda mail: mail.model_dump_json(exclude_defaults=True)),
    "turn": _model(TurnRecord),
    "call": _model(CallRecord),
    "effect": _model(EffectRecord),
    "job": _model(JobRecord),
    "contract entry": _model(ContractEntry),
    "outcome": _model(Outcome),
    "inputs": Form(TypeAdapter(dict[str, FetchedInput]).validate_json, _inputs),
    "skill": Form(_skill, lambda found: skilling.pack(found).decode()),
    "skill texts": _list(tuple[SkillText, ...]),
    "handoff task": _model(Task),
    "handoff reads": _list(tuple[Read, ...]),
    "handoff result": _model(HandoffResult),
    "event": Form(_event, lambda event: event.line().decode()),
    "success": Form(lambda text: Success.read({MEMO: text}), lambda value: value.memo()[MEMO]),
    "lessons": Form(lambda text: lessons.accepted({lessons.MEMO: text}), _learned),
    "section": Form(lambda text: section.find(text, AT), _placed),
}


def golden() -> list[tuple[str, str, Any]]:
    """Kind, stored text, and what it meant to the release that wrote it: every field, as JSON."""
    lines = (V1 / "records.jsonl").read_text("utf-8").splitlines()
    return [(found["record"], found["stored"], found["means"]) for found in map(json.loads, lines)]


def plain(value: object) -> Any:
    """Every field of a value, as JSON."""
    return to_jsonable_python(value, fallback=dict)


def meant(value: Any, then: Any) -> Any:
    """What `value` means today, of those fields that `then` has."""
    if isinstance(then, dict) and isinstance(value, dict):
        return {name: meant(value[name], then[name]) if name in value else "gone" for name in then}
    if isinstance(then, list) and isinstance(value, list) and len(then) == len(value):
        return [meant(mine, theirs) for mine, theirs in zip(value, then, strict=True)]
    return value


@pytest.mark.parametrize("kind", FORMS)
def test_a_stored_record_is_read_and_written_back(kind: str) -> None:
    """Nothing of it is lost, renamed, or has come to mean something else."""
    found = [(stored, means) for record, stored, means in golden() if record == kind]
    assert found
    for stored, means in found:
        value = FORMS[kind].read(stored)
        assert FORMS[kind].write(value) == stored
        assert meant(plain(value), means) == means


def test_every_golden_record_is_of_a_known_kind() -> None:
    """None of the lines is passed over."""
    assert {kind for kind, _, _ in golden()} == set(FORMS)
