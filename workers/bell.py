"""The bell over Celery: publishing happens in a thread of its own, never on the event loop, and is bounded.

A ring that is dropped, because the broker is away or the queue to it is full, costs one step of the ring's delay: the
entry stays due in the store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from celery import Celery

from heinzelwerk.session import Due
from tasks import doorbell
from tasks.doorbell import Doorbell

log = structlog.get_logger("heinzelwerk.bell")

LONGEST_QUEUE = 10_000

Publish = Callable[[Sequence[Doorbell]], None]


class CeleryBell:
    """Rings by publishing doorbells; the same doorbell waits at most once. `publish` may raise: it is logged."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._waiting: dict[Doorbell, None] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._publishing = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._serve, name="heinzelwerk-bell", daemon=True)

    async def ring(self, entries: Sequence[Due]) -> None:
        """Queue one doorbell per entry and return at once; never raises."""
        self.ring_now(entries)

    def ring_now(self, entries: Sequence[Due]) -> None:
        """The same from any thread."""
        bells = [bell for bell in map(doorbell.for_due, entries) if bell is not None]
        with self._changed:
            for bell in bells:
                if len(self._waiting) < LONGEST_QUEUE:
                    self._waiting[bell] = None
                else:
                    self.dropped += 1
            if not self._thread.is_alive() and not self._closed and self._waiting:
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything has been published or dropped; False where that took longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._publishing, timeout_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Publish what waits, as far as the time suffices, and end the thread."""
        self.flush(timeout_s)
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                bells = list(self._waiting)
                self._waiting.clear()
                self._publishing = True
            try:
                self._publish(bells)
            except Exception as error:  # noqa: BLE001 - whatever the broker's client raises: a lost ring is no error of anybody's
                self.dropped += len(bells)
                log.warning("could not ring", count=len(bells), reason=f"{type(error).__name__}: {error}")
            finally:
                with self._changed:
                    self._publishing = False
                    self._changed.notify_all()


def publisher(app: Celery) -> Publish:
    """Publish doorbells through the app, on a connection that stays open until it breaks."""
    kept: list[Any] = []

    def publish(bells: Sequence[Doorbell]) -> None:
        if not kept:
            kept.append(app.amqp.Producer(app.connection_for_write()))
        try:
            for bell in bells:
                app.send_task(
                    bell.task,
                    args=bell.ids,
                    queue=bell.queue,
                    expires=doorbell.EXPIRES_S,
                    argsrepr=bell.shown,
                    kwargsrepr="{}",
                    ignore_result=True,
                    producer=kept[0],
                )
        except BaseException:
            broken = kept.pop()
            broken.connection.collect()
            raise

    return publish
