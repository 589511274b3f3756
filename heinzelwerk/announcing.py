"""Outside events: who listens to one, and its delivery to each of them, once for each delivery id."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from heinzelwerk import errors
from heinzelwerk.client import Client, WakeReply
from heinzelwerk.generation import ContractEntry
from heinzelwerk.wake import Disposition

LONGEST_ID = 200
"""Characters of a delivery id, and of a source's name; both stand in the wake's key."""
DEEPEST = 64
"""Levels of lists and mappings in an event's data: a turn reads it, and no sender that is meant well nests deeper."""


@dataclass(frozen=True, slots=True)
class Announced:
    """What became of one delivery: a reply of each Heinzelmännchen that listens, by name; none where nobody does."""

    event: str
    key: str
    replies: tuple[WakeReply, ...]

    @property
    def disposition(self) -> Disposition:
        """Refused where any refused (the sender should repeat it: for the others it is then a duplicate)."""
        found = {reply.disposition for reply in self.replies}
        if not found or Disposition.REFUSED in found:
            return Disposition.REFUSED
        return Disposition.ACCEPTED if Disposition.ACCEPTED in found else Disposition.DUPLICATE

    def as_data(self) -> dict[str, JsonValue]:
        """For programs: the whole, then each Heinzelmännchen's own reply."""
        return {
            "event": self.event,
            "key": self.key,
            "disposition": self.disposition.value,
            "wakes": [_reply(one) for one in self.replies],
        }


def _reply(one: WakeReply) -> dict[str, JsonValue]:
    data: dict[str, JsonValue] = {"wake": one.wake, "session": one.session, "disposition": one.disposition.value}
    if one.turn is not None:
        data["turn"] = one.turn
    return data | ({"reason": one.reason} if one.reason else {})


def listeners(event: str, entries: Mapping[str, ContractEntry]) -> tuple[str, ...]:
    """The Heinzelmännchen whose contracts declare `hz.on: [event.<name>]` and act, by name."""
    return tuple(sorted(name for name, entry in entries.items() if entry.acts and f"event.{event}" in entry.on))


def heard(entries: Mapping[str, ContractEntry]) -> tuple[str, ...]:
    """Every event that somebody listens to, by name."""
    found = {on.removeprefix("event.") for entry in entries.values() for on in entry.on if on.startswith("event.")}
    return tuple(sorted(found))


async def announce(
    client: Client, event: str, names: Iterable[str], *, source: str, delivery: str, data: JsonValue = None
) -> Announced:
    """Wake each of these Heinzelmännchen for a delivery of a source. Refused where source and id cannot be a key."""
    for what, words in (("source", source), ("delivery's id", delivery)):
        if not 0 < len(words) <= LONGEST_ID or not words.isascii() or not words.isprintable():
            raise errors.Refused(
                f"the {what} is not 1 to {LONGEST_ID} printable ASCII characters",
                fix="give the id that the sender gave this delivery, the same one each time it is repeated",
            )
    replies = [await client.event(name, source=source, delivery=delivery, data=data) for name in names]
    return Announced(event, f"event/{source}/{delivery}", tuple(replies))


def payload(data: bytes | str) -> JsonValue:
    """An event's data from JSON text. Refused where a turn could not keep it: no JSON, NaN, half a character, too deep."""
    try:
        found: JsonValue = json.loads(data, parse_constant=_no_number)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise errors.Refused(f"the data is no JSON: {str(error)[:200]}", fix="send a JSON document") from error
    if _depth(found) > DEEPEST:
        raise errors.Refused(f"the data is nested deeper than {DEEPEST} levels", fix="send what the turn needs of it")
    return found


def _no_number(name: str) -> JsonValue:
    raise ValueError(f"{name} is no JSON number")


def _depth(found: JsonValue) -> int:
    """How many lists and mappings lie in each other, counted level by level."""
    level, depth = [found], 0
    while level := [entry for entry in level if isinstance(entry, dict | list)]:
        level = [inner for entry in level for inner in (entry.values() if isinstance(entry, dict) else entry)]
        depth += 1
    return depth
