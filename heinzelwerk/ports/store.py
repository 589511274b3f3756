"""The port of the store: the truth, one script for each mutation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from heinzelwerk.budget import Spent
from heinzelwerk.commit import Commit, CommitReply
from heinzelwerk.effect import Decision, EffectRecord, EffectState, MoveReply, Which
from heinzelwerk.generation import ContractEntry, Generation, LoadReply
from heinzelwerk.handoff_job import JobRecord
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail, PostReply
from heinzelwerk.session import Due, Hold, NotClaimed, Overview, Snapshot
from heinzelwerk.turn import CallRecord, TurnRecord
from heinzelwerk.wake import Acceptance, Wake


class Store(Protocol):
    """The truth. Each mutation is one script; every time that it compares is the server's.

    Errors of every method: StoreUnavailable (no answer, loading, full, read-only); FormatTooNew where a record was
    written by a newer release.
    """

    async def prepare(self) -> None:
        """Check or write the store's format mark; FormatTooNew where a newer release owns it."""

    async def now_ms(self) -> int:
        """The server's clock, in milliseconds."""

    async def teams(self) -> tuple[str, ...]:
        """The teams that have ever loaded contracts."""

    # -- contracts ---------------------------------------------------------------------------------------------

    async def load(self, generation: Generation, slots: Mapping[str, int]) -> LoadReply:
        """Make this set the team's newest generation, in one script.

        `slots` gives the next slot (server ms) of each contract with a schedule; a contract whose schedule and time
        zone did not change keeps the slot that it had. What is missing is revoked: asleep, its spine kept.
        """

    async def entries(self, team: str, names: Collection[str] | None = None) -> dict[str, ContractEntry]:
        """The contracts of the newest generation by name, all or (cheaper) those named; empty for an unknown team."""

    async def generation(self, team: str) -> Generation | None:
        """The newest generation without its texts."""

    async def skills(self, team: str) -> dict[str, str]:
        """The skills of the newest generation, as the hashes of their texts; empty for an unknown team."""

    async def text(self, team: str, sha256: str) -> bytes | None:
        """A contract's or skill's text by hash (`sha256:<hex>`); None where it is gone. What was read once may be kept."""

    # -- wakes -------------------------------------------------------------------------------------------------

    async def accept(self, wake: Wake, *, nonce: str) -> Acceptance:
        """Append the wake to its session's inbox and make the session due now; a key seen before is a duplicate.

        Refused: unknown team or contract, a contract that does not act, a full inbox. The same nonce gets the first answer.
        """

    async def fill_slot(
        self, team: str, heinzel: str, *, expected_ms: int, next_ms: int | None, wakes: Sequence[Wake]
    ) -> bool:
        """Accept the wakes of slots that are due and move the schedule on, if its slot still is `expected_ms`.

        A full inbox leaves the slot due and answers False, as does a slot that somebody else has filled.
        """

    async def due(self, team: str, *, kind: str = "", limit: int = 100) -> tuple[Due, ...]:
        """What is due now, oldest first, without taking it."""

    async def ring(self, team: str, *, limit: int = 100) -> tuple[Due, ...]:
        """Take what is due and may run: move each entry on (5 s, doubling to 300 s), admit sessions against the
        team's slots, name the rest to be rung. Slots of schedules are returned, not moved: `fill_slot` does that."""

    # -- a session under its lease -------------------------------------------------------------------------------

    async def claim(self, session: SessionId, *, nonce: str, solo: bool = True) -> Snapshot | NotClaimed:
        """Take the session's lease and read all that `advance` needs, in one script; counts the claim.

        `solo` False: others run beside it here, so that a session that killed workers (SOLO_CLAIMS) is refused as `solo` and
        due at once; after `solo_wait_ms` in which no worker with `solo` came, any may have it.
        """

    async def renew(self, holds: Sequence[Hold]) -> tuple[Hold, ...]:
        """Extend these leases; answers those that were lost."""

    async def end_leases(self, holds: Sequence[Hold]) -> int:
        """End these leases now, as if their time were over: their holder is dead. Answers how many still were its own."""

    async def commit(self, session: SessionId, token: str, commit: Commit) -> CommitReply:
        """Write everything in the commit, or nothing. The same `op` gets the first answer."""

    async def release(
        self, session: SessionId, token: str, *, handed_back: bool, due_ms: int | None, holds_session: bool
    ) -> bool:
        """Give the lease up without a commit; False where it was lost. Handed back: due now, the claim not counted as dead."""

    async def quarantine(self, session: SessionId, why: str | None, *, token: str | None = None) -> bool:
        """Mark a session whose spine is damaged, with the reason: no claim and no ring until `why` None lifts the mark.

        `token`: by the holder, who gives the lease up with it, False where that was lost. Lifting accepts the damage up to
        the spine's present end (memo ACCEPTED) and makes the session due; False where there was no mark, or no session.
        """

    async def urgent(self, sessions: Sequence[SessionId]) -> dict[SessionId, tuple[Mail, ...]]:
        """The unread stops and steers of sessions that this process runs; sessions without any are left out."""

    async def post(self, session: SessionId, mail: Mail) -> PostReply:
        """Deliver mail, fill the wait item that it names, and make the session due."""

    # -- reading -------------------------------------------------------------------------------------------------

    async def overview(self, session: SessionId) -> Overview | None:
        """A session for readers; None where it never had a wake."""

    async def sessions(self, team: str) -> tuple[str, ...]:
        """The Heinzelmännchen of a team that ever had a wake."""

    async def turn(self, session: SessionId, number: int) -> TurnRecord | None:
        """A turn's record, also after its end; None where it is unknown or past its retention."""

    async def turns(self, session: SessionId, *, before: int, limit: int = 50) -> tuple[TurnRecord, ...]:
        """The records of turns with a number under `before`, newest first, in one round trip; gaps are left out."""

    async def spine(self, session: SessionId, *, after: int = 0, limit: int = 10_000) -> tuple[bytes, ...]:
        """Spine lines with a sequence number over `after`, in order, sealed ones left out."""

    async def unread_mail(self, session: SessionId) -> tuple[Mail, ...]:
        """Mail that no commit has taken yet: what people are shown is spine and mail."""

    async def body(self, session: SessionId, turn: int, name: str) -> bytes | None:
        """An entry of a turn's body; None where it never was or has expired."""

    async def body_names(self, session: SessionId, turn: int) -> tuple[str, ...]:
        """The names of the entries of a turn's body, sorted."""

    async def history(self, session: SessionId, turn: int) -> tuple[bytes, ...]:
        """The stored messages of a turn, one JSON message each."""

    async def calls(self, session: SessionId, turn: int) -> dict[str, CallRecord]:
        """The call ledger of a turn by `<ordinal>:<call id>`."""

    async def draft(self, session: SessionId, output: str, *, approved: bool) -> tuple[int, str] | None:
        """The newest, or the last approved, text of an output with its turn's number."""

    async def spent(self, team: str, heinzel: str | None = None, *, day: str | None = None) -> Spent:
        """Money of one UTC day (`YYYY-MM-DD`; None: today by the server's clock) of a team or one session."""

    async def counters(self, team: str) -> dict[str, int]:
        """Counts that are no events: duplicates, held doorbells, refusals."""

    # -- the effect ledger -----------------------------------------------------------------------------------------

    async def effect(self, team: str, effect_id: str) -> EffectRecord | None:
        """An effect by id, or by an unambiguous beginning of at least four characters."""

    async def effects(self, team: str, which: Which = Which.ALL, *, limit: int = 200) -> tuple[EffectRecord, ...]:
        """Effects of a team, newest first: all, those that wait for a decision, or those of which nobody knows the end."""

    async def effect_text(self, team: str, effect_id: str) -> str | None:
        """The text that the effect would place, or placed; None where it has expired."""

    async def decide(
        self,
        team: str,
        effect_id: str,
        decision: Decision,
        *,
        by: str,
        digest: str,
        text: str | None = None,
        new_digest: str = "",
        wakes: Sequence[Wake] = (),
        reason: str = "",
    ) -> MoveReply:
        """Decide a planned effect; the first decision wins. `digest` must be the one that was shown.

        `text` with `new_digest` approves an edited text. `wakes` (downstream contracts) are accepted in the same script.
        """

    async def start_effect(
        self, team: str, effect_id: str, *, version: int, timeout_ms: int, margin_ms: int, unattended: bool
    ) -> MoveReply:
        """Consume the approval and begin an attempt: checks decision, contract, digest, expiry, order and target again.

        Sets the deadline by the server's clock and makes the effect due at deadline + margin.
        """

    async def close_effect(
        self,
        team: str,
        effect_id: str,
        *,
        version: int,
        to: EffectState,
        reason: str = "",
        revision: str = "",
        seen: str = "",
        retry_in_ms: int = 0,
        wakes: Sequence[Wake] = (),
    ) -> MoveReply:
        """Move a planned, started or unknown effect on: ended, unknown, or planned again after `retry_in_ms`.

        Posts mail to the effect's session, fills the wait item of a chat proposal, frees the target. Where it completes
        an effect that went unattended, its text is the output's approved one and the wakes are accepted.
        """

    # -- jobs ------------------------------------------------------------------------------------------------------

    async def job(self, team: str, job_id: str) -> JobRecord | None:
        """A handoff job's record."""

    async def claim_job(self, team: str, job_id: str, *, nonce: str, worker: str) -> tuple[JobRecord, str] | NotClaimed:
        """Take a queued job's lease, once for its life; answers the record and the token.

        A running job whose lease ended is not claimed again: it is closed `interrupted` here.
        """

    async def close_job(
        self,
        team: str,
        job_id: str,
        *,
        token: str | None,
        status: str,
        cost_micros: int | None,
        bodies: Mapping[str, bytes],
    ) -> bool:
        """End the job under its lease (without one only where none is held), store its bodies, fill the turn's wait item.

        False where it had ended before or the lease is another's.
        """

    # -- requests in flight at a provider ------------------------------------------------------------------------------

    async def begin_request(self, provider: str, hold: Hold, *, limit: int, ttl_ms: int) -> bool:
        """Take a place among the `limit` requests that may be in flight at a provider; it ends by itself after `ttl_ms`.

        False: there is none for this team now. A place that comes free goes to the team, of those that asked in the last
        1.5 s, that got its last one longest ago. A holder has one place; asking again makes it last longer.
        """

    async def end_requests(self, provider: str, holds: Sequence[Hold]) -> int:
        """Give the places of these holders back: their requests are over, or they are dead. Answers how many had one."""

    # -- operators ---------------------------------------------------------------------------------------------------

    async def pause(self, team: str, heinzel: str | None, *, paused: bool) -> None:
        """Pause or resume one Heinzelmännchen or (None) all of a team: its scheduled wakes are skipped, the rest runs."""

    async def heartbeat(self, worker: str, facts: Mapping[str, str], *, ttl_ms: int) -> None:
        """Say that a worker makes progress: version, formats, profile, host, its clock."""

    async def workers(self) -> dict[str, dict[str, str]]:
        """The workers whose heartbeat has not expired."""

    async def flag(self, name: str, value: str | None = None, *, clear: bool = False) -> str | None:
        """Read, set or clear a deployment-wide flag (`drain`)."""

    async def take_turns(self, name: str, *, ttl_ms: int) -> bool:
        """True for one caller per `ttl_ms`: sweeps and notices that every worker runs but one suffices."""

    async def is_taken(self, name: str) -> bool:
        """Whether somebody took that turn and its time has not passed; takes nothing."""

    async def server_facts(self) -> dict[str, str]:
        """Version, durability, eviction policy, clock, memory: what `doctor` judges."""

    async def prune(
        self, team: str, *, before_ms: int, archive: Callable[[SessionId, Sequence[bytes]], Awaitable[None]] | None
    ) -> int:
        """Seal whole turns that ended before the instant: archived first, then replaced by `spine.sealed`; answers lines."""

    async def close(self) -> None:
        """Give connections back."""
