import pytest

from workers.show import figures


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "-"),
        (0, "0 ms"),
        (7.4, "7 ms"),
        (999, "999 ms"),
        (1_300, "1.3 s"),
        (59_949, "59.9 s"),
        (125_000, "2 min 5 s"),
        (3_600_000, "1 h"),
        (11_520_000, "3 h 12 min"),
        (187_200_000, "2 d 4 h"),
    ],
)
def test_durations_have_at_most_two_units(milliseconds: float | None, text: str) -> None:
    """A duration is read at a glance: two units at most, none of them zero."""
    assert figures.duration(milliseconds) == text


def test_money_never_hides_what_is_unknown() -> None:
    """Unknown, possible and unpriced amounts are marked, so that no sum looks complete that is not."""
    assert figures.money(None) == "$?"
    assert figures.money(123_456) == "$0.1235"
    assert figures.money(12_500_000) == "$12.50"
    assert figures.money(10, possible=20_000) == "$0.0000 (+ $0.0200 possibly spent)"
    assert figures.money(0, unpriced=2) == "$0.0000 (+ 2 unpriced requests)"


@pytest.mark.parametrize(
    ("number", "noun", "text"), [(1, "step", "1 step"), (2, "entry", "2 entries"), (1200, "day", "1,200 days")]
)
def test_counts_agree_with_their_nouns(number: int, noun: str, text: str) -> None:
    """One step, two entries, 1,200 days."""
    assert figures.counted(number, noun) == text


def test_distances_look_both_ways() -> None:
    """What comes is `in`, what was is `ago`."""
    now = 1_000_000_000_000
    assert figures.away(now + 7_200_000, now=now) == "in 2 h"
    assert figures.away(now - 90_000, now=now) == "1 min 30 s ago"
    assert figures.away(now + 10, now=now) == "now"
    assert figures.away(None, now=now) == "-"
