"""The Celery tasks: a few lines each. Ids come in, a short word goes out, and what happens is in `heinzelwerk`.

What a task does with its message: it is acknowledged when the task has ended, whichever way. An expected end is a word
(`completed`, `held`, `nothing_due`); an error that goes away by itself is a word too, because the state makes the work
due again and the sweep rings; anything else is logged where it happened and fails under its class name alone, so that
no text of a turn reaches the broker or Flower. Only a worker that is leaving gives its message back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import structlog
from celery import Celery
from celery.exceptions import Reject

from heinzelwerk import errors

log = structlog.get_logger("heinzelwerk.tasks")


class Deeds(Protocol):
    """What the tasks ask for; the composition root plugs it in. Each answers one word, and blocks until it is done."""

    @property
    def leaving(self) -> bool:
        """Whether this process is ending and takes nothing more."""

    @property
    def resting(self) -> bool:
        """Whether nothing is claimed for now: a deployment that is being drained."""

    def turn(self, session: str) -> str:
        """Work off what is due in the session `<team>/<heinzel>`."""

    def effect(self, team: str, effect_id: str) -> str:
        """Do what is due for an effect."""

    def handoff(self, team: str, job_id: str) -> str:
        """Run a handoff job."""

    def sweep(self) -> str:
        """Ring for what is due, unless another process just did."""

    def prune(self) -> str:
        """Apply the retention."""


class TaskFailed(Exception):
    """A task ended with an error that is in the log; the message is the error's class name and nothing else."""


WORDS: dict[type[BaseException], str] = {
    errors.LeaseLost: "lost",
    errors.StoreUnavailable: "store_unavailable",
    errors.FormatTooNew: "newer",
    errors.Refused: "refused",
    TimeoutError: "timeout",
    ValueError: "malformed",
}
"""Errors that are ends: the message is done with, and the state says what follows. The first class that fits counts."""


def register(app: Celery, deeds: Deeds) -> None:
    """Make the tasks known to the app."""

    def turn(session: str) -> str:
        return _do(deeds, deeds.turn, session)

    def effect(team: str, effect_id: str) -> str:
        return _do(deeds, deeds.effect, team, effect_id)

    def handoff(team: str, job_id: str) -> str:
        return _do(deeds, deeds.handoff, team, job_id)

    def sweep() -> str:
        return _do(deeds, deeds.sweep)

    def prune() -> str:
        return _do(deeds, deeds.prune)

    for function in (turn, effect, handoff, sweep, prune):
        # Not shared: Celery would otherwise give these closures to every other app of the process.
        app.task(name=f"heinzelwerk.{function.__name__}", shared=False)(function)


def _do(deeds: Deeds, deed: Callable[..., str], *ids: Any) -> str:
    if deeds.leaving:
        raise Reject("leaving", requeue=True)
    if deeds.resting:
        return "draining"
    try:
        return deed(*ids)
    except Exception as error:
        word = next((word for kind, word in WORDS.items() if isinstance(error, kind)), None)
        if word is None:
            log.exception("task failed", task=deed.__name__, ids=ids)
            raise TaskFailed(type(error).__name__) from None
        log.warning("task ended", task=deed.__name__, ids=ids, did=word, reason=str(error))
        return word
