"""A session as the store shows it: to the holder of its lease when it claims, and to readers at any time."""

from __future__ import annotations

from dataclasses import dataclass, field

from heinzelwerk.event import Chain
from heinzelwerk.generation import ContractEntry
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail
from heinzelwerk.turn import TurnRecord
from heinzelwerk.wake import QueuedWake

POISON_CLAIMS = 4
"""The claim that ends a turn `failed: poison` without running it."""
STUCK_CLAIMS = 7
"""The claim that sets a session aside: its holders died even where they only had to end its turn, not to run it."""
SOLO_CLAIMS = 2
"""From this many dead claims on the session is rung on the queue `solo`."""
QUARANTINE = "quarantine"
"""The memo that says why a session is set aside: its spine is damaged, or every claim of it dies. Nobody claims it until a
person lifts the mark."""
ACCEPTED = "damage_accepted"
"""The memo `<seq> <head>` of a lifted mark: up to that event damage is known and accepted."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that `advance` needs to know of a session, read by the script that claimed it.

    `dead_claims` are earlier claims that neither committed progress nor handed back. `turns` are the turns that have
    not ended, oldest first, their waits filled in as far as others have filled them. `inbox` is in order of acceptance.
    `memo` holds the session's small facts (last success, quarantine, hourly count). `now_ms` is server time. `last` is
    the last stored spine line as it is (the seal where all are sealed): what `chain` says of it is checked before a run.
    """

    session: SessionId
    token: str
    now_ms: int
    chain: Chain
    dead_claims: int = 0
    last_turn: int = 0
    turns: tuple[TurnRecord, ...] = ()
    inbox: tuple[QueuedWake, ...] = ()
    mail: tuple[Mail, ...] = ()
    entry: ContractEntry | None = None
    generation: int = 0
    paused: bool = False
    memo: dict[str, str] = field(default_factory=dict)
    last: bytes = b""


@dataclass(frozen=True, slots=True)
class NotClaimed:
    """Why a session was not claimed: `held` elsewhere, `nothing_due`, `no_slot` of the team free, `newer` format,
    `quarantined` until a person lifts the mark, or `solo`: it killed workers and this one has others beside it.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Overview:
    """A session for readers: no lease needed, nothing of it changes."""

    session: SessionId
    last_turn: int
    seq: int
    turns: tuple[TurnRecord, ...]
    inbox: tuple[QueuedWake, ...]
    mail: int
    paused: bool
    held: bool
    due_ms: int | None
    next_slot_ms: int | None
    dead_claims: int
    memo: dict[str, str]
    head: str | None = None
    last: bytes = b""


@dataclass(frozen=True, slots=True)
class Hold:
    """A lease that a process holds and renews: `kind` is `session` or `job`, `name` the session or job id."""

    kind: str
    team: str
    name: str
    token: str


@dataclass(frozen=True, slots=True)
class Due:
    """An entry that the ring script admitted: `kind` is `session`, `effect`, `job` or `slot`; `solo` asks for that queue."""

    kind: str
    team: str
    name: str
    due_ms: int
    solo: bool = False
