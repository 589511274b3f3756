"""Claims about which spine lines may be sealed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heinzelwerk.event import Chain, Note
from heinzelwerk.store import rules

AT = datetime(2026, 11, 1, tzinfo=UTC)
MS = int(AT.timestamp() * 1000)


def spine(*numbers: int | None) -> tuple[bytes, ...]:
    """Lines of these turns, one after another."""
    notes = [Note("step", turn=f"docs/weekly/{number}" if number else None) for number in numbers]
    return Chain().extend(notes, at=AT)[0]


@pytest.mark.parametrize(
    ("numbers", "ended", "count"),
    [
        ((), {}, 0),
        ((1, 1, 2), {1: MS, 2: None}, 2),
        ((1, 2, 1, 2), {1: MS, 2: MS}, 4),
        ((1, 2, 1, 2), {1: MS, 2: None}, 0),
        ((1, 1, 2, 3, 2), {1: MS, 2: MS, 3: None}, 2),
        ((None, 1, 1), {1: MS}, 3),
        ((1, 1), {}, 2),
        ((1, 1), {1: MS + 10_000}, 0),
    ],
)
def test_only_whole_ended_turns(numbers: tuple[int | None, ...], ended: dict[int, int | None], count: int) -> None:
    """Lines go from the front, as far as every turn in them ended before the instant and has no line behind."""
    assert rules.sealable(spine(*numbers), ended, MS + 5_000) == count


@given(
    st.lists(st.integers(1, 5), max_size=30), st.dictionaries(st.integers(1, 5), st.none() | st.just(MS), max_size=5)
)
def test_a_seal_cuts_no_turn(numbers: list[int], ended: dict[int, int | None]) -> None:
    """Whatever the order, no turn has lines on both sides of the cut, and none that is open is sealed."""
    count = rules.sealable(spine(*numbers), ended, MS + 5_000)
    assert not set(numbers[:count]) & set(numbers[count:])
    assert all(ended.get(number, 0) is not None for number in numbers[:count])


def test_a_seal_is_known_again() -> None:
    """The seal says where it ends; an ordinary line is none, whatever words it carries."""
    seal = rules.seal_line(7, "ab", MS)
    assert rules.is_seal(seal)
    assert rules.sealed_to(seal) == 7
    assert not rules.is_seal(Chain().extend([Note("step", {"note": '"kind":"spine.sealed"'})], at=AT)[0][0])
