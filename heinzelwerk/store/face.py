"""What every typed face of a script needs: the link, the options as JSON, and ids for operations without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from heinzelwerk.errors import FormatTooNew
from heinzelwerk.session import SOLO_CLAIMS
from heinzelwerk.store import keys, link, rules
from heinzelwerk.store.link import Call, Link
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.store.shelf import Shelf
from heinzelwerk.turn import TurnRecord
from heinzelwerk.wake import Wake, WhenBusy

_Record = TypeVar("_Record", bound=BaseModel)
REASONS = {
    "no_team": rules.NO_TEAM,
    "no_contract": rules.NO_CONTRACT,
    "broken": rules.BROKEN,
    "inbox_full": rules.INBOX_FULL,
}
"""A script's short word for a refused wake, and the sentence that people see."""


class Face:
    """Speaks with one server; `new_id` names operations that bring no name of their own (a repeated command is one)."""

    def __init__(self, connection: Link, options: StoreOptions, new_id: Callable[[], str]) -> None:
        self._link, self._options, self._new_id = connection, options, new_id
        self._options_json: dict[str, str] = {}
        self._shelf = Shelf()

    def _call(self, name: str, team: str, arguments: Mapping[str, Any], blobs: Sequence[str | bytes] = ()) -> Call:
        base, known = keys.base(self._options.prefix, team), self._options_json.get(team)
        if known is None:
            known = self._options_json[team] = options_json(self._options, team)
        return Call(link.script(name), base, (known, packed(arguments), *blobs))

    async def _run(self, name: str, team: str, arguments: Mapping[str, Any], blobs: Sequence[str | bytes] = ()) -> Any:
        return await self._link.run(self._call(name, team, arguments, blobs))

    async def _get(self, command: str, team: str, key: str, *more: str | int) -> Any:
        return await self._link.command(command, keys.base(self._options.prefix, team) + key, *more)


def options_json(options: StoreOptions, team: str) -> str:
    """What scripts need of the options."""
    names = (
        "lease_ms", "inbox_cap", "seen_ttl_ms", "body_ttl_ms", "approval_ttl_ms", "budget_ttl_ms",
        "settled_ttl_ms", "op_ttl_ms", "ring_first_ms", "ring_most_ms", "solo_wait_ms", "format",
    )  # fmt: skip
    values = {name: getattr(options, name) for name in names}
    return packed({**values, "slots": options.slots_of(team), "solo_claims": SOLO_CLAIMS})


def packed(document: Mapping[str, Any]) -> str:
    """Compact JSON, None left out: a script asks `given(...)`."""
    return json.dumps({name: value for name, value in document.items() if value is not None}, separators=(",", ":"))


def wake_entry(wake: Wake) -> tuple[str, str, int]:
    """What a script must know of a wake without reading it."""
    return wake.id, wake.heinzel, int(wake.when_busy is WhenBusy.STEER)


def document(wake: Wake) -> str:
    """A wake as inboxes keep it."""
    return wake.model_dump_json(exclude_defaults=True)


def parsed(model: type[_Record], raw: bytes | str, place: str) -> _Record:
    """A stored record as a value; FormatTooNew where this release does not understand it."""
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        fix = "upgrade this installation to the release that the other workers run"
        raise FormatTooNew(
            f"{place}: field {field!r}: {first['msg']}; a newer release wrote it: {fix}", fix=fix
        ) from error


def read_turn(raw: bytes, fills: Mapping[str, bytes]) -> TurnRecord:
    """A stored turn with what others filled in."""
    return rules.filled(_turn(raw), {item: value.decode() for item, value in fills.items()})


@lru_cache(maxsize=2_000)
def _turn(raw: bytes) -> TurnRecord:
    """The same bytes are the same record: each start reads its session's fifty last turns, of which one is new."""
    return parsed(TurnRecord, raw, "turn record")
