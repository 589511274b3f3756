"""Run one agent in its place, watch it, and end it with everything that it started.

The worker holds a control pipe: its end of file kills the run, so a worker that is killed takes its runs along. The
process is started from a thread that lives as long as the run, because the kernel's parent-death signal, the second
belt, is tied to the starting thread.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heinzelwerk.sandbox import cgroup, collect, launch, leftovers, streams, threads
from heinzelwerk.sandbox import place as places
from heinzelwerk.sandbox.launch import Launch
from heinzelwerk.sandbox.place import Place
from heinzelwerk.sandbox.spec import Ended, SandboxResult, SandboxSpec, Stream

OnLine = Callable[[Stream, bytes], None]

TICK_S = 1.0
"""Between two looks at the disk."""
TIMEOUT_GRACE_S = 0.7
"""At most this from the interrupt to the kill when time is up: the run is to be dead within a second of that."""
EXIT_GRACE_S = 2.0
"""For the supervisor to do its killing before it is killed itself."""


class Child(threading.Thread):
    """The thread that starts the sandbox and waits for its end; the sandbox dies with this thread."""

    def __init__(self, command: Launch, theirs: Mapping[str, int]) -> None:
        super().__init__(name="sandbox", daemon=True)
        self.command = command
        self.theirs = theirs
        self.loop = asyncio.get_running_loop()
        self.started: asyncio.Future[int] = self.loop.create_future()
        self.ended: asyncio.Future[int] = self.loop.create_future()

    def run(self) -> None:
        """Start, close the child's ends here, report the pid, wait, report the code."""
        try:
            child = subprocess.Popen(
                self.command.argv,
                stdin=self.theirs["stdin"],
                stdout=self.theirs["stdout"],
                stderr=self.theirs["stderr"],
                env=dict(self.command.environment),
                cwd="/",
                pass_fds=self.command.inherited,
                start_new_session=True,
            )
        except OSError as error:
            self._tell(self.started.set_exception, error)
            self._tell(self.ended.set_result, -1)
            return
        finally:
            for descriptor in self.theirs.values():
                os.close(descriptor)
        self._tell(self.started.set_result, child.pid)
        self._tell(self.ended.set_result, child.wait())

    def kill(self) -> None:
        """SIGKILL for the outermost process, which takes a namespace along."""
        if self.started.done() and not self.ended.done():
            try:
                os.kill(self.started.result(), signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended between the look and the signal

    def _tell(self, setter: Callable[[Any], None], value: object) -> None:
        try:
            self.loop.call_soon_threadsafe(setter, value)
        except RuntimeError:
            pass  # the loop is closed: its process is going, and takes the run along


class Watch:
    """What is seen of a running agent: how much it printed, when it last did something, what its supervisor says."""

    def __init__(self, spec: SandboxSpec, on_line: OnLine, activity: Callable[[], float] | None) -> None:
        self.limits = spec.limits
        self.on_line = on_line
        self.activity = activity
        self.output_bytes = 0
        self.last_output = self.began = time.monotonic()
        self.over: asyncio.Event = asyncio.Event()
        self.ready: asyncio.Event = asyncio.Event()
        self.reported: dict[str, int] = {}
        self.reported_error = ""
        self.failure: Exception | None = None
        self.last_words: list[bytes] = []

    def count(self, size: int) -> None:
        """Bytes of stdout or stderr arrived."""
        self.output_bytes += size
        self.last_output = time.monotonic()
        if self.output_bytes > self.limits.output_bytes:
            self.over.set()

    def stdout(self, line: bytes) -> None:
        """One line for the caller."""
        self.give("stdout", line)

    def stderr(self, line: bytes) -> None:
        """One line for the caller; before the agent has started it may be the sandbox's own complaint."""
        if "started" not in self.reported:
            self.last_words = [*self.last_words, line][-5:]
        self.give("stderr", line)

    def give(self, stream: Stream, line: bytes) -> None:
        """Call the caller; what it raises ends the run and is raised there again."""
        if self.over.is_set():
            return
        try:
            self.on_line(stream, line)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the caller's
            self.failure = error
            self.over.set()

    def status(self, line: bytes) -> None:
        """One line of the supervisor; anything else on this pipe is not ours and is ignored."""
        word, _, value = line.decode("utf-8", "replace").partition(" ")
        if word == "error":
            self.reported_error = value
        elif value.isdigit():
            self.reported.setdefault(word, int(value))
        self.ready.set()

    @property
    def idle_at(self) -> float:
        """The monotonic time at which the silence has lasted too long."""
        seen = self.last_output if self.activity is None else max(self.last_output, self.activity())
        return seen + self.limits.idle_s

    @property
    def timeout_at(self) -> float:
        """The monotonic time at which the run is over in any case."""
        return self.began + self.limits.timeout_s


class Run:
    """One run from start to end: the pipes, the child, the watch."""

    def __init__(self, spec: SandboxSpec, place: Place, watch: Watch) -> None:
        self.spec = spec
        self.place = place
        self.watch = watch
        self.group: cgroup.Group | None = None
        self.transports: list[asyncio.BaseTransport] = []
        self.outputs: list[streams.Lines] = []
        self.control = -1

    async def start(self) -> None:
        """Open the pipes, start the child, let the agent go. OSError or Refused: nothing runs."""
        ours: dict[str, int] = {}
        theirs: dict[str, int] = {}
        for name in ("stdin", "control"):
            theirs[name], ours[name] = os.pipe()
        for name in ("stdout", "stderr", "status"):
            ours[name], theirs[name] = os.pipe()
        self.control = ours.pop("control")
        try:
            command = launch.prepare(self.spec, self.place, control=theirs["control"], status=theirs["status"])
        except BaseException:
            for descriptor in (*ours.values(), *theirs.values()):
                os.close(descriptor)
            raise
        self.child = Child(command, theirs)
        self.child.start()
        await self._attach(ours)
        await self._let_go(await asyncio.shield(self.child.started))

    async def _attach(self, ours: dict[str, int]) -> None:
        watch = self.watch
        outputs = {
            "stdout": streams.Lines(watch.stdout, count=watch.count),
            "stderr": streams.Lines(watch.stderr, count=watch.count),
            "status": streams.Lines(watch.status),
        }
        for name, protocol in outputs.items():
            self.outputs.append(protocol)
            self.transports.append(await streams.read_lines(ours[name], protocol))
        self.transports.append(await streams.write_all(ours["stdin"], self.spec.stdin))

    async def _let_go(self, pid: int) -> None:
        """Write down who runs, move it into its cgroup while it waits, and say go."""
        parent = self.place.backend.cgroup
        if parent is not None:
            # Moving processes costs the kernel some 5 ms each: not where a pid namespace kills as well and nothing
            # is bounded.
            useful = self.place.backend.name != "bubblewrap" or cgroup.bounds(parent)
            self.group = cgroup.open_group(parent, self.place.run_id, self.spec.limits) if useful else None
        path = None if self.group is None else self.group.path
        leftovers.note(self.place.record, child=pid, group=path)
        if self.group is not None:
            waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self.watch.ready.wait()), self.child.ended]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            waits[0].cancel()
            self.group.adopt(pid)
        self._order(b"G")

    async def until_over(self, stop: asyncio.Event) -> Ended:
        """Wait for the first reason to end; the agent may still run then."""
        looks = (stop.wait(), self.watch.over.wait(), self._disk_over())
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(look) for look in looks]
        try:
            while True:
                left = max(min(self.watch.timeout_at, self.watch.idle_at) - time.monotonic(), 0.001)
                first = asyncio.FIRST_COMPLETED
                done, _ = await asyncio.wait([self.child.ended, *waits], timeout=left, return_when=first)
                reason = self._reason(done, waits)
                if reason is not None:
                    return reason
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def _reason(self, done: set[asyncio.Future[Any]], waits: Sequence[asyncio.Future[Any]]) -> Ended | None:
        now = time.monotonic()
        if self.child.ended in done:
            return Ended.EXITED
        for wait, reason in zip(waits, (Ended.STOPPED, Ended.OUTPUT_CAP, Ended.DISK_CAP), strict=True):
            if wait in done:
                return reason
        if now >= self.watch.timeout_at:
            return Ended.TIMEOUT
        return Ended.IDLE if now >= self.watch.idle_at else None

    async def _disk_over(self) -> None:
        """Returns when the agent has written more than it may."""
        directory = self.place.directory
        written = tuple(directory / name for name in ("work/out", "home", "tmp"))
        cap = self.spec.limits.disk_bytes
        while True:
            await asyncio.sleep(TICK_S)
            if await asyncio.to_thread(collect.disk_use, written, stop_at=cap) > cap:
                return

    async def bring_down(self, *, grace_s: float) -> None:
        """Interrupt, wait, kill; returns when everything is dead. `grace_s` 0 kills at once."""
        if grace_s > 0 and not self.child.ended.done():
            self._order(b"I")
            await asyncio.wait({self.child.ended}, timeout=grace_s)
        self._close_control()
        await asyncio.wait({self.child.ended}, timeout=EXIT_GRACE_S)
        self.child.kill()
        if self.group is not None:
            self.group.kill()
        await asyncio.wait({self.child.ended})
        if self.outputs:
            await asyncio.wait([lines.ended for lines in self.outputs], timeout=EXIT_GRACE_S)

    def close(self) -> None:
        """Let go of everything; kills what still runs."""
        self._close_control()
        for transport in self.transports:
            transport.close()
        if self.group is not None:
            self.group.kill()
            self.group.remove()

    def _order(self, letter: bytes) -> None:
        if self.control >= 0:
            try:
                os.write(self.control, letter)
            except BrokenPipeError:
                pass  # the supervisor has ended: its end is being reported

    def _close_control(self) -> None:
        if self.control >= 0:
            os.close(self.control)
            self.control = -1


