"""What a sandbox costs at the start of a handoff: a bare command against the same one in each backend of this machine.

    python benchmarks/handoff_overhead.py [RUNS]

Prints the median, and the range, of RUNS (20) alternating runs of `/bin/true`, from the request to the collected
result, with the metering socket forwarded as in a real handoff.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from heinzelwerk.sandbox import choose, place, run
from heinzelwerk.sandbox.spec import Backend, BackendName, Ended, SandboxSpec

COMMAND = "/bin/true" if Path("/bin/true").exists() else "/usr/bin/true"
BACKENDS: tuple[BackendName, ...] = ("bubblewrap", "landlock")


async def bare() -> float:
    """Milliseconds of the command alone, with its pipes."""
    began = time.perf_counter()
    child = await asyncio.create_subprocess_exec(COMMAND, stdin=-3, stdout=-1, stderr=-1, env={})
    await child.communicate()
    return (time.perf_counter() - began) * 1000


async def sandboxed(backend: Backend, root: Path, socket: Path, number: int) -> float:
    """Milliseconds of the command in a place of its own, set up, watched, collected and cleared."""
    began = time.perf_counter()
    async with place.place(backend, root=root, run_id=f"run-{number}") as opened:
        request = SandboxSpec(argv=(COMMAND,), model_socket=socket)
        result = await run.run(request, opened, on_line=lambda *_: None, stop=asyncio.Event(), now=time.time)
    assert (result.ended, result.exit_code) == (Ended.EXITED, 0), result
    return (time.perf_counter() - began) * 1000


async def main(runs: int) -> None:
    """Measure alternately, so that a busy moment of the machine touches all alike."""
    with tempfile.TemporaryDirectory(prefix="hw-") as directory:
        root = Path(directory)
        server = await asyncio.start_unix_server(lambda reader, writer: writer.close(), root / "model.sock")
        backends: dict[str, Backend] = {}
        for name in BACKENDS:
            chosen = await choose.choose_backend(root=root / "runs", order=(name,))
            if isinstance(chosen, Backend):
                backends[name] = chosen
            else:
                print(f"{name:12} not on this machine: {chosen.detail}")
        times: dict[str, list[float]] = {"bare": [], **{name: [] for name in backends}}
        for number in range(runs):
            times["bare"].append(await bare())
            for name, backend in backends.items():
                times[name].append(await sandboxed(backend, root / "runs", root / "model.sock", number))
        server.close()
    base = statistics.median(times["bare"])
    print(f"{COMMAND}, {runs} runs each, {os.cpu_count()} cores, uid {os.geteuid()}")
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"{name:12} median {middle:6.1f} ms  range {min(values):.1f}-{max(values):.1f}  +{middle - base:.1f} ms")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
