"""One attempt of a handoff, everything being checked: confine, serve, start, watch, judge.

The same for every agent; what differs is in its adapter.
"""

import functools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import httpx

from heinzelwerk import handoff
from heinzelwerk.handoff import (
    AgentInfo,
    HandoffRequest,
    HandoffResult,
    OutputFile,
    Refusal,
    SandboxInfo,
    TurnTool,
    Usage,
)
from heinzelwerk.ports import Clock
from heinzelwerk.runner import ending
from heinzelwerk.runner.adapter import PLACEHOLDER_KEY, Adapter, Launch, Plan, RunnerSettings
from heinzelwerk.runner.connect import ConnectProxy
from heinzelwerk.runner.install import Installation
from heinzelwerk.runner.meter import Meter, ProxyReport
from heinzelwerk.runner.metering import Allowed, MeteringProxy
from heinzelwerk.runner.reading import Reading
from heinzelwerk.runner.serving import listening, serve
from heinzelwerk.runner.transcript import Transcript, scrubber
from heinzelwerk.runner.watching import Watcher
from heinzelwerk.sandbox import run as sandbox
from heinzelwerk.sandbox import spec as spec_values
from heinzelwerk.sandbox.place import Place
from heinzelwerk.sandbox.spec import Backend, Ended, SandboxResult, SandboxSpec, Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """Where runs take place on this machine, and what they are timed and named by."""

    root: Path
    """For the private directories of runs."""
    transcripts: Path
    """For transcripts while they grow: `<run id>/`. After a killed worker its run's lies there still."""
    keep_transcripts: bool = False
    """Leave the file of a finished run for a person; the result holds its bytes in any case."""
    backend: Callable[[], Awaitable[Backend | spec_values.Refusal]]
    """The sandbox that passed its self-test, or why there is none; the caller remembers the answer."""
    clock: Clock
    new_id: Callable[[], str]

    def wall_s(self) -> float:
        """Seconds since the epoch."""
        return self.clock.now().timestamp()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Everything that was checked before anything starts."""

    backend: Backend
    installation: Installation
    version: str | None
    sha256: str
    model: str
    tools: tuple[str, ...]


@dataclass(slots=True)
class _Model:
    """The run's way to its model: the socket inside, and what was seen on it."""

    socket: Path | None = None
    report: Callable[[], ProxyReport | None] = field(default=lambda: None)
    turned_away: Callable[[], Sequence[str]] = field(default=tuple)

    def cut(self) -> bool:
        """Whether a request was refused for the run's limits."""
        report = self.report()
        return report is not None and report.cut is not None


@functools.cache
def _tls() -> ssl.SSLContext:
    """The certificates that are trusted; reading them takes a tenth of a second, so it is done once."""
    return httpx.create_ssl_context()


