"""SIGKILL of the worker in the middle of a run: nothing that it started survives a second, and a restart clears up."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from heinzelwerk.sandbox import leftovers, run
from heinzelwerk.sandbox.spec import BackendName, Refusal
from tests.support import sandbox

WORKER = """
    import asyncio, sys, time
    from pathlib import Path
    from heinzelwerk.sandbox import choose
    from tests.support import sandbox

    AGENT = '''
    import os, signal, sys, time
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.wait()  # the middle one: from here on there are exactly the agent and its daemon
    print("running", flush=True)
    time.sleep(600)
    '''

    async def main():
        backend = await choose.choose_backend(root=Path(sys.argv[1]), order=(sys.argv[2],), unsafe=sys.argv[2] == "unsafe")
        await sandbox.run_agent(
            backend, AGENT, sys.argv[3], root=Path(sys.argv[1]), on_line=lambda _, line: print(line.decode(), flush=True)
        )

    asyncio.run(main())
"""


@pytest.fixture(params=(*sandbox.CONFINING, "unsafe"))
def backend_name(request: pytest.FixtureRequest) -> BackendName:
    name: BackendName = request.param
    if name != "unsafe" and isinstance(found := sandbox.backend_here(name), Refusal):
        pytest.skip(f"{name} cannot be tested on this machine: {found.detail}")
    return name


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    """A word on the command line of the agent and its children; whatever still has it is killed at the end."""
    word = f"orphan-{os.getpid()}-{tmp_path.name}"
    yield word
    for pid in sandbox.alive_with(word):
        os.kill(pid, signal.SIGKILL)


def start_worker(root: Path, backend: str, mark: str) -> subprocess.Popen[str]:
    """A worker process of its own whose agent, with a daemon beside it, runs."""
    worker = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WORKER), str(root), backend, mark],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])},
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "running\n"
    sandbox.wait_until(lambda: len(sandbox.alive_with(mark)) >= 3)
    return worker


def start_of_python() -> float:
    """Seconds for the simplest process right now: a second is a promise of the machine's as well."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
    return time.monotonic() - began


def agents(mark: str, worker: int) -> list[int]:
    return [pid for pid in sandbox.alive_with(mark) if pid != worker]


def test_nothing_survives_the_workers_death(backend_name: BackendName, tmp_path: Path, mark: str) -> None:
    """Agent and daemon are gone a second after SIGKILL of their worker; the next start clears the rest."""
    worker = start_worker(tmp_path, backend_name, mark)
    worker.kill()
    killed = time.monotonic()
    worker.wait()
    sandbox.wait_until(lambda: not agents(mark, worker.pid))
    took = time.monotonic() - killed
    worker.communicate()
    (cleared,) = asyncio.run(run.clear_leftovers(tmp_path))
    assert (cleared.run_id, cleared.problem) == ("run-1", "")
    assert not list(tmp_path.iterdir())
    assert took < max(1.0, 20 * start_of_python()), f"{took:.2f} s"


def test_an_agent_without_a_sandbox_does_survive(tmp_path: Path, mark: str) -> None:
    """The attack is real: the same kind of child, started plainly, outlives its killed worker."""
    script = (
        "import subprocess, sys, time; subprocess.Popen(['/bin/sh', '-c', 'sleep 600; :', sys.argv[1]]); "
        "print(1, flush=True); time.sleep(600)"
    )
    worker = subprocess.Popen([sys.executable, "-c", script, mark], stdout=subprocess.PIPE, start_new_session=True)
    assert worker.stdout is not None
    assert worker.stdout.readline()
    worker.kill()
    worker.wait()
    worker.stdout.close()
    sandbox.wait_until(lambda: len(sandbox.alive_with(mark)) == 1)  # a shell that forks is there twice for a moment
    os.killpg(worker.pid, signal.SIGKILL)


def test_a_run_of_a_living_worker_is_left_alone(tmp_path: Path, mark: str) -> None:
    """Another worker that starts on the same machine does not touch it."""
    worker = start_worker(tmp_path, "unsafe", mark)
    try:
        assert leftovers.clear(tmp_path) == ()
        assert (tmp_path / "run-1" / "work").is_dir()
        assert len(agents(mark, worker.pid)) >= 2
    finally:
        worker.kill()
        worker.communicate()
    sandbox.wait_until(lambda: not agents(mark, worker.pid))
    assert [cleared.run_id for cleared in leftovers.clear(tmp_path)] == ["run-1"]


def test_a_surviving_sandbox_is_killed_by_its_identity(tmp_path: Path) -> None:
    """A recorded process of a dead worker is killed at the restart; one that merely has its number is not."""
    with sandbox.outside(["/bin/sleep", "600"]) as survivor, sandbox.outside(["/bin/sleep", "600"]) as stranger:
        for name, child, shift in (("survivor", survivor, 0), ("stranger", stranger, 1)):
            sandbox.wait_until(lambda pid=child.pid: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
            (tmp_path / name).mkdir()
            held = leftovers.claim(tmp_path / name)
            leftovers.note(held, child=child.pid)
            os.close(held)  # as the kernel does when the worker ends
            record = json.loads((tmp_path / f"{name}.json").read_text())
            record["child"]["start"] += shift
            (tmp_path / f"{name}.json").write_text(json.dumps(record))
        cleared = {one.run_id: one.killed for one in leftovers.clear(tmp_path)}
        assert cleared == {"survivor": True, "stranger": False}
        assert survivor.wait(60) == -signal.SIGKILL
        assert stranger.poll() is None
    assert not list(tmp_path.iterdir())


def test_a_damaged_record_is_cleared_without_killing(tmp_path: Path) -> None:
    """A record that was cut by a crash names nobody; its directory goes."""
    (tmp_path / "run-1" / "work").mkdir(parents=True)
    (tmp_path / "run-1.json").write_text('{"boot": ')
    (cleared,) = leftovers.clear(tmp_path)
    assert (cleared.killed, cleared.problem) == (False, "")
    assert not list(tmp_path.iterdir())
