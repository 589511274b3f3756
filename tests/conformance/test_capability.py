"""One suite per capability, over the real adapter and its double."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from heinzelwerk.capability.files import FileDocuments
from heinzelwerk.capability.git import GitCodeHost
from heinzelwerk.capability.memory import MemoryCodeHost, MemoryDocuments
from heinzelwerk.capability.shapes import MergeKind, PullRequest
from heinzelwerk.errors import ReadFailed
from heinzelwerk.ports import Capability
from tests.support import histories

START = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
METHOD = "merged_pull_requests"

MakeHost = Callable[[Sequence[tuple[datetime, str]]], Capability]
MakeDocuments = Callable[[Mapping[str, bytes]], Capability]


@pytest.fixture(params=["git", "memory"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> MakeHost:
    """A code host with one repository `app` that holds these (date, title) entries in the order of history."""

    def over_git(entries: Sequence[tuple[datetime, str]]) -> Capability:
        changes = [histories.Change(at, title.encode()) for at, title in entries]
        return GitCodeHost({"app": histories.make(tmp_path / "app", changes)})

    def over_memory(entries: Sequence[tuple[datetime, str]]) -> Capability:
        return MemoryCodeHost(
            {
                "app": [
                    PullRequest(
                        repository="app",
                        number=None,
                        title=title,
                        url=None,
                        author="Ada Lovelace",
                        merged_at=at,
                        labels=[],
                        kind=MergeKind.DIRECT,
                        sha=f"{index:040x}",
                    )
                    for index, (at, title) in enumerate(entries)
                ]
            }
        )

    return over_git if request.param == "git" else over_memory


@pytest.fixture(params=["files", "memory"])
def documents(request: pytest.FixtureRequest, tmp_path: Path) -> MakeDocuments:
    """A documents capability over these texts."""

    def over_files(texts: Mapping[str, bytes]) -> Capability:
        top = tmp_path / "documents"
        top.mkdir()
        for ref, data in texts.items():
            (top / ref).parent.mkdir(parents=True, exist_ok=True)
            (top / ref).write_bytes(data)
        return FileDocuments(top)

    return over_files if request.param == "files" else MemoryDocuments


async def titles(host: Capability, since: datetime | None, until: datetime | None) -> list[str]:
    rows = await host.read(METHOD, {"repository": "app"}, since=since, until=until)
    assert isinstance(rows, list)
    assert json.loads(json.dumps(rows)) == rows
    return [str(row["title"]) for row in rows if isinstance(row, dict)]


async def test_a_window_is_half_open(host: MakeHost) -> None:
    """An entry at the very start of a window is in it, one at its end is not; the next window begins with it."""
    hours = [START + timedelta(hours=hour) for hour in range(4)]
    capability = host([(at, f"Hour {index}") for index, at in enumerate(hours)])
    assert await titles(capability, hours[1], hours[3]) == ["Hour 1", "Hour 2"]
    assert await titles(capability, hours[3], None) == ["Hour 3"]
    assert await titles(capability, hours[0] + timedelta(microseconds=1), hours[1] + timedelta(microseconds=1)) == [
        "Hour 1"
    ]


async def test_entries_come_oldest_first_whatever_the_order_of_history(host: MakeHost) -> None:
    """A commit whose clock was wrong stands where its date says; equal dates keep the order of history."""
    late, early = START + timedelta(days=2), START
    capability = host([(late, "first"), (early, "second"), (late, "third"), (early, "fourth")])
    assert await titles(capability, None, None) == ["second", "fourth", "first", "third"]


async def test_an_empty_window_is_an_empty_list(host: MakeHost) -> None:
    """Nothing in the window is an answer, not an error; so is a repository without a single entry."""
    capability = host([(START, "only")])
    assert await titles(capability, START + timedelta(days=1), START + timedelta(days=2)) == []


async def test_a_repository_without_entries_is_an_empty_list(host: MakeHost) -> None:
    """A repository that was just made is no error."""
    assert await titles(host([]), None, None) == []


async def test_titles_are_cleaned_and_redacted(host: MakeHost) -> None:
    """Hidden characters go, addresses become a mark: what a turn reads holds neither."""
    capability = host([(START, "Thank ada@example.org for\u202e the\u200b fix")])
    assert await titles(capability, None, None) == ["Thank [email] for the fix"]


@pytest.mark.parametrize("name", ["other", "/etc", "../app", "", "app/"])
async def test_a_repository_that_nobody_named_is_refused_with_the_names(host: MakeHost, name: str) -> None:
    """A path in a contract reaches nothing; the answer lists what there is."""
    with pytest.raises(ReadFailed, match=r"code-host.repositories\] \(app\)"):
        await host([(START, "x")]).read(METHOD, {"repository": name}, since=None, until=None)


async def test_wrong_methods_and_arguments_are_refused(host: MakeHost) -> None:
    """The answer names what the capability offers and what a method takes."""
    capability = host([(START, "x")])
    with pytest.raises(ReadFailed, match=r"no method 'push'.*merged_pull_requests"):
        await capability.read("push", {}, since=None, until=None)
    with pytest.raises(ReadFailed, match=r"give repository"):
        await capability.read(METHOD, {"repository": "app", "branch": "x"}, since=None, until=None)
    with pytest.raises(ReadFailed, match=r"repository: field required"):
        await capability.read(METHOD, {}, since=None, until=None)


async def read(capability: Capability, ref: str) -> dict[str, object]:
    found = await capability.read("read", {"ref": ref}, since=None, until=None)
    assert isinstance(found, dict)
    return dict(found)


async def test_a_document_comes_whole(documents: MakeDocuments) -> None:
    """Its title is its first heading, its revision the hash of its bytes, its text cleaned and redacted."""
    data = b"\xef\xbb\xbfIntro\r\n\r\n## The *plan*\r\n\r\nWrite to ada@example.org.\r\n"
    found = await read(documents({"notes/plan.md": data}), "notes/plan.md")
    assert found["ref"] == "notes/plan.md"
    assert found["title"] == "The plan"
    assert found["text"] == "Intro\n\n## The *plan*\n\nWrite to [email].\n"
    assert found["url"] is None
    assert str(found["revision"]).startswith("sha256:")


async def test_a_title_is_the_first_heading_or_the_name(documents: MakeDocuments) -> None:
    """Frontmatter and code are no headings; a document without one is named after its file."""
    capability = documents(
        {
            "a.md": b"---\ntitle: no\n---\n\n```\n# no\n```\n\nYes *it*\nis\n====\n",
            "b.md": b"plain words\n",
            "c.md": b"",
            "d.md": b"#\n\n# Second <b>one</b>\n",
        }
    )
    assert [(await read(capability, ref))["title"] for ref in ("a.md", "b.md", "c.md", "d.md")] == [
        "Yes it is",
        "b",
        "c",
        "Second one",
    ]


@pytest.mark.parametrize(
    "ref",
    [
        *("", "/etc/hosts.md", "../secret.md", "a/../../secret.md", "a//b.md", ".git/config.md", "a/.hidden.md"),
        *("a\\b.md", "a\x00.md", "a\n.md", "./a.md", "a.txt", "a.md/", "a" * 2_000 + ".md", "\udcff.md"),
    ],
)
async def test_a_reference_that_leads_elsewhere_is_refused(documents: MakeDocuments, ref: str) -> None:
    """No reference reaches outside the directory, into hidden files or to other kinds of files."""
    with pytest.raises(ReadFailed, match=r"document|Markdown|part"):
        await read(documents({"a.md": b"x"}), ref)


async def test_a_missing_or_unreadable_document_says_so(documents: MakeDocuments) -> None:
    """The reason names the document, and for bad bytes the place."""
    capability = documents({"latin.md": b"# One\n\nCaf\xe9\n"})
    with pytest.raises(ReadFailed, match=r"no document gone\.md"):
        await read(capability, "gone.md")
    with pytest.raises(ReadFailed, match=r"latin\.md is not UTF-8: byte 11, in line 3"):
        await read(capability, "latin.md")
