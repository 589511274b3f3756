"""The state of the in-memory store and the small moves that every mutation is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from heinzelwerk.effect import EffectRecord
from heinzelwerk.generation import Generation
from heinzelwerk.handoff_job import JobRecord
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail
from heinzelwerk.session import QUARANTINE, SOLO_CLAIMS
from heinzelwerk.store import rules
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.turn import CallRecord, TurnRecord, TurnState
from heinzelwerk.wake import Acceptance, Cause, Disposition, QueuedWake, Wake, WhenBusy


@dataclass(slots=True)
class Lease:
    """A lease of a session or a job: valid while `until_ms` is ahead."""

    token: str
    nonce: str
    until_ms: int


@dataclass(slots=True)
class Seen:
    """A wake's key: who brought it, which turn works it off, how it ended and when it may be forgotten."""

    nonce: str
    turn: int | None = None
    verdict: str = ""
    forget_ms: int | None = None


@dataclass(slots=True)
class Words:
    """The expiring part of a turn: body entries, messages, calls."""

    body: dict[str, bytes] = field(default_factory=dict)
    history: list[bytes] = field(default_factory=list)
    calls: dict[str, CallRecord] = field(default_factory=dict)
    open_effects: int = 0
    may_expire: bool = False
    forget_ms: int | None = None


@dataclass(slots=True)
class SessionState:
    """One session."""

    last_turn: int = 0
    seq: int = 0
    head: str | None = None
    counter: int = 0
    dead: int = 0
    format: int = 0
    solo_until: int | None = None
    lease: Lease | None = None
    released: str = ""
    last_op: str = ""
    last_reply: object = None
    memo: dict[str, str] = field(default_factory=dict)
    inbox: list[str] = field(default_factory=list)
    mail: list[Mail] = field(default_factory=list)
    spine: list[bytes] = field(default_factory=list)
    sealed: int = 0
    seal: bytes = b""
    turns: dict[int, TurnRecord] = field(default_factory=dict)
    fills: dict[int, dict[str, str]] = field(default_factory=dict)
    words: dict[int, Words] = field(default_factory=dict)
    newest: dict[str, tuple[int, str]] = field(default_factory=dict)
    approved: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def quarantined(self) -> bool:
        """Whether it waits for a person because its spine is damaged."""
        return bool(self.memo.get(QUARANTINE))

    @property
    def last(self) -> bytes:
        """The last stored line, or the seal."""
        return self.spine[-1] if self.spine else self.seal

    def turn(self, number: int) -> TurnRecord | None:
        """A turn with what others filled in."""
        record = self.turns.get(number)
        return None if record is None else rules.filled(record, self.fills.get(number, {}))

    def open_turns(self) -> tuple[TurnRecord, ...]:
        """The turns that have not ended, oldest first."""
        records = (self.turn(number) for number in sorted(self.turns))
        return tuple(record for record in records if record is not None and not record.state.ended)


@dataclass(slots=True)
class Money:
    """One UTC day's money by scope (`""`: the team, else a Heinzelmännchen)."""

    spent: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, int] = field(default_factory=dict)
    possible: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Reserved:
    """A reservation: `open` until settled, `possible` once it ran out, `settled` at last."""

    day: str
    amount: int
    until_ms: int
    state: str = "open"


@dataclass(slots=True)
class TeamState:
    """All of a team."""

    team: str
    generation: Generation | None = None
    texts: dict[str, bytes] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    sessions: dict[str, SessionState] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)
    backoff: dict[str, int] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    ops: dict[str, tuple[int, object]] = field(default_factory=dict)
    effects: dict[str, EffectRecord] = field(default_factory=dict)
    effect_texts: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, JobRecord] = field(default_factory=dict)
    job_leases: dict[str, Lease] = field(default_factory=dict)
    days: dict[str, Money] = field(default_factory=dict)
    reservations: dict[str, Reserved] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Flights:
    """One provider's: ends of places by holder, ends of asking by team, when each team got its last place."""

    ends: dict[str, int] = field(default_factory=dict)
    asking: dict[str, int] = field(default_factory=dict)
    served: dict[str, int] = field(default_factory=dict)

    def begin(self, holder: str, team: str, *, limit: int, ttl_ms: int, now: int) -> bool:
        """Take a place, or be known to ask for one."""
        self.ends = {name: end for name, end in self.ends.items() if end > now}
        self.asking = {name: end for name, end in self.asking.items() if end > now}
        if holder not in self.ends:
            mine = self.served.get(team, 0)
            ahead = sum(name != team and self.served.get(name, 0) < mine for name in self.asking)
            if limit - len(self.ends) - ahead < 1:
                self.asking[team] = now + rules.ASKING_MS
                return False
            self.asking.pop(team, None)
            self.served[team] = now
        self.ends[holder] = now + ttl_ms
        return True


@dataclass(slots=True)
class State:
    """Everything in the store."""

    teams: dict[str, TeamState] = field(default_factory=dict)
    format: int = 0
    workers: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)
    turns_taken: dict[str, int] = field(default_factory=dict)
    flights: dict[str, Flights] = field(default_factory=dict)


def count(team: TeamState, name: str) -> None:
    """Count something that is no event."""
    team.counters[name] = team.counters.get(name, 0) + 1


