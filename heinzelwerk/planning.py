"""Planning effects: what an outcome asks for becomes records in the ledger, each over the target as it is shown now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from heinzelwerk import amending, errors, ids, text
from heinzelwerk.commit import Body
from heinzelwerk.effect import Decision, EffectRecord, EffectState, approval_digest, effect_key
from heinzelwerk.ending import Proposal
from heinzelwerk.event import Note
from heinzelwerk.generation import Publishing
from heinzelwerk.opening import Opening
from heinzelwerk.outcome import Outcome
from heinzelwerk.turn import TurnRecord

if TYPE_CHECKING:
    from heinzelwerk.contract import Contract
    from heinzelwerk.ports import Publisher, Works

KEEP_DRAFT = "draft.keep"
"""The effect of a draft whose contract publishes nothing: approving makes it the approved version, nothing is placed."""
KEEP_LESSON = "lesson.keep"
AMEND = amending.ACTION
INTERNAL = (KEEP_DRAFT, KEEP_LESSON, AMEND)


@dataclass(frozen=True, slots=True)
class Planned:
    """Effects to be written with a commit, the bodies that hold their texts, and their events."""

    records: tuple[EffectRecord, ...] = ()
    bodies: tuple[Body, ...] = ()
    notes: tuple[Note, ...] = ()

    def plus(self, other: Planned) -> Planned:
        """Both."""
        return Planned(self.records + other.records, self.bodies + other.bodies, self.notes + other.notes)


@dataclass(frozen=True, slots=True)
class Ask:
    """One effect to plan: under which key, by which publisher, with which text."""

    key: str
    output: str
    action: str
    arguments: Mapping[str, str]
    words: str
    ask: int = 1
    call: str | None = None


def publishings(contract: Contract) -> tuple[Publishing, ...]:
    """What a contract publishes; one without any still lets a person approve its draft."""
    declared = tuple(
        Publishing(
            action=entry.action, output=entry.output, args={name: str(value) for name, value in entry.args.items()}
        )
        for entry in contract.publishes
    )
    covered = {entry.output for entry in declared}
    return (
        *declared,
        *(Publishing(action=KEEP_DRAFT, output=name) for name in contract.outputs if name not in covered),
    )


def is_internal(record: EffectRecord) -> bool:
    """Whether the effect changes only what Heinzelwerk itself keeps."""
    return record.action in INTERNAL


async def plan(opening: Opening, found: Outcome, works: Works) -> Planned:
    """The effects of an outcome that passed the gate: its draft for each publishing, its lessons, its amendment."""
    turn, planned = opening.turn, Planned()
    for ask in _asks(opening, found):
        planned = planned.plus(await _plan_one(turn, ask, opening.contract.sha256, works))
    return planned


def _asks(opening: Opening, found: Outcome) -> Iterable[Ask]:
    turn, session = opening.turn, opening.turn.wake.session
    if found.draft is not None:
        words = text.clean_text(found.draft.text)
        for index, entry in enumerate(publishings(opening.contract)):
            if entry.output == found.draft.output:
                key = effect_key(session, turn.wake.key, entry.output, index)
                yield Ask(key, entry.output, entry.action, entry.args, words)
    for index, lesson in enumerate(found.lessons):
        key = effect_key(session, turn.wake.key, KEEP_LESSON, index)  # a name that no output can have
        yield Ask(key, "lesson", KEEP_LESSON, {"sha256": ids.digest(lesson.sentence)}, text.safe(lesson.sentence))
    if found.amendment is not None:
        key = effect_key(session, turn.wake.key, AMEND, 0)
        arguments = {
            "contract": opening.contract.name,
            "team": turn.wake.team,
            "reason": text.clean_line(found.amendment.reason),
        }
        yield Ask(key, "contract", AMEND, arguments, text.clean_text(found.amendment.text))


async def propose(opening: Opening, proposals: Iterable[Proposal], works: Works) -> Planned:
    """The effects that a chat's write calls ask for: always shown to a person first."""
    turn, planned = opening.turn, Planned()
    for proposal in proposals:
        arguments = {name: value for name, value in proposal.arguments.items() if name != "text"}
        key = f"{turn.wake.session}/{turn.wake.key}/{proposal.call.replace(':', '/')}/1"
        ask = Ask(key, "chat", proposal.operation, arguments, proposal.arguments.get("text", ""), call=proposal.call)
        planned = planned.plus(await _plan_one(turn, ask, opening.contract.sha256, works, attended=True))
    return planned


