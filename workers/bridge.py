"""The bridge from Celery's threads to the one event loop of this process, and the watchdog of that loop.

The loop starts when it is first used, after any fork, in a daemon thread; every client in the process lives on it. It
ticks: leases are renewed only while it does (workers/keeper.py), and a process whose loop has been silent for too long
ends, because nothing in it can go on and its work is due elsewhere.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog

log = structlog.get_logger("heinzelwerk.bridge")

T = TypeVar("T")

EXIT_SILENT = 70
_TICK_S = 0.25


def _end_process() -> None:
    """Leave at once: atexit and thread joins would wait for the very loop that hangs."""
    faulthandler.dump_traceback(sys.__stderr__ or sys.stderr)
    os._exit(EXIT_SILENT)


class Bridge:
    """Runs coroutines on this process's loop from any other thread. `silent_s`: after which the watchdog calls `end`."""

    def __init__(self, *, silent_s: float = 60.0, end: Callable[[], None] = _end_process) -> None:
        self._silent_s = silent_s
        self._end = end
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticked = 0.0
        self._running: set[concurrent.futures.Future[Any]] = set()
        self._background: set[concurrent.futures.Future[Any]] = set()
        self._closed = threading.Event()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, started if it was not."""
        with self._starting:
            if self._loop is None:
                self._loop = self._start()
            return self._loop

    def lag_s(self) -> float:
        """Seconds since the loop last ticked; 0 before it has started."""
        return 0.0 if self._loop is None else time.monotonic() - self._ticked

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run it to its end and answer its result. TimeoutError after that many seconds: it is cancelled then."""
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, timeout_s), self.loop)
        self._running.add(future)
        try:
            return future.result()
        finally:
            self._running.discard(future)

    def go_on(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run it in the background until `close`."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        self._background.add(future)
        future.add_done_callback(self._background_ended)

    def cancel_running(self) -> int:
        """Cancel what `run` still waits for; its callers get CancelledError. Answers how many there were."""
        running = [future for future in tuple(self._running) if future.cancel()]
        return len(running)

    def close(self, *, last: Coroutine[Any, Any, None] | None = None, timeout_s: float = 5.0) -> None:
        """Cancel the background, run the last coroutine (connections to give back), stop the loop."""
        with self._starting:
            loop = self._loop
        if loop is None or self._closed.is_set():
            if last is not None:
                last.close()
            return
        for future in tuple(self._background):
            future.cancel()
        if last is not None:
            try:
                self.run(last, timeout_s)
            except Exception as error:  # noqa: BLE001 - the process ends anyway; the store notices closed sockets by itself
                log.warning("could not close in peace", reason=type(error).__name__)
        self._closed.set()
        loop.call_soon_threadsafe(loop.stop)

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        self._ticked = time.monotonic()
        threading.Thread(target=self._serve, args=(loop,), name="heinzelwerk-loop", daemon=True).start()
        threading.Thread(target=self._watch, name="heinzelwerk-watchdog", daemon=True).start()
        return loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.call_soon(self._tick, loop)
        try:
            loop.run_forever()
        finally:
            pending = asyncio.all_tasks(loop)
            for task in pending:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            loop.close()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ticked = time.monotonic()
        if not self._closed.is_set():
            loop.call_later(_TICK_S, self._tick, loop)

    def _watch(self) -> None:
        """Count our own looks without a new tick: a process that was stopped and continued has not been silent."""
        every = min(1.0, self._silent_s / 4)
        seen, looks = -1.0, 0
        while not self._closed.wait(every):
            seen, looks = (seen, looks + 1) if seen == self._ticked else (self._ticked, 0)
            if looks * every >= self._silent_s:
                log.critical("event loop silent, the process ends", seconds=self._silent_s)
                self._end()
                return

    def _background_ended(self, future: concurrent.futures.Future[Any]) -> None:
        self._background.discard(future)
        if not future.cancelled() and (error := future.exception()) is not None:
            log.error("background work ended", reason=f"{type(error).__name__}: {error}")
