"""When a contract's cron fires: five fields or an alias, in a time zone, over clock changes.

croniter does the calendar on naive local time; placing a local time in a zone is our rule: a time that exists twice means
its first occurrence, a time that does not exist moves by the gap, and each instant is one slot.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterBadDateError, CroniterError, croniter

ALIASES = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_FIRST_MOMENT = datetime(2000, 1, 1)  # noqa: DTZ001 - naive local time is what croniter counts in here
_FIELDS = 5
_LONGEST = 4096
_RANDOM = re.compile(r"(?:^|[\s,])r(?:\(|/|$|(?=[\s,]))", re.IGNORECASE)
_GAP_LOOKBACKS = tuple(timedelta(hours=hours) for hours in (-48, -24, -12, -3, 3, 12, 24, 48))


class Fault(StrEnum):
    """Why a text is no schedule."""

    SHAPE = "shape"
    RANGE = "range"
    NEVER = "never-fires"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a schedule's text, and how to write it."""

    fault: Fault
    message: str
    hint: str


@lru_cache(maxsize=4096)
def problem(text: str) -> Problem | None:
    """What forbids `text` as a contract's schedule; None where it is one."""
    if text in ALIASES:
        return None
    if not text.isascii() or len(text.split()) != _FIELDS or len(text) > _LONGEST:
        message = f"{text[:60]!r} is not five cron fields (minute, hour, day of month, month, day of week)"
        return Problem(Fault.SHAPE, message, f'Write it like "0 7 * * MON", or one of {", ".join(ALIASES)}.')
    if _RANDOM.search(text):
        message = f"{text!r} asks for a random moment (R), and a slot must be the same whoever computes it"
        return Problem(Fault.RANDOM, message, "Write the minute or hour as a number.")
    try:
        calendar = croniter(text, _FIRST_MOMENT)
    except (CroniterError, ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        message = f"{text!r} holds a value that its field does not allow: {str(error)[:120]}"
        return Problem(
            Fault.RANGE, message, "Minutes are 0-59, hours 0-23, days 1-31, months 1-12, weekdays 0-7 or names."
        )
    try:
        calendar.get_next(datetime)
    except CroniterBadDateError:
        message = f"{text!r} never fires: no date fits all its fields"
        return Problem(Fault.NEVER, message, "Check that the day exists in the month.")
    return None


def zone(name: str) -> ZoneInfo:
    """The time zone of an IANA name; ValueError where there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name[:60]!r} is no time zone: write an IANA name such as Europe/Berlin or UTC") from error


def place(local: datetime, where: ZoneInfo) -> datetime:
    """The instant of a naive local time: the first of two, or moved by the gap where the clock skips it."""
    return local.replace(tzinfo=where, fold=0).astimezone(UTC).astimezone(where)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A valid cron text in a time zone. All instants given and returned are timezone-aware."""

    text: str
    where: ZoneInfo

    @classmethod
    def parse(cls, text: str, *, timezone: str) -> "Schedule":
        """ValueError where `text` is no schedule or `timezone` no IANA name."""
        if (found := problem(text)) is not None:
            raise ValueError(f"{found.message} {found.hint}")
        return cls(text, zone(timezone))

    def next_slot(self, after: datetime) -> datetime | None:
        """The first slot later than `after`; None where none follows within fifty years."""
        best: datetime | None = None
        slack = _slack(after, self.where)
        for local in self._upwards(_local(after, self.where) - slack):
            if best is not None and local > _local(best, self.where):
                break
            slot = place(local, self.where)
            if slot > after and (best is None or slot < best):
                best = slot
        return best

    def slots(self, after: datetime, until: datetime) -> tuple[datetime, ...]:
        """Every slot later than `after`, up to and including `until`, in order, each instant once."""
        first = _local(after, self.where) - _slack(after, self.where)
        last = _local(until, self.where) + _slack(until, self.where)
        found: dict[datetime, datetime] = {}
        for local in self._upwards(first):
            if local > last:
                break
            slot = place(local, self.where)
            if after < slot <= until:
                found.setdefault(slot.astimezone(UTC), slot)
        return tuple(found[instant] for instant in sorted(found))

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """The newest slot later than `after`, up to and including `until`; reads backwards, so a long pause is cheap."""
        best: datetime | None = None
        first = _local(after, self.where) - _slack(after, self.where)
        slack = _slack(until, self.where)
        for local in self._downwards(_local(until, self.where) + slack):
            if local < first or (best is not None and local < _local(best, self.where) - slack):
                break
            slot = place(local, self.where)
            if after < slot <= until and (best is None or slot > best):
                best = slot
        return best

    def _upwards(self, start: datetime) -> Iterator[datetime]:
        """Local times from `start` on, `start` itself included, until croniter finds none."""
        calendar = croniter(self.text, start - timedelta(seconds=1))
        try:
            while True:
                yield calendar.get_next(datetime)
        except CroniterBadDateError:
            return

    def _downwards(self, start: datetime) -> Iterator[datetime]:
        """Local times from `start` back, `start` itself included, until croniter finds none."""
        calendar = croniter(self.text, start + timedelta(seconds=1))
        try:
            while True:
                yield calendar.get_prev(datetime)
        except CroniterBadDateError:
            return


def _local(instant: datetime, where: ZoneInfo) -> datetime:
    return instant.astimezone(where).replace(tzinfo=None, fold=0)


def _slack(instant: datetime, where: ZoneInfo) -> timedelta:
    """How far a slot's local time may lie on the wrong side of `instant`: the size of a clock change within two days."""
    here = instant.astimezone(UTC)
    offsets = [(here + lookback).astimezone(where).utcoffset() for lookback in (timedelta(), *_GAP_LOOKBACKS)]
    known = [offset for offset in offsets if offset is not None]
    return max(known) - min(known)


class CatchUp(StrEnum):
    """What becomes of slots that were missed: the newest of them runs, or none does."""

    LATEST = "latest"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Due:
    """What a look at a schedule found: the slot to run, if any, and those that end `skipped: catch_up`, oldest first."""

    run: datetime | None
    skipped: tuple[datetime, ...]


def due(slots: tuple[datetime, ...], *, now: datetime, catch_up: CatchUp, grace: timedelta) -> Due:
    """Decide over the slots since the last look, so that each of them ends in exactly one record.

    The newest slot runs; with `skip` only while it is at most `grace` old (one interval of the sweep, with a margin).
    All others are skipped. A slot in the future belongs to a later look and raises ValueError.
    """
    if not slots:
        return Due(None, ())
    if slots[-1] > now:
        raise ValueError(f"slot {slots[-1].isoformat()} is later than {now.isoformat()}")
    if catch_up is CatchUp.SKIP and now - slots[-1] > grace:
        return Due(None, slots)
    return Due(slots[-1], slots[:-1])
