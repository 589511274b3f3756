"""The capability `code-host`, read from local git repositories that the operator names: no server, no token.

What was merged is the first-parent line of `HEAD`: each of its commits is one entry, whether a merge brought it, a
squash or a direct push; the commits of a merged branch hang off that line and are no entries of their own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, JsonValue

from heinzelwerk import text
from heinzelwerk.capability import asking
from heinzelwerk.capability.shapes import MergeKind, PullRequest
from heinzelwerk.errors import GitError, GitFailed, ReadFailed
from heinzelwerk.sandbox.git import run_git

METHOD = "merged_pull_requests"

_TIMEOUT_S = 120.0
_LISTING_CAP = 128 << 20  # about 2.5 million commits on one line
_MESSAGES_CAP = 256 << 20
_LONGEST_TITLE = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_STAMP = 253_402_300_799  # the last second of the year 9999; git stores later ones, no calendar here has them

_FIELDS = ("%H", "%P", "%aN", "%s", "%b")
_FORMAT = "%x00".join(_FIELDS)

# What hosts write as the subject of a merge, with the pull request's own title below it (GitHub) or beside it.
_MERGE_SUBJECTS = (
    re.compile(r"Merge pull request #(\d{1,9})(?: from .*)?"),  # GitHub, Gitea before 1.12
    re.compile(r"Merge pull request '.*' \(#(\d{1,9})\)(?: from .*)?"),  # Gitea, Forgejo
    re.compile(r"Merged in .* \(pull request #(\d{1,9})\)"),  # Bitbucket Cloud
    re.compile(r"Pull request #(\d{1,9})(?:: .*)?"),  # Bitbucket Server
    re.compile(r"Merged PR (\d{1,9})(?:: .*)?"),  # Azure DevOps
)
_TITLE_IN_SUBJECT = re.compile(r"(?:Merge pull request '(.+)' \(#\d+\)|Pull request #\d+: (.+)|Merged PR \d+: (.+))")
_GITLAB_TRAILER = re.compile(r"^See merge request \S*!(\d{1,9})$", re.MULTILINE)
_NUMBER_AT_END = re.compile(r"\s*\((?:pull request )?#(\d{1,9})\)$")


class MergedPullRequests(BaseModel, frozen=True, extra="forbid"):
    """The arguments of `merged_pull_requests`: a repository by the operator's name for it."""

    repository: str


class Span(NamedTuple):
    """How far the first-parent line of a repository reaches: its commits' earliest and latest date, and their count."""

    oldest: datetime
    newest: datetime
    commits: int


class GitCodeHost:
    """`code-host` over repositories by name; each path is a work tree, a linked work tree or a bare repository."""

    name = "code-host"

    def __init__(self, repositories: Mapping[str, Path]) -> None:
        self._repositories = dict(repositories)

    def methods(self) -> Mapping[str, type[BaseModel]]:
        """One method: `merged_pull_requests(repository, window)`."""
        return {METHOD: MergedPullRequests}

    async def read(
        self, method: str, arguments: Mapping[str, str], *, since: datetime | None, until: datetime | None
    ) -> JsonValue:
        """The entries whose committer date lies in `[since, until)`, oldest first, as `PullRequest` values in JSON form.

        ReadFailed: an unknown method, argument or repository; no repository at the path; a shallow clone whose history
        begins inside the window; git failed or took too long.
        """
        asked = asking.arguments(self, method, arguments, of=MergedPullRequests)
        path = self._repositories.get(asked.repository)
        if path is None:
            raise asking.unknown_name(
                "repository", asked.repository, self._repositories, setting="code-host.repositories"
            )
        try:
            return await _entries(asked.repository, path, since=since, until=until)
        except GitError as error:
            raise type(error)(f"repository {asked.repository!r}: {error}", fix=error.fix) from error


async def span(path: Path) -> Span | None:
    """How far a repository's first-parent line reaches; None where it has no commit. GitError as `run_git`."""
    line = await _first_parent_line(path)
    if not line:
        return None
    stamps = [commit.stamp for commit in line]
    return Span(_instant(min(stamps)), _instant(max(stamps)), len(line))


@dataclass(frozen=True, slots=True)
class _Commit:
    """One commit of the first-parent line: its committer date in seconds since 1970, and its id."""

    stamp: int
    sha: str


async def _entries(name: str, path: Path, *, since: datetime | None, until: datetime | None) -> list[JsonValue]:
    line = await _first_parent_line(path)
    # Compared here, not by git: `--since` stops at the first older commit, and committer dates are not monotone.
    low = None if since is None else _ceiling(since)
    high = None if until is None else _ceiling(until)
    chosen = {
        index
        for index, commit in enumerate(line)
        if (low is None or commit.stamp >= low) and (high is None or commit.stamp < high)
    }
    if line and (low is None or line[-1].stamp >= low):
        await _check_complete(path, line[-1])
    if not chosen:
        return []
    first, last = min(chosen), max(chosen)
    wanted = {line[index].sha: line[index].stamp for index in chosen}
    # One stretch of the line, by id and length, so that a push between the two calls changes nothing.
    output = await _git(
        path,
        *("log", "--first-parent", "-z", "--encoding=UTF-8", f"--format=tformat:{_FORMAT}", "--no-show-signature"),
        *(f"--max-count={last - first + 1}", line[first].sha),
        cap=_MESSAGES_CAP,
    )
    # Tens of thousands of entries take a while to read; the loop must go on meanwhile.
    return await asyncio.to_thread(_read_entries, output, name, wanted)


