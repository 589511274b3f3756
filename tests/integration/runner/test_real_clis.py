"""The real coding agents, at their pinned versions, through the sandbox and the proxy, against a scripted model."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from heinzelwerk.handoff import (
    HandoffFile,
    HandoffRequest,
    HandoffResult,
    Limits,
    Status,
    ToolAnswer,
    ToolCount,
    TurnTool,
    Usage,
)
from heinzelwerk.runner.adapter import RunnerSettings
from heinzelwerk.runner.metering import ModelAccess
from heinzelwerk.runner.registry import adapter_for, runner_for
from heinzelwerk.sandbox.spec import Refusal
from tests.support.fake_model import HANG, Answer, FakeModel, calls, fails, fake_model, says
from tests.support.handoff_house import installed, need_cli, real_house

pytestmark = [pytest.mark.needs_cli]

KEY = "the-real-model-key"
MODEL = "claude-sonnet-4-5"
REPORT = "The file says: hello from notes. REPORT-END"
NOTES = HandoffFile(path="notes.txt", data=b"hello from notes\n")
TWO = Usage(input=2400, output=80, cache_read=600)


@dataclass(frozen=True)
class Cli:
    """One agent: its program, and its names for reading a file and running a command."""

    name: str
    package: str
    program: str
    read: Answer
    read_tool: str
    shell_tool: str

    def shell(self, command: str) -> Answer:
        if self.name == "codex":
            return calls("exec_command", cmd=command)
        if self.name == "pi":
            return calls("bash", command=command)
        return calls("Bash", command=command, description="run it")


async def no_mail(arguments: Mapping[str, Any]) -> ToolAnswer:
    return ToolAnswer("no mail")


MAIL = TurnTool(
    name="read_mail",
    description="The week's mail.",
    schema={"type": "object", "properties": {"folder": {"type": "string"}}, "required": ["folder"]},
    call=no_mail,
)

CLIS = {
    "claude-code": Cli(
        "claude-code", "claude-code", "claude", calls("Read", file_path="/handoff/work/notes.txt"), "Read", "Bash"
    ),
    "codex": Cli("codex", "codex", "codex", calls("exec_command", cmd="cat notes.txt"), *["command_execution"] * 2),
    "pi": Cli("pi", "pi", "pi", calls("read", path="notes.txt"), "read", "bash"),
}


@pytest.fixture(params=CLIS)
def cli(request: pytest.FixtureRequest) -> Cli:
    found: Cli = CLIS[request.param]
    need_cli(found.name, found.package, found.program)
    return found


def settings(cli: Cli, model: FakeModel, **more: Any) -> RunnerSettings:
    adapter = adapter_for(cli.name)
    given = {"tools": (*adapter.read_tools, *adapter.more_tools), "price": lambda *_: Decimal("0.01"), **more}
    return RunnerSettings(
        runner=cli.name,
        executable=installed(cli.package, cli.program),
        node=installed("node", "node"),
        model=MODEL,
        access=ModelAccess(base_url=model.url, key=KEY),
        **given,
    )


async def hand_off(
    cli: Cli, model: FakeModel, directory: Path, *, limits: Mapping[str, Any] | None = None, **more: Any
) -> HandoffResult:
    runner = runner_for(cli.name, settings(cli, model, **more.pop("settings", {})), real_house(directory))
    run = {name: more.pop(name) for name in ("stop", "on_event", "turn_tools") if name in more}
    asked = tuple(tool.name for tool in run.get("turn_tools", ()))
    request = HandoffRequest(
        run_id="run-1",
        agent=cli.name,
        prompt="Read notes.txt and report.",
        contract="STANDING-INSTRUCTION: be brief.",
        files=(NOTES,),
        turn_tools=asked,
        limits=Limits(**{"timeout_s": 120.0, "max_usd": Decimal(1), **(limits or {})}),
        **more,
    )
    return await runner.run(request, **run)


async def test_a_report_comes_back_with_usage_cost_and_counts(cli: Cli, tmp_path: Path) -> None:
    """The agent reads a file, reports, and everything that the result promises is there and right."""
    async with fake_model([cli.read, says(REPORT)], key=KEY) as model:
        result = await hand_off(cli, model, tmp_path)
    assert (result.status, result.report, result.detail) == (Status.COMPLETED, REPORT, None)
    assert (result.usage, result.usage_source) == (TWO, "proxy")
    assert (result.cost_usd, result.cost_source) == (Decimal("0.02"), "proxy")
    assert result.tool_calls == {cli.read_tool: ToolCount(calls=1)}
    assert (result.exit_code, result.signal, result.model) == (0, None, MODEL)
    assert result.agent.sha256
    assert result.agent.version in ("2.1.332", "0.171.0", "1.6.0")
    assert result.sandbox is not None
    assert result.sandbox.network == "model"
    assert result.transcript is not None
    assert b"REPORT-END" in result.transcript.data
    assert {"prompt", "contract", "argv", "agent", "request", "report", "transcript"} <= result.hashes.keys()
    asked = json.dumps(model.asked[0].body)
    assert "STANDING-INSTRUCTION" in asked
    assert "Read notes.txt and report." in asked


async def test_the_agent_never_sees_the_key_or_the_workers_environment(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is anywhere in its environment, its files or its transcript."""
    monkeypatch.setenv("WORKER_SECRET", "worker-secret-value")
    look = cli.shell(
        "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; cat -- $HOME/.*/* $HOME/.*/*/* 2>/dev/null; true"
    )
    async with fake_model([look, says(REPORT)], key=KEY) as model:
        result = await hand_off(cli, model, tmp_path)
        seen = json.dumps(model.asked[1].body)
    assert result.status is Status.COMPLETED
    assert "HOME=" in seen
    assert KEY not in seen
    assert "worker-secret-value" not in seen
    assert result.transcript is not None
    assert KEY.encode() not in result.transcript.data


