"""Whole handoffs of the command runner, with a small script as the agent, through the real sandbox and proxy."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from heinzelwerk.handoff import HandoffFile, HandoffRequest, HandoffResult, Limits, Status, ToolAnswer, TurnTool
from heinzelwerk.runner.adapter import RunnerSettings
from heinzelwerk.runner.install import Probe
from heinzelwerk.runner.metering import ModelAccess
from heinzelwerk.runner.registry import runner_for
from heinzelwerk.runner.transcript import assemble
from heinzelwerk.sandbox.spec import Backend, BackendName, Refusal
from tests.support.fake_model import HANG, Answer, fake_model, says
from tests.support.handoff_house import PYTHON, real_house

KEY = "the-real-model-key"


@pytest.fixture(params=["bubblewrap", "landlock"])
async def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BackendName:
    """Each way to confine that works on this machine; the others are named as skipped, with their reason."""
    name: BackendName = request.param
    found = await real_house(tmp_path_factory.mktemp("probe"), only=name).backend()
    if isinstance(found, Refusal):
        pytest.skip(f"{name} does not work here: {found.detail}")
    return name


async def run_script(
    script: str,
    directory: Path,
    *,
    backend: BackendName | None = None,
    limits: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> HandoffResult:
    """The script is the agent: it is a given file, started by this Python inside the sandbox."""
    given = {
        "command": (PYTHON, "-I", "-S", "{working_dir}/agent.py"),
        "trust_command": True,
        "read_only": (Path(sys.base_prefix),),
        "price": lambda *_: Decimal("0.01"),
        **(settings or {}),
    }
    runner = runner_for("command", RunnerSettings(runner="command", **given), real_house(directory, only=backend))
    run = {name: more.pop(name) for name in ("stop", "on_event") if name in more}
    tools = more.pop("turn_tools", ())
    request = HandoffRequest(
        run_id="run-1",
        agent="command",
        prompt="the task",
        contract="the contract",
        files=(HandoffFile(path="agent.py", data=script.encode()),),
        limits=Limits(**{"timeout_s": 60.0, **(limits or {})}),
        turn_tools=tuple(tool.name for tool in tools),
        **more,
    )
    return await runner.run(request, turn_tools=tools, **run)


async def test_what_a_command_prints_is_its_report(backend: BackendName, tmp_path: Path) -> None:
    """The task is on its stdin; its stdout is the report; the result is complete."""
    script = "import sys; print('got', sys.stdin.read())"
    result = await run_script(script, tmp_path, backend=backend)
    assert (result.status, result.report) == (Status.COMPLETED, "got the task"), result.detail
    assert result.sandbox is not None
    assert result.sandbox.backend == backend
    assert result.started_at is not None
    assert result.duration_ms is not None
    assert result.exit_code == 0
    assert json.loads(json.dumps(result.as_json()))["status"] == "completed"


async def test_a_report_file_is_the_report(tmp_path: Path) -> None:
    """Where the command writes its output file, that is the report, and stdout is chatter."""
    script = "import sys; print('chatter'); open(sys.argv[1], 'w').write('the report')"
    command = (PYTHON, "-I", "-S", "{working_dir}/agent.py", "{output_file}")
    result = await run_script(script, tmp_path, settings={"command": command})
    assert (result.status, result.report) == (Status.COMPLETED, "the report")
    assert [file.path for file in result.files] == ["report.md"]
    assert result.hashes["out:report.md"] == result.files[0].sha256


ASK_MODEL = """
import json, os, sys, urllib.request
def ask():
    request = urllib.request.Request(
        os.environ['ANTHROPIC_BASE_URL'] + '/v1/messages',
        json.dumps({'model': sys.argv[1], 'messages': []}).encode(),
        {'x-api-key': os.environ['ANTHROPIC_API_KEY'], 'content-type': 'application/json'},
    )
    return json.load(urllib.request.urlopen(request))['content'][0]['text']
