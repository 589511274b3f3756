"""The console as its own process over a real server: from the login to the document that the approved text stands in."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.acceptance import shell

WORDS = "a long enough password"


def hidden(page: str, action: str) -> dict[str, str]:
    """The hidden fields of a page's form."""
    form = re.search(rf'<form[^>]*action="{re.escape(action)}">(.*?)</form>', page, re.DOTALL)
    assert form is not None, page
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form[1]))


@pytest.mark.xdist_group("console")
def test_from_the_login_to_the_placed_text(tmp_path: Path) -> None:
    """A password's hash from the command, a person in the settings, a draft of a real turn, one click, the document."""
    made = shell.Person(tmp_path).succeeds("console", "--password", stdin=f"{WORDS}\n{WORDS}\n")
    assert WORDS not in made.out
    people = f'[console]\nport = 0\n[console.people.ada]\nteams = ["crew"]\npassword = "{made.out.strip()}"\n'
    person = shell.settle(tmp_path / "team", more=people)
    with shell.up(person):
        person.succeeds("wake", "changelog", "--wait")
        log = tmp_path / "console.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "workers", "console"],
                cwd=person.directory,
                env=shell.environment(person.directory),
                stderr=output,
            )
        try:
            shell.wait_for(lambda: "console at http" in log.read_text(), "the console")
            (address,) = re.findall(r"console at (http://\S+)", log.read_text())
            with httpx.Client(
                base_url=address, headers={"origin": address}, timeout=60, follow_redirects=True
            ) as browser:
                door = browser.get("/")
                assert door.url.path == "/login"
                entered = {**hidden(door.text, "/login"), "name": "ada", "password": WORDS}
                inbox = browser.post("/login", data=entered)
                (place,) = re.findall(r'href="(/teams/crew/drafts/\w+)"', inbox.text)
                draft = browser.get(place)
                assert "Add a door" in draft.text
                done = browser.post(f"{place}/approve", data=hidden(draft.text, f"{place}/approve"))
                assert "approved by ada" in done.text
                document = person.directory / "documents" / "changes.md"
                shell.wait_for(lambda: "Add a door" in document.read_text(), "the placed text")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
    assert WORDS not in log.read_text()


def test_beyond_this_machine_nobody_decides_without_a_login(tmp_path: Path) -> None:
    """Exit 78, before anything is opened."""
    (tmp_path / "heinzelwerk.toml").write_text(
        '[console]\naddress = "0.0.0.0"\n[store]\nurl = "redis://127.0.0.1:1/0"\n'
    )
    done = subprocess.run(
        [sys.executable, "-P", "-m", "workers", "console"],
        cwd=tmp_path,
        env=shell.environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 78
    assert "nobody would have to log in" in done.stderr
