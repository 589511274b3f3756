"""The path with everybody in it at once: workers that lose leases and die, people who answer, steer and stop, reloads."""

from __future__ import annotations

import pytest

from tests.support.crowd import Crowd, assert_nothing_lost


@pytest.mark.parametrize("seed", range(30))
async def test_nothing_is_lost_in_a_crowd(seed: int) -> None:
    """Whoever goes next at each call to the store: every wake, turn, message, text and cent is accounted for once."""
    crowd = Crowd(seed)
    await crowd.play()
    await assert_nothing_lost(crowd)
