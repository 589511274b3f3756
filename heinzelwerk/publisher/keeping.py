"""Publishers of what Heinzelwerk itself keeps: an approved draft that is placed nowhere, an accepted lesson.

They go through the same ledger as every other effect, so that a decision about them is one record, made once.
"""

from __future__ import annotations

from collections.abc import Mapping

from heinzelwerk.ports import Placement, TargetView


class Keeping:
    """A publisher whose target is our own store: the decision is the change, placing it changes nothing more."""

    refuses_late = True  # there is nothing that a late request could change

    def __init__(self, action: str, what: str) -> None:
        self.action = action
        self._what = what

    def target(self, arguments: Mapping[str, str]) -> str:
        """One target per kept thing, so that two of them never stand in each other's way."""
        name = arguments.get("sha256")
        return f"{self._what}:{name}" if name else self._what

    async def view(self, arguments: Mapping[str, str]) -> TargetView:
        """Nothing stands there before."""
        return TargetView(target=self.target(arguments), shown="", before="")

    async def place(self, placement: Placement, *, deadline_s: float) -> str:
        """The decision was the change."""
        return ""


def draft() -> Keeping:
    """`draft.keep`: approving makes the draft the approved version of its output."""
    return Keeping("draft.keep", "draft")


def lesson() -> Keeping:
    """`lesson.keep`: approving offers the lesson to every later turn of the session."""
    return Keeping("lesson.keep", "lesson")
