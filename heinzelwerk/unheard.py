"""Messages that a turn ended without hearing: each becomes the next wake of its conversation, in the commit that ends the turn.

No response of the model has followed them: they waited beside a question that nobody answered, or the request that
carried them failed or came too late.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heinzelwerk import mailroom
from heinzelwerk.commit import Body
from heinzelwerk.event import Note
from heinzelwerk.mail import Mail
from heinzelwerk.store import rules
from heinzelwerk.turn import TurnRecord
from heinzelwerk.wake import Wake

if TYPE_CHECKING:
    from heinzelwerk.ports import Store


@dataclass(frozen=True, slots=True)
class Returned:
    """What goes into that commit: the wakes, and an event for each message."""

    wakes: tuple[Wake, ...] = ()
    notes: tuple[Note, ...] = ()

    def plus(self, mail: Mail, wake: Wake) -> Returned:
        """With one more message, which `wake` says again."""
        return Returned((*self.wakes, wake), (*self.notes, mailroom.returned_note(mail, wake)))


async def returned(turns: Iterable[TurnRecord], store: Store, *, bodies: Sequence[Body] = ()) -> Returned:
    """Give back what these turns, which end now, did not hear; `bodies` are words that are stored with the same commit.

    A message whose words have expired is left out: the spine still has that it came.
    """
    fresh = {(body.turn, body.name): body.content for body in bodies}
    found = Returned()
    for turn in turns:
        for mail in await mailroom.steers(turn, store, fresh):
            found = found.plus(mail, rules.wake_of(mail, turn.wake))
    return found