"""
WITH_MODEL = (PYTHON, "-I", "-S", "{working_dir}/agent.py", "{model}")


async def test_a_command_reaches_its_model_and_is_metered(backend: BackendName, tmp_path: Path) -> None:
    """The proxy is its only way out, and its usage and cost are in the result."""
    async with fake_model([says("from the model")], key=KEY) as model:
        settings = {"command": WITH_MODEL, "model": "m", "access": ModelAccess(base_url=model.url, key=KEY)}
        result = await run_script(ASK_MODEL + "print(ask())", tmp_path, backend=backend, settings=settings)
    assert (result.status, result.report) == (Status.COMPLETED, "from the model"), result.detail
    assert (result.usage.input, result.usage_source) == (1200, "proxy")
    assert (result.cost_usd, result.cost_source) == (Decimal("0.01"), "proxy")


async def test_a_command_that_goes_on_after_its_cut_is_budget(tmp_path: Path) -> None:
    """Over its dollars it gets 402; a polite report after it does not make the run completed."""
    script = ASK_MODEL + "\nfor _ in range(9):\n  try: ask()\n  except OSError as e: print('refused', e.code)"
    async with fake_model([says("x")], key=KEY) as model:
        settings = {"command": WITH_MODEL, "model": "m", "access": ModelAccess(base_url=model.url, key=KEY)}
        limits = {"max_usd": Decimal("0.02")}
        result = await run_script(script, tmp_path, settings=settings, limits=limits)
    assert (result.status, result.report, result.cost_usd) == (Status.BUDGET, None, Decimal("0.02"))
    assert "refused 402" in (result.detail or "")
    assert len(model.asked) == 2


async def test_turns_are_counted_for_an_agent_that_does_not(tmp_path: Path) -> None:
    """A limit of turns holds as a limit of requests where the agent has none of its own."""
    script = ASK_MODEL + "\nfor _ in range(9):\n  try: ask()\n  except OSError as e: print('refused', e.code)"
    async with fake_model([says("x")], key=KEY) as model:
        settings = {"command": WITH_MODEL, "model": "m", "access": ModelAccess(base_url=model.url, key=KEY)}
        result = await run_script(script, tmp_path, settings=settings, limits={"max_turns": 3})
    assert (result.status, len(model.asked)) == (Status.BUDGET, 3)


async def test_a_run_id_that_is_no_name_is_refused(tmp_path: Path) -> None:
    """The sandbox's own refusals are results too."""
    settings = RunnerSettings(runner="command", command=(PYTHON,), trust_command=True)
    runner = runner_for("command", settings, real_house(tmp_path))
    result = await runner.run(HandoffRequest(run_id="../up", agent="command", prompt="x"))
    assert result.status is Status.REFUSED
    assert "../up" in (result.detail or "")


async def test_a_stop_and_a_timeout_end_it(backend: BackendName, tmp_path: Path) -> None:
    """Both end a run that would not end by itself, and keep what it said so far out of the report."""
    script = "import time; print('so far', flush=True); time.sleep(600)"
    lines: list[str] = []
    result = await run_script(script, tmp_path / "a", backend=backend, on_event=lines.append, stop=lambda: bool(lines))
    assert (result.status, result.report) == (Status.CANCELLED, None)
    assert "so far" in (result.detail or "")
    late = await run_script(script, tmp_path / "b", backend=backend, limits={"timeout_s": 1.5})
    assert (late.status, late.report) == (Status.TIMEOUT, None)
    silent = await run_script(script, tmp_path / "c", backend=backend, limits={"idle_s": 1.5})
    assert silent.status is Status.TIMEOUT


STREAM = ASK_MODEL.replace("'messages': []", "'messages': [], 'stream': True").replace(
    "return json.load(urllib.request.urlopen(request))['content'][0]['text']",
    "[print(line, flush=True) for line in urllib.request.urlopen(request)]",
)


@pytest.mark.parametrize(
    ("answer", "warning"), [(Answer(text="word " * 200, stall_after=3), "estimated"), (HANG, "billed")]
)
async def test_what_was_under_way_at_a_stop_is_booked_or_said(answer: Answer, warning: str, tmp_path: Path) -> None:
    """An answer that was cut by the stop costs what came of it; a request without an answer is named."""
    async with fake_model([answer], key=KEY) as model:
        settings = {"command": WITH_MODEL, "model": "m", "access": ModelAccess(base_url=model.url, key=KEY)}
        lines: list[str] = []

        def stop() -> bool:
            return "content_block_delta" in str(lines) if answer.stall_after else bool(model.asked)

        result = await run_script(STREAM + "ask()", tmp_path, settings=settings, stop=stop, on_event=lines.append)
    assert result.status is Status.CANCELLED
    assert any(warning in found for found in result.warnings)
    if answer.stall_after:
        assert (result.usage.input, result.cost_usd) == (1200, Decimal("0.01"))
        assert result.usage.output >= 250


