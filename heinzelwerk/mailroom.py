"""Sorting mail and deadlines: what they mean for a session's open turns. Pure but for reading words; the claim writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydantic import JsonValue

from heinzelwerk import ids
from heinzelwerk.budget import Settlement
from heinzelwerk.commit import Body
from heinzelwerk.event import Note
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail, MailKind
from heinzelwerk.turn import Steer, TurnRecord, TurnState, Usage, WaitItem, WaitKind
from heinzelwerk.wake import Wake

if TYPE_CHECKING:
    from heinzelwerk.ports import Store

_NONE: Mapping[tuple[int, str], bytes] = MappingProxyType({})
_KINDS = {
    MailKind.STEER: "turn.steered",
    MailKind.STOP: "turn.stop_asked",
    MailKind.ANSWER: "question.answered",
    MailKind.DECISION: "proposal.decided",
    MailKind.REPORT: "report",
    MailKind.JOB_ENDED: "step.handoff",
    MailKind.EFFECT_MOVED: "effect.moved",
    MailKind.BUDGET_RAISED: "budget.raised",
}
_AT_DEADLINE = {
    WaitKind.JOB: "interrupted",
    WaitKind.PROPOSAL: "expired",
    WaitKind.QUESTION: "expired",
    WaitKind.BUDGET: "expired",
    WaitKind.RETRY: "due",
}


@dataclass(frozen=True, slots=True)
class Sorted:
    """What the mail and the passed deadlines of a session come to.

    `turns` are the open turns as they are now, oldest first; `changed` those of them to store; `stopped` are turns
    that a person stopped while they waited, with who did; `expired` are turns whose budget wait ran out. `late` are
    messages to turns that ended before they read them: they become wakes. `settle` is what handoffs cost.
    """

    turns: tuple[TurnRecord, ...]
    notes: tuple[Note, ...] = ()
    bodies: tuple[Body, ...] = ()
    changed: tuple[TurnRecord, ...] = ()
    stopped: dict[int, str] = field(default_factory=dict)
    expired: tuple[int, ...] = ()
    moved: tuple[Mail, ...] = ()  # effect mail, for the session's memo
    late: tuple[Mail, ...] = ()
    settle: tuple[Settlement, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.notes or self.changed or self.stopped or self.expired or self.late)


def note(mail: Mail, session: SessionId) -> Note:
    """The spine's event for a piece of mail: ids, hashes and verdicts, never its words."""
    data: dict[str, JsonValue] = {"mail": mail.id, **mail.data}
    if mail.by:
        data["by"] = mail.by
    if mail.text is not None:
        data["text_sha256"] = ids.digest(mail.text)
    if mail.fills:
        data["item"] = mail.fills
    turn = ids.turn_id(session, mail.turn) if mail.turn is not None else None
    return Note(_KINDS[mail.kind], data, turn=turn, key=mail.id)


def returned_note(mail: Mail, wake: Wake) -> Note:
    """The spine's event for a message that its turn ended without: the wake that it became."""
    turn = ids.turn_id(wake.session, mail.turn) if mail.turn is not None else None
    return Note("steer.returned", {"mail": mail.id, "wake": wake.id}, turn=turn, key=mail.id)


def body(mail: Mail) -> Body | None:
    """Where the words of a piece of mail live: `steer/<id>` or `answer/<wait item>`; None where it has none."""
    if mail.text is None or mail.turn is None:
        return None
    name = f"answer/{mail.fills}" if mail.fills else f"{mail.kind.value}/{mail.id}"
    return Body(mail.turn, name, mail.text.encode())


def steer(mail: Mail) -> Steer:
    """A message as its turn's record keeps it."""
    return Steer(id=mail.id, by=mail.by)


async def steers(turn: TurnRecord, store: Store, fresh: Mapping[tuple[int, str], bytes] = _NONE) -> tuple[Mail, ...]:
    """The messages of this turn that no response has followed, with their words: from `fresh` (turn, name), else its body.

    One whose words have expired is left out.
    """
    found = []
    for one in turn.steers:
        name = f"{MailKind.STEER.value}/{one.id}"
        words = fresh.get((turn.number, name)) or await store.body(turn.wake.session, turn.number, name)
        if words is not None:
            mail = Mail(id=one.id, kind=MailKind.STEER, turn=turn.number, text=words.decode(), by=one.by)
            found.append(mail)
    return tuple(found)


