"""Quarantine: a session whose spine is damaged is set aside, with line and reason, until a person lets it go on.

Nothing runs on a record that was changed, and nothing is written after it. Wakes, mail and decisions are kept meanwhile.
So is one whose claims die before any turn of it runs: ending the turn as poison would have helped against everything else.
Letting it go on accepts the damage up to the spine's end: `export --verify` names the bad line for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from heinzelwerk import verification
from heinzelwerk.event import Chain
from heinzelwerk.session import ACCEPTED, STUCK_CLAIMS, Overview, Snapshot
from heinzelwerk.verification import Damage, Why

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heinzelwerk.ids import SessionId
    from heinzelwerk.ports import Store

log = structlog.get_logger("heinzelwerk.quarantine")


def accepted(memo: Mapping[str, str]) -> Chain:
    """Up to where a person accepted the spine as it is; an empty chain where nobody had to."""
    seq, _, head = memo.get(ACCEPTED, "0 ").partition(" ")
    return Chain(int(seq), head or None)


def at_end(seen: Snapshot | Overview) -> Damage | None:
    """What is wrong with the last stored line, by the number and the digest that the session has for it; reads no other."""
    chain = seen.chain if isinstance(seen, Snapshot) else Chain(seen.seq, seen.head)
    if accepted(seen.memo).seq >= chain.seq > 0 or verification.ends(chain, seen.last):
        return None
    return Damage(chain.seq, Why.CHAIN if seen.last else Why.LINE)


def stuck(seen: Snapshot) -> str | None:
    """Why nobody should try again to work off this session; None where that is worth it."""
    if seen.dead_claims < STUCK_CLAIMS - 1:
        return None
    return f"{seen.dead_claims} claims in a row died, the last before any turn ran: the workers' logs say of what"


async def inspect(session: SessionId, store: Store, *, newest: int | None = None) -> Damage | None:
    """Check the stored spine, all of it or its `newest` lines, and quarantine the session where a line is bad.

    Answers the first bad line, None where all hold. Damage that a person accepted is not looked for again.
    """
    seen = await store.overview(session)
    if seen is None:
        return None
    known = accepted(seen.memo)
    begin = known.seq if newest is None else max(known.seq, seen.seq - newest)
    lines = await store.spine(session, after=begin, limit=seen.seq - begin + 1)
    found = verification.verify_stored(lines, known if begin == known.seq else begin) or at_end(seen)
    if found is not None:
        await set_aside(session, found, store)
    return found


async def set_aside(session: SessionId, why: Damage | str, store: Store, *, token: str | None = None) -> None:
    """Mark the session; its holder (`token`) gives its lease up with it."""
    if await store.quarantine(session, str(why), token=token):
        look = f"`heinzelwerk export {session.heinzel}`, look" if isinstance(why, Damage) else "mend the cause"
        fix = f"{look}, then `heinzelwerk resume {session.heinzel}`"
        log.error("quarantined", team=session.team, session=str(session), reason=str(why), fix=fix)
