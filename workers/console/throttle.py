"""How often somebody may fail to log in: counts of the last minutes, by who tries and whom they try to be. Pure over time."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

WINDOW_S = 300.0
MOST_PLACES = 10_000
"""Names and addresses that are remembered; the ones tried longest ago go first."""


class Throttle:
    """Attempts by key. One counts from its beginning, so that a hundred at once are not all let through."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._attempts: OrderedDict[str, deque[float]] = OrderedDict()

    def begin(self, limits: Iterable[tuple[str, int]]) -> float | None:
        """Count one attempt under each key; where a key has used up its limit nothing is counted: seconds until it may."""
        now, limits = self._monotonic(), list(limits)
        waits = [wait for key, most in limits if (wait := self._wait(key, most, now)) > 0]
        if waits:
            return max(waits)
        for key, _ in limits:
            self._attempts.setdefault(key, deque()).append(now)
            self._attempts.move_to_end(key)
        while len(self._attempts) > MOST_PLACES:
            self._attempts.popitem(last=False)
        return None

    def forgive(self, keys: Iterable[str]) -> None:
        """The attempt that was begun last under these keys did not fail."""
        for key in keys:
            if attempts := self._attempts.get(key):
                attempts.pop()

    def _wait(self, key: str, most: int, now: float) -> float:
        attempts = self._attempts.get(key)
        while attempts and attempts[0] <= now - WINDOW_S:
            attempts.popleft()
        if not attempts:
            self._attempts.pop(key, None)
            return 0.0
        return attempts[0] + WINDOW_S - now if len(attempts) >= most else 0.0