def _read_entries(output: bytes, repository: str, wanted: Mapping[str, int]) -> list[JsonValue]:
    found = [_entry(repository, record, wanted[record[0]]) for record in _records(output) if record[0] in wanted]
    found.reverse()  # git shows the newest first; the sort below is stable, so equal dates stay in order of history
    found.sort(key=lambda entry: entry.merged_at)
    return [entry.model_dump(mode="json") for entry in found]


def _records(output: bytes) -> Iterator[Sequence[str]]:
    """Five fields each. Bytes that are no UTF-8 become replacement characters: a guess would invent letters."""
    fields = output.decode("utf-8", "replace").split("\0")
    width = len(_FIELDS)
    for start in range(0, len(fields) - 1, width):
        yield fields[start : start + width]


def _entry(repository: str, record: Sequence[str], stamp: int) -> PullRequest:
    sha, parents, author, subject, body = record
    is_merge = " " in parents
    number, title = _described(subject, body, is_merge=is_merge)
    kind = MergeKind.MERGE if is_merge else MergeKind.DIRECT if number is None else MergeKind.SQUASH
    name = text.clean_line(author, limit=200)
    return PullRequest(
        repository=repository,
        number=number,
        title=text.clean_line(title, limit=_LONGEST_TITLE) or "(no message)",
        url=None,
        author=name if name not in ("", text.REDACTED) else None,
        merged_at=_instant(stamp),
        labels=[],
        kind=kind,
        sha=sha,
    )


def _described(subject: str, body: str, *, is_merge: bool) -> tuple[int | None, str]:
    """The pull request's number and title, as far as the message says them."""
    first = next((line.strip() for line in body.splitlines() if line.strip()), "")
    for pattern in _MERGE_SUBJECTS:
        named = pattern.fullmatch(subject)
        # A pull request squashed by Bitbucket or Azure has such a subject too, and one parent.
        if named is not None:
            beside = _TITLE_IN_SUBJECT.match(subject)
            title = next((part for part in beside.groups() if part), "") if beside else first
            return int(named[1]), title or subject
    at_end = _NUMBER_AT_END.search(subject)
    if at_end is not None and at_end.start() > 0:
        return int(at_end[1]), subject[: at_end.start()]
    trailer = _GITLAB_TRAILER.search(body)
    if trailer is not None and is_merge:
        return int(trailer[1]), first if not first.startswith("See merge request") else subject
    return None, subject


async def _first_parent_line(path: Path) -> list[_Commit]:
    """The whole line, newest first; empty for a repository without a commit."""
    try:
        output = await _git(path, "rev-list", "--first-parent", "--timestamp", "HEAD", "--", cap=_LISTING_CAP)
    except GitFailed:
        if await _is_unborn(path):
            return []
        raise
    commits = (row.split(" ", 1) for row in output.decode("ascii").splitlines())
    return [_Commit(int(stamp), sha) for stamp, sha in commits]


async def _is_unborn(path: Path) -> bool:
    """Whether there is no commit yet. A HEAD that names a branch nobody made is damage where other branches exist."""
    try:
        await _git(path, "rev-parse", "--verify", "--quiet", "HEAD", cap=1_000)
    except GitFailed:
        branches = await _git(path, "for-each-ref", "--count=1", "--format=%(refname)", cap=10_000)
        if not branches.strip():
            return True
        raise ReadFailed(
            f"{path}: HEAD names a branch without commits, while other branches have some: check the main branch out"
        ) from None
    return False


async def _check_complete(path: Path, oldest: _Commit) -> None:
    """Refuse a window that reaches over the edge of a shallow clone: behind it may be entries that nobody can see."""
    shallow = await _git(path, "rev-parse", "--is-shallow-repository", cap=1_000)
    if shallow.strip() != b"true":
        return
    raw = await _git(path, "cat-file", "commit", oldest.sha, cap=_LISTING_CAP)
    if b"\nparent " in raw.partition(b"\n\n")[0]:
        edge = _instant(oldest.stamp).isoformat()
        raise ReadFailed(
            f"{path} is a shallow clone whose history begins inside the window, at {edge}: "
            "run `git fetch --unshallow` there, or narrow the window",
            fix="git fetch --unshallow",
        )


async def _git(path: Path, *arguments: str, cap: int) -> bytes:
    return (await run_git(path, arguments, timeout_s=_TIMEOUT_S, output_cap=cap)).stdout


def _ceiling(instant: datetime) -> int:
    """The first whole second at or after an instant; with it both ends of a half-open window compare as integers."""
    return -((_EPOCH - instant) // timedelta(seconds=1))


def _instant(stamp: int) -> datetime:
    return _EPOCH + timedelta(seconds=min(stamp, _LAST_STAMP))