async def run(
    spec: SandboxSpec,
    place: Place,
    *,
    on_line: OnLine,
    stop: asyncio.Event,
    now: Callable[[], float],
    activity: Callable[[], float] | None = None,
) -> SandboxResult:
    """Run the agent once and return when it and all that it started are dead, with what it left in `out/`.

    `on_line(stream, line)` gets every line without its `\\n`, on the event loop. `stop` ends the run gracefully.
    What `on_line` raises ends the run and is raised here.
    `now` gives the wall clock in seconds; `activity` the `time.monotonic()` of the last traffic with the model, which
    counts as a sign of life beside output. Cancelling kills at once. Raises Refused for a malformed request; whatever
    happens later is in the result.
    """
    watch = Watch(spec, on_line, activity)
    started_at = now()
    warnings = await threads.whole(places.fill, place, spec)
    one = Run(spec, place, watch)
    try:
        await one.start()
        ended = await one.until_over(stop)
        await one.bring_down(grace_s=_grace(ended, spec))
    except OSError as error:
        watch.last_words.append(str(error).encode())
        ended = Ended.SETUP_FAILED
    finally:
        await asyncio.shield(_abandon(one))
    if watch.failure is not None:
        raise watch.failure
    code = one.child.ended.result() if ended is Ended.EXITED else 0
    return await _result(one, judged(ended, watch, code), started_at=started_at, warnings=warnings)


