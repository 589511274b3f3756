import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from workers.doctor import Finding, Level
from workers.show import diffs, findings, screen
from workers.show.screen import Screen, ink, table

HOSTILE = "\ud800\x1b[31mred\x1b[0m \x9b2J \x07bell \u202ereversed\u2066 zero\u200bwidth \r\x00end"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def both(out: io.StringIO | None = None) -> tuple[Screen, io.StringIO, io.StringIO]:
    out, err = out or io.StringIO(), io.StringIO()
    return Screen(out, err), out, err


def test_nothing_that_moves_a_cursor_is_printed() -> None:
    """Words from files, models and people reach a pipe without control, bidirectional or invisible characters."""
    shown, out, err = both()
    shown.result(HOSTILE, ink(HOSTILE, "bold"), table(("a",), [(HOSTILE,)]), diffs.unified("", HOSTILE, name=HOSTILE))
    shown.problem(HOSTILE, fix=HOSTILE, details=[HOSTILE])
    for stream in (out, err):
        forbidden = [letter for letter in stream.getvalue() if not letter.isprintable() and letter != "\n"]
        assert forbidden == []


@given(st.text(st.characters()))
def test_no_text_at_all_gets_a_control_character_through(text: str) -> None:
    """Whatever the words are, a pipe gets letters, blanks and line feeds."""
    shown, out, _ = both()
    shown.result(text, ink(text, "red"), table(("a",), [(text,)]))
    assert not {"\x1b", "\x9b", "\r", "\x00", "\x07", "\u202e", "\u2028"} & set(out.getvalue())


def test_markup_in_words_is_shown_as_it_is() -> None:
    """Square brackets and emoji codes in a contract's words are words."""
    shown, out, _ = both()
    shown.result("[bold]x[/bold] :smile: [link=http://x]y[/link]")
    assert out.getvalue() == "[bold]x[/bold] :smile: [link=http://x]y[/link]\n"


def test_colours_are_for_terminals_only() -> None:
    """A terminal gets colours, a pipe gets none."""
    shown, piped, _ = both()
    shown.result(ink("x", "red"))
    assert piped.getvalue() == "x\n"
    shown, seen, _ = both(Terminal())
    shown.result(ink("x", "red"))
    assert "\x1b[" in seen.getvalue()


def test_a_pipe_gets_whole_lines() -> None:
    """No line is wrapped or cut where nobody looks: grep and programs see what is there."""
    shown, out, _ = both()
    long = "word " * 400
    shown.result(long, table(("a", "b"), [("1", long)]))
    assert max(map(len, out.getvalue().splitlines())) >= 1999


def test_json_keeps_every_character_and_prints_none_that_controls() -> None:
    """Programs get the text back; a terminal that shows the JSON is not controlled by it."""
    shown, out, _ = both()
    shown.data({"text": HOSTILE, "umlaut": "ä"})
    assert json.loads(out.getvalue()) == {"text": HOSTILE, "umlaut": "ä"}
    assert not [letter for letter in out.getvalue() if not letter.isprintable() and letter != "\n"]
    assert "ä" in out.getvalue()


def test_an_error_names_its_fix_once() -> None:
    """The fix stands on a line of its own, and not twice where the message has it already."""
    shown, out, err = both()
    shown.problem("no server", fix="start one")
    shown.problem("no server: start one", fix="start one")
    assert out.getvalue() == ""
    assert err.getvalue() == "error: no server\n  fix: start one\n" * 2


def test_the_doctor_says_a_fix_once() -> None:
    """An error that ends in its fix is found without it; the fix stands below."""
    found = Finding(Level.DOWN, "store", "nothing answers.; start one", "start one")
    assert findings.as_text([found]).plain.splitlines()[:2] == [
        "down store        nothing answers",
        "                  fix: start one",
    ]


def test_a_diff_shows_what_changes_and_how_much() -> None:
    """Added and removed lines are marked and counted; equal texts say so."""
    before, after = "a\nb\nc\n", "a\nB\nc\nd\n"
    assert diffs.unified(before, after, name="x.md").plain.splitlines() == [
        "--- x.md (before)",
        "+++ x.md (after)",
        "@@ -1,3 +1,4 @@",
        " a",
        "-b",
        "+B",
        " c",
        "+d",
    ]
    assert diffs.counts(before, after) == (2, 1)
    assert diffs.unified("a", "a", name="x.md").plain == "x.md: no difference"


def test_a_long_text_shows_both_ends_and_counts_the_rest() -> None:
    """A short one is shown whole; of a long one as many lines as asked for, most of them from its beginning."""
    text = ink("\n".join("abcdefgh"))
    assert screen.both_ends(text, most=8) is text
    assert screen.both_ends(text, most=4).plain.splitlines() == ["a", "b", "c", "... 4 more lines ...", "h"]
    assert screen.both_ends(text, most=7).plain.splitlines() == [*"abcdef", "... 1 more line ...", "h"]


def test_cells_that_are_styled_keep_their_words() -> None:
    """A styled cell is printed like a plain one."""
    shown, out, _ = both()
    shown.result(screen.table(("name", "n"), [(Text("x"), "1"), ("yy", "22")], right=(1,)))
    assert [line.rstrip() for line in out.getvalue().splitlines()] == ["name   n", "x      1", "yy    22"]


@pytest.mark.parametrize("columns", [60, 30])
def test_a_terminal_that_is_too_narrow_gets_long_cells_below_their_row(columns: int) -> None:
    """Words are not broken to a few letters a line: what folds goes below, where it has the whole width."""
    made = table(("name", "state", "what"), [("changelog", "scheduled", "Wrote the page."), ("digest", "paused", "")])
    console = Console(width=columns, file=io.StringIO(), force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(made)
    shown = [part.rstrip() for part in captured.get().splitlines()]
    assert ("    Wrote the page." in shown) == (columns == 30)
    assert [part.split()[0] for part in shown if part[:1].isalpha()][-2:] == ["changelog", "digest"]
    assert len(shown) == 3
