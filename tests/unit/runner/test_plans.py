"""How each agent is started: arguments, environment, private configuration, and what is refused."""

import json
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heinzelwerk.handoff import HandoffRequest, Limits, Refusal
from heinzelwerk.runner.adapter import (
    PLACEHOLDER_KEY,
    Adapter,
    Launch,
    Login,
    Plan,
    RunnerSettings,
    choose_tools,
    toml_string,
)
from heinzelwerk.runner.claude_code import ClaudeCode
from heinzelwerk.runner.codex import Codex
from heinzelwerk.runner.command import PLACEHOLDERS, Command, fill
from heinzelwerk.runner.metering import ModelAccess
from heinzelwerk.runner.pi import Pi
from heinzelwerk.sandbox.spec import InsidePath, Layout
from tests.support.patience import patient

LAYOUT = Layout(
    work=InsidePath("/handoff/work"),
    home=InsidePath("/handoff/home"),
    tmp=InsidePath("/tmp"),
    run=InsidePath("/handoff/run"),
    python=InsidePath("/usr/bin/python3"),
    model_port=8080,
    tools_port=8081,
)
ACCESS = ModelAccess(base_url="https://model.example", key="the-real-key")
LOGIN = Login(credentials=Path("/srv/login"), hosts=frozenset({"api.anthropic.com"}))
NASTY = 'Quote "three""" \\ back\x7f\x01\nnew\tline {braces} \'single\' ünï'


def request(**more: Any) -> HandoffRequest:
    return HandoffRequest(**{"run_id": "r", "agent": "a", "prompt": "the task", "contract": "the contract", **more})


def plan(adapter: Adapter, asked: HandoffRequest | None = None, **more: Any) -> Plan:
    settings = RunnerSettings(runner=adapter.name, **{"access": ACCESS, **more.pop("settings", {})})
    launch = Launch(
        layout=LAYOUT, **{"argv": ("/opt/agent",), "model": "m", "tools": adapter.read_tools, **more}, settings=settings
    )
    planned = adapter.plan(asked or request(), launch)
    assert isinstance(planned, Plan)
    return planned


def after(argv: tuple[str, ...], flag: str) -> str:
    return argv[argv.index(flag) + 1]


@pytest.mark.parametrize("adapter", [ClaudeCode(), Codex(), Pi()], ids=lambda adapter: adapter.name)
def test_nothing_secret_or_long_is_on_the_command_line(adapter: Adapter) -> None:
    """The prompt is on stdin, instructions in files; the real key is nowhere, the placeholder in the environment."""
    made = plan(adapter, request(prompt="p" * 5000, contract="c" * 5000))
    everything = str(made)
    assert made.stdin == b"p" * 5000
    assert "ppp" not in " ".join(made.argv)
    assert "ccc" not in " ".join(made.argv)
    assert ACCESS.key not in everything
    assert PLACEHOLDER_KEY in made.environment.values()


def test_claude_is_isolated_and_limited() -> None:
    """Every flag that the facts measured against a hostile directory is there, and the tools are exactly those given."""
    argv = plan(ClaudeCode()).argv
    isolation = {"--safe-mode", "--restricted", "--disable-slash-commands", "--strict-mcp-config"}
    assert isolation | {"--no-session-persistence"} <= set(argv)
    assert after(argv, "--permission-mode") == "dontAsk"
    assert after(argv, "--tools") == after(argv, "--allowed-tools") == "Read,Grep,Glob"
    assert after(argv, "--append-system-prompt-file") == "/handoff/run/contract.md"
    assert after(argv, "--max-turns") == "60"
    assert "--max-budget-usd" not in argv


def test_claude_with_turn_tools_reads_no_settings_and_allows_just_these() -> None:
    """Its own server is named, each of its tools is allowed, and safe mode, which would drop it, gives way."""
    made = plan(ClaudeCode(), turn_tools=("read_mail",))
    assert "--safe-mode" not in made.argv
    assert after(made.argv, "--setting-sources") == ""
    assert after(made.argv, "--allowed-tools") == "Read,Grep,Glob,mcp__turn__read_mail"
    servers = json.loads(made.run_files["mcp.json"])["mcpServers"]
    assert list(servers) == ["turn"]
    assert [servers["turn"]["command"], *servers["turn"]["args"]] == list(LAYOUT.tools_argv)


def test_codex_gets_a_private_configuration_that_parses() -> None:
    """Instructions of any text arrive whole; nothing of the directory is read; the shell gets no key."""
    made = plan(Codex(), request(contract=NASTY, effort="high"), turn_tools=("read_mail",))
    config = tomllib.loads(made.home_files[".codex/config.toml"].decode())
    assert config["developer_instructions"] == NASTY
    assert (config["model"], config["model_reasoning_effort"]) == ("m", "high")
    assert config["project_doc_max_bytes"] == 0
    assert config["shell_environment_policy"] == {"inherit": "core"}
    assert config["skills"] == {"include_instructions": False}
    assert config["features"]["unbounded_connection_retries"] is False
    assert config["model_providers"]["handoff"]["base_url"] == "http://127.0.0.1:8080/v1"
    assert config["mcp_servers"]["turn"]["args"] == list(LAYOUT.tools_argv[1:])
    assert made.environment["CODEX_HOME"] == "/handoff/home/.codex"
    assert PLACEHOLDER_KEY not in made.home_files[".codex/config.toml"].decode()


