"""Figures as people read them: money, durations, counts, instants."""

from datetime import UTC, datetime, tzinfo

from heinzelwerk import budget

_LAST_MS = 253_402_000_000_000
"""The last day that a calendar of four digits knows; what lies behind it is no instant of ours."""


def money(micros: int | None, *, possible: int = 0, unpriced: int = 0) -> str:
    """Micro-dollars as `$0.0123`; unknown as `$?`. `possible` and `unpriced` are marked, never silently left out."""
    if micros is None:
        return "$?"
    dollars = budget.usd(micros)
    text = f"${dollars:.4f}" if dollars < 10 else f"${dollars:,.2f}"
    if possible:
        text += f" (+ {money(possible)} possibly spent)"
    if unpriced:
        text += f" (+ {counted(unpriced, 'unpriced request')})"
    return text


def duration(milliseconds: float | None) -> str:
    """`7 ms`, `1.3 s`, `2 min 5 s`, `3 h 12 min`, `2 d 4 h`; an unknown one is `-`."""
    if milliseconds is None:
        return "-"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, large, small in ((86_400, "d", "h"), (3_600, "h", "min"), (60, "min", "s")):
        if whole >= size:
            step = {"d": 3_600, "h": 60, "min": 1}[large]
            rest = whole % size // step
            return f"{whole // size} {large} {rest} {small}" if rest else f"{whole // size} {large}"
    return f"{whole} s"


def counted(number: int, noun: str) -> str:
    """`1 step`, `3 steps`, `2 entries`; the noun comes in the singular."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{number:,} {plural}"


def tokens(given: int, made: int) -> str:
    """Tokens in and out of a model, `1,204 in / 88 out`; nothing where there were none."""
    return f"{given:,} in / {made:,} out" if given or made else ""


def instant(milliseconds: int | None, zone: tzinfo = UTC) -> str:
    """Server milliseconds as `2026-11-30 20:14:03` in the zone; `-` for none."""
    if milliseconds is None or not 0 <= milliseconds < _LAST_MS:
        return "-"
    return moment(datetime.fromtimestamp(milliseconds / 1000, UTC), zone)


def moment(at: datetime, zone: tzinfo = UTC) -> str:
    """An aware instant as `2026-11-30 20:14:03` in the zone."""
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")


def away(milliseconds: int | None, *, now: int) -> str:
    """How far an instant is: `in 3 h`, `2 min ago`, `now`; `-` for none."""
    if milliseconds is None:
        return "-"
    distance = milliseconds - now
    if abs(distance) < 1000:
        return "now"
    length = f"{round(abs(distance) / 1000)} s" if abs(distance) < 60_000 else duration(abs(distance))
    return f"in {length}" if distance > 0 else f"{length} ago"


def short(sha256: str) -> str:
    """The beginning of a hash, enough for people: `sha256:` goes, twelve digits stay."""
    return sha256.removeprefix("sha256:")[:12]