def bump(team: TeamState, member: str, now: int, options: StoreOptions) -> int:
    """Move a due entry on by its delay, which doubles; answers the delay."""
    delay = team.backoff.get(member, 0)
    delay = min(delay * 2, options.ring_most_ms) if delay else options.ring_first_ms
    team.backoff[member] = delay
    team.due[member] = now + delay
    return delay


def held(session: SessionState, now: int) -> bool:
    """Whether somebody holds the session's lease."""
    return session.lease is not None and session.lease.until_ms > now


def alone(session: SessionState | None, now: int) -> bool:
    """Whether the session killed so many workers that it runs alone, and did not wait too long for that."""
    return session is not None and session.dead >= SOLO_CLAIMS and now < (session.solo_until or now + 1)


def sent_alone(session: SessionState | None, now: int, options: StoreOptions) -> bool:
    """The same, and its wait begins."""
    if session is None or not alone(session, now):
        return False
    session.solo_until = session.solo_until or now + options.solo_wait_ms
    return True


def steerable(session: SessionState, wake: Wake) -> TurnRecord | None:
    """The running chat turn that this message joins, if there is one."""
    if wake.when_busy is not WhenBusy.STEER:
        return None
    for record in reversed(session.open_turns()):
        same = record.wake.cause is Cause.ASKED and record.wake.conversation == wake.conversation
        if record.state is TurnState.RUNNING and same:
            return record
    return None


def seen_key(wake: Wake) -> str:
    """A key is known to its session: one event or one new output may wake several."""
    return f"{wake.heinzel}/{wake.id}"


def accept(team: TeamState, wake: Wake, nonce: str, now: int, options: StoreOptions) -> Acceptance:
    """Take a wake in, or say why not."""
    seen = team.seen.get(seen_key(wake))
    if seen is not None and (seen.forget_ms is None or seen.forget_ms > now):
        if seen.nonce == nonce and nonce:
            return Acceptance(Disposition.ACCEPTED, turn=seen.turn)
        count(team, "wakes_duplicate")
        return Acceptance(Disposition.DUPLICATE, turn=seen.turn)
    generation = team.generation
    entry = generation.entries.get(wake.heinzel) if generation else None
    if entry is None:
        count(team, "wakes_refused")
        return Acceptance(Disposition.REFUSED, rules.NO_CONTRACT if generation else rules.NO_TEAM)
    if not entry.acts:
        count(team, "wakes_refused")
        return Acceptance(Disposition.REFUSED, rules.BROKEN)
    session = team.sessions.setdefault(wake.heinzel, SessionState())
    running = steerable(session, wake)
    if _full(session, wake, options):
        count(team, "wakes_refused")
        return Acceptance(Disposition.REFUSED, rules.INBOX_FULL)
    if running is not None:
        session.mail.append(rules.steer_of(wake, running.number))
        team.seen[seen_key(wake)] = Seen(nonce, running.number, "steered", now + options.seen_ttl_ms)
        team.due[f"session:{wake.heinzel}"] = now
        return Acceptance(Disposition.ACCEPTED, turn=running.number)
    if wake.when_busy is WhenBusy.STEER and len(session.inbox) >= options.inbox_cap:
        count(team, "wakes_refused")
        return Acceptance(Disposition.REFUSED, rules.INBOX_FULL)
    session.inbox.append(rules.queued(wake, now))
    team.seen[seen_key(wake)] = Seen(nonce)
    team.due[f"session:{wake.heinzel}"] = now
    return Acceptance(Disposition.ACCEPTED)


def _full(session: SessionState, wake: Wake, options: StoreOptions) -> bool:
    """Whether there is no place for one more. One wake for a new input always has one: it says nothing but that there
    is something to read, and whichever of them runs reads all of it."""
    if len(session.mail if wake.when_busy is WhenBusy.STEER else session.inbox) < options.inbox_cap:
        return False
    return wake.cause is not Cause.INPUTS or any(entry.wake.cause is Cause.INPUTS for entry in inbox(session))


def inbox(session: SessionState) -> tuple[QueuedWake, ...]:
    """The waiting wakes, in order of acceptance."""
    return tuple(QueuedWake.read(raw) for raw in session.inbox)


def deliver(team: TeamState, heinzel: str, mail: Mail, now: int) -> None:
    """Put mail into a session's box, fill the item it names if that is open, and make the session due."""
    session = team.sessions.setdefault(heinzel, SessionState())
    turn = session.turns.get(mail.turn) if mail.turn is not None else None
    if turn is not None and not turn.state.ended and mail.fills is not None:
        session.fills.setdefault(turn.number, {}).setdefault(mail.fills, mail.value or "")
    session.mail.append(mail)
    team.due[f"session:{heinzel}"] = now


def words(session: SessionState, number: int) -> Words:
    """A turn's expiring part, made where it was not there."""
    return session.words.setdefault(number, Words())


def forget_words(session: SessionState, number: int, now: int, options: StoreOptions) -> None:
    """Begin the retention of a turn's body, unless one of its effects is open."""
    entry = words(session, number)
    entry.may_expire = True
    if entry.open_effects <= 0 and entry.forget_ms is None:
        entry.forget_ms = now + options.body_ttl_ms


def live_words(state: TeamState | None, session: SessionId, number: int, now: int) -> Words:
    """A turn's body for readers; empty where it has expired."""
    found = state.sessions.get(session.heinzel) if state else None
    entry = found.words.get(number) if found else None
    if entry is None or (entry.forget_ms is not None and entry.forget_ms <= now):
        return Words()
    return entry