async def test_a_failing_command_says_its_last_words(tmp_path: Path) -> None:
    """Exit code and the last line of stderr are what a person needs."""
    result = await run_script("import sys; sys.exit('it broke here')", tmp_path)
    assert (result.status, result.exit_code) == (Status.FAILED, 1)
    assert "it broke here" in (result.detail or "")


async def test_an_endless_output_is_cut_off(tmp_path: Path) -> None:
    """More than its cap of output ends the run as failed; both ends of the transcript are kept within theirs."""
    script = "import itertools\nfor n in itertools.count(): print('line', n)"
    limits = {"output_bytes": 1_000_000, "transcript_bytes": 16_384}
    result = await run_script(script, tmp_path, limits=limits)
    assert result.status is Status.FAILED
    assert "more than its cap" in (result.detail or "")
    assert result.transcript is not None
    assert result.transcript.truncated
    assert result.transcript.kept <= 17_000
    assert result.transcript.data.startswith(b"line 0\n")


async def test_a_command_reads_through_the_turn(tmp_path: Path) -> None:
    """The MCP settings that it is given start a server whose tools are the turn's; each call is seen outside."""
    got: list[Mapping[str, Any]] = []

    async def read_mail(arguments: Mapping[str, Any]) -> ToolAnswer:
        got.append(arguments)
        return ToolAnswer("MAIL-CONTENT")

    script = """
import json, subprocess, sys
server = json.load(open(sys.argv[1]))['mcpServers']['turn']
child = subprocess.Popen([server['command'], *server['args']], stdin=-1, stdout=-1, text=True)
def send(**message):
    child.stdin.write(json.dumps({'jsonrpc': '2.0', **message}) + '\\n'); child.stdin.flush()
def ask(number, method, **params):
    send(id=number, method=method, params=params)
    return json.loads(child.stdout.readline())['result']
ask(1, 'initialize', protocolVersion='2025-06-18', capabilities={}, clientInfo={'name': 'x', 'version': '1'})
send(method='notifications/initialized')
tool = ask(2, 'tools/list')['tools'][0]
print(tool['name'], tool['annotations']['readOnlyHint'])
print(ask(3, 'tools/call', name='read_mail', arguments={'folder': 'inbox'})['content'][0]['text'])
print(ask(4, 'tools/call', name='send_mail', arguments={})['isError'])
"""
    tool = TurnTool(name="read_mail", description="d", schema={"type": "object"}, call=read_mail)
    command = (PYTHON, "-I", "-S", "{working_dir}/agent.py", "{mcp_config}")
    result = await run_script(script, tmp_path, settings={"command": command}, turn_tools=[tool])
    assert (result.status, result.report) == (Status.COMPLETED, "read_mail True\nMAIL-CONTENT\nTrue"), result.detail
    assert got == [{"folder": "inbox"}]


@pytest.mark.parametrize("kept", [False, True])
async def test_nothing_is_left_behind(kept: bool, tmp_path: Path) -> None:
    """After a run its directory, sockets and transcript file are gone, unless a person wants to look at the file."""
    settings = RunnerSettings(runner="command", command=(PYTHON, "-I", "-c", "print('done')"), trust_command=True)
    settings = replace(settings, read_only=(Path(sys.base_prefix),))
    runner = runner_for("command", settings, replace(real_house(tmp_path), keep_transcripts=kept))
    result = await runner.run(HandoffRequest(run_id="r", agent="command", prompt="x"))
    assert list((tmp_path / "runs").iterdir()) == []
    assert result.transcript is not None
    assert result.transcript.data == b"done\n"
    files = [path for path in (tmp_path / "transcripts").rglob("transcript.jsonl") if path.is_file()]
    assert [str(path) for path in files] == ([result.transcript.path] if kept else [])


async def test_an_interrupted_run_leaves_its_transcript(tmp_path: Path) -> None:
    """While it still runs, what it printed is on disk already."""
    seen: list[bytes] = []

    def look(line: str) -> None:
        seen.append(assemble(tmp_path / "transcripts" / "run-1", half=1 << 20)[0])

    await run_script("print('one'); print('two')", tmp_path, on_event=look)
    assert seen == [b"one\n", b"one\ntwo\n"]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"trust_command": False}, "--trust-command"),
        ({"command": ()}, "argument list"),
        ({"command": ("no-such-program",)}, "full path"),
        ({"command": (PYTHON, "{strange}")}, "{prompt_file}"),
    ],
)
async def test_a_command_fails_closed(settings: dict[str, Any], word: str, tmp_path: Path) -> None:
    """Without the operator's record, without a command, or with a mistake in it nothing is started."""
    result = await run_script("print('ran')", tmp_path, settings=settings)
    assert (result.status, result.report) == (Status.REFUSED, None)
    assert word in (result.fix or "")