def test_pi_gets_its_model_from_a_file_of_its_own() -> None:
    """And none of the directory's extensions, skills, servers or context files."""
    made = plan(Pi())
    provider = json.loads(made.home_files[".pi/agent/models.json"])["providers"]["handoff"]
    assert provider["baseUrl"] == "http://127.0.0.1:8080/v1"
    assert provider["api"] == "openai-completions"
    assert after(made.argv, "--model") == "handoff/m"
    assert {"--no-extensions", "--no-mcp", "--no-skills", "--no-context-files", "--no-approve"} <= set(made.argv)
    assert after(made.argv, "--tools") == "read,grep,find,ls"
    messages = plan(Pi(), settings={"wire": "anthropic-messages"})
    provider = json.loads(messages.home_files[".pi/agent/models.json"])["providers"]["handoff"]
    assert (provider["api"], provider["baseUrl"]) == ("anthropic-messages", "http://127.0.0.1:8080")
    assert messages.wires == {"anthropic-messages"}


@pytest.mark.parametrize("adapter", [ClaudeCode(), Codex(), Pi()], ids=lambda adapter: adapter.name)
def test_a_login_goes_out_by_the_tunnel_and_without_a_key(adapter: Adapter) -> None:
    """With `auth = login` there is no key and no base URL of ours; the provider is reached through the proxy."""
    limits = Limits(max_usd=Decimal("0.5"))
    made = plan(adapter, request(limits=limits), settings={"access": None, "login": LOGIN})
    assert made.environment["HTTPS_PROXY"] == "http://127.0.0.1:8080"
    assert PLACEHOLDER_KEY not in str(made)
    assert "127.0.0.1:8080/v1" not in str(made.home_files)
    if adapter.name == "claude-code":
        assert after(made.argv, "--max-budget-usd") == "0.5"
    if adapter.name == "codex":
        assert "could not be enforced" in made.warnings[0]


def test_an_empty_contract_is_left_out() -> None:
    """No instructions are none, not an empty file that an agent stumbles over."""
    for adapter in (ClaudeCode(), Codex(), Pi()):
        made = plan(adapter, request(contract="  \n"))
        assert "contract.md" not in made.run_files
        assert not any("append-system" in part for part in made.argv)
        assert "developer_instructions" not in str(made.home_files)


def test_a_command_has_its_placeholders_filled() -> None:
    """Each placeholder stands for a path or a figure inside the sandbox; doubled braces are braces."""
    argv = ("tool", *(f"--{name}={{{name}}}" for name in PLACEHOLDERS), "{{literal}}", "x{model}y{model}")
    limits = Limits(timeout_s=30.5, max_usd=Decimal("0.25"))
    made = plan(Command(), request(limits=limits), argv=argv, turn_tools=("t",))
    assert made.argv == (
        "tool",
        "--prompt_file=/handoff/run/prompt.md",
        "--contract_file=/handoff/run/contract.md",
        "--output_file=/handoff/work/out/report.md",
        "--working_dir=/handoff/work",
        "--tools=",
        "--model=m",
        "--timeout_seconds=30.5",
        "--max_usd=0.25",
        "--mcp_config=/handoff/run/mcp.json",
        "{literal}",
        "xmym",
    )
    assert made.run_files["prompt.md"] == b"the task"
    assert json.loads(made.run_files["mcp.json"])["mcpServers"]


@pytest.mark.parametrize("part", ["{strange}", "{}", "{model", "model}", "{ model }", "{model!r}", "{0}"])
def test_a_strange_placeholder_is_refused_by_name(part: str) -> None:
    """A typing error in the operator's command is said, not passed on to the command."""
    problem = fill(part, {"model": "m"})
    assert isinstance(problem, Refusal)
    assert repr(part) in problem.detail
    assert "{model}" in problem.fix


def test_values_are_not_filled_twice() -> None:
    """A value that looks like a placeholder stays what it is."""
    assert fill("{a}", {"a": "{b}", "b": "x"}) == "{b}"


def test_only_allowed_tools_can_be_asked_for() -> None:
    """A request is confined to what the operator allows; what the agent does not have is the operator's mistake."""
    adapter, settings = ClaudeCode(), RunnerSettings(runner="claude-code")
    assert choose_tools(adapter, request(), settings) == ("Read", "Grep", "Glob")
    assert choose_tools(adapter, request(tools=("Grep",)), settings) == ("Grep",)
    refused = choose_tools(adapter, request(tools=("Bash",)), settings)
    assert isinstance(refused, Refusal)
    assert "Bash" in refused.detail
    more = RunnerSettings(runner="claude-code", tools=("Read", "Bash"))
    assert choose_tools(adapter, request(tools=("Bash",)), more) == ("Bash",)
    strange = choose_tools(adapter, request(), RunnerSettings(runner="claude-code", tools=("Fly",)))
    assert isinstance(strange, Refusal)
    assert "Fly" in strange.detail


def test_settings_do_not_print_the_key() -> None:
    """Neither the settings nor what a plan is made from show the real key when they are logged."""
    assert ACCESS.key not in repr(RunnerSettings(runner="pi", access=ACCESS))


@patient
@given(st.text())
def test_toml_strings_come_back(text: str) -> None:
    """Any text that can be encoded survives the way through a TOML file."""
    encodable = text.encode("utf-8", "replace").decode("utf-8")
    assert tomllib.loads(f"x = {toml_string(text)}")["x"] == encodable
