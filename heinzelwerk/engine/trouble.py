"""Provider trouble: what an error means, and what to do about it. Pure values and rules.

Short waits happen inside the segment, long ones are stored; then the fallback model, then a clear failure. Source: design
section 6, "Retries of the provider".
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import httpx
from pydantic_ai import exceptions

from heinzelwerk import errors, text
from heinzelwerk.engine.leave import Leave


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an attempt brought no response. `spent`: the provider may have charged for it. `again`: it may work later."""

    kind: str
    message: str
    again: bool
    spent: bool = False
    status: int | None = None
    retry_after_s: float | None = None


# The first class that fits decides; subclasses stand before their bases.
_API_ERRORS: tuple[tuple[type[Exception], str, bool, bool], ...] = (
    (exceptions.ModelRequestTimeout, "timeout", True, True),
    (exceptions.ModelTimeoutError, "timeout", True, True),
    (exceptions.ModelConnectionError, "connection", True, True),
    (exceptions.ModelRateLimitError, "rate_limited", True, False),
    (exceptions.ModelQuotaExceededError, "quota", False, False),
    (exceptions.ModelOverloadedError, "overloaded", True, False),
    (exceptions.ModelUnavailableError, "unavailable", True, False),
    (exceptions.ModelServerError, "server_error", True, False),
    (exceptions.ModelAuthenticationError, "not_allowed", False, False),
    (exceptions.ModelNotFoundError, "not_found", False, False),
    (exceptions.ModelContextWindowExceededError, "too_long", False, False),
    (exceptions.ModelRequestRejectedError, "rejected", False, False),
)


def classify(error: Exception) -> Trouble | None:
    """What an error of a model's request means; None: it is ours, or the settings', and not the provider's."""
    if isinstance(error, exceptions.ModelAPIError):
        return _api(error)
    if isinstance(error, exceptions.UnexpectedModelBehavior):
        # An answer came and could not be read; it was most likely charged.
        return Trouble("unreadable", _words(error), again=True, spent=True)
    if isinstance(error, httpx.TransportError):
        sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        kind = "timeout" if isinstance(error, httpx.TimeoutException) else "connection"
        return Trouble(kind, _words(error), again=True, spent=sent)
    if isinstance(error, TimeoutError):
        return Trouble("timeout", _words(error), again=True, spent=True)
    if isinstance(error, ConnectionError | asyncio.IncompleteReadError):
        return Trouble("connection", _words(error), again=True, spent=not isinstance(error, ConnectionRefusedError))
    if isinstance(error, Leave | errors.HeinzelwerkError | exceptions.UserError):
        return None
    # Adapters read answers with plain attribute access: one that has another shape breaks them in any way.
    return Trouble("unreadable", f"{type(error).__name__}: {_words(error)}", again=False, spent=True)


def _api(error: exceptions.ModelAPIError) -> Trouble:
    status = error.status_code if isinstance(error, exceptions.ModelHTTPError) else None
    kind, again, spent = _kind(error, status)
    if isinstance(error, exceptions.ModelConnectionError):
        spent = error.phase not in ("pool", "connect")
    if error.in_stream:
        spent = True
    return Trouble(kind, _words(error), again, spent, status, error.retry_after)


def _kind(error: exceptions.ModelAPIError, status: int | None) -> tuple[str, bool, bool]:
    for known, kind, again, spent in _API_ERRORS:
        if isinstance(error, known):
            return kind, again, spent
    if status is None:
        return "connection", True, True
    if status == 429:
        return "rate_limited", True, False
    return ("server_error", True, False) if status >= 500 or status in (408, 409, 425) else ("rejected", False, False)


def _words(error: Exception) -> str:
    return text.bounded(str(error) or type(error).__name__, limit=2_000)


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How patient a turn is. `short_s` are the waits inside a segment; a wanted wait over `longest_s`, or one more than
    there are, is stored: `park_s`, doubling to `park_most_s`, at most `parks` times for one response.
    """

    short_s: tuple[float, ...] = (1.0, 4.0)
    longest_s: float = 20.0
    park_s: float = 30.0
    park_most_s: float = 900.0
    parks: int = 6


@dataclass(frozen=True, slots=True)
class Wait:
    """Try again after this many seconds, in this segment."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Park:
    """Store a wait of this many seconds and free the worker."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Enough:
    """Do not ask this model again for this response."""


Step = Wait | Park | Enough


def next_step(trouble: Trouble, rules: RetryRules, *, waited: int, parked: int, jitter: float) -> Step:
    """What to do after a failed attempt: `waited` waits were made in this segment, `parked` stored for this response.

    `jitter` in [0, 1) spreads turns that failed together: a wait is between its length and half as much again.
    """
    if not trouble.again:
        return Enough()
    asked = trouble.retry_after_s or 0.0
    if waited < len(rules.short_s) and asked <= rules.longest_s:
        return Wait(max(rules.short_s[waited] * (1 + jitter / 2), asked))
    if parked >= rules.parks:
        return Enough()
    return Park(parking(rules, parked=parked, jitter=jitter, asked=asked))


def parking(rules: RetryRules, *, parked: int, jitter: float, asked: float = 0.0) -> float:
    """How long the next stored wait is, in seconds: growing, spread, never shorter than the provider asked for."""
    grown = min(rules.park_s * 2.0**parked, rules.park_most_s)
    return max(grown, asked) * (1 + jitter / 2)


class Circuit:
    """What this process knows of one provider's health. While it is open no request is sent; then one turn tries.

    `now` is a monotonic time in seconds. The stored waits of turns are what outlives the process.
    """

    def __init__(self, *, failures: int = 5, first_s: float = 30.0, most_s: float = 300.0) -> None:
        self._limit, self._first, self._most = failures, first_s, most_s
        self._failures = 0
        self._opened = 0
        self._until = 0.0

    def blocked_s(self, now: float) -> float:
        """Seconds until a request may be tried; 0 lets the caller through, and holds others back while it tries."""
        if self._failures < self._limit:
            return 0.0
        if now < self._until:
            return self._until - now
        self._until = now + self._first
        return 0.0

    def is_open(self, now: float) -> bool:
        """Whether requests are held back at this moment."""
        return self._failures >= self._limit and now < self._until

    def failed(self, now: float, *, retry_after_s: float | None = None) -> None:
        """An attempt failed for the provider's reasons."""
        self._failures += 1
        if self._failures >= self._limit and now >= self._until:
            length = min(self._first * 2**self._opened, self._most)
            self._opened += 1
            self._until = now + max(length, retry_after_s or 0.0)

    def succeeded(self) -> None:
        """A response came: closed again."""
        self._failures = self._opened = 0
