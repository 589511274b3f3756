"""Celery's consumer with one repair: a restart of the server must not end the worker.

In Celery 5.7.0 the cleanup after a lost connection closes a channel twice while a BRPOP is pending; the second time
raises an AttributeError that is no connection error, and the worker exits. Forgetting the pending calls first avoids it.
"""

from __future__ import annotations

from typing import Any

import structlog
from celery.worker.consumer import Consumer as CeleryConsumer

log = structlog.get_logger("heinzelwerk.consumer")


class Consumer(CeleryConsumer):  # type: ignore[misc] # Celery has no types
    """Survives the server's restart."""

    def on_connection_error_after_connected(self, exc: BaseException) -> None:
        """Clean up after a lost broker connection; Celery reconnects afterwards."""
        log.warning("broker lost, reconnecting", reason=type(exc).__name__)
        channel: Any = getattr(self.connection, "_default_channel", None)
        if channel is not None:
            channel._in_poll = channel._in_listen = None
        try:
            super().on_connection_error_after_connected(exc)
        except Exception:
            log.exception("cleanup after the loss of the broker failed")
