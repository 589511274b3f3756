"""What people say to turns with the command line while real worker processes run them: steer, stop, answer, accept."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from heinzelwerk.turn import TurnState, WaitKind
from tests.support import talking
from tests.support.deployment import CONTRACT, SESSION, SETTINGS, TEAM, Deployment

REMOTE = SETTINGS.replace('source = "team"', 'source = "https://git.example.org/team.git"')
CHATTY = SETTINGS.replace('directory = "documents"', 'directory = "documents"\nchat = true')
AMENDED = CONTRACT.replace("Keep the page true.", "Keep the page true and short.")


@pytest.fixture
def deployment(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path, getattr(request, "param", SETTINGS))
    (tmp_path / "gate" / "amendment").write_text(AMENDED)
    yield deployment
    deployment.close()


@pytest.fixture
async def team(deployment: Deployment) -> AsyncIterator[tuple]:
    async with deployment.client() as (client, runtime):
        for profile in ("turns", "upkeep"):
            deployment.start(profile, "tests.support.talking:change")
        await deployment.working(runtime, 2)
        yield client, runtime


async def typed(deployment: Deployment, *arguments: str) -> str:
    """What a person's command answers; it must succeed."""
    command = [sys.executable, "-P", "-m", "workers", *arguments]
    done = await asyncio.to_thread(
        subprocess.run, command, env=deployment.environment, cwd=deployment.directory, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}\n{deployment.logs()}"
    return done.stdout


async def kinds(runtime: Any) -> list[str]:
    return [json.loads(line)["kind"] for line in await runtime.works.store.spine(SESSION)]


async def test_a_steered_message_reaches_the_next_request(deployment, team):
    """While a request is in flight: the words are on the spine first, the next request carries them, none is made twice."""
    _, runtime = team
    deployment.gate.close()
    await typed(deployment, "wake", "page")
    await deployment.asked(1)
    await typed(deployment, "steer", "page", "Mind the numbers.", "--as", "ada")
    deployment.gate.open()
    (turn,) = await deployment.ended(runtime, [1])
    assert turn.state is TurnState.COMPLETED
    first, second = talking.heard(deployment.gate.directory)
    assert "Mind the numbers." not in first
    assert second.count("Mind the numbers.") == 1
    assert "turn.steered" in await kinds(runtime)


async def test_a_stop_ends_a_request_in_flight(deployment, team):
    """The model never answers; the turn ends all the same, cancelled, by the name of who stopped it."""
    _, runtime = team
    deployment.gate.close()
    await typed(deployment, "wake", "page")
    await deployment.asked(1)
    await typed(deployment, "stop", "page", "--as", "ada")
    (turn,) = await deployment.ended(runtime, [1])
    assert (turn.state, turn.reason) == (TurnState.CANCELLED, "stopped by ada")
    assert len(deployment.gate.requests()) == 1


async def test_a_question_is_answered_and_the_same_turn_goes_on(deployment, team):
    """The turn waits without a worker, the inbox shows the question, the answer resumes it: three requests in all."""
    _, runtime = team
    await typed(deployment, "wake", "page", "--text", "ASK", "--wait")
    turn = await runtime.works.store.turn(SESSION, 1)
    assert (turn.state, turn.waits[0].kind) == (TurnState.WAITING, WaitKind.QUESTION)
    assert "page/1" in await typed(deployment, "inbox")
    await typed(deployment, "answer", "page", "Blue.", "--as", "ada")
    (turn,) = await deployment.ended(runtime, [1])
    assert turn.state is TurnState.COMPLETED
    requests = talking.heard(deployment.gate.directory)
    assert ["Blue." in words for words in requests] == [False, False, True]


async def test_an_accepted_lesson_reaches_the_next_turn(deployment, team):
    """Approved on the command line, placed by the upkeep's process, read by the next turn in another one."""
    await typed(deployment, "wake", "page", "--text", "TEACH", "--wait")
    (lesson,) = json.loads(await typed(deployment, "inbox", "--json"))["items"]
    await typed(deployment, "approve", lesson["id"], "--wait", "--as", "ada")
    await typed(deployment, "wake", "page", "--wait")
    requests = talking.heard(deployment.gate.directory)
    assert [talking.LESSON in words for words in requests] == [False, False, True, True]


async def test_an_approved_amendment_is_written_and_acts_after_a_load(deployment, team):
    """The diff is shown, the file is written by a worker, `load` makes it the contract of the next turn."""
    await typed(deployment, "wake", "page", "--text", "AMEND", "--wait")
    (item,) = json.loads(await typed(deployment, "inbox", "--json"))["items"]
    shown = await typed(deployment, "drafts", item["id"])
    assert "-Keep the page true." in shown
    assert "+Keep the page true and short." in shown
    assert "workflows/page.prose.md" in await typed(deployment, "approve", item["id"], "--wait", "--as", "ada")
    assert (deployment.directory / "team" / "workflows" / "page.prose.md").read_text() == AMENDED
    await typed(deployment, "load")
    await typed(deployment, "wake", "page", "--wait")
    assert "true and short" in talking.heard(deployment.gate.directory)[-1]


@pytest.mark.parametrize("deployment", [CHATTY], indirect=True)
async def test_a_chats_write_is_confirmed_by_a_person_and_the_same_turn_goes_on(deployment, team):
    """The chat proposes, the inbox shows it, approving places it once in another process, and the turn hears of it."""
    _, runtime = team
    notes = deployment.directory / "documents" / "notes.md"
    notes.write_text("<!-- heinzelwerk:begin weekly -->\n<!-- heinzelwerk:end weekly -->\n")
    await typed(deployment, "chat", "page", "PLACE it, please.", "--as", "ada")
    (item,) = json.loads(await typed(deployment, "inbox", "--json"))["items"]
    assert "From the chat." not in notes.read_text()
    await typed(deployment, "approve", item["id"], "--wait", "--as", "ada")
    (turn,) = await deployment.ended(runtime, [1])
    assert turn.state is TurnState.COMPLETED
    assert notes.read_text().count("From the chat.") == 1
    assert len(deployment.gate.requests()) == 3
    assert "From the chat." not in str(await runtime.works.store.spine(SESSION))


@pytest.mark.parametrize("deployment", [REMOTE], indirect=True)
async def test_for_a_git_repository_approving_prints_the_patch(deployment, team):
    """Nothing is written here; stdout is a patch that `git apply` takes in a checkout of the team's repository."""
    await typed(deployment, "wake", "page", "--text", "AMEND", "--wait")
    (item,) = json.loads(await typed(deployment, "inbox", "--json"))["items"]
    patch = await typed(deployment, "approve", item["id"], "--as", "ada")
    checkout = deployment.directory / "team"
    assert (checkout / "workflows" / "page.prose.md").read_text() == CONTRACT
    await asyncio.to_thread(subprocess.run, ["git", "apply", "-"], input=patch, text=True, cwd=checkout, check=True)
    assert (checkout / "workflows" / "page.prose.md").read_text() == AMENDED
    assert TEAM in await typed(deployment, "costs")
