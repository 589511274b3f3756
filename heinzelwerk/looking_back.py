"""What came before a turn: one line per earlier turn, chats word for word, and the last approved text of each output."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from heinzelwerk import admission
from heinzelwerk.ids import SessionId
from heinzelwerk.opening import EarlierTurn
from heinzelwerk.turn import TurnRecord
from heinzelwerk.wake import Cause

if TYPE_CHECKING:
    from heinzelwerk.contract import Contract
    from heinzelwerk.ports import Works

MOST = 50


async def look(
    turn: TurnRecord, contract: Contract, works: Works
) -> tuple[tuple[EarlierTurn, ...], dict[str, tuple[int, str]]]:
    """`earlier` and `approved`, asked for at once: neither needs the other."""
    return await asyncio.gather(earlier(turn, works), approved(contract, turn.wake.session, works))


async def earlier(turn: TurnRecord, works: Works) -> tuple[EarlierTurn, ...]:
    """The ended turns before this one, oldest first, at most fifty; a chat gets its own conversation word for word."""
    session = turn.wake.session
    if turn.number == 1:
        return ()
    records = await works.store.turns(session, before=turn.number, limit=MOST)
    lines = [await _line(record, turn, works) for record in records if record.state.ended]
    return tuple(reversed(lines))


async def _line(record: TurnRecord, turn: TurnRecord, works: Works) -> EarlierTurn:
    asked = answered = None
    same_chat = (
        turn.wake.cause is Cause.ASKED
        and record.wake.cause is Cause.ASKED
        and record.wake.conversation == turn.wake.conversation
    )
    if same_chat:
        asked, answered = await _words(record, works)
    return EarlierTurn(
        number=record.number,
        date=admission.at(record.as_of_ms).date().isoformat(),
        verdict=record.state.value,
        words=record.report or record.reason,
        cause=record.wake.cause.value,
        asked=asked,
        answered=answered,
    )


async def _words(record: TurnRecord, works: Works) -> tuple[str | None, str | None]:
    session = record.wake.session
    wake, reply = [await works.store.body(session, record.number, name) for name in ("wake", "reply")]
    asked = json.loads(wake).get("text") if wake else None
    return asked, reply.decode() if reply else None


async def approved(contract: Contract, session: SessionId, works: Works) -> dict[str, tuple[int, str]]:
    """The last approved text of each output of the contract, with its turn's number."""
    names = tuple(contract.outputs)
    found = await asyncio.gather(*(works.store.draft(session, name, approved=True) for name in names))
    return {name: text for name, text in zip(names, found, strict=True) if text is not None}
