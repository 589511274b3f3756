import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from heinzelwerk.event import Chain, Note
from heinzelwerk.mail import Mail, MailKind
from workers.show import details, timeline

AT = datetime(2026, 11, 30, 20, 14, 3, tzinfo=UTC)


def spine(*notes: Note) -> tuple[bytes, ...]:
    return Chain().extend(notes, at=AT)[0]


def test_a_turn_is_told_step_by_step() -> None:
    """Each event is a row with what it cost; the turn's end sums it up in one sentence."""
    rows = timeline.rows(
        timeline.read(
            spine(
                Note(
                    "turn.started",
                    {
                        "cause": "manual",
                        "by": "ada",
                        "as_of": "2026-11-30T20:14:03+00:00",
                        "merged": 2,
                        "pins": {"model": "offline", "contract": "sha256:" + "ab" * 32},
                        "inputs": {"changes": "sha256:00"},
                    },
                    turn="docs/changelog/3",
                ),
                Note(
                    "step.model",
                    {
                        "step": 1,
                        "ms": 812,
                        "attempt": 1,
                        "model": "offline",
                        "input_tokens": 1200,
                        "output_tokens": 52,
                        "cost_micros": 450,
                        "calls": ["read_changes"],
                    },
                    turn="docs/changelog/3",
                ),
                Note(
                    "turn.ended",
                    {
                        "verdict": "completed",
                        "reason": "",
                        "report": "Wrote the week.",
                        "requests": 2,
                        "tool_calls": 1,
                        "cost_micros": 0,
                        "active_ms": 2100,
                    },
                    turn="docs/changelog/3",
                ),
            )
        )
    )
    assert [row.what for row in rows] == ["turn started", "model", "turn ended"]
    assert rows[0].detail == (
        "manual · by ada · as of 2026-11-30T20:14 · model offline · contract abababababab · inputs changes · "
        "took 2 waiting wakes along"
    )
    assert rows[1].detail == "asks for read_changes"
    assert (rows[1].duration_ms, rows[1].tokens, rows[1].cost_micros) == (812, "1,200 in / 52 out", 450)
    assert rows[2].detail == "completed · Wrote the week. · 2 requests, 1 tool call"
    assert (rows[2].duration_ms, rows[2].cost_micros, rows[2].turn) == (2100, 0, 3)


def test_a_failed_attempt_and_a_retried_call_are_told_with_their_reason() -> None:
    """Who reads a timeline sees what went wrong, which attempt it was, and what follows."""
    rows = timeline.rows(
        timeline.read(
            spine(
                Note(
                    "step.model",
                    {"step": 1, "attempt": 2, "model": "m", "failed": "busy", "status": 529, "wait_s": 1.5},
                ),
                Note(
                    "step.tools",
                    {
                        "step": 2,
                        "calls": [
                            {"tool": "read_x", "ms": 12, "outcome": "success", "call": "c1"},
                            {"tool": "y", "outcome": "failed"},
                        ],
                        "retries": [{"tool": "read_x", "attempt": 1, "limit": 2, "call": "c1"}],
                    },
                ),
            )
        )
    )
    assert rows[0].detail == "FAILED: busy · attempt 2 · at m · status 529 · wait s 1.5"
    assert rows[1].detail == "read_x 12 ms, y failed · RETRY attempt 1 · limit 2 · tool read_x"


def test_a_reason_that_the_report_holds_is_told_once() -> None:
    """A turn with nothing to do says why in its report; the same sentence before it helps nobody."""

    def end(reason: str) -> str:
        data = {"verdict": "completed", "reason": reason, "report": "Nothing to do. All is as it was."}
        (row,) = timeline.rows(timeline.read(spine(Note("turn.ended", data, turn="docs/changelog/3"))))
        return row.detail

    assert end("All is as it was.").startswith("completed · Nothing to do. All is as it was. · ")
    assert end("Nobody asked.").startswith("completed: Nobody asked. · Nothing to do.")


