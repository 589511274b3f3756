"""The real coding agents from a turn: a worker starts each in its sandbox, against a scripted model server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from heinzelwerk.turn import TurnState
from tests.support import handing
from tests.support.deployment import SESSION, Deployment
from tests.support.fake_model import HANG, Answer, FakeModel, calls, fake_model, says
from tests.support.handoff_house import installed, need_cli

pytestmark = [pytest.mark.needs_cli]

KEY = "the-real-model-key"
MODEL = "claude-sonnet-4-5"
REPORT = "The file says: hello from notes. REPORT-END"
TASK = {"task": "Read notes.txt and report.", "files": {"notes.txt": "hello from notes\n"}, "budget_share": 0.5}


@dataclass(frozen=True)
class Cli:
    """An agent: its program, the variable of its key, how it reads the file, and how it calls a tool of the turn."""

    name: str
    program: str
    key: str
    read: Answer
    through: Answer | None


CLIS = {
    "claude-code": Cli(
        "claude-code",
        "claude",
        "ANTHROPIC_API_KEY",
        calls("Read", file_path="/handoff/work/notes.txt"),
        calls("mcp__turn__read_page"),
    ),
    "codex": Cli(
        "codex",
        "codex",
        "OPENAI_API_KEY",
        calls("exec_command", cmd="cat notes.txt"),
        Answer(tool="read_page", namespace="mcp__turn", arguments={}),
    ),
    "pi": Cli("pi", "pi", "OPENAI_API_KEY", calls("read", path="notes.txt"), None),
}


@pytest.fixture(params=CLIS)
def cli(request: pytest.FixtureRequest) -> Cli:
    found: Cli = CLIS[request.param]
    need_cli(found.name, found.name, found.program)
    return found


def deployment(directory: Path, cli: Cli, model: FakeModel, *, more: str = "") -> Deployment:
    """Turn and handoff workers whose agent is this one."""
    node = installed("node", "node")
    runner = {
        "agent": cli.name,
        "model": MODEL,
        "base_url": model.url,
        "executable": str(installed(cli.name, cli.program)),
        **({"node": str(node)} if node is not None else {}),
    }
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in runner.items())
    prices = f'[heinzel.prices."vendor:{MODEL}"]\ninput = 10\noutput = 100\ncache_read = 1\n'
    found = handing.deployment(directory, f"\n[handoff.runners.agent]\n{lines}\n{more}\n{prices}")
    found.variables[cli.key] = KEY
    return found


async def _turn(
    cli: Cli, directory: Path, script: Any, check: Callable[[dict[str, Any], FakeModel, str], None], *, more: str = ""
) -> None:
    """One turn that hands its work over and ends; `check` gets step.handoff, the model server, what the turn was told."""
    async with fake_model(script, key=KEY) as model:
        found = deployment(directory, cli, model, more=more)
        try:
            async with found.client() as (client, runtime):
                handing.start(found, "turns", "handoffs")
                await client.wake("page", text=handing.script([("handoff", TASK)]))
                turn = await handing.ended(found, runtime, SESSION)
                assert turn.state is TurnState.COMPLETED, found.logs()
                (event,) = await handing.events(runtime, SESSION, "step.handoff")
                (answer,) = await handing.told(runtime, SESSION, "handoff")
                check(event, model, answer["content"])
                assert KEY not in found.logs()
                if event["cost_micros"] is not None:
                    assert turn.usage.cost_micros >= event["cost_micros"]
                    spent = await runtime.works.store.spent("crew")
                    assert (spent.spent, spent.reserved) == (turn.usage.cost_micros, 0)
        finally:
            found.close()


async def test_its_report_comes_back_to_the_turn(cli: Cli, tmp_path: Path) -> None:
    """Report, usage and cost; the contract's text is the agent's standing instruction; the turn's money counts it."""

    def check(event: dict[str, Any], model: FakeModel, told: str) -> None:
        assert (event["status"], event["runner"], event["agent"]) == ("completed", "agent", cli.name), told
        assert event["model"] == MODEL
        assert (event["input_tokens"], event["output_tokens"], event["cache_read_tokens"]) == (2400, 80, 600)
        assert (event["usage_source"], event["cost_source"]) == ("proxy", "proxy")
        assert event["cost_micros"] == 2400 * 10 + 80 * 100 + 600
        assert sum(count["calls"] for count in event["tool_calls"].values()) == 1
        assert REPORT in told
        assert "Keep the page true." in json.dumps(model.asked[0].body)

    await _turn(cli, tmp_path, [cli.read, says(REPORT)], check)


async def test_it_reads_through_the_turn(cli: Cli, tmp_path: Path) -> None:
    """The turn's own input, by its own tool over MCP, recorded on the spine; pi says that it has no MCP."""

    def check(event: dict[str, Any], model: FakeModel, told: str) -> None:
        if cli.through is None:
            assert event["status"] == "refused"
            assert "MCP" in told
            return
        assert event["status"] == "completed", told
        assert event["reads"] == {"read_page": {"calls": 1, "failed": 0}}
        assert "True." in json.dumps(model.asked[-1].body)

    script = [cli.through or cli.read, says(REPORT)]
    await _turn(cli, tmp_path, script, check, more='turn_tools = ["read_*"]')


@pytest.mark.parametrize("cli", ["claude-code"], indirect=True)
async def test_a_stop_ends_agent_and_turn_with_its_cost(cli: Cli, tmp_path: Path) -> None:
    """While the agent waits for its model a person stops the turn: cancelled, and what was spent is on the spine.

    What a stop is to each of the agents is shown in test_real_clis.py.
    """
    async with fake_model([cli.read, HANG], key=KEY) as model:
        found = deployment(tmp_path, cli, model)
        try:
            async with found.client() as (client, runtime):
                handing.start(found, "turns", "handoffs")
                await client.wake("page", text=handing.script([("handoff", TASK)]))

                async def asked_twice() -> bool:
                    return len(model.asked) >= 2

                await found.eventually(asked_twice, seconds=180)
                await client.stop("page", by="ada")
                turn = await handing.ended(found, runtime, SESSION)
                assert turn.state is TurnState.CANCELLED

                async def noted() -> list[dict[str, Any]]:
                    return await handing.events(runtime, SESSION, "step.handoff")

                (event,) = await found.eventually(noted, seconds=120)
                assert (event["status"], event["cost_micros"]) == ("cancelled", 1200 * 10 + 40 * 100 + 300)
        finally:
            found.close()
