"""The one install script that the Dockerfile's RUN lines call, in an empty directory, from what the image's build would see."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.shell import CHECKOUT, environment

SCRIPT = Path("deploy") / "install.sh"
NO_REGISTRY = re.compile(
    r"(?i)dns error|resolve|connection|connect error|timed out|failed to fetch|could not find a version"
)


def context(directory: Path) -> Path:
    """The files that .dockerignore lets into the build, and no others."""
    rules = [line for line in (CHECKOUT / ".dockerignore").read_text().splitlines() if line]
    assert rules[0] == "**"
    let_in = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    known = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    if known.returncode:
        pytest.skip("this copy of the project is no git checkout")
    for name in known.stdout.splitlines():
        if any(fnmatch.fnmatch(name, rule.replace("**", "*")) for rule in let_in) and (CHECKOUT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, directory / name)
    return directory


def run(directory: Path, *words: str, **given: str) -> subprocess.CompletedProcess[str]:
    """The script, as a stranger to this machine's Python settings; uv and the registry's settings stay what they are."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("UV_", "PIP_", "HTTP", "SSL", "NO_"))}
    home = {"HOME": os.environ.get("HOME", str(directory)), "PYTHON": sys.executable}
    path = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    return subprocess.run(
        ["sh", SCRIPT, *words],
        cwd=directory,
        env={**environment(directory), **kept, **home, **path, **given},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_image_s_installation_works_by_itself(tmp_path: Path) -> None:
    """From the build's context alone: an environment of its own whose command runs a whole turn, and no checkout beside it."""
    source = context(tmp_path / "src")
    done = run(source, "python", str(tmp_path / "opt"), EXTRAS="")
    if done.returncode and NO_REGISTRY.search(done.stderr):
        pytest.skip("the package registry cannot be reached from here")
    assert done.returncode == 0, done.stderr
    assert "heinzelwerk" in done.stdout
    shutil.rmtree(source)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    program = tmp_path / "opt" / "bin" / "heinzelwerk"
    for words in (("new", "weekly-report"), ("check",)):
        said = subprocess.run(
            [program, *words], cwd=elsewhere, env=environment(elsewhere), capture_output=True, text=True, check=False
        )
        assert said.returncode == 0, said.stdout + said.stderr
    inside = subprocess.run(
        [tmp_path / "opt" / "bin" / "python", "-c", "import heinzelwerk; print(heinzelwerk.__file__)"],
        cwd=elsewhere,
        env=environment(elsewhere),
        capture_output=True,
        text=True,
        check=True,
    )
    assert inside.stdout.startswith(str(tmp_path / "opt"))


@pytest.mark.skipif(
    not (shutil.which("git") and shutil.which("bwrap")), reason="git or bubblewrap is not installed here"
)
def test_the_system_step_changes_nothing_where_all_is_there(tmp_path: Path) -> None:
    """A second run of the step needs neither root nor network."""
    done = run(CHECKOUT, "system")
    assert (done.returncode, done.stdout.strip()) == (0, "git and bubblewrap are there")


@pytest.mark.parametrize("words", [(), ("python",), ("everything", "/tmp"), ("system", "more")])
def test_a_wrong_call_explains_itself(words: tuple[str, ...]) -> None:
    """Exit 2 with the usage, before anything is made."""
    done = run(CHECKOUT, *words)
    assert done.returncode == 2
    assert "usage: deploy/install.sh system | python TARGET | agents TARGET" in done.stderr


def test_an_old_python_is_refused(tmp_path: Path) -> None:
    """With the variable that names another one."""
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = run(CHECKOUT, "python", str(tmp_path / "opt"), PYTHON=str(old))
    assert done.returncode == 1
    assert "set PYTHON" in done.stderr
    assert not (tmp_path / "opt").exists()


def test_the_dockerfile_calls_this_script_and_copies_what_is_there() -> None:
    """Each RUN that installs goes through it; each COPY of the context names files that the context holds."""
    text = (CHECKOUT / "Dockerfile").read_text()
    installs = [line for line in text.splitlines() if re.search(r"\b(pip|npm|apt-get|uv)\b", line.partition("#")[0])]
    assert installs == []
    assert text.count("install.sh") >= 4
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        *sources, _ = [word for word in line.split() if not word.startswith("--")]
        for source in sources:
            assert (CHECKOUT / source).exists(), line
