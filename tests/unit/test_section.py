"""Marked sections: what is found, what is refused and with which words, what is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heinzelwerk import errors, ids
from heinzelwerk.ports import Placement
from heinzelwerk.publisher import section
from heinzelwerk.publisher.section import Where

AT = Where("notes/changes.md", "weekly")
ARGUMENTS = {"ref": AT.ref, "marker": AT.marker}
FRESH = "# Changes\n\n<!-- heinzelwerk:begin weekly -->\n<!-- heinzelwerk:end weekly -->\n\nBy hand.\n"
KEY = "crew/changelog/scheduled/changelog/2026-03-02T08:00:00Z/changes/0/1"


def put(content: str, text: str, *, shown: str = "", key: str = KEY) -> str:
    return section.place(content, AT, Placement(key, ARGUMENTS, text, shown))


def test_a_fresh_section_is_empty_and_shown_as_nothing() -> None:
    """Two markers without attributes are an empty section that nobody placed."""
    view = section.view(FRESH, AT, revision="r")
    assert (view.target, view.shown, view.before, view.key) == ("documents:notes/changes.md#weekly", "", "", "")


def test_a_placed_section_reads_back() -> None:
    """The key and the text's hash stand on the begin line; everything around the section is as it was."""
    after = put(FRESH, "One\n\ntwo\n")
    assert after == (
        f"# Changes\n\n<!-- heinzelwerk:begin weekly key={KEY} sha256={ids.digest('One' + chr(10) * 2 + 'two')} -->\n"
        "One\n\ntwo\n<!-- heinzelwerk:end weekly -->\n\nBy hand.\n"
    )
    view = section.view(after, AT, revision="r")
    assert (view.before, view.key, view.shown) == ("One\n\ntwo", KEY, section.fingerprint("One\n\ntwo"))


def test_an_edit_by_hand_takes_the_key_away() -> None:
    """Once somebody has edited the section, no effect counts as having placed what stands there."""
    edited = put(FRESH, "One").replace("One", "One!")
    view = section.view(edited, AT, revision="r")
    assert (view.before, view.key) == ("One!", "")


def test_a_changed_section_is_not_overwritten() -> None:
    """What was not shown to the person who approved stays."""
    edited = put(FRESH, "One").replace("One", "One!")
    with pytest.raises(errors.TargetConflict, match="no longer what was shown"):
        put(edited, "Two", shown=section.fingerprint("One"), key="other")
    assert "Two" in put(edited, "Two", shown=section.fingerprint("One!"), key="other")


def test_the_same_effect_again_changes_nothing() -> None:
    """A repeated attempt finds that it has arrived, whatever was shown; an edit made since is kept."""
    after = put(FRESH, "One")
    assert put(after, "One") == after
    edited = after.replace("One", "Mine")
    assert put(edited, "One") == edited


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("last", ["\n", ""])
def test_the_documents_own_form_is_kept(newline: str, bom: str, last: str) -> None:
    """Line ends, byte order mark and the missing last line end of a document survive; markers may begin and end it."""
    content = (
        bom + "<!-- heinzelwerk:begin weekly -->\nold\n<!-- heinzelwerk:end weekly -->".replace("\n", newline) + last
    )
    content = content.replace("\n", newline) if last and newline == "\r" else content
    after = put(content, "One\r\ntwo\n", shown=section.fingerprint("old"))
    head, _, rest = after.partition(newline)
    assert head.startswith(f"{bom}<!-- heinzelwerk:begin weekly key=")
    assert rest == content.partition(newline)[2].replace("old", f"One{newline}two")