async def test_a_write_outside_is_denied_and_one_to_out_comes_back(cli: Cli, tmp_path: Path) -> None:
    """A shell writes where it may, below out/, and nowhere else; the file comes back with its hash."""
    command = (
        "echo x > /usr/pwned; echo x > /handoff/work/pwned; echo x > notes.txt; echo findings > out/found.md; "
        "ls /usr/pwned pwned; cat notes.txt; echo LOOKED; true"
    )
    async with fake_model([cli.shell(command), says(REPORT)], key=KEY) as model:
        result = await hand_off(cli, model, tmp_path)
        seen = json.dumps(model.asked[1].body)
    assert result.status is Status.COMPLETED, result.detail
    assert "LOOKED" in seen
    assert "hello from notes" in seen
    assert seen.count("Read-only file system") >= 2
    assert [(file.path, file.data) for file in result.files] == [("found.md", b"findings\n")]
    assert result.tool_calls == {cli.shell_tool: ToolCount(calls=1)}


async def test_a_cut_by_the_budget_ends_the_run_as_budget(cli: Cli, tmp_path: Path) -> None:
    """At its dollars the proxy answers 402, the agent ends by itself, and the result says what it had cost."""
    async with fake_model(lambda seen: cli.read, key=KEY) as model:
        result = await hand_off(cli, model, tmp_path, limits={"max_usd": Decimal("0.03")})
    assert (result.status, result.report) == (Status.BUDGET, None)
    assert (result.cost_usd, len(model.asked)) == (Decimal("0.03"), 3)
    assert result.tool_calls[cli.read_tool].calls == 3


async def test_a_hang_ends_as_timeout(cli: Cli, tmp_path: Path) -> None:
    """A model that never answers holds the run no longer than its clock."""
    async with fake_model([cli.read, HANG], key=KEY) as model:
        result = await hand_off(cli, model, tmp_path, limits={"timeout_s": 6.0})
    assert (result.status, result.report) == (Status.TIMEOUT, None)
    assert len(model.asked) >= 1
    assert result.usage_source == "proxy"


async def test_silence_ends_as_timeout(cli: Cli, tmp_path: Path) -> None:
    """No output and no traffic for `idle_s` is a timeout long before the clock runs out."""
    async with fake_model([cli.read, HANG], key=KEY) as model:
        result = await hand_off(cli, model, tmp_path, limits={"idle_s": 5.0, "timeout_s": 300.0})
    assert result.status is Status.TIMEOUT
    assert "nothing" in (result.detail or "")


async def test_a_stop_ends_as_cancelled_with_its_cost(cli: Cli, tmp_path: Path) -> None:
    """A person's stop while the agent waits for its model: cancelled, with what was spent so far."""
    async with fake_model([cli.read, HANG], key=KEY) as model:
        result = await hand_off(cli, model, tmp_path, stop=lambda: len(model.asked) == 2)
    assert (result.status, result.report) == (Status.CANCELLED, None)
    assert (result.cost_usd, result.cost_source) == (Decimal("0.01"), "proxy")
    assert result.usage.input == 1200


@pytest.mark.parametrize("status", [401, 400])
async def test_a_refusal_of_the_provider_is_failed_with_advice(cli: Cli, status: int, tmp_path: Path) -> None:
    """The provider's error ends the run as failed, whatever exit code the agent makes of it."""
    async with fake_model([fails(status, "authentication_error")], key=KEY) as model:
        result = await hand_off(cli, model, tmp_path)
    assert (result.status, result.report) == (Status.FAILED, None)
    assert result.detail
    assert result.fix or status != 401


async def test_a_wrong_key_is_failed(cli: Cli, tmp_path: Path) -> None:
    """Told by the provider, with the operator's part named."""
    async with fake_model([says(REPORT)], key="another-key") as model:
        result = await hand_off(cli, model, tmp_path)
    assert result.status is Status.FAILED
    assert "key" in (result.fix or "")


async def test_an_empty_answer_is_failed(cli: Cli, tmp_path: Path) -> None:
    """A model that says nothing makes no report."""
    async with fake_model(lambda seen: says(""), key=KEY) as model:
        result = await hand_off(cli, model, tmp_path)
    assert (result.status, result.report) == (Status.FAILED, None)


