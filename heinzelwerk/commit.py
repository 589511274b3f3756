"""What a lease holder writes in one script: everything or nothing, once, under its token and the expected sequence number."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from heinzelwerk.budget import Caps, Reservation, Settlement
from heinzelwerk.effect import EffectRecord
from heinzelwerk.handoff_job import JobRecord
from heinzelwerk.turn import TurnRecord
from heinzelwerk.wake import Wake


@dataclass(frozen=True, slots=True)
class Body:
    """One entry of a turn's body: `name` is a path-like word (`inputs`, `outcome`, `result/3:call_1`), content is bytes."""

    turn: int
    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class History:
    """The stored messages of a turn: keep the first `keep`, then append `items` (one JSON message each)."""

    turn: int
    keep: int
    items: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """An entry of a turn's call ledger: `key` is `<ordinal of the response>:<call id>`, `record` a CallRecord as JSON."""

    turn: int
    key: str
    record: bytes


@dataclass(frozen=True, slots=True)
class NewDraft:
    """The newest draft of an output; kept without expiry while the contract is loaded."""

    output: str
    turn: int
    text: str
    sha256: str


@dataclass(frozen=True, slots=True)
class TakenWake:
    """A wake that leaves the inbox with this commit: by `raw` entry; `turn` works it off, `verdict` ends it now.

    `verdict` is None for the wake that the new turn works off (it ends when that turn ends), else the end itself:
    `merged`, `steered`, `skipped: unchanged`, ...
    """

    raw: str
    wake_id: str
    turn: int | None = None
    verdict: str | None = None


class After(StrEnum):
    """What becomes of the lease with this commit."""

    KEEP = "keep"
    RELEASE = "release"
    HAND_BACK = "hand_back"  # as release, and the session is due now: the segment stopped before its end


@dataclass(frozen=True, slots=True)
class Commit:
    """One write of a lease holder. Everything in it lands together or not at all.

    `lines` are finished spine lines that follow `expected_seq`; `head` is the digest of the last of them.
    `progress` clears the count of dead claims; a mere reservation before a request does not.
    `mail_taken` pieces of mail leave the head of the mailbox. `ended_wakes` are wakes whose turn ended: their keys
    expire from now on. `expire_bodies` are turns whose body may start its retention unless an effect of theirs is open.
    `due_ms` is when somebody must look again after the release (None: nobody, unless mail or wakes wait);
    `holds_session` says that waking inbox entries must wait for an open job or retry.
    """

    op: str
    expected_seq: int
    lines: tuple[bytes, ...] = ()
    head: str | None = None
    progress: bool = True
    turns: tuple[TurnRecord, ...] = ()
    new_turns: int | None = None  # the session's highest turn number after this commit, where it changed
    taken_wakes: tuple[TakenWake, ...] = ()
    returned_wakes: tuple[Wake, ...] = ()  # unread steers of an ending turn become wakes of the same session
    ended_wakes: tuple[tuple[str, str], ...] = ()  # (wake id, verdict)
    mail_taken: int = 0
    bodies: tuple[Body, ...] = ()
    histories: tuple[History, ...] = ()
    calls: tuple[Call, ...] = ()
    reserve: Reservation | None = None
    settle: tuple[Settlement, ...] = ()
    effects: tuple[EffectRecord, ...] = ()
    jobs: tuple[JobRecord, ...] = ()
    job_caps: Caps = field(
        default_factory=Caps
    )  # of the day, for the money of these jobs, which is put aside with them
    drafts: tuple[NewDraft, ...] = ()
    memo: dict[str, str] = field(default_factory=dict)  # small facts of the session: last success, quarantine, ...
    wakes: tuple[Wake, ...] = ()  # downstream contracts of the same team
    expire_bodies: tuple[int, ...] = ()
    after: After = After.KEEP
    due_ms: int | None = None
    holds_session: bool = False


class CommitState(StrEnum):
    """The store's answer to a commit."""

    DONE = "done"
    LEASE_LOST = "lease_lost"
    OUT_OF_SEQUENCE = "out_of_sequence"
    OVER_CAP = "over_cap"  # the reservation does not fit; nothing was written


@dataclass(frozen=True, slots=True)
class CommitReply:
    """What a commit did. `over` names the cap that a reservation hit (`session` or `team`); `mail` counts unread mail."""

    state: CommitState
    now_ms: int = 0
    over: str = ""
    mail: int = 0
