"""Value forms that contracts, capabilities and commands share: durations, windows, requirements, mail, addresses.

Each reader takes what a person wrote and gives the value, or raises ValueError with a message that names the text, the
reason and the form to write. Sources: the contract format, sections 1.2 and 1.7.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

LONGEST_WINDOW = timedelta(days=366)
MOST_ADDRESSES = 100

_DURATION = re.compile(r"([1-9][0-9]*)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST_SECONDS = 999_999_999 * 86400  # what a timedelta holds
_ADAPTER = re.compile(r"[a-z][a-z0-9-]*")
_ADDRESS = re.compile(
    r"[^\s@()<>\[\]:;,\"\\\x00-\x20\x7f-\x9f]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,8}\.[A-Za-z]{2,24}"
)
_TERM = re.compile(r'\s*(from|subject|label):(?:"([^"]*)"|([^\s"]+))(?=\s|\Z)')


def duration(text: object) -> timedelta:
    """Read `<whole number><s|m|h|d>`, e.g. `10m`; the number is positive, without leading zeros or blanks."""
    if not isinstance(text, str) or (found := _DURATION.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is no duration: write a positive whole number and s, m, h or d, such as 10m")
    # Twelve digits hold the longest timedelta in seconds; more would only make int() work for a refusal.
    seconds = int(found[1]) * _SECONDS[found[2]] if len(found[1]) <= 14 else _MOST_SECONDS + 1
    if seconds > _MOST_SECONDS:
        raise ValueError(f"{text[:24]!r} is longer than any clock counts: write something like 10m")
    return timedelta(seconds=seconds)


def duration_text(length: timedelta) -> str:
    """The shortest form that `duration` reads back: `3600s` is `1h`, `90s` stays `90s`. Whole seconds only."""
    seconds = length.days * 86400 + length.seconds
    for unit in ("d", "h", "m"):
        if seconds % _SECONDS[unit] == 0:
            return f"{seconds // _SECONDS[unit]}{unit}"
    return f"{seconds}s"


class Direction(StrEnum):
    """Which way a window looks from the moment of the wake."""

    LAST = "last"
    NEXT = "next"


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time back from (`last`) or ahead of (`next`) a turn's `as_of`."""

    direction: Direction
    length: timedelta

    def __str__(self) -> str:
        text = duration_text(self.length)
        return text if self.direction is Direction.LAST else f"next {text}"

    def around(self, as_of: datetime) -> tuple[datetime, datetime]:
        """`(since, until)`, half-open: the instants that this window covers for a turn as of `as_of`."""
        if self.direction is Direction.LAST:
            return as_of - self.length, as_of
        return as_of, as_of + self.length


def window(text: object) -> Window:
    """Read `7d`, `last 7d` or `next 7d`: exactly one blank, a duration, at most 366 days."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no window: write 7d, last 7d or next 7d")
    direction, length_text = Direction.LAST, text
    for candidate in Direction:
        if text.startswith(f"{candidate} "):
            direction, length_text = candidate, text.removeprefix(f"{candidate} ")
    if _DURATION.fullmatch(length_text) is None:
        raise ValueError(f"{text[:40]!r} is no window: write 7d or last 7d to look back, next 7d to look ahead")
    length = duration(length_text)
    if length > LONGEST_WINDOW:
        raise ValueError(f"{text!r} is longer than {LONGEST_WINDOW.days} days: narrow the window")
    return Window(direction, length)


@dataclass(frozen=True, slots=True)
class Requirement:
    """What somebody needs of a capability: its name, `read` and/or `write`, perhaps one named adapter."""

    capability: str
    modes: frozenset[str]
    adapter: str | None = None

    def __str__(self) -> str:
        modes = ",".join(sorted(self.modes))
        return f"{self.adapter}:{self.capability}:{modes}" if self.adapter else f"{self.capability}:{modes}"


def requirement(text: object, *, modes_of: Mapping[str, frozenset[str]]) -> Requirement:
    """Read `<capability>:<modes>` or `<adapter>:<capability>:<modes>`, modes `read`, `write` or both with a comma.

    `modes_of` names the known capabilities and the modes that each has (`contract.methods.MODES`).
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no requirement: write <capability>:read, such as tracker:read")
    parts = text.strip().split(":")
    if len(parts) not in (2, 3):
        raise ValueError(f"{text!r} is no requirement: write <capability>:read, such as tracker:read")
    *pin, capability, modes_text = parts
    if pin and _ADAPTER.fullmatch(pin[0]) is None:
        raise ValueError(f"{text!r} names the adapter {pin[0]!r}: adapters are named with a-z, 0-9 and dashes")
    if capability not in modes_of:
        raise ValueError(
            f"{text!r} names the unknown capability {capability!r}: known are {', '.join(sorted(modes_of))}"
        )
    modes = frozenset(mode.strip() for mode in modes_text.split(",") if mode.strip())
    if not modes or not modes <= {"read", "write"}:
        raise ValueError(f"{text!r} has modes other than read and write: write {capability}:read")
    if not modes <= modes_of[capability]:
        raise ValueError(f"{text!r} asks for a mode that {capability} does not have: write {capability}:read")
    return Requirement(capability, modes, pin[0] if pin else None)


@dataclass(frozen=True, slots=True)
class MailQuery:
    """Which mail to read; None matches all. `sender` is an address, or a domain with its subdomains, in lower case."""

    sender: str | None = None
    subject: str | None = None
    label: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `from:`, `subject:` and `label:` terms, each at most once, values with blanks in double quotes."""
        found: dict[str, str] = {}
        position, end = 0, len(text.rstrip())
        while position < end:
            term = _TERM.match(text, position)
            if term is None:
                raise ValueError(
                    f"{text[:80]!r} is no mail query: write terms such as from:example.com"
                    ' subject:"price change" label:INBOX'
                )
            key, value = term[1], (term[2] if term[3] is None else term[3]).strip()
            if not value:
                raise ValueError(f"{text[:80]!r} gives {key}: no value: write one, or leave the term out")
            if key in found:
                raise ValueError(f"{text[:80]!r} gives {key}: twice: every term must match, so write it once")
            found[key] = value
            position = term.end()
        sender = found.get("from")
        return cls(_sender(sender) if sender is not None else None, found.get("subject"), found.get("label"))


def _sender(text: str) -> str:
    lower = text.lower()
    return lower[1:] if lower.startswith("@") and lower.count("@") == 1 else lower


def addresses(values: Iterable[str]) -> tuple[str, ...]:
    """Plain addresses, trimmed, lower case, each once, empty ones left out; at most 100; ValueError names a bad one."""
    found: dict[str, None] = {}
    for value in values:
        plain = value.strip()
        if not plain:
            continue
        if _ADDRESS.fullmatch(plain) is None:
            raise ValueError(
                f"{plain[:80]!r} is no plain e-mail address: write it like ada@example.com, without a name"
            )
        found[plain.lower()] = None
    if len(found) > MOST_ADDRESSES:
        raise ValueError(f"{len(found)} addresses are more than {MOST_ADDRESSES}: name fewer people")
    return tuple(found)


def people(text: str) -> tuple[str, ...]:
    """Addresses separated by commas; empty text means the user and gives none."""
    return addresses(text.split(","))