def test_a_kind_of_a_later_release_is_shown_with_its_facts() -> None:
    """Nothing is hidden because this release does not know it."""
    (row,) = timeline.rows(
        timeline.read(
            spine(Note("moon.phase", {"phase": "full", "seen_micros": 20_000, "hash_sha256": "f" * 64, "none": None}))
        )
    )
    assert row.what == "moon phase"
    assert row.detail == "hash sha256 ffffffffffff · phase full · seen micros $0.0200"


def test_a_damaged_line_hides_nothing_behind_it() -> None:
    """The rows before and after a line that is no event are there."""
    first, second = spine(Note("a", {}), Note("b", {}))
    rows = timeline.rows(timeline.read((first, b'{"half', second)))
    assert [row.what for row in rows] == ["a", "DAMAGED LINE", "b"]


@given(st.binary())
def test_no_bytes_break_the_timeline(line: bytes) -> None:
    """Whatever a spine holds, it is shown."""
    assert len(timeline.rows(timeline.read((line,)))) == 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_no_data_breaks_the_timeline(data: object) -> None:
    """Events of any release are shown, whatever their facts are."""
    for kind in (
        "turn.started",
        "turn.ended",
        "turn.waiting",
        "effect.planned",
        "step.model",
        "step.tools",
        "report",
        "x",
    ):
        whole = {
            "usage": data,
            "pins": data,
            "inputs": data,
            "items": data,
            "merged": data,
            "x": data,
            "cost_micros": data,
        }
        line = json.dumps({"seq": 1, "ts": AT.isoformat(), "turn": "a/b/1", "kind": kind, "data": whole}).encode()
        (row,) = timeline.rows(timeline.read((line,)))
        assert row.at == AT


def test_mail_on_its_way_is_part_of_what_people_are_shown() -> None:
    """A steer that no commit has taken yet stands behind the spine, without its words."""
    (entry,) = timeline.unread([Mail(id="m1", kind=MailKind.STEER, turn=2, text="secret words", by="ada")])
    (row,) = timeline.rows([entry])
    assert (row.what, row.turn, row.at, row.detail) == ("mail steer", 2, None, "by ada")


def test_a_message_that_a_turn_did_not_hear_says_what_became_of_it() -> None:
    """The sender finds below the turn's end that the words were not lost, and where they went."""
    words = details.describe("steer.returned", {"mail": "m1", "wake": "24e4d3f0a1b6c9d2"})
    assert words == "the turn ended without hearing it · it is wake 24e4d3f0a1b6c9d2 now"


def test_one_turn_is_picked_from_a_spine_of_many() -> None:
    """`log --turn N` shows that turn and no other."""
    lines = spine(Note("a", {}, turn="t/h/1"), Note("b", {}, turn="t/h/12"), Note("c", {}))
    assert [entry.kind for entry in timeline.of_turn(timeline.read(lines), 12)] == ["b"]


def test_a_handoff_is_one_line_that_says_who_ran_and_how_it_ended() -> None:
    """Agent, model, status, its calls and reads, its files; a damaged event is still a line."""
    data = {
        "job": "j1",
        "agent": "claude-code",
        "agent_version": "2.1.332",
        "model": "m",
        "status": "completed",
        "tool_calls": {"Read": {"calls": 3, "failed": 1, "denied": 0}},
        "reads": {"read_page": {"calls": 1, "failed": 0}},
        "files": 2,
        "task_sha256": "a" * 64,
    }
    words = details.describe("step.handoff", data)
    for said in ("claude-code 2.1.332 (m)", "completed", "Read 3 (1 failed)", "read_page 1", "2 files", "j1"):
        assert said in words
    assert "aaaa" not in words
    assert "interrupted" in details.describe(
        "step.handoff", {"runner": "agent", "status": "interrupted", "tool_calls": [1]}
    )
