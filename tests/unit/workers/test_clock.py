"""The real clock and the real ids."""

import re
from datetime import UTC

from workers.clock import SystemClock, UlidIds


def test_ids_are_unique_and_sort_by_their_making():
    """26 characters of Crockford's alphabet; also within one millisecond, and from many threads' point of view."""
    ids = UlidIds()
    made = [ids.new() for _ in range(10_000)]
    assert made == sorted(set(made))
    assert all(re.fullmatch(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", name) for name in made)


def test_two_processes_do_not_agree():
    """Eighty random bits stand behind the time."""
    assert UlidIds().new()[10:] != UlidIds().new()[10:]


def test_time_is_utc():
    """The clock gives aware instants."""
    assert SystemClock().now().tzinfo is UTC