async def _abandon(one: Run) -> None:
    """On every way out, cancellation included: nothing is left running."""
    child = getattr(one, "child", None)
    if child is not None and child.is_alive():
        await one.bring_down(grace_s=0)
    one.close()


def _grace(ended: Ended, spec: SandboxSpec) -> float:
    if ended is Ended.STOPPED:
        return spec.limits.stop_grace_s
    return min(spec.limits.stop_grace_s, TIMEOUT_GRACE_S) if ended in (Ended.TIMEOUT, Ended.IDLE) else 0.0


def judged(ended: Ended, watch: Watch, code: int) -> Ended:
    """An end by itself is one only if the supervisor said how; before the start it is a failed set-up.

    `code` is the outermost process's, negative for a signal. When that one is killed the rest dies in any order: the
    supervisor may still have seen its agent's end by the same kill.
    """
    if ended is not Ended.EXITED:
        return ended
    if "started" not in watch.reported:
        return Ended.SETUP_FAILED
    if "exit" in watch.reported or ("signal" in watch.reported and code >= 0):
        return ended
    return Ended.KILLED


async def _result(one: Run, ended: Ended, *, started_at: float, warnings: Sequence[str]) -> SandboxResult:
    watch, place, spec = one.watch, one.place, one.spec
    duration_ms = round((time.monotonic() - watch.began) * 1000)
    files, skipped = await threads.whole(collect.collect, place.out, spec.limits) if spec.out else ((), ())
    return SandboxResult(
        ended=ended,
        exit_code=watch.reported.get("exit"),
        signal=watch.reported.get("signal", int(signal.SIGKILL) if ended is Ended.KILLED else None),
        started_at=started_at,
        duration_ms=duration_ms,
        detail=_detail(ended, watch),
        output_bytes=watch.output_bytes,
        files=files,
        skipped=skipped,
        backend=place.backend.name,
        backend_version=place.backend.version,
        network=_network(spec, place),
        warnings=(*place.backend.warnings, *warnings),
    )


def _network(spec: SandboxSpec, place: Place) -> Any:
    if place.backend.name == "unsafe":
        return "host"
    return "none" if spec.model_socket is None and spec.tools_socket is None else "model"


def _detail(ended: Ended, watch: Watch) -> str:
    if ended is Ended.SETUP_FAILED:
        words = [line.decode("utf-8", "replace").strip() for line in watch.last_words]
        return watch.reported_error or " / ".join(word for word in words if word) or "the sandbox did not start"
    limits = watch.limits
    return {
        Ended.TIMEOUT: f"not finished after {limits.timeout_s:g} s",
        Ended.IDLE: f"no sign of life for {limits.idle_s:g} s",
        Ended.OUTPUT_CAP: f"printed more than {limits.output_bytes} bytes",
        Ended.DISK_CAP: f"wrote more than {limits.disk_bytes} bytes",
        Ended.KILLED: "the sandbox was killed from outside",
    }.get(ended, "")


async def clear_leftovers(root: Path) -> tuple[leftovers.Cleared, ...]:
    """Clear what dead workers left below `root`; call it when a worker starts."""
    return await threads.whole(leftovers.clear, root)