async def ask_again(records: Iterable[EffectRecord], works: Works) -> Planned:
    """The same texts once more, each as a new proposal over the target as it is now; no model is called."""
    planned = Planned()
    for record in records:
        words = await works.store.effect_text(record.team, record.id)
        turn = await works.store.turn(record.session, record.turn)
        if words is None or turn is None:
            continue
        key = f"{record.key.rpartition('/')[0]}/{record.ask + 1}"
        ask = Ask(key, record.output, record.action, record.arguments, words, ask=record.ask + 1, call=record.call)
        planned = planned.plus(await _plan_one(turn, ask, record.contract, works))
    return planned


async def _plan_one(turn: TurnRecord, ask: Ask, contract: str, works: Works, *, attended: bool = False) -> Planned:
    ask = await _unused(turn, ask, works)
    publisher = works.publishers.get(ask.action)
    problem, target, view = _broken_amendment(ask), "", None
    try:
        if problem:
            target = f"contract:{ask.arguments['contract']}"
        elif publisher is None:
            problem = f"no publisher {ask.action} is set up here; known: {', '.join(sorted(works.publishers))}"
        else:
            target = publisher.target(ask.arguments)
            problem = await _rival(turn, ask, target, publisher, works)
            view = None if problem else await publisher.view(ask.arguments)
    except (errors.TargetError, errors.RetryLater, errors.Refused) as error:
        problem = str(error)
    shown = view.shown if view else ""
    unattended = not attended and (ask.action, target) in works.policy.unattended
    record = EffectRecord(
        id=ids.effect_id(ask.key),
        key=ask.key,
        team=turn.wake.team,
        heinzel=turn.wake.heinzel,
        turn=turn.number,
        output=ask.output,
        action=ask.action,
        arguments=dict(ask.arguments),
        target=target or f"{ask.action}?",
        shown=shown,
        text_sha256=ids.digest(ask.words),
        digest=approval_digest(ask.words, target, shown),
        contract=contract,
        decision=Decision.UNATTENDED if unattended else Decision.PENDING,
        ask=ask.ask,
        call=ask.call,
    )
    if problem:
        record = record.model_copy(update={"state": EffectState.FAILED, "reason": text.clean_line(problem)})
    data = {"effect": record.id, "output": record.output, "action": record.action, "target": record.target}
    note = Note(
        "effect.failed" if problem else "effect.planned",
        {
            **data,
            "digest": record.digest,
            "decision": record.decision.value,
            "reason": record.reason,
            "ask": record.ask,
        },
        turn=turn.id(),
        key=record.key,
    )
    return Planned((record,), (Body(turn.number, f"effect/{record.id}", ask.words.encode()),), (note,))


def _broken_amendment(ask: Ask) -> str:
    """What is wrong with a proposed contract text; nobody should be asked to approve one that could not act."""
    wrong = amending.fault(ask.words, name=ask.arguments["contract"]) if ask.action == AMEND else ""
    return f"the proposed contract has an error in {wrong}" if wrong else ""


async def _unused(turn: TurnRecord, ask: Ask, works: Works) -> Ask:
    """The same under a key that no other turn's effect has: a wake's key is forgotten sooner than its effects' records."""
    while (known := await works.store.effect(turn.wake.team, ids.effect_id(ask.key))) and known.turn != turn.number:
        ask = replace(ask, key=f"{ask.key.rpartition('/')[0]}/{ask.ask + 1}", ask=ask.ask + 1)
    return ask


async def _rival(turn: TurnRecord, ask: Ask, target: str, publisher: Publisher, works: Works) -> str:
    """Why another contract of the team stands in the way: the two would replace each other's text for ever. "" for none."""
    if ask.action in INTERNAL or ask.call is not None:
        return ""
    for entry in (await works.store.entries(turn.wake.team)).values():
        if entry.name == turn.wake.heinzel or not entry.acts:
            continue
        for other in entry.publishes:
            if other.action == ask.action and _target(publisher, other.args) == target:
                return f"{entry.name} publishes to {target} too: give each contract a marker of its own, then load"
    return ""


def _target(publisher: Publisher, arguments: Mapping[str, str]) -> str:
    try:
        return publisher.target(arguments)
    except errors.HeinzelwerkError:
        return ""
