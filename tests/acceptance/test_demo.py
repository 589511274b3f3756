"""The demo, as a newcomer runs it: the whole path in real processes, nothing touched, nothing left."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.acceptance import shell
from tests.acceptance.shell import CHECKOUT, Person

pytestmark = pytest.mark.xdist_group("demo")

_COPIED = (
    "heinzelwerk",
    "workers",
    "tasks",
    "config",
    "examples",
    "pyproject.toml",
    "README.md",
    "Makefile",
    ".ci",
    ".gitignore",
    "constraints.txt",
)


def copy(directory: Path) -> Path:
    """The files of the project without a history, as an archive has them."""
    directory.mkdir()
    for name in _COPIED:
        source, target = CHECKOUT / name, directory / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".heinzelwerk"))
        else:
            shutil.copy(source, target)
    return directory


def make(checkout: Path, home: Path) -> shell.Done:
    """`make demo` of a copy whose `.venv` has everything installed: what `setup` needs the network for is there already."""
    (checkout / ".venv").mkdir(exist_ok=True)
    if not (checkout / ".venv" / "bin").exists():
        (checkout / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (checkout / ".venv" / ".installed").touch()
    return _run(checkout, home, "make", "demo")


def run(checkout: Path, home: Path) -> shell.Done:
    """`heinzelwerk demo` of a copy."""
    return _run(checkout, home, sys.executable, "-m", "workers", "demo")


def _run(checkout: Path, home: Path, *words: str) -> shell.Done:
    """A command with the copy's own code, not the installed one."""
    done = subprocess.run(
        words,
        cwd=checkout,
        env=shell.environment(home, {"PYTHONPATH": str(checkout), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return shell.Done(done.returncode, done.stdout, done.stderr)


def test_the_demo_tells_the_whole_path_and_touches_nothing(tmp_path: Path) -> None:
    """Wake, timeline, draft, approval, diff, where to go next, from the copy's own history; `git status` stays clean; twice."""
    checkout, home = copy(tmp_path / "checkout"), tmp_path / "home"
    home.mkdir()
    shell.git(checkout, "init", "-q", "-b", "main")
    shell.git(checkout, "add", "-A")
    shell.git(checkout, "commit", "-q", "-m", "Begin the house")
    for demo in (make, run):
        done = demo(checkout, home)
        assert done.code == 0, done.err + done.out
        for words in (
            "this checkout's own git history",
            "1. The wake",
            "turn started",
            "$0.0000",
            "Begin the house",
            "no language model",
            "the demo approves in your name",
            "+## ",
            "Where to look next",
        ):
            assert words in done.out, words
        assert "starting: an embedded server" in done.err
        status = subprocess.run(
            ["git", "status", "--short"], cwd=checkout, capture_output=True, text=True, check=True
        ).stdout
        assert status == ""
        assert list(home.iterdir()) == []


def test_a_copy_without_history_tells_the_example_history_and_says_so(tmp_path: Path) -> None:
    """An archive of the files has no git history: the bundle in examples/ serves."""
    checkout, home = copy(tmp_path / "archive"), tmp_path / "home"
    home.mkdir()
    done = run(checkout, home)
    assert done.code == 0, done.err + done.out
    assert "examples/history.bundle" in done.out
    assert "entries" in done.out


def test_a_repository_of_your_own_is_told(tmp_path: Path) -> None:
    """--repo names it; what is no repository is refused with its name before anything starts."""
    product = shell.history(tmp_path / "product", "Open the shop", "Sell bread (#7)")
    person = Person(tmp_path)
    done = person.succeeds("demo", "--repo", str(product), "--keep", "kept")
    assert "Sell bread" in done.out
    assert "Sell bread" in (tmp_path / "kept" / "team" / "documents" / "changes.md").read_text()
    (tmp_path / "empty").mkdir()
    refused = person.types("demo", "--repo", "empty")
    assert refused.code == 1
    assert "empty" in refused.err


def test_nothing_is_alive_when_the_demo_is_killed(tmp_path: Path) -> None:
    """After SIGKILL of the command its server and its workers go by themselves."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "workers", "demo"],
        cwd=tmp_path,
        env=shell.environment(tmp_path, {"TMPDIR": str(tmp_path)}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("working:"):
                break
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) > 4
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive, [child.cmdline() for child in alive]
