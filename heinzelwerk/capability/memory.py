"""The capabilities' doubles: the same answers from plain values, for tests and for trying contracts.

They pass the suites that the real adapters pass (tests/conformance/test_capability.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from pydantic import BaseModel, JsonValue

from heinzelwerk import folder, text
from heinzelwerk.capability import asking, files, git
from heinzelwerk.capability.shapes import PullRequest
from heinzelwerk.errors import FileMissing, ReadFailed


class MemoryCodeHost:
    """`code-host` over entries that are given; `reads` lists the arguments of every read, in order."""

    name = "code-host"

    def __init__(self, repositories: Mapping[str, Sequence[PullRequest]]) -> None:
        self._repositories = dict(repositories)
        self.reads: list[dict[str, str]] = []

    def methods(self) -> Mapping[str, type[BaseModel]]:
        """One method: `merged_pull_requests(repository, window)`."""
        return {git.METHOD: git.MergedPullRequests}

    async def read(
        self, method: str, arguments: Mapping[str, str], *, since: datetime | None, until: datetime | None
    ) -> JsonValue:
        """The entries of `[since, until)`, oldest first; ReadFailed as the real one."""
        asked = asking.arguments(self, method, arguments, of=git.MergedPullRequests)
        self.reads.append(dict(arguments))
        known = self._repositories.get(asked.repository)
        if known is None:
            raise asking.unknown_name(
                "repository", asked.repository, self._repositories, setting="code-host.repositories"
            )
        inside = (
            entry
            for entry in known
            if (since is None or entry.merged_at >= since) and (until is None or entry.merged_at < until)
        )
        return [_cleaned(entry).model_dump(mode="json") for entry in sorted(inside, key=lambda entry: entry.merged_at)]


class MemoryDocuments:
    """`documents` over texts by reference; the mapping is read afresh each time, so a test may change it."""

    name = "documents"

    def __init__(self, documents: Mapping[str, bytes]) -> None:
        self.documents = documents

    def methods(self) -> Mapping[str, type[BaseModel]]:
        """One method: `read(ref)`."""
        return {files.METHOD: files.ReadDocument}

    async def read(
        self, method: str, arguments: Mapping[str, str], *, since: datetime | None, until: datetime | None
    ) -> JsonValue:
        """One document; ReadFailed as the real one."""
        asked = asking.arguments(self, method, arguments, of=files.ReadDocument)
        try:
            folder.parts(asked.ref)
        except ValueError as error:
            raise ReadFailed(str(error)) from None
        if asked.ref not in self.documents:
            raise FileMissing(f"there is no document {asked.ref}: check the name")
        return files.document(asked.ref, self.documents[asked.ref]).model_dump(mode="json")


def _cleaned(entry: PullRequest) -> PullRequest:
    author = None if entry.author is None else text.clean_line(entry.author)
    return entry.model_copy(update={"title": text.clean_line(entry.title), "author": author})
