"""README's own commands, in its order, as somebody types them who has only read it."""

import re
import shlex
from pathlib import Path

from tests.acceptance import shell
from tests.acceptance.shell import CHECKOUT, Person


def commands(section: str) -> list[list[str]]:
    """The `heinzelwerk` commands in the shell blocks of a section, without their comments."""
    text = (CHECKOUT / "README.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("heinzelwerk ")]


def test_the_commands_of_use_it_work_in_their_order(tmp_path: Path) -> None:
    """Every one of them ends with 0: before `up` without a server, after it with the one that `up` started."""
    typed = commands("Use it")
    at = typed.index(["up"])
    assert at >= 2
    assert len(typed) > at + 6
    person = Person(shell.settle(tmp_path / "team").directory)
    for words in typed[:at]:
        person.succeeds(*words)
    with shell.up(person):
        for words in typed[at + 1 :]:
            person.succeeds(*words)


def test_deploying_names_commands_that_exist(tmp_path: Path) -> None:
    """Every command in README's table of processes explains itself."""
    text = (CHECKOUT / "README.md").read_text().split("\n## Deploy it\n")[1].split("\n## ")[0]
    found = {match.split()[0] for match in re.findall(r"`heinzelwerk ([^`]+)`", text)}
    assert {"worker", "beat", "load", "drain", "doctor", "flower"} <= found
    person = Person(tmp_path)
    for command in found:
        person.succeeds(command, "--help")


def test_every_link_leads_somewhere() -> None:
    """No file that README or the documents point to is missing."""
    for page in (CHECKOUT / "README.md", *(CHECKOUT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} points to {target}"
