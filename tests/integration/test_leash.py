"""Nothing that the supervisor started outlives it, whatever way it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from workers import supervisor
from workers.supervisor import Fleet, Program

HERE = {"PATH": os.environ["PATH"]}


def _wait_for(condition, seconds=30.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError("did not happen in time")


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _number_in(path: Path) -> int:
    return int(_wait_for(lambda: path.exists() and path.read_text().strip()))


STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
pathlib.Path(sys.argv[2]).write_text(str(child.pid))
time.sleep(600)
"""


STARTER = """
import sys, time
from workers import supervisor
command = [sys.executable, "-c", *sys.argv[1:]]
print(supervisor.start(command, environment={}, orphan_grace_s=0.2).pid, flush=True)
time.sleep(600)
"""


def test_a_stubborn_command_and_its_child_end_after_the_grace(tmp_path):
    """A command that ignores SIGTERM gets SIGKILL, and so does what it started."""
    files = tmp_path / "command", tmp_path / "child"
    leashed = supervisor.start([sys.executable, "-c", STUBBORN, *files], environment=HERE, orphan_grace_s=0.2)
    pids = [_number_in(path) for path in files]
    leashed.stop(0.2)
    assert all(_wait_for(lambda pid=pid: _gone(pid)) for pid in pids)


@pytest.mark.parametrize("who", ["starter", "leash"])
def test_nothing_outlives_a_sigkill(tmp_path, who):
    """SIGKILL of the starter, or of the leash itself, ends the command although it ignores SIGTERM."""
    files = tmp_path / "command", tmp_path / "child"
    starter = subprocess.Popen(
        [
            sys.executable,
            "-c",
            STARTER,
            STUBBORN,
            *map(str, files),
        ],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    leash = int(starter.stdout.readline())
    command, child = (_number_in(path) for path in files)
    os.kill(starter.pid if who == "starter" else leash, signal.SIGKILL)
    try:
        _wait_for(lambda: _gone(command))
        if (
            who == "starter"
        ):  # the group of a killed leash is the command's own business: the kernel reaches only the command
            _wait_for(lambda: _gone(child))
            _wait_for(lambda: _gone(leash))
    finally:
        starter.kill()
        starter.wait()
        starter.stdout.close()
        if not _gone(child):
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    ("code", "expected"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_exit_code_is_the_commands(code, expected):
    """The leash ends as its command ended."""
    leashed = supervisor.start([sys.executable, "-c", code], environment=HERE)
    assert leashed.wait(30.0) == expected
    leashed.stop(0)


def test_a_command_that_is_not_there_is_said_in_the_log(tmp_path):
    """A missing program ends with 127 and its name."""
    leashed = supervisor.start(["/nowhere/at-all"], environment=HERE, log=tmp_path / "log")
    assert leashed.wait(30.0) == 127
    leashed.stop(0)
    assert "/nowhere/at-all: No such file or directory" in (tmp_path / "log").read_text()


def test_a_fleet_restarts_what_ends_and_stops_what_runs(tmp_path):
    """An exit of any kind is followed by a restart; a stop leaves nothing behind."""
    notes = []
    steady = tmp_path / "steady"
    fleet = Fleet(
        [
            Program("brief", (sys.executable, "-c", "raise SystemExit(3)"), HERE),
            Program(
                "steady",
                (
                    sys.executable,
                    "-c",
                    f"import os, time; open({str(steady)!r}, 'w').write(str(os.getpid())); time.sleep(600)",
                ),
                HERE,
            ),
        ],
        note=lambda name, what: notes.append((name, what)),
    )
    fleet.start()
    try:
        _wait_for(lambda: len(fleet.exits("brief")) >= 2)
        first = _number_in(steady)
        os.kill(first, signal.SIGKILL)
        steady.unlink()
        second = _number_in(steady)
    finally:
        fleet.stop()
    assert set(fleet.exits("brief")) == {3}
    assert fleet.exits("steady") == [137]
    assert first != second
    assert fleet.running() == {}
    _wait_for(lambda: _gone(second))
    assert ("brief", "started") in notes


DEMO = """
import os, pathlib, sys, time
from workers.supervisor import Fleet, Program
fleet = Fleet(
    [Program("stubborn", (sys.executable, "-c", sys.argv[1], *sys.argv[2:4]), dict(os.environ), grace_s=600.0)],
    leave_with_parent=True,
)
fleet.start()
pathlib.Path(sys.argv[4]).write_text(str(os.getpid()))
try:
    time.sleep(600)
except KeyboardInterrupt:
    fleet.stop()
"""
PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", *sys.argv[1:]])
"""


def test_a_fleet_that_goes_with_its_parent_waits_for_nobody(tmp_path):
    """SIGKILL of whoever started the demo (make, say) ends the demo, busy as it is, and a program that ignores SIGTERM."""
    files = [tmp_path / name for name in ("command", "child", "demo")]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, DEMO, STUBBORN, *map(str, files)],
        cwd=Path(__file__).parents[2],
        env={**HERE, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    pids = [_number_in(path) for path in files]
    parent.kill()
    parent.wait()
    for pid in pids:
        _wait_for(lambda pid=pid: _gone(pid))
