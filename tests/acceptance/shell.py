"""The command line as a person has it: the real program in a process of its own, and a team's directory to use it in."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
EXAMPLE = CHECKOUT / "examples" / "team"
_PATIENCE_S = 180.0
"""Generous: these tests never measure time, they only must not hang."""


def environment(home: Path, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a newcomer's shell has: nothing of ours."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(home), "USER": "tester", "LOGNAME": "tester", **(given or {})}


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Its JSON."""
        return json.loads(self.out)


@dataclass(slots=True)
class Person:
    """Somebody at a shell in `directory`; `given` are the variables that they have set."""

    directory: Path
    given: dict[str, str] = field(default_factory=dict)

    def types(self, *words: str, stdin: str = "", **given: str) -> Done:
        """Run `heinzelwerk WORDS` to its end."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "workers", *words],
            cwd=self.directory,
            env=environment(self.directory, {**self.given, **given}),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def succeeds(self, *words: str, stdin: str = "", **given: str) -> Done:
        """The same, and it must end with 0."""
        done = self.types(*words, stdin=stdin, **given)
        assert done.code == 0, f"heinzelwerk {' '.join(words)} ended with {done.code}\n{done.out}\n{done.err}"
        return done


def git(directory: Path, *words: str) -> None:
    """Run git as a stranger to this machine's settings."""
    clean = {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": str(directory),
        "PATH": os.environ["PATH"],
    }
    names = {
        f"GIT_{who}_{what}": "t@example.com" if what == "EMAIL" else "T"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    subprocess.run(["git", *words], cwd=directory, env=clean | names, check=True, capture_output=True)


def history(directory: Path, *subjects: str) -> Path:
    """A small git repository with one commit for each subject, made now."""
    directory.mkdir(parents=True)
    git(directory, "init", "-q", "-b", "main")
    for subject in subjects or ("Add a door", "Fix the window (#2)"):
        git(directory, "commit", "-q", "--allow-empty", "-m", subject)
    return directory


def settle(directory: Path, *, more: str = "", repository: Path | None = None) -> Person:
    """The example team's files in `directory`, with settings of its own and a repository to read."""
    shutil.copytree(EXAMPLE, directory)
    product = repository or history(directory / "product")
    (directory / "heinzelwerk.toml").write_text(
        f"""
[heinzel]
model = "offline"

[teams.crew]
source = "."
timezone = "Europe/Berlin"

[code-host.repositories]
this = "{product}"

[documents]
directory = "documents"

[workers]
turns = 1
sweep_every = "500ms"
heartbeat_every = "1s"
{more}
"""
    )
    return Person(directory)


@contextmanager
def started(person: Person) -> Iterator[subprocess.Popen[str]]:
    """`heinzelwerk up`, from the moment at which its workers live; ended by force where the block has not ended it."""
    with (person.directory / "up.err").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "workers", "up"],
            cwd=person.directory,
            env=environment(person.directory, person.given),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "Heinzelwerk is up" in line, (person.directory / "up.err").read_text()
            wait_for(lambda: person.types("doctor").code == 0, "the workers to live")
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def up(person: Person) -> Iterator[None]:
    """`heinzelwerk up` while the block runs; it must end in peace."""
    with started(person) as process:
        yield
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=_PATIENCE_S) == 0, (person.directory / "up.err").read_text()


def wait_for(true: Any, what: str) -> None:
    """Wait until the condition holds; fails after a time that only a hang reaches."""
    until = time.monotonic() + _PATIENCE_S
    while not true():
        assert time.monotonic() < until, f"waited too long for {what}"
        time.sleep(0.2)
