"""What people read of drafts, decisions, lists and previews."""

import io
from datetime import UTC, datetime

import pytest
from rich.console import RenderableType

from heinzelwerk.budget import Caps, Spent
from heinzelwerk.effect import Decision, EffectRecord, EffectState, Moved, MoveReply
from heinzelwerk.event import Chain, Note
from heinzelwerk.generation import ContractEntry
from heinzelwerk.ids import SessionId
from heinzelwerk.inbox import Item, Waiting
from heinzelwerk.session import Overview
from heinzelwerk.turn import TurnRecord, TurnState
from heinzelwerk.wake import Cause, Wake
from workers.show import costs, decisions, roster, spines, turns
from workers.show.screen import Screen

NOW = 1_800_000_000_000


def printed(part: RenderableType) -> str:
    out = io.StringIO()
    Screen(out, io.StringIO()).result(part)
    return out.getvalue()


def effect(**changed: object) -> EffectRecord:
    values: dict[str, object] = {
        "id": "abc123", "key": "k", "team": "core", "heinzel": "page", "turn": 3, "output": "page", "action": "notes.place",
        "target": "notes:wall", "text_sha256": "", "digest": "", "created_ms": NOW - 90_000,
    }  # fmt: skip
    return EffectRecord.model_validate({**values, **changed})


def test_an_inbox_names_the_command_that_ends_each_wait() -> None:
    """Every entry: what it is, whose, since when, until when, and what to type; an empty inbox says where to look."""
    item = Item(
        Waiting.DRAFT, "abc123", "page", 3, "notes.place to notes:wall", NOW - 90_000, NOW, "heinzelwerk approve abc123"
    )
    assert printed(decisions.inbox([item], now=NOW, zone=UTC)).splitlines() == [
        "abc123  draft of page turn 3, 1 min 30 s ago, until 2027-01-15 08:00",
        "    notes.place to notes:wall",
        "    heinzelwerk approve abc123",
    ]
    assert "Next: heinzelwerk list" in printed(decisions.inbox([], now=NOW, zone=UTC))
    assert "Next: heinzelwerk wake" in printed(decisions.drafts([], now=NOW))


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (
            MoveReply(Moved.ALREADY_DECIDED, effect(decision=Decision.APPROVED, decided_by="ada")),
            "abc123: already decided by ada: approved",
        ),
        (
            MoveReply(Moved.ALREADY_ENDED, effect(state=EffectState.FAILED, reason="conflict")),
            "abc123 has ended: failed (conflict)",
        ),
        (MoveReply(Moved.DIGEST_DIFFERS, effect()), "abc123 changed since it was shown: nothing was decided"),
        (MoveReply(Moved.NOT_FOUND), "this draft: not found"),
    ],
)
def test_a_decision_that_was_not_taken_says_why(reply: MoveReply, words: str) -> None:
    """Who was first, how it ended, or what changed."""
    assert decisions.refusal(reply) == words


def test_a_decision_says_what_follows() -> None:
    """An approval names where the text goes and how to see that it is there; an edit and a decline say so."""
    approved = decisions.decided(effect(decided_by="ada", edited=True), Decision.APPROVED).plain
    assert "approved by ada with your edits" in approved
    assert "heinzelwerk drafts abc123" in approved
    assert "nothing is placed" in decisions.decided(effect(decided_by="ada"), Decision.DECLINED).plain
    assert decisions.ended(effect(state=EffectState.COMPLETED)).plain == "abc123 is placed in notes:wall."
    assert "conflict" in decisions.ended(effect(state=EffectState.FAILED, reason="conflict")).plain


def overview(**changed: object) -> Overview:
    values: dict[str, object] = {
        "session": SessionId("core", "page"), "last_turn": 0, "seq": 0, "turns": (), "inbox": (), "mail": 0, "paused": False,
        "held": False, "due_ms": None, "next_slot_ms": None, "dead_claims": 0, "memo": {},
    }  # fmt: skip
    return Overview(**{**values, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entry", "seen", "state"),
    [
        (None, overview(), "revoked"),
        (ContractEntry(name="page", sha256="s", broken=("x",)), None, "broken"),
        (ContractEntry(name="page", sha256="s", schedule="0 7 * * *"), overview(paused=True), "paused"),
        (ContractEntry(name="page", sha256="s"), overview(memo={"quarantine": "poison"}), "quarantined"),
        (ContractEntry(name="page", sha256="s", schedule="0 7 * * *"), None, "scheduled"),
        (ContractEntry(name="page", sha256="s", on=("inputs",)), None, "event"),
        (ContractEntry(name="page", sha256="s"), None, "manual"),
    ],
)
def test_a_list_says_in_which_state_each_one_is(entry: ContractEntry | None, seen: Overview | None, state: str) -> None:
    """One word for each; one that never woke still has its next slot."""
    row = roster.row("page", entry, seen, None, now=NOW)
    assert row["state"] == state
    assert (row["next_ms"] is not None) == (entry is not None and entry.schedule is not None)
    assert "page" in printed(roster.as_table([row], now=NOW, zone=UTC, team="core"))


def test_an_empty_list_says_how_to_fill_it() -> None:
    """A team without contracts is told the next two commands."""
    assert "heinzelwerk new NAME, then heinzelwerk load" in printed(roster.as_table([], now=NOW, zone=UTC, team="core"))


def test_costs_stand_beside_their_caps() -> None:
    """Spent, possibly spent and put aside together are what is compared with the cap."""
    text = printed(
        costs.as_table(
            "core",
            "today",
            Spent(spent=2_000_000),
            {"page": Spent(1_000_000, 500_000, 500_000)},
            Caps(1_000_000, 4_000_000, None),
        )
    )
    assert "one turn at most $1.0000" in text
    assert "$4.0000 (50%)" in text
    assert "none" in text
    assert costs.is_day("2026-11-30")
    assert not costs.is_day("2026-02-30")
    assert not costs.is_day("today")


def test_an_export_is_judged_line_by_line() -> None:
    """A whole chain holds; a removed line is named; an export that begins after a seal is checked from there."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    lines, chain = Chain().extend([Note("a"), Note("b"), Note("c")], at=at)
    assert "the chain holds: 3 events" in spines.verdict(spines.verify(b"".join(lines)), "x").plain
    broken = spines.verify(lines[0] + lines[2])
    assert (broken.ok, broken.bad_line) == (False, 2)
    assert "something was changed, removed or inserted" in spines.verdict(broken, "x").plain
    seal = (
        b'{"data":{"count":3,"from":1,"last":"%s","to":3},"kind":"spine.sealed","seq":3}\n'
        % (chain.head or "").encode()
    )
    later, _ = chain.extend([Note("d")], at=at)
    assert spines.verify(seal + later[0]).ok
    assert spines.verify(seal + lines[1]).bad_line == 2
    assert spines.as_data(spines.verify(b""))["ok"] is True


def test_a_turn_says_its_reason_once() -> None:
    """What the report says too is left out before it."""
    record = TurnRecord(
        number=3,
        wake=Wake(team="core", heinzel="page", key="k", cause=Cause.MANUAL),
        state=TurnState.COMPLETED,
        accepted_ms=1,
        as_of_ms=1,
        started_ms=1,
        reason="All is as it was.",
        report="Nothing to do. All is as it was.",
    )
    assert printed(turns.ended(record)).splitlines()[0] == "turn 3 completed  Nothing to do. All is as it was."
