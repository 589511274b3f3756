"""Which processes a deployment has: each profile reads its queues with so many threads that mostly wait."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from config.settings import Settings
from workers.supervisor import Program

STOPPING_S = 5.0
"""What a process gets beyond its own grace, to give connections back."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A kind of worker: the queues that it reads, and its threads. One that `upkeeps` also prunes."""

    name: str
    queues: tuple[str, ...]
    threads: int
    upkeeps: bool = False


def profiles(settings: Settings) -> dict[str, Profile]:
    """All kinds of workers by name."""
    workers = settings.workers
    found = (
        Profile("turns", ("turns",), workers.turn_threads),
        Profile("upkeep", ("chat", "effects", "upkeep"), workers.upkeep_threads, upkeeps=True),
        Profile("solo", ("solo",), 1),  # one at a time: who kills its worker kills nobody else
        Profile("handoffs", ("handoffs",), workers.handoff_threads),
        Profile("all", ("turns", "chat", "effects", "upkeep", "solo", "handoffs"), workers.turn_threads, upkeeps=True),
    )
    return {profile.name: profile for profile in found}


def fleet(
    settings: Settings, *, config: Path | None, environment: Mapping[str, str], logs: Path | None = None
) -> list[Program]:
    """The processes of `up` and `demo`: turn workers, solo, upkeep, handoffs and the receiver where set up, and beat.

    `environment` is theirs, with the server's address in it. `logs` is a directory for one file per process; None: they
    write where the supervisor writes.
    """
    kinds = [*(f"turns-{number}" for number in range(1, settings.workers.turns + 1)), "upkeep", "solo"]
    if settings.handoff.runners:
        kinds.append("handoffs")
    receiving = [("receive", ("receive",))] if settings.events.sources else []
    named = [(kind, ("worker", kind.partition("-")[0])) for kind in kinds]
    return [
        Program(
            name,
            command(*words, config=config),
            environment,
            grace_s=settings.workers.grace + STOPPING_S,
            log=None if logs is None else logs / f"{name}.log",
        )
        for name, words in (*named, *receiving, ("beat", ("beat",)))
    ]


def command(*words: str, config: Path | None) -> tuple[str, ...]:
    """Our own command line, run by this Python; `-P` keeps the working directory's files from being imported as ours."""
    chosen = () if config is None else ("--config", str(config))
    return (sys.executable, "-P", "-m", "workers", *chosen, *words)
