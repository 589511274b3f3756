"""What `demo` is made of: a work directory with the example team, a repository to read, a window that fits.

Nothing here touches the checkout: the example is copied, the repository only read.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from heinzelwerk import errors
from heinzelwerk.capability import git as code_host
from heinzelwerk.sandbox import git

TEAM = "demo"
CONTRACT = "changelog"
WINDOWS = (366, 90, 30, 7)
"""Days, the longest first."""
INPUT_BYTES = 200_000
DRAFT_CHARACTERS = 80_000
"""What a turn's input and a draft may hold, with room for what the entries are wrapped in."""
_ENTRY_CHARACTERS = 80
"""What a draft adds to an entry's title: bullet, date, hash, link."""


@dataclass(frozen=True, slots=True)
class Source:
    """The repository that the demo reads, and in one sentence why this one."""

    path: Path
    why: str


@dataclass(frozen=True, slots=True)
class Span:
    """The window that was chosen: `as_of` is None for one that ends now, else its end."""

    days: int
    entries: int
    as_of: datetime | None

    @property
    def words(self) -> str:
        """For people."""
        end = f" up to {self.as_of:%Y-%m-%d}, the newest commit" if self.as_of else ""
        return f"{self.days}d{end}: {self.entries} entries"


def examples() -> Path:
    """The examples that travel with the project. ConfigurationError where this installation has none."""
    here = Path(__file__).resolve().parent
    for place in (here.parent / "examples", here / "examples"):
        if (place / "team").is_dir():
            return place
    raise errors.ConfigurationError(
        f"the example team is not part of this installation (looked beside {here})",
        fix="run the demo from a checkout: git clone, make demo",
    )


async def repository(named: Path | None, checkout: Path, directory: Path) -> Source:
    """The named repository, else the checkout's own history, else the example history, unpacked into `directory`."""
    if named is not None:
        await git.run_git(named, ("rev-parse", "--git-dir"), timeout_s=20, output_cap=4096)
        return Source(named, f"{named}, as asked for")
    try:
        await git.run_git(checkout, ("rev-parse", "--verify", "HEAD"), timeout_s=20, output_cap=4096)
    except errors.GitError:
        pass  # an archive of the files, or an installed package: the bundle serves
    else:
        return Source(checkout, "this checkout's own git history")
    unpacked = directory / "history"
    await git.fetch_branch(str(examples() / "history.bundle"), "main", unpacked, timeout_s=60)
    return Source(
        unpacked, "the example history in examples/history.bundle (this copy of the project has no git history)"
    )


async def longest_window(path: Path, now: datetime) -> Span:
    """The longest of 366, 90, 30 and 7 days that has entries and fits, back from now or, failing that, the newest commit.

    Refused where nothing was committed, or the newest week alone is too much.
    """
    host = code_host.GitCodeHost({"this": path})
    reach = await code_host.span(path)
    if reach is None:
        raise errors.Refused(f"{path} has no commits: there is nothing to tell", fix="name another one: --repo PATH")
    for as_of in (None, reach.newest + timedelta(seconds=1)):
        until = as_of or now
        for days in WINDOWS:
            found = await host.read(
                code_host.METHOD, {"repository": "this"}, since=until - timedelta(days=days), until=until
            )
            if found and isinstance(found, list) and _fits(found):
                return Span(days, len(found), as_of)
    raise errors.Refused(
        f"{path} has more in one week than one turn may read", fix="name a smaller repository: --repo PATH"
    )


def _fits(entries: Sequence[object]) -> bool:
    titles = sum(len(str(entry.get("title", ""))) + _ENTRY_CHARACTERS for entry in entries if isinstance(entry, dict))
    return titles <= DRAFT_CHARACTERS and len(json.dumps(entries, indent=1)) <= INPUT_BYTES


def lay_out(directory: Path, source: Source, span: Span) -> Path:
    """Copy the example team, set the window in its contract, write the settings; answers the settings file."""
    team = directory / "team"
    shutil.copytree(examples() / "team", team)
    contract = team / "workflows" / f"{CONTRACT}.prose.md"
    text = contract.read_text("utf-8")
    changed, count = re.subn(r"(?m)(\bwindow:\s*)(?:last\s+)?\d+[smhd]\b", rf"\g<1>{span.days}d", text)
    if not count:
        raise errors.ConfigurationError(
            f"{contract.name} in the example team names no window", fix="restore examples/team"
        )
    contract.write_text(changed, "utf-8")
    settings = directory / "heinzelwerk.toml"
    settings.write_text(_settings(source.path, directory), "utf-8")
    return settings


def _settings(path: Path, directory: Path) -> str:
    quoted = json.dumps  # a TOML basic string is written like a JSON one
    return f"""\
[heinzel]
model = "offline"

[teams.{TEAM}]
source = "team"

[code-host.repositories]
this = {quoted(str(path))}

[documents]
directory = "team/documents"

[workers]
data = {quoted(str(directory / "data"))}
turns = 1
log_format = "text"
sweep_every = "1s"
"""
