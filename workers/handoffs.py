"""The coding agents of one process: where they run, what confines them, and what dead workers left of their runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from config.settings import Settings
from heinzelwerk.ports import Clock, Ids, Runner
from heinzelwerk.runner import registry, transcript
from heinzelwerk.runner.run import House, SandboxedRunner
from heinzelwerk.sandbox import choose
from heinzelwerk.sandbox import run as sandbox
from heinzelwerk.sandbox.spec import Backend, Refusal
from workers import translation
from workers.engine import offered

log = structlog.get_logger("heinzelwerk.handoffs")

TRANSCRIPTS_KEPT_S = 86_400.0
"""So long what a killed run left of its transcript stays for whoever closes its job."""


class Sandbox:
    """The sandbox of this machine, tested at its first use and remembered."""

    def __init__(self, settings: Settings, root: Path) -> None:
        self._handoff = settings.handoff
        self._root = root
        self._found: Backend | Refusal | None = None
        self._finding = asyncio.Lock()

    async def backend(self) -> Backend | Refusal:
        """What confines runs here, or why nothing does."""
        async with self._finding:
            if self._found is None:
                await asyncio.to_thread(self._root.mkdir, parents=True, exist_ok=True)
                wished = self._handoff.backend
                self._found = await choose.choose_backend(
                    root=self._root,
                    account=self._handoff.account,
                    order=choose.ORDER
                    if wished in ("auto", "unsafe")
                    else tuple(name for name in choose.ORDER if name == wished),
                    unsafe=wished == "unsafe",
                )
            return self._found


def directory(settings: Settings) -> Path:
    """Where runs and their growing transcripts are on this machine."""
    return settings.handoff.directory or settings.workers.data / "handoffs"


def house(settings: Settings, clock: Clock, ids: Ids) -> House:
    """Where coding agents run here. The sandbox is chosen at first use."""
    root = directory(settings)
    return House(
        root=root / "runs",
        transcripts=root / "transcripts",
        backend=Sandbox(settings, root / "runs").backend,
        clock=clock,
        new_id=ids.new,
    )


def runner(name: str, settings: Settings, place: House) -> SandboxedRunner:
    """A runner of the settings. ConfigurationError where its key or its adapter is missing."""
    return registry.runner_for(settings.handoff.runners[name].agent, translation.runner_settings(name, settings), place)


def runners(settings: Settings, clock: Clock, ids: Ids) -> dict[str, Runner]:
    """The coding agents that turns may be given."""
    if not settings.handoff.runners:
        return {}
    place = house(settings, clock, ids)
    return {name: runner(name, settings, place) for name in offered(settings)}


async def clear(settings: Settings, clock: Clock) -> None:
    """Clear what killed workers left on this machine: sandboxes that still live, directories, old transcripts."""
    root = directory(settings)
    for cleared in await sandbox.clear_leftovers(root / "runs"):
        log.warning(
            "cleared a dead worker's run", job=cleared.run_id, killed=cleared.killed, problem=cleared.problem or None
        )
    for run_id in await asyncio.to_thread(_clear_transcripts, root, clock.now().timestamp()):
        log.warning("cleared a dead worker's transcript", job=run_id)


def _clear_transcripts(root: Path, now_s: float) -> tuple[str, ...]:
    living = [path.stem for path in (root / "runs").glob("*.json")]
    return transcript.clear(root / "transcripts", keep=living, older_than_s=TRANSCRIPTS_KEPT_S, now_s=now_s)
