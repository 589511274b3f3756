"""The port `Runner` over any adapter: refuse what must not start, then run it once.

Nothing here retries: a run id is run once.
"""

import asyncio
import importlib.util
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

from heinzelwerk import handoff
from heinzelwerk.errors import Refused
from heinzelwerk.handoff import HandoffRequest, HandoffResult, Refusal, TurnTool, Usage
from heinzelwerk.runner import install
from heinzelwerk.runner.adapter import Adapter, RunnerSettings, choose_tools
from heinzelwerk.runner.attempt import Attempt, House, Ready
from heinzelwerk.runner.install import Probe
from heinzelwerk.runner.transcript import left_behind
from heinzelwerk.sandbox import place as places
from heinzelwerk.sandbox import run as sandbox
from heinzelwerk.sandbox import spec as spec_values
from heinzelwerk.sandbox.spec import Backend, SandboxSpec

__all__ = ["House", "SandboxedRunner"]

_PROBE = spec_values.Limits(timeout_s=60.0, idle_s=60.0, output_bytes=1 << 20)


class SandboxedRunner:
    """A coding agent behind the port `Runner`. Misconfiguration and stopped runs are results, not errors."""

    def __init__(self, adapter: Adapter, settings: RunnerSettings, house: House) -> None:
        self.name = adapter.name
        self.adapter = adapter
        self.settings = settings
        self._house = house
        self._probes: dict[tuple[str, int, int, int], Probe | Refusal] = {}
        self._probing = asyncio.Lock()

    async def probe(self) -> Probe | Refusal:
        """Which agent is installed, or what is wrong with it; asked once per binary. For `doctor` too."""
        backend = await self._house.backend()
        if isinstance(backend, spec_values.Refusal):
            return Refusal(detail=backend.detail, fix=backend.fix)
        find = self.adapter.find
        found = install.locate_command(self.settings) if find is None else install.locate(find, self.settings)
        if isinstance(found, Refusal):
            return found
        async with self._probing:
            known = self._probes.get(found.identity)
            if known is None:
                known = await install.probe(found, find, self.settings, ask=self._ask(backend))
                self._probes[found.identity] = known
        # The binary may be the same and the arguments not.
        return (
            known
            if isinstance(known, Refusal)
            else Probe(version=known.version, sha256=known.sha256, installation=found)
        )

    def _ask(self, backend: Backend) -> install.Ask:
        async def ask(argv: tuple[str, ...], read_only: tuple[Path, ...]) -> bytes:
            told: list[bytes] = []
            spec = SandboxSpec(argv=argv, read_only=read_only, out=False, limits=_PROBE)
            async with places.place(backend, root=self._house.root, run_id=f"probe-{self._house.new_id()}") as place:
                await sandbox.run(
                    spec,
                    place,
                    on_line=lambda stream, line: told.append(line),
                    stop=asyncio.Event(),
                    now=self._house.wall_s,
                )
            return b"\n".join(told)

        return ask

    async def run(
        self,
        request: HandoffRequest,
        *,
        on_event: Callable[[str], None] = lambda line: None,
        stop: Callable[[], bool] = lambda: False,
        turn_tools: Sequence[TurnTool] = (),
    ) -> HandoffResult:
        """Run it once. `on_event` gets each scrubbed line of output; `stop` is asked five times a second."""
        ready = await self._check(request, turn_tools)
        if isinstance(ready, Refusal):
            return handoff.refused(request, ready)
        one = Attempt(self.adapter, self.settings, self._house, request, ready, turn_tools)
        try:
            async with places.place(ready.backend, root=self._house.root, run_id=request.run_id) as place:
                return await one.run(place, on_event=on_event, stop=stop)
        except Refused as problem:
            return handoff.refused(request, Refusal(detail=str(problem), fix=problem.fix))

    def left_behind(self, run_id: str) -> bytes:
        """The transcript of a run whose worker here died, as far as it was written; empty where there is none."""
        return left_behind(self._house.transcripts / run_id)

    async def _check(self, request: HandoffRequest, turn_tools: Sequence[TurnTool]) -> Ready | Refusal:
        problem = handoff.check_request(request) or self._check_model(request) or self._check_tools(request, turn_tools)
        if problem is not None:
            return problem
        tools = choose_tools(self.adapter, request, self.settings)
        if isinstance(tools, Refusal):
            return tools
        probe = await self.probe()
        if isinstance(probe, Refusal):
            return probe
        backend = await self._house.backend()
        if isinstance(backend, spec_values.Refusal):
            return Refusal(detail=backend.detail, fix=backend.fix)
        return Ready(
            backend=backend,
            installation=probe.installation,
            version=probe.version or None,
            sha256=probe.sha256,
            model=request.model or self.settings.model or "",
            tools=tools,
        )

    def _check_model(self, request: HandoffRequest) -> Refusal | None:
        settings = self.settings
        needs_model = self.adapter.find is not None
        if needs_model and settings.access is None and settings.login is None:
            return Refusal(
                detail=f"The runner {self.name} has neither a key nor a login.",
                fix="Set its key and base URL, or auth = login with a credentials directory.",
            )
        if settings.login is not None and not settings.login.credentials.is_dir():
            return Refusal(
                detail=f"The credentials directory {settings.login.credentials} is not there.",
                fix="Log in once by hand with HOME set to that directory.",
            )
        model = request.model or settings.model
        if needs_model and not model:
            return Refusal(detail=f"The runner {self.name} has no model.", fix="Set its model, or pass --model.")
        priced = settings.access is None or model is None or request.limits.max_usd is None
        if not priced and settings.price(model or "", Usage(input=1), Decimal(0)) is None:
            return Refusal(
                detail=f"The model {model} has no price, so a limit in dollars cannot be kept.",
                fix="Set its price in the settings' table of prices.",
            )
        return None

    def _check_tools(self, request: HandoffRequest, turn_tools: Sequence[TurnTool]) -> Refusal | None:
        missing = sorted(set(request.turn_tools) - {tool.name for tool in turn_tools})
        if missing:
            return Refusal(
                detail=f"The turn has no tools {', '.join(missing)}.", fix="Name read tools that the turn has."
            )
        if request.turn_tools and not self.adapter.turn_tools:
            return Refusal(
                detail=f"{self.name} has no MCP, so it cannot read through the turn.",
                fix="Give it what it needs as files, or bind a runner that has MCP (claude-code, codex).",
            )
        if request.turn_tools and importlib.util.find_spec("mcp") is None:
            return Refusal(
                detail="The turn's tools are served over MCP, and the package mcp is not installed.",
                fix="Install heinzelwerk[mcp] on the handoff workers, or take turn_tools out of the runner's settings.",
            )
        return None