async def test_no_sandbox_is_a_refusal(tmp_path: Path) -> None:
    """Where nothing confines, the result is refused with the sandbox's own reason and fix."""

    async def none() -> Backend | Refusal:
        return Refusal(detail="bwrap was not found", fix="apt install bubblewrap")

    settings = RunnerSettings(runner="command", command=(PYTHON,), trust_command=True)
    runner = runner_for("command", settings, replace(real_house(tmp_path), backend=none))
    result = await runner.run(HandoffRequest(run_id="r", agent="command", prompt="x"))
    assert (result.status, result.detail, result.fix) == (
        Status.REFUSED,
        "bwrap was not found",
        "apt install bubblewrap",
    )


FAKE_CLAUDE = """#!/bin/sh
case "$1" in
--version) echo "{version} (Claude Code)";;
--help) echo "{flags}";;
esac
"""


@pytest.mark.parametrize(
    ("version", "flags", "word"),
    [
        ("2.1.197", "--tools", "outside the tested range"),
        ("3.0.0", "--tools", "outside the tested range"),
        ("2.1.400", "--tools --restricted-mode", "--restricted"),
        ("unknown", "", "did not say its version"),
    ],
)
async def test_an_agent_of_another_version_or_without_a_flag_is_refused(
    version: str, flags: str, word: str, tmp_path: Path
) -> None:
    """A release that was not tested, or that lost a flag which isolates it, is not run."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(FAKE_CLAUDE.format(version=version, flags=flags))
    program.chmod(0o755)
    settings = RunnerSettings(
        runner="claude-code",
        search_path=str(program.parent),
        model="m",
        access=ModelAccess(base_url="http://127.0.0.1:9", key=KEY),
    )
    runner = runner_for("claude-code", settings, real_house(tmp_path))
    result = await runner.run(HandoffRequest(run_id="r", agent="claude-code", prompt="x"))
    assert result.status is Status.REFUSED
    assert word in (result.detail or "")
    assert result.fix


async def test_an_agent_is_asked_once_per_binary(tmp_path: Path) -> None:
    """The answer is remembered for the same file, and asked for again when the file changes."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(FAKE_CLAUDE.format(version="1.0.0", flags=""))
    program.chmod(0o755)
    runner = runner_for("claude-code", RunnerSettings(runner="claude-code", executable=program), real_house(tmp_path))
    first = await runner.probe()
    assert await runner.probe() is first
    program.write_text(FAKE_CLAUDE.format(version="1.0.22", flags=""))
    again = await runner.probe()
    assert not isinstance(again, Probe)
    assert "1.0.22" in again.detail


@pytest.mark.parametrize(
    ("settings", "request_more", "word"),
    [
        ({"access": None}, {}, "neither a key nor a login"),
        ({"model": None}, {}, "no model"),
        ({"price": lambda *_: None}, {"limits": Limits(max_usd=Decimal(1))}, "no price"),
        ({}, {"tools": ("Bash",)}, "Bash"),
        ({}, {"turn_tools": ("read_mail",)}, "read_mail"),
        ({}, {"files": (HandoffFile(path="../x", data=b""),)}, "../x"),
        ({"executable": Path("/nonexistent/claude")}, {}, "not found"),
    ],
)
async def test_what_cannot_be_right_is_refused_before_anything_starts(
    settings: dict[str, Any], request_more: dict[str, Any], word: str, tmp_path: Path
) -> None:
    """Each mistake of settings or request is named, with its fix."""
    given = {"model": "m", "access": ModelAccess(base_url="http://127.0.0.1:9", key=KEY), **settings}
    runner = runner_for("claude-code", RunnerSettings(runner="claude-code", **given), real_house(tmp_path))
    asked = HandoffRequest(**{"run_id": "r", "agent": "claude-code", "prompt": "x", **request_more})
    result = await runner.run(asked)
    assert result.status is Status.REFUSED
    assert word in (result.detail or "")
    assert result.fix