def sort(session: SessionId, turns: Iterable[TurnRecord], mail: Iterable[Mail], *, now_ms: int) -> Sorted:
    """Apply mail in order of arrival, then the deadlines that have passed by `now_ms` (server time)."""
    open_turns = {turn.number: turn for turn in turns}
    notes: list[Note] = []
    bodies: list[Body] = []
    changed: set[int] = set()
    stopped: dict[int, str] = {}
    moved: list[Mail] = []
    late_steers: list[Mail] = []
    settle: list[Settlement] = []
    for entry in mail:
        turn = open_turns.get(entry.turn) if entry.turn is not None else None
        if entry.kind is MailKind.STEER and entry.turn is not None and turn is None:
            late_steers.append(entry)
            continue
        notes.append(note(entry, session))
        words = body(entry)
        if words is not None:
            bodies.append(words)
        if entry.kind is MailKind.EFFECT_MOVED:
            moved.append(entry)
        settle.extend(_cost(entry))
        if turn is None:
            continue
        if entry.kind is MailKind.STOP:
            stopped[turn.number] = entry.by or "somebody"
        elif entry.kind is MailKind.STEER:
            open_turns[turn.number] = turn.model_copy(update={"steers": (*turn.steers, steer(entry))})
            changed.add(turn.number)
        elif entry.kind is MailKind.JOB_ENDED:
            open_turns[turn.number] = _charged(turn, entry)
            changed.add(turn.number)
    expired: list[int] = []
    for turn in tuple(open_turns.values()):
        late = {item.id for item in turn.waits if item.open and item.deadline_ms <= now_ms}
        if turn.state is not TurnState.WAITING or not late or turn.number in stopped:
            continue
        waits = tuple(_at_deadline(item) if item.id in late else item for item in turn.waits)
        open_turns[turn.number] = turn.model_copy(update={"waits": waits})
        changed.add(turn.number)
        late_items = [item for item in turn.waits if item.id in late]
        notes.extend(
            Note("wait.expired", {"item": item.id, "kind": item.kind.value}, turn=turn.id())
            for item in late_items
            if item.kind is not WaitKind.RETRY
        )
        if any(item.kind is WaitKind.BUDGET for item in late_items):
            expired.append(turn.number)
    ordered = tuple(open_turns[number] for number in sorted(open_turns))
    return Sorted(
        ordered,
        tuple(notes),
        tuple(bodies),
        tuple(open_turns[number] for number in sorted(changed)),
        stopped,
        tuple(expired),
        tuple(moved),
        tuple(late_steers),
        tuple(settle),
    )


def _whole(mail: Mail, name: str) -> int:
    value = mail.data.get(name)
    return value if isinstance(value, int) else 0


def _cost(mail: Mail) -> Iterable[Settlement]:
    """What an ended handoff cost, or may have cost where nobody can say; booked once, under the job's name."""
    if mail.kind is not MailKind.JOB_ENDED or mail.turn is None:
        return
    spent, possible = _whole(mail, "cost_micros"), _whole(mail, "possible_micros")
    if spent or possible or _whole(mail, "reserved_micros"):
        yield Settlement(f"{mail.turn}/job/{mail.data.get('job')}", spent or possible, possible=possible > spent)


def _charged(turn: TurnRecord, mail: Mail) -> TurnRecord:
    """The turn after one of its handoffs: its money and time count against the turn's caps."""
    usage = turn.usage.plus(
        Usage(cost_micros=_whole(mail, "cost_micros"), possible_micros=_whole(mail, "possible_micros"))
    )
    took_ms = max(0, _whole(mail, "ended_ms") - _whole(mail, "started_ms"))
    return turn.model_copy(update={"usage": usage, "active_ms": turn.active_ms + took_ms})


def _at_deadline(item: WaitItem) -> WaitItem:
    return item.model_copy(update={"value": _AT_DEADLINE[item.kind]})
