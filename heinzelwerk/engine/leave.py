"""The one exception of this room: leaving the library's loop, which has no other way to end a run early.

It never leaves the room. `PydanticEngine.run` turns it into the ending that it carries.
"""

from __future__ import annotations

from collections.abc import Callable

from heinzelwerk.ending import Ending, Tail


class Leave(Exception):
    """The segment ends here; `ending` makes its value from the tail."""

    def __init__(self, ending: Callable[[Tail], Ending]) -> None:
        super().__init__("the segment ends")
        self.ending = ending
