"""Celery's consumer with two repairs: neither a restart of the server nor bytes that are no message may end the worker.

In Celery 5.7.0 the cleanup after a lost connection closes a channel twice while a BRPOP is pending; the second time
raises an AttributeError that is no connection error, and the worker exits. Forgetting the pending calls first avoids it.
An entry of a queue that cannot be read as a message (anybody who shares the broker can write one) raises out of the
event loop after it was taken off the queue: it is gone, and connecting anew is all that is left to do.
"""

from __future__ import annotations

from typing import Any

import structlog
from celery.worker.consumer import Consumer as CeleryConsumer

log = structlog.get_logger("heinzelwerk.consumer")

NO_MESSAGE = (ValueError, TypeError, LookupError)
"""What kombu raises for an entry of a queue that is no JSON, or not the JSON of a message."""


class Consumer(CeleryConsumer):  # type: ignore[misc] # Celery has no types
    """Survives the server's restart and whatever lies on its queues."""

    connection_errors: tuple[type[BaseException], ...]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        known = vars(self)["connection_errors"]
        self.connection_errors: tuple[type[BaseException], ...] = (*known, *NO_MESSAGE)

    def on_connection_error_after_connected(self, exc: BaseException) -> None:
        """Clean up after a lost broker connection; Celery reconnects afterwards."""
        what = "dropped what is no message" if isinstance(exc, NO_MESSAGE) else "broker lost"
        log.warning(f"{what}, reconnecting", reason=type(exc).__name__)
        channel: Any = getattr(self.connection, "_default_channel", None)
        if channel is not None:
            channel._in_poll = channel._in_listen = None
        try:
            super().on_connection_error_after_connected(exc)
        except Exception:
            log.exception("cleanup after the loss of the broker failed")
