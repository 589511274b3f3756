"""What a container's health check asks: does this machine's process of a kind make progress? Never whether its id is there.

A worker says so with its heartbeat in the store, beat by touching a file with each tick, Flower by answering.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path

import httpx
from celery.beat import PersistentScheduler

from heinzelwerk.store.client import RedisStore
from heinzelwerk.store.options import StoreOptions

BEAT_LATE_S = 60.0
"""A beat that ticks every second and has not for so long hangs."""
_ANSWER_S = 5.0


async def worker(profile: str, url: str, options: StoreOptions, *, host: str | None = None) -> str | None:
    """None where a worker of this profile on this host (None: this one) gave a heartbeat; else what is wrong."""
    store = RedisStore(url, options)
    try:
        beats = await store.workers()
    finally:
        await store.close()
    return no_heartbeat(profile, beats, host=host or socket.gethostname())


def no_heartbeat(profile: str, beats: Mapping[str, Mapping[str, str]], *, host: str) -> str | None:
    """None where one of these heartbeats is of this profile on this host; else the sentence that says so."""
    here = [facts for facts in beats.values() if facts.get("host") == host and facts.get("profile") == profile]
    return None if here else f"no worker {profile} on {host} has given a heartbeat lately"


def beat(directory: Path) -> str | None:
    """None where beat, which keeps its files in `directory`, ticks; else what is wrong."""
    try:
        silent_s = time.time() - _tick(directory).stat().st_mtime  # noqa: TID251 - a file's age is wall time
    except OSError:
        return f"beat has not ticked yet: there is no {_tick(directory)}"
    return None if silent_s < BEAT_LATE_S else f"beat has not ticked for {silent_s:.0f} s"


def answers(name: str, port: int, path: str) -> str | None:
    """None where what listens at this port of loopback answers well; else what is wrong."""
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}{path}", timeout=_ANSWER_S)
    except httpx.HTTPError as error:
        return f"{name} does not answer at port {port}: {type(error).__name__}"
    return None if answer.is_success else f"{name} answers {answer.status_code} at port {port}"


class TickingScheduler(PersistentScheduler):  # type: ignore[misc] # celery has no types
    """Celery's scheduler, with a file beside its schedule that each tick touches."""

    def tick(self, *given: object, **named: object) -> float:
        """One tick; seconds until the next."""
        pause: float = super().tick(*given, **named)
        _tick(Path(self.schedule_filename).parent).touch()
        return pause


def _tick(directory: Path) -> Path:
    return directory / "beat.tick"