class Attempt:
    """One run, from its open place to its result."""

    def __init__(
        self,
        adapter: Adapter,
        settings: RunnerSettings,
        house: House,
        request: HandoffRequest,
        ready: Ready,
        turn_tools: Sequence[TurnTool],
    ) -> None:
        self.adapter = adapter
        self.settings = settings
        self.house = house
        self.request = request
        self.ready = ready
        self.turn_tools = [tool for tool in turn_tools if tool.name in request.turn_tools]
        self.key = f"{PLACEHOLDER_KEY}-{house.new_id()}"

    async def run(self, place: Place, *, on_event: Callable[[str], None], stop: Callable[[], bool]) -> HandoffResult:
        """Plan, serve, start, watch, judge."""
        plan = self.adapter.plan(self.request, self._launch(place))
        if isinstance(plan, Refusal):
            return handoff.refused(self.request, plan)
        scrub = scrubber(secrets=self._secrets(), paths={str(place.directory): "[run]", str(self.house.root): "[runs]"})
        transcript = Transcript(
            self.house.transcripts / self.request.run_id,
            cap=self.request.limits.transcript_bytes,
            scrub=scrub,
            lean=self.adapter.lean,
        )
        reader = self.adapter.reader()
        watcher = Watcher(reader, clock=self.house.clock, max_usd=self._agents_budget())

        def on_line(stream: Stream, line: bytes) -> None:
            reader.feed(line, stream)
            watcher.heard()
            transcript.add(line, stderr=stream == "stderr")
            on_event(scrub(line).decode("utf-8", "replace"))

        try:
            async with (
                self._model(place, plan, watcher) as model,
                self._tools(place, watcher) as tools_socket,
                watcher.watch(stop, cut=model.cut),
            ):
                ended = await sandbox.run(
                    self._spec(plan, model.socket, tools_socket),
                    place,
                    on_line=on_line,
                    stop=watcher.halt,
                    now=self.house.wall_s,
                    activity=lambda: watcher.last_traffic,
                )
            # Only now: an answer that was cut by the end of the run is booked when the proxy has let go of it.
            return self._result(plan, reader.reading(), watcher, ended, model, transcript)
        finally:
            transcript.stop()

    def _launch(self, place: Place) -> Launch:
        return Launch(
            layout=place.layout,
            argv=self.ready.installation.argv,
            model=self.ready.model,
            tools=self.ready.tools,
            turn_tools=tuple(tool.name for tool in self.turn_tools),
            settings=self.settings,
            key=self.key,
        )

    def _secrets(self) -> list[str]:
        access = self.settings.access
        return [self.key] if access is None else [self.key, access.key, *access.headers.values()]

    def _agents_budget(self) -> Decimal | None:
        """Where no proxy meters, the agent's own account of its cost is what can be held against the limit."""
        return self.request.limits.max_usd if self.settings.access is None else None

    @asynccontextmanager
    async def _model(self, place: Place, plan: Plan, watcher: Watcher) -> AsyncIterator[_Model]:
        access, login = self.settings.access, self.settings.login
        path = place.directory / "model.sock"
        async with AsyncExitStack() as stack:
            if login is not None:
                tunnel = ConnectProxy(login.hosts, on_traffic=watcher.traffic)
                await stack.enter_async_context(tunnel.serve(path))
                yield _Model(socket=path, turned_away=lambda: tunnel.turned_away)
            elif access is not None:
                timeout = httpx.Timeout(self.request.limits.timeout_s, connect=20.0)
                client = await stack.enter_async_context(httpx.AsyncClient(timeout=timeout, verify=_tls()))
                meter = self._meter(plan)
                proxy = MeteringProxy(
                    access=access,
                    run_key=self.key,
                    allowed=Allowed(wires=plan.wires, models=frozenset({self.ready.model})),
                    meter=meter,
                    client=client,
                    on_traffic=watcher.traffic,
                )
                listener = stack.enter_context(listening(path))
                await stack.enter_async_context(serve(proxy.app, listener))
                yield _Model(socket=path, report=meter.report)
            else:
                yield _Model()

    def _meter(self, plan: Plan) -> Meter:
        limits = self.request.limits
        # An agent without a limit of turns asks its model once in each: the proxy counts for it.
        caps = (limits.max_requests, None if plan.counts_turns else limits.max_turns)
        known = [cap for cap in caps if cap is not None]
        return Meter(price=self.settings.price, max_usd=limits.max_usd, max_requests=min(known, default=None))

    @asynccontextmanager
    async def _tools(self, place: Place, watcher: Watcher) -> AsyncIterator[Path | None]:
        if not self.turn_tools:
            yield None
            return
        from heinzelwerk.runner import mcp_server  # here, because `mcp` is an extra

        path = place.directory / "tools.sock"
        async with mcp_server.serve_tools(self.turn_tools, path, on_traffic=watcher.traffic):
            yield path

    def _spec(self, plan: Plan, model_socket: Path | None, tools_socket: Path | None) -> SandboxSpec:
        limits = self.request.limits
        return SandboxSpec(
            argv=plan.argv,
            environment=plan.environment,
            stdin=plan.stdin,
            files={file.path: file.data for file in self.request.files},
            home_files=plan.home_files,
            home_from=None if self.settings.login is None else self.settings.login.credentials,
            run_files=plan.run_files,
            read_only=(*self.ready.installation.read_only, *self.settings.read_only),
            out=self.request.output_dir,
            model_socket=model_socket,
            tools_socket=tools_socket,
            limits=spec_values.Limits(
                timeout_s=limits.timeout_s,
                idle_s=limits.idle_s,
                stop_grace_s=limits.stop_grace_s,
                output_bytes=limits.output_bytes,
                out_files=limits.out_files,
                out_bytes=limits.out_bytes,
            ),
        )

    def _result(
        self,
        plan: Plan,
        reading: Reading,
        watcher: Watcher,
        ended: SandboxResult,
        model: _Model,
        transcript: Transcript,
    ) -> HandoffResult:
        written = next((file.data for file in ended.files if file.path == plan.report_file), None)
        reading = reading if written is None else ending.with_text(reading, written)
        agent = AgentInfo(name=self.adapter.name, version=self.ready.version, sha256=self.ready.sha256)
        end = ending.RunEnd(
            exit_code=ended.exit_code,
            signal=ended.signal,
            stopped_by=watcher.judged(ended.ended, self.request.limits),
            setup_failure=ended.detail if ended.ended is Ended.SETUP_FAILED else None,
            max_usd=self.request.limits.max_usd,
            exit_decides=self.adapter.find is None,
        )
        result = ending.result_of(reading, end, model.report(), agent=agent)
        kept = transcript.close() if self.house.keep_transcripts else transcript.take()
        files = tuple(
            OutputFile(path=file.path, bytes=len(file.data), sha256=file.sha256, data=file.data) for file in ended.files
        )
        return result.model_copy(
            update={
                "sandbox": self._confined(ended),
                "model": self.ready.model or result.model,
                "started_at": datetime.fromtimestamp(ended.started_at, UTC),
                "duration_ms": ended.duration_ms,
                "files": files,
                "transcript": kept,
                "warnings": (*result.warnings, *self._warnings(plan, ended, model)),
                "hashes": self._hashes(plan, result.report, kept, files),
            }
        )

    def _confined(self, ended: SandboxResult) -> SandboxInfo:
        network = "provider-hosts" if self.settings.login is not None and ended.network == "model" else ended.network
        return SandboxInfo(backend=ended.backend, version=ended.backend_version or None, network=network)

    def _warnings(self, plan: Plan, ended: SandboxResult, model: _Model) -> list[str]:
        found = [*plan.warnings, *ended.warnings]
        found += [f"{skipped.path} in out/ was not taken: {skipped.reason}." for skipped in ended.skipped[:20]]
        if self.settings.login is not None:
            found.append("It ran with a login: usage and cost are the agent's own account.")
        found += [f"The way out was refused: {target}." for target in model.turned_away()]
        return found

    def _hashes(
        self, plan: Plan, report: str | None, kept: handoff.TranscriptInfo, files: Sequence[OutputFile]
    ) -> dict[str, str]:
        configuration = {**plan.home_files, **plan.run_files}
        launch = {
            "argv": handoff.sha256(handoff.canonical(list(plan.argv))),
            "agent": self.ready.sha256,
            "version": handoff.sha256((self.ready.version or "").encode()),
            "model": handoff.sha256(self.ready.model.encode()),
            "prices": handoff.sha256(handoff.canonical(self._prices())),
            "sandbox": handoff.sha256(handoff.canonical([self.ready.backend.name, self.ready.backend.version])),
            **{f"config:{name}": handoff.sha256(data) for name, data in configuration.items()},
        }
        after: Mapping[str, str | None] = {
            "report": None if report is None else handoff.sha256(report.encode()),
            "transcript": kept.sha256,
            **{f"out:{file.path}": file.sha256 for file in files},
        }
        told = {name: value for name, value in after.items() if value is not None}
        return {**handoff.input_hashes(self.request, launch=launch), **told}

    def _prices(self) -> list[str]:
        """The price of a million tokens of each kind: what the price rule says, whatever it is made of."""
        million = (Usage(**{kind: 1_000_000}) for kind in ("input", "output", "cache_read", "cache_write"))
        return [str(self.settings.price(self.ready.model, usage, None)) for usage in million]
