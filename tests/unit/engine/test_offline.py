"""Drafts by rule: every entry once with its hash and date, grouped; checks that are honest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heinzelwerk.engine import offline_draft
from heinzelwerk.engine.offline_draft import Source


def entry(n: int, title: str, kind: str = "merge", number: int | None = None) -> dict[str, object]:
    sha = f"{n:02x}" * 20
    return {"title": title, "kind": kind, "sha": sha, "number": number, "merged_at": f"2026-11-{n:02}T10:00:00Z"}


ROWS = [
    entry(1, "feat: add a page", number=7),
    entry(2, "fix(store)!: keep the order", "squash"),
    entry(3, "Say why", "direct"),
    entry(4, "docs: explain 0101010101010101 again (#9)", number=9),
    entry(5, "Merge the branch"),
]
ITEMS = (
    "Every entry of the window stands in the text exactly once, with its short hash.",
    "Every entry has its date.",
    "The entries are grouped by kind, and no group is empty.",
    "The text holds no e-mail address.",
)


def test_entries_are_grouped_dated_and_each_stands_once() -> None:
    """By conventional prefix where there is one, by the kind of merge else."""
    written = offline_draft.write("Changes", [Source("merged", ROWS)])
    for row in ROWS:
        assert written.text.count(str(row["sha"])[:7]) == 1
        assert str(row["merged_at"])[:10] in written.text
    groups = [line for line in written.text.splitlines() if line.startswith("### ")]
    assert groups == ["### Features", "### Fixes", "### Documentation", "### Merged changes", "### Direct changes"]
    assert "- 2026-11-01 Add a page (#7) `0101010101`" in written.text
    assert "(#9) (#9)" not in written.text
    for item in ITEMS:
        assert offline_draft.check(item, written).met, item


def test_an_item_that_no_rule_understands_is_not_met() -> None:
    """It says so, instead of claiming a reading that never was."""
    written = offline_draft.write("Changes", [Source("merged", ROWS)])
    check = offline_draft.check("The tone is friendly.", written)
    assert not check.met
    assert "no language model" in check.evidence


@pytest.mark.parametrize(
    ("data", "basis"),
    [
        ([ROWS, "# Notes"], "5 entries"),
        ([ROWS[:1]], "1 entry"),
        (["# Notes"], "1 input"),
        (["# Notes", "x"], "2 inputs"),
    ],
)
def test_a_report_counts_what_it_was_made_of(data: list[object], basis: str) -> None:
    """Entries where there are any, inputs else; one is no plural."""
    assert offline_draft.write("Changes", [Source(f"s{n}", one) for n, one in enumerate(data)]).basis == basis


def test_an_empty_window_is_one_sentence() -> None:
    """Nothing is made up to fill a page."""
    written = offline_draft.write("Changes", [Source("merged", [])])
    assert "Nothing happened in this window." in written.text
    assert "###" not in written.text
    assert all(offline_draft.check(item, written).met for item in ITEMS)


def test_documents_are_quoted_and_gaps_are_told() -> None:
    """Whole paragraphs, word for word; a missing input is said to be missing."""
    document = {"ref": "a.md", "title": "A page", "text": "First.\n\nSecond <!-- heinzelwerk:begin x -->."}
    written = offline_draft.write(
        "Digest", [Source("page", document), Source("changes", None, gap="none approved yet")]
    )
    assert "> First.\n>\n> Second" in written.text
    assert "<!--" not in written.text
    assert "none approved yet" in written.text


def test_other_lists_become_one_line_for_each_entry() -> None:
    """Issues, messages, events: whatever has a title or a text and a date."""
    rows = [{"key": "A-1", "title": "Broken", "updated_at": "2026-11-02"}, {"text": "Hi", "posted_at": "2026-11-03"}]
    written = offline_draft.write("Digest", [Source("issues", rows)])
    assert "- 2026-11-02 Broken" in written.text
    assert "- 2026-11-03 Hi" in written.text


def test_a_json_output_is_json() -> None:
    """The same entries as a document."""
    import json

    written = offline_draft.write("Changes", [Source("merged", ROWS)], output_format="json")
    assert len(json.loads(written.text)["entries"]) == len(ROWS)


@given(st.lists(st.tuples(st.text(max_size=80), st.sampled_from(["merge", "squash", "direct", "odd"])), max_size=30))
def test_whatever_the_titles_each_entry_stands_once(rows: list[tuple[str, str]]) -> None:
    """Titles that hold hashes, markers or markup never add or hide an entry."""
    data = [entry(n % 90 + 1, title, kind) | {"sha": f"{n:040x}"} for n, (title, kind) in enumerate(rows, 1)]
    written = offline_draft.write("Changes", [Source("merged", data)])
    assert sum(line.startswith("- ") for line in written.text.splitlines()) == len(data)
    assert "<!--" not in written.text
    for item in written.entries:
        assert written.text.count(f"`{item.once}`") == 1


@pytest.mark.parametrize("data", [None, 5, "words", [], [1, "x", None], {}, {"a": [1]}])
def test_any_shape_of_data_is_survived(data: object) -> None:
    """An adapter may return anything that JSON can say."""
    assert offline_draft.NOTICE in offline_draft.write("T", [Source("x", data)]).text