def test_indented_markers_keep_their_indent() -> None:
    """Up to three blanks before a marker are kept; with four it is code and no marker."""
    content = "- item\n\n  <!-- heinzelwerk:begin weekly -->\n  <!-- heinzelwerk:end weekly -->\n"
    assert put(content, "x").splitlines()[2].startswith("  <!-- heinzelwerk:begin weekly key=")
    with pytest.raises(errors.TargetMissing):
        put("    <!-- heinzelwerk:begin weekly -->\n    <!-- heinzelwerk:end weekly -->\n", "x")


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        ("", errors.TargetMissing, r"has no section weekly: add .*begin weekly -->.*end weekly -->"),
        ("<!-- heinzelwerk:beginn weekly -->\n", errors.TargetMissing, r"line 1 is no marker"),
        ("```\n" + FRESH + "```\n", errors.TargetMissing, r"line 4, 5 is no marker: .*code blocks"),
        (FRESH + FRESH, errors.TargetConflict, r"more than once, in lines 3, 9"),
        ("<!-- heinzelwerk:begin weekly -->\nx\n", errors.TargetConflict, r"begun in line 1, never ends"),
        ("x\n<!-- heinzelwerk:end weekly -->\n", errors.TargetConflict, r"ends in line 2 before it begins"),
        (
            "<!-- heinzelwerk:end weekly -->\n<!-- heinzelwerk:begin weekly -->\n",
            errors.TargetConflict,
            r"ends in line 1 before",
        ),
        (
            "<!-- heinzelwerk:begin weekly -->\n<!-- heinzelwerk:begin a -->\n<!-- heinzelwerk:end weekly -->\n",
            errors.TargetConflict,
            r"holds a marker of a in line 2",
        ),
        (
            "<!-- heinzelwerk:begin a -->\n" + FRESH + "<!-- heinzelwerk:end a -->\n",
            errors.TargetConflict,
            r"lies inside section a, begun in line 1",
        ),
    ],
)
def test_markers_that_do_not_fit_are_named_with_their_lines(content: str, error: type[Exception], words: str) -> None:
    """Each kind of damage says which line, and what to do."""
    with pytest.raises(error, match=words):
        put(content, "x")


def test_another_sections_damage_stops_only_that_section() -> None:
    """A section that is never closed elsewhere in the document does not block this one."""
    assert "One" in put("<!-- heinzelwerk:begin a -->\n" + FRESH, "One")


@pytest.mark.parametrize("fence", ["```", "~~~", "````", "> ```", "- ```"])
def test_markers_in_code_are_text(fence: str) -> None:
    """A document that explains markers in a code block, also inside a list or quote, has one real section."""
    quoted = "> " if fence.startswith(">") else "  " if fence.startswith("-") else ""
    example = f"{fence}\n{quoted}<!-- heinzelwerk:begin weekly -->\n{quoted}{fence.lstrip('>- ')}\n\n"
    assert section.find(example + FRESH, AT).begin == 6


@pytest.mark.parametrize(
    "text",
    [
        "a\n<!-- heinzelwerk:end weekly -->\nb",
        "<!-- heinzelwerk:begin other -->\n<!-- heinzelwerk:end other -->",
        "```\nnever closed",
        "~~~~ markdown\n~~~",
        "a lone \ud800 surrogate",
    ],
)
def test_a_text_that_would_not_stay_in_its_section_is_refused(text: str) -> None:
    """Markers of its own and open code blocks would swallow what people wrote below."""
    with pytest.raises(errors.TargetConflict, match="cannot stand in section weekly"):
        put(FRESH, text)


def test_a_text_may_show_markers_as_code() -> None:
    """A draft that explains markers in a closed code block is placed as it is."""
    text = "```\n<!-- heinzelwerk:end weekly -->\n```"
    assert section.view(put(FRESH, text), AT, revision="r").before == text


@pytest.mark.parametrize("key", ["a b", "asked/slack/<id>-->x", "--x--", "a=b", "\u00fc/\n", "%41"])
def test_any_key_comes_back_as_it_was(key: str) -> None:
    """A key of any letters cannot break its comment and is read back exactly."""
    assert section.view(put(FRESH, "x", key=key), AT, revision="r").key == key


@given(text=st.text(max_size=300), before=st.text(max_size=100), after=st.text(max_size=100))
def test_placing_keeps_everything_else_or_changes_nothing(text: str, before: str, after: str) -> None:
    """For any text in any document: the section reads back as the text, all around it is untouched, or it is refused."""
    content = f"{before}\n<!-- heinzelwerk:begin weekly -->\n<!-- heinzelwerk:end weekly -->\n{after}"
    try:
        placed = put(content, text)
    except (errors.TargetConflict, errors.TargetMissing):
        return
    assert section.view(placed, AT, revision="r").before == section.canonical(text)
    assert placed.startswith(before)
    assert placed.endswith(f"<!-- heinzelwerk:end weekly -->\n{after}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "takes ref and marker, not nothing"),
        ({"ref": "a.md"}, "takes ref and marker, not ref"),
        ({"ref": "a.md", "marker": "m", "text": "x"}, "not marker, ref, text"),
        ({"ref": "../a.md", "marker": "m"}, "leads out"),
        ({"ref": "a.md", "marker": "a -->"}, "names no section"),
        ({"ref": "a.md", "marker": "a--b"}, "names no section"),
        ({"ref": "a.md", "marker": "a" * 65}, "names no section"),
    ],
)
def test_arguments_that_name_no_section_are_refused(arguments: dict[str, str], words: str) -> None:
    """The refusal says what is wrong and how to write it."""
    with pytest.raises(errors.Refused, match=words):
        section.where(arguments)
