"""Write the history of a small invented product as a git fast-import stream, the same bytes each time.

`make_history.sh` makes `history.bundle` of it: what the demo reads where the checkout has no history of its own. The
product is a tea timer; four weeks, five people, changes that came as merges, as squashes and directly.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

START = datetime(2026, 9, 1, 7, 30, tzinfo=UTC)

ADA, JOSE, MIRA, SVEN, YUKI = "Ada Winter", "José Álvarez", "Mira Okafor", "Sven Möller", "Yuki Tanaka"


@dataclass(frozen=True, slots=True)
class Change:
    """One commit of the main line, so many hours after START; `branch` are the commits that it merges."""

    hours: int
    author: str
    message: str
    branch: tuple[str, ...] = ()


CHANGES = (
    Change(0, ADA, "Start the tea timer"),
    Change(3, ADA, "Count down from a number of minutes"),
    Change(5, MIRA, "docs: Say what the timer is for"),
    Change(26, JOSE, "feat: Ring a bell at the end (#1)\n\nThe terminal's own bell, nothing to install."),
    Change(
        30,
        ADA,
        "Merge pull request #2 from mira/teas\n\nKnow the usual teas by name",
        ("Add a table of teas", "Take a tea's name instead of minutes", "Test every tea of the table"),
    ),
    Change(51, SVEN, "fix: Do not ring twice when the clock jumps (#3)"),
    Change(54, YUKI, "chore: Check types in every push"),
    Change(75, JOSE, "feat: Show how much time is left (#4)"),
    Change(80, SVEN, "Fix a typo in the help"),
    Change(
        99,
        ADA,
        "Merge pull request #5 from yuki/config\n\nRead defaults from a settings file",
        ("Read a settings file", "Refuse unknown settings by name", "Describe the settings"),
    ),
    Change(121, MIRA, "docs: Explain why green tea wants cooler water"),
    Change(147, JOSE, "fix: Keep counting while the laptop sleeps (#7)\n\nThe wall clock decides, not the ticks."),
    Change(150, YUKI, "test: Run the timer against a clock that can be set"),
    Change(171, SVEN, "feat: Pause and go on with the space bar (#8)"),
    Change(173, ADA, "Release 0.2.0"),
    Change(195, MIRA, "fix: Accept 3m30s as well as 3:30 (#9)"),
    Change(219, JOSE, "perf: Draw only what changed"),
    Change(
        243,
        YUKI,
        "Merge branch 'sounds' into 'main'\n\nLet people choose the sound\n\nSee merge request tea/timer!11",
        ("Play a sound file", "Fall back to the bell"),
    ),
    Change(267, SVEN, "fix: Say which settings file is broken, and where (#12)"),
    Change(291, ADA, "refactor: Keep the countdown apart from the screen"),
    Change(315, JOSE, "feat!: Take minutes by default, seconds with an s (#13)\n\nBefore, a bare number was seconds."),
    Change(339, MIRA, "docs: Tell how to move from 0.2 to 0.3"),
    Change(342, YUKI, "Release 0.3.0"),
    Change(
        387,
        ADA,
        "Merge pull request #14 from sven/several\n\nBrew several teas at once",
        ("Keep a list of timers", "Show the next one first", "Name timers that were not named", "Test three at once"),
    ),
    Change(411, SVEN, 'Revert "perf: Draw only what changed" (#15)\n\nIt left letters behind on narrow terminals.'),
    Change(435, JOSE, "fix: Leave the terminal as it was on Ctrl+C (#16)"),
    Change(459, YUKI, "build: Ship one file that needs nothing else"),
    Change(483, MIRA, "feat: Speak German and Japanese (#17)"),
    Change(507, ADA, "docs: Draw the tea table new"),
    Change(531, SVEN, "fix: Round the time left up, so that it never says 0:00 too early (#18)"),
    Change(555, YUKI, "Release 0.4.0"),
)


def stream() -> Iterator[bytes]:
    """The fast-import stream, commit by commit."""
    mark = main = 0
    for change in CHANGES:
        at = START + timedelta(hours=change.hours)
        tip = main
        for number, message in enumerate(change.branch):
            mark += 1
            earlier = at - timedelta(hours=len(change.branch) - number)
            yield _commit("topic", mark, change.author, earlier, message, parents=(tip,) if tip else ())
            tip = mark
        mark += 1
        parents = tuple(parent for parent in (main, tip if change.branch else 0) if parent)
        yield _commit("main", mark, change.author, at, change.message, parents=parents)
        main = mark
    # The branch is merged: only the main line is kept, as a host does after a merge.
    yield b"reset refs/heads/topic\nfrom 0000000000000000000000000000000000000000\n\n"


def _commit(branch: str, mark: int, author: str, at: datetime, message: str, *, parents: tuple[int, ...]) -> bytes:
    who = f"{author} <{author.split()[0].lower()}@example.org> {int(at.timestamp())} +0200"
    words = message.encode()
    page = f"Step {mark}: {message.splitlines()[0]}\n".encode()
    links = [f"{word} :{parent}" for word, parent in zip(("from", "merge"), parents, strict=False)]
    head = "\n".join((f"commit refs/heads/{branch}", f"mark :{mark}", f"author {who}", f"committer {who}"))
    tail = "\n".join((*links, f"M 100644 inline steps/{mark:03d}.txt", f"data {len(page)}"))
    return b"%s\ndata %d\n%s\n%s\n%s\n" % (head.encode(), len(words), words, tail.encode(), page)


if __name__ == "__main__":
    sys.stdout.buffer.writelines(stream())
