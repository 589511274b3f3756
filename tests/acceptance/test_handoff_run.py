"""`heinzelwerk handoff run`: one coding agent by hand, in the real sandbox, by the real command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from heinzelwerk.sandbox.spec import Refusal
from tests.acceptance.shell import Person
from tests.support import sandbox

KEYS = [
    *("status", "report", "detail", "fix", "warnings", "agent", "sandbox", "model", "turns", "tool_calls", "usage"),
    *("usage_source", "cost_usd", "cost_source", "started_at", "duration_ms", "exit_code", "signal", "transcript"),
    *("files", "hashes"),
]


@pytest.fixture
def person() -> Iterator[Person]:
    """Somebody with a directory of files, where the machine can confine an agent."""
    if all(isinstance(sandbox.backend_here(name), Refusal) for name in sandbox.CONFINING):
        pytest.skip("no sandbox works on this machine: `heinzelwerk doctor` says why")
    with sandbox.public_directory() as directory:
        (directory / "given" / "notes").mkdir(parents=True)
        (directory / "given" / "notes" / "week.md").write_text("Four merges.\n")
        yield Person(directory)


def run(person: Person, *words: str) -> tuple[str, ...]:
    return ("handoff", "run", "--runner", "command", "--task", "Count the merges.", "--timeout", "60s", *words)


def test_a_command_reads_its_files_and_reports(person: Person) -> None:
    """The result has every key of a handoff's result; what the command left is listed with its hash."""
    script = "cat notes/week.md; cat; echo x > out/found.md; echo y > notes/week.md; true"
    words = run(person, "--files", "given", "--trust-command", "--json", "--", "/bin/sh", "-c", script)
    done = person.succeeds(*words)
    assert list(done.data) == KEYS
    assert done.data["status"] == "completed"
    assert done.data["report"] == "Four merges.\nCount the merges."
    assert [(file["path"], file["bytes"]) for file in done.data["files"]] == [("found.md", 2)]
    assert done.data["sandbox"]["backend"] in ("bubblewrap", "landlock")
    assert (person.directory / "given" / "notes" / "week.md").read_text() == "Four merges.\n"


def test_people_get_words_and_what_they_asked_to_save(person: Person) -> None:
    """Without --json: how it ended, the report, the files; --save keeps files and transcript."""
    words = run(person, "--trust-command", "--save", "kept", "--", "/bin/sh", "-c", "echo Fine.; echo x > out/found.md")
    done = person.succeeds(*words)
    assert done.out.startswith("completed: command\nFine.\n")
    assert (person.directory / "kept" / "out" / "found.md").read_text() == "x\n"
    assert "Fine." in (person.directory / "kept" / "transcript.jsonl").read_text()


def test_nobody_vouched_for_the_command(person: Person) -> None:
    """Nothing is started, and the fix is the option."""
    done = person.types(*run(person, "--json", "--", "/bin/sh", "-c", "echo x"))
    assert done.code == 1
    assert done.data["status"] == "refused"
    assert "--trust-command" in done.data["fix"]


def test_a_run_over_its_time_is_ended(person: Person) -> None:
    """Its status says so, and the exit code is 1."""
    words = ("handoff", "run", "--runner", "command", "--task", "Wait.", "--timeout", "1s", "--trust-command", "--json")
    done = person.types(*words, "--", "/bin/sleep", "600")
    assert (done.code, done.data["status"], done.data["report"]) == (1, "timeout", None)


def test_a_key_among_the_files_is_refused_by_its_place(person: Person) -> None:
    """The value is in no output."""
    key = "ghp_" + "a1" * 18
    (person.directory / "given" / "notes" / "env").write_text(f"x\ntoken={key}\n")
    done = person.types(*run(person, "--files", "given", "--trust-command", "--", "/bin/true"))
    assert done.code == 1
    assert "notes/env:2" in done.out
    assert key not in done.out + done.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--runner", "command"), 2, "behind --"),
        (("--runner", "none-such"), 2, "claude-code, codex, pi, command"),
        (("--runner", "pi", "--", "ls"), 2, "--runner command"),
        (("--runner", "command", "--timeout", "soon", "--", "ls"), 2, "30s"),
        (("--runner", "command", "--max-usd", "much", "--", "ls"), 2, "0.50"),
        (("--runner", "command", "--files", "nowhere", "--", "ls"), 2, "nowhere"),
        (("--runner", "claude-code", "--model", "m"), 78, "set ANTHROPIC_API_KEY"),
    ],
)
def test_what_is_wrong_is_named_with_its_fix(person: Person, words: tuple[str, ...], code: int, said: str) -> None:
    """Usage ends with 2, a missing key with 78."""
    done = person.types("handoff", "run", "--task", "t", *words)
    assert done.code == code, done.err
    assert said in done.err


def test_the_doctor_names_each_agent_and_what_it_lacks(person: Person) -> None:
    """The sandbox, a command that can run, an agent without its key, one without its login."""
    (person.directory / "heinzelwerk.toml").write_text(
        """
[handoff.runners.lint]
agent = "command"
command = ["/bin/ls"]
trust_command = true
[handoff.runners.untrusted]
agent = "command"
command = ["/bin/ls"]
[handoff.runners.claude]
agent = "claude-code"
"""
    )
    looked = person.types("doctor", "--json")
    agents = [(f["level"], f["what"], f["fix"]) for f in looked.data["findings"] if f["area"] == "agents"]
    assert ("ok", "lint: command, no model", "") in agents
    assert any(level == "warn" and "untrusted" in what and "trust_command" in fix for level, what, fix in agents)
    assert any(level == "warn" and "claude" in what and "ANTHROPIC_API_KEY" in fix for level, what, fix in agents)
    assert any(f["area"] == "sandbox" and f["level"] == "ok" for f in looked.data["findings"])
