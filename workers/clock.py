"""The real clock and the real ids: the only place outside the store that knows either."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80


class SystemClock:
    """This process's time. It may jump; `monotonic` does not."""

    def now(self) -> datetime:
        """The current instant in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()


class UlidIds:
    """ULIDs: 48 bits of milliseconds, 80 random bits; within one process they also sort inside a millisecond."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = (0, 0)

    def new(self) -> str:
        """A fresh id of 26 characters."""
        with self._lock:
            millisecond, tail = int(time.time() * 1000), int.from_bytes(os.urandom(10), "big")
            if millisecond <= self._last[0]:  # same millisecond, or a clock that went back
                millisecond, tail = self._last[0], (self._last[1] + 1) % (1 << _RANDOM_BITS)
            self._last = (millisecond, tail)
        number = (millisecond << _RANDOM_BITS) | tail
        return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))
