"""One suite for `documents.replace-section`, over files and over its double."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest

from heinzelwerk import errors
from heinzelwerk.ports import Placement, Publisher
from heinzelwerk.publisher.documents import DocumentSections
from heinzelwerk.publisher.memory import MemorySections

REF = "notes/changes.md"
ARGUMENTS = {"ref": REF, "marker": "weekly"}
TWO = (
    "# Changes\n\n<!-- heinzelwerk:begin weekly -->\n<!-- heinzelwerk:end weekly -->\n\n"
    "<!-- heinzelwerk:begin daily -->\n<!-- heinzelwerk:end daily -->\n"
)


class Documents(Protocol):
    def read(self, ref: str) -> str: ...
    def write(self, ref: str, text: str) -> None: ...


class OnDisk:
    def __init__(self, top: Path) -> None:
        self.top = top

    def read(self, ref: str) -> str:
        return (self.top / ref).read_bytes().decode()

    def write(self, ref: str, text: str) -> None:
        (self.top / ref).parent.mkdir(parents=True, exist_ok=True)
        (self.top / ref).write_bytes(text.encode())


class InMemory(dict[str, str]):
    def read(self, ref: str) -> str:
        return self[ref]

    def write(self, ref: str, text: str) -> None:
        self[ref] = text


Pair = tuple[Publisher, Documents]


@pytest.fixture(params=["files", "memory"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    """A publisher and the documents that it writes to; one of them is there."""
    documents: Documents
    if request.param == "files":
        documents = OnDisk(tmp_path)
        publisher: Publisher = DocumentSections(tmp_path)
    else:
        documents = memory = InMemory()
        publisher = MemorySections(memory)
    documents.write(REF, TWO)
    return publisher, documents


async def put(
    publisher: Publisher, text: str, *, key: str = "k1", shown: str = "", marker: str = "weekly", seconds: float = 10
) -> str:
    return await publisher.place(Placement(key, {**ARGUMENTS, "marker": marker}, text, shown), deadline_s=seconds)


async def test_a_placed_text_is_read_back(pair: Pair) -> None:
    """What was placed is shown with its key, and its revision is the one that placing answered."""
    publisher, documents = pair
    before = await publisher.view(ARGUMENTS)
    assert (before.shown, before.before, before.key) == ("", "", "")
    revision = await put(publisher, "One\n")
    after = await publisher.view(ARGUMENTS)
    assert (after.target, after.before, after.key, after.revision) == (
        publisher.target(ARGUMENTS),
        "One",
        "k1",
        revision,
    )
    assert after.shown
    assert documents.read(REF).endswith(TWO.partition("begin weekly -->\n")[2].partition("\n")[2])


async def test_a_repeated_placing_is_one(pair: Pair) -> None:
    """The same effect again, as after a lost answer, changes nothing and answers the same revision."""
    publisher, documents = pair
    first = await put(publisher, "One")
    content = documents.read(REF)
    assert await put(publisher, "One") == first
    assert documents.read(REF) == content


async def test_nobodys_words_are_overwritten(pair: Pair) -> None:
    """A section that was edited after it was shown is a conflict, and the edit stays."""
    publisher, documents = pair
    await put(publisher, "One")
    shown = (await publisher.view(ARGUMENTS)).shown
    documents.write(REF, documents.read(REF).replace("One", "Mine"))
    with pytest.raises(errors.TargetConflict):
        await put(publisher, "Two", key="k2", shown=shown)
    view = await publisher.view(ARGUMENTS)
    assert (view.before, view.key) == ("Mine", "")


async def test_edits_elsewhere_are_kept(pair: Pair) -> None:
    """What changed outside the section since it was shown is no conflict and is still there."""
    publisher, documents = pair
    await put(publisher, "One")
    shown = (await publisher.view(ARGUMENTS)).shown
    documents.write(REF, documents.read(REF).replace("# Changes", "# What changed"))
    await put(publisher, "Two", key="k2", shown=shown)
    assert documents.read(REF).startswith("# What changed\n")
    assert (await publisher.view(ARGUMENTS)).before == "Two"


async def test_two_effects_for_one_section_place_one(pair: Pair) -> None:
    """Of two texts over the same section the first wins and the other learns of it."""
    publisher, _ = pair
    ends = await asyncio.gather(
        put(publisher, "One", key="k1"), put(publisher, "Two", key="k2"), return_exceptions=True
    )
    assert sorted(type(end).__name__ for end in ends) == ["TargetConflict", "str"]
    assert (await publisher.view(ARGUMENTS)).key in ("k1", "k2")


async def test_two_sections_of_one_document_do_not_disturb_each_other(pair: Pair) -> None:
    """Effects on two sections at once are both there."""
    publisher, _ = pair
    await asyncio.gather(put(publisher, "W", key="k1"), put(publisher, "D", key="k2", marker="daily"))
    assert (await publisher.view(ARGUMENTS)).before == "W"
    assert (await publisher.view({**ARGUMENTS, "marker": "daily"})).before == "D"


async def test_without_time_left_nothing_is_written(pair: Pair) -> None:
    """An attempt past its deadline changes nothing and says that it may be tried again."""
    publisher, documents = pair
    with pytest.raises(errors.TargetUnavailable, match="time was up"):
        await put(publisher, "One", seconds=0)
    assert documents.read(REF) == TWO


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({**ARGUMENTS, "ref": "gone.md"}, r"no document gone\.md"), ({**ARGUMENTS, "marker": "gone"}, "no section gone")],
)
async def test_what_is_not_there_is_missing(pair: Pair, arguments: Mapping[str, str], words: str) -> None:
    """A missing document or marker is named, by looking and by placing alike."""
    publisher, _ = pair
    with pytest.raises(errors.TargetMissing, match=words):
        await publisher.view(arguments)
    with pytest.raises(errors.TargetMissing, match=words):
        await publisher.place(Placement("k", arguments, "x", ""), deadline_s=10)


async def test_wrong_arguments_are_refused(pair: Pair) -> None:
    """A contract learns at its check what is wrong; an attempt with them ends decided, nothing changed."""
    publisher, documents = pair
    wrong = {"ref": "../out.md", "marker": "weekly"}
    with pytest.raises(errors.Refused, match="leads out"):
        publisher.target(wrong)
    with pytest.raises(errors.Refused, match="leads out"):
        await publisher.view(wrong)
    with pytest.raises(errors.TargetMissing, match="leads out"):
        await publisher.place(Placement("k", wrong, "x", ""), deadline_s=10)
    assert documents.read(REF) == TWO