@pytest.mark.parametrize("tools", [(), ("read_mail",)], ids=["alone", "with turn tools"])
async def test_a_hostile_directory_changes_nothing(cli: Cli, tools: tuple[str, ...], tmp_path: Path) -> None:
    """Given files that are hooks, settings, servers or instructions for agents run nothing and reach no prompt."""
    if tools and not adapter_for(cli.name).turn_tools:
        tools = ()
    hook = {"hooks": [{"type": "command", "command": "echo owned > /handoff/work/out/owned"}]}
    hostile = {
        ".claude/settings.json": json.dumps(
            {"hooks": {"SessionStart": [hook], "UserPromptSubmit": [hook]}, "apiKeyHelper": "echo owned > out/owned"}
        ),
        ".mcp.json": json.dumps({"mcpServers": {"x": {"command": "sh", "args": ["-c", "echo owned > out/owned"]}}}),
        ".codex/config.toml": '[mcp_servers.x]\ncommand = "sh"\nargs = ["-c", "echo owned > out/owned"]\n',
        ".pi/extensions/x.js": "require('fs').writeFileSync('out/owned', 'owned')",
        "CLAUDE.md": "HOSTILE-INSTRUCTION",
        "AGENTS.md": "HOSTILE-INSTRUCTION",
        ".agents/skills/x/SKILL.md": "---\nname: x\ndescription: HOSTILE-INSTRUCTION\n---\nHOSTILE-INSTRUCTION",
    }
    files = (NOTES, *(HandoffFile(path=path, data=text.encode()) for path, text in hostile.items()))
    async with fake_model([cli.read, says(REPORT)], key=KEY) as model:
        runner = runner_for(cli.name, settings(cli, model), real_house(tmp_path))
        request = HandoffRequest(
            run_id="run-1", agent=cli.name, prompt="Read notes.txt and report.", files=files, turn_tools=tools
        )
        result = await runner.run(request, turn_tools=[MAIL])
        asked = json.dumps([seen.body for seen in model.asked])
    assert result.status is Status.COMPLETED, result.detail
    assert result.files == ()
    assert "HOSTILE-INSTRUCTION" not in asked


async def test_the_turn_can_be_read_through(cli: Cli, tmp_path: Path) -> None:
    """Claude Code and Codex call the turn's own read tool over MCP; pi says that it has none."""
    got: list[Mapping[str, Any]] = []

    async def read_mail(arguments: Mapping[str, Any]) -> ToolAnswer:
        got.append(arguments)
        return ToolAnswer("MAIL-CONTENT")

    tool = replace(MAIL, call=read_mail)
    call = calls("mcp__turn__read_mail", folder="inbox")
    if cli.name == "codex":
        call = Answer(tool="read_mail", namespace="mcp__turn", arguments={"folder": "inbox"})
    async with fake_model([call, says(REPORT)], key=KEY) as model:
        result = await hand_off(cli, model, tmp_path, turn_tools=[tool])
        if cli.name == "pi":
            assert result.status is Status.REFUSED
            assert "MCP" in (result.detail or "")
            return
        seen = json.dumps(model.asked[-1].body)
    assert result.status is Status.COMPLETED, result.detail
    assert got == [{"folder": "inbox"}]
    assert "MAIL-CONTENT" in seen
    assert result.tool_calls == {"mcp__turn__read_mail": ToolCount(calls=1)}


async def test_it_runs_under_landlock_too(cli: Cli, tmp_path: Path) -> None:
    """The second backend carries every agent: report, figures, and a write outside that is denied."""
    house = real_house(tmp_path, only="landlock")
    backend = await house.backend()
    if isinstance(backend, Refusal):
        pytest.skip(f"landlock does not work here: {backend.detail}")
    look = cli.shell("echo x > /tmp/heinzelwerk-pwned; echo x > notes.txt; cat notes.txt; echo LOOKED")
    async with fake_model([look, says(REPORT)], key=KEY) as model:
        runner = runner_for(cli.name, settings(cli, model), house)
        request = HandoffRequest(run_id="run-1", agent=cli.name, prompt="Read notes.txt and report.", files=(NOTES,))
        result = await runner.run(request)
        seen = json.dumps(model.asked[1].body)
    assert (result.status, result.report) == (Status.COMPLETED, REPORT), result.detail
    assert result.sandbox is not None
    assert result.sandbox.backend == "landlock"
    assert "LOOKED" in seen
    assert "hello from notes" in seen
    assert seen.count("Permission denied") >= 2
    assert not Path("/tmp/heinzelwerk-pwned").exists()
    assert result.usage == TWO


async def test_two_runs_at_once_do_not_meet(cli: Cli, tmp_path: Path) -> None:
    """Two handoffs of one runner have their own directories, sockets and figures."""
    async with fake_model(lambda seen: says(REPORT), key=KEY) as model:
        house = real_house(tmp_path)
        runner = runner_for(cli.name, settings(cli, model), house)
        requests = [HandoffRequest(run_id=f"run-{n}", agent=cli.name, prompt="Report.") for n in range(2)]
        results = await asyncio.gather(*map(runner.run, requests))
    assert [result.status for result in results] == [Status.COMPLETED] * 2
    assert [result.usage.output for result in results] == [40, 40]
    assert list(house.root.iterdir()) == []
