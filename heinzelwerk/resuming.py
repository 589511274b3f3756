"""Resuming a turn: everything that its next segment needs, read back from what was stored."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pydantic import JsonValue, TypeAdapter

from heinzelwerk import contract, errors, looking_back, mailroom, skilling
from heinzelwerk.contract import Contract
from heinzelwerk.handoff_job import result_body
from heinzelwerk.opening import FetchedInput, Opening
from heinzelwerk.starting import contract_version
from heinzelwerk.turn import TurnRecord, TurnState, WaitItem, WaitKind

if TYPE_CHECKING:
    from heinzelwerk.ports import Works

_INPUTS = TypeAdapter(dict[str, FetchedInput])


async def reopen(turn: TurnRecord, works: Works) -> Opening:
    """The opening of a turn's next segment; nothing is written for it.

    BodyExpired where the words that it needs are gone; the turn then ends with that reason and its spine stays readable.
    """
    session, number = turn.wake.session, turn.number
    raw = await _needed(works, turn, "contract")
    text = _contract(raw, turn)
    inputs = _INPUTS.validate_json(await _needed(works, turn, "inputs"))
    accepted = json.loads(await works.store.body(session, number, "lessons") or b"[]")
    wake = json.loads(await works.store.body(session, number, "wake") or b"{}")
    earlier, approved = await looking_back.look(turn, text, works)
    running = turn.model_copy(update={"state": TurnState.RUNNING, "segment": turn.segment + 1, "waits": ()})
    return Opening(
        turn=running,
        contract=text,
        version=contract_version(text.sha256),
        model=turn.pins.model if turn.pins else "",
        inputs=inputs,
        message=wake.get("text"),
        data=wake.get("data"),
        skills=skilling.load(await works.store.body(session, number, "skills") or b"[]"),
        lessons=tuple(accepted),
        earlier=earlier,
        approved=approved,
        history=await works.store.history(session, number),
        calls=await works.store.calls(session, number),
        answers={item.call: await _answer(item, turn, works) for item in turn.waits if item.call is not None},
        question_answer=await _question_answer(turn, works),
        steers=await mailroom.steers(turn, works.store),
    )


async def _needed(works: Works, turn: TurnRecord, name: str) -> bytes:
    found = await works.store.body(turn.wake.session, turn.number, name)
    if found is None:
        raise errors.BodyExpired(
            f"turn {turn.number} of {turn.wake.session} cannot go on: its body ({name}) has expired",
            fix="wake it again; the spine still shows what it did",
        )
    return found


def _contract(raw: bytes, turn: TurnRecord) -> Contract:
    reading = contract.reread(raw, file_name=f"{turn.wake.heinzel}.prose.md")
    if reading.contract is None:
        raise errors.ContractRefused(f"the pinned contract of turn {turn.number} can no longer be read")
    return reading.contract


async def _answer(item: WaitItem, turn: TurnRecord, works: Works) -> str:
    """What the waiting call is answered with, as JSON text: a handoff's result, an effect's end, or the bare word."""
    if item.kind is WaitKind.JOB:
        raw = await works.store.body(turn.wake.session, turn.number, result_body(item.id))
        return json.dumps({"handoff": item.id, "status": item.value, **_stored_result(raw)})
    if item.kind is WaitKind.PROPOSAL:
        record = await works.store.effect(turn.wake.team, item.id)
        if record is not None:
            return json.dumps(
                {
                    "state": record.state.value,
                    "decision": record.decision.value,
                    "reason": record.reason,
                    "result": record.seen,
                }
            )
    return json.dumps({"state": item.value})


def _stored_result(raw: bytes | None) -> dict[str, JsonValue]:
    try:
        found = json.loads(raw or b"{}")
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"detail": "Its stored result cannot be read."}


async def _question_answer(turn: TurnRecord, works: Works) -> str | None:
    for item in turn.waits:
        if item.kind is WaitKind.QUESTION and item.value == "answered":
            found = await works.store.body(turn.wake.session, turn.number, f"answer/{item.id}")
            return found.decode() if found is not None else ""
    return None
