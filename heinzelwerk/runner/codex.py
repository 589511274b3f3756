"""Codex as a handoff runner (facts section 3: private CODEX_HOME, nothing secret or long on the command line)."""

from heinzelwerk.handoff import HandoffRequest, Refusal
from heinzelwerk.runner.adapter import (
    TOOLS_SERVER,
    Find,
    Launch,
    Plan,
    proxy_environment,
    toml_list,
    toml_string,
)
from heinzelwerk.runner.codex_stream import CodexReader
from heinzelwerk.runner.transcript import keep_all

_KEY_VARIABLE = "HANDOFF_KEY"
# Every key was seen to matter: without it Codex loads the directory's AGENTS.md or skills, leaks its environment to
# commands, talks to its vendor's hosts, or waits for the network for ever.
_FIXED = """\
approval_policy = "never"
# Ours is the boundary: its own sandbox cannot start in there, and every command would fail while the run succeeds.
sandbox_mode = "danger-full-access"
project_doc_max_bytes = 0
web_search = "disabled"
check_for_update_on_startup = false
"""
_FIXED_TABLES = """
[history]
persistence = "none"
[analytics]
enabled = false
[otel]
metrics_exporter = "none"
[shell_environment_policy]
inherit = "core"
[skills]
include_instructions = false
[features]
plugins = false
apps = false
hooks = false
goals = false
memories = false
shell_snapshot = false
unbounded_connection_retries = false
[agents]
enabled = false
"""


class Codex:
    """`codex exec --json`."""

    name = "codex"
    find = Find(
        name="codex",
        native="@openai/codex-linux-*/vendor/*/bin/codex",
        help=("exec", "--help"),
        flags=("--json", "--strict-config", "--ephemeral", "--skip-git-repo-check", "--ignore-rules"),
        versions=((0, 171, 0), (0, 190, 0)),
    )
    # It has one tool, a shell, and no list of them: what confines it is the sandbox.
    read_tools = ("shell",)
    more_tools = ()
    turn_tools = True
    lean = staticmethod(keep_all)

    def reader(self) -> CodexReader:
        """A new one for each run."""
        return CodexReader()

    def plan(self, request: HandoffRequest, launch: Launch) -> Plan | Refusal:
        """The prompt goes in on stdin, everything else by a `config.toml` of its own."""
        argv = (
            *(*launch.argv, "exec", "--json", "--strict-config", "--ephemeral", "--skip-git-repo-check"),
            *("--ignore-rules", "-C", launch.layout.work, "-"),
        )
        environment = {"CODEX_HOME": f"{launch.layout.home}/.codex"}
        key = proxy_environment(launch.layout) if launch.logged_in else {_KEY_VARIABLE: launch.key}
        warnings: tuple[str, ...] = ()
        if launch.logged_in and request.limits.max_usd is not None:
            warnings = ("Codex names no cost and a login is not metered: the dollar limit could not be enforced.",)
        return Plan(
            argv=argv,
            environment=environment | key,
            home_files={".codex/config.toml": _config(request, launch).encode()},
            stdin=request.prompt.encode(),
            wires=frozenset({"openai-responses"}),
            warnings=warnings,
        )


def _config(request: HandoffRequest, launch: Launch) -> str:
    lines = [f"model = {toml_string(launch.model)}", _FIXED]
    if request.contract.strip():
        lines.append(f"developer_instructions = {toml_string(request.contract)}")
    if request.effort is not None:
        lines.append(f"model_reasoning_effort = {toml_string(request.effort)}")
    if not launch.logged_in:
        lines.append('model_provider = "handoff"')
    lines.append(_FIXED_TABLES)
    if not launch.logged_in:
        lines += [
            "[model_providers.handoff]",
            'name = "handoff"',
            f"base_url = {toml_string(launch.layout.model_url + '/v1')}",
            f"env_key = {toml_string(_KEY_VARIABLE)}",
            'wire_api = "responses"',
            "request_max_retries = 1",
            "stream_max_retries = 1",
            "stream_idle_timeout_ms = 60000",
        ]
    if launch.turn_tools:
        command, *arguments = launch.layout.tools_argv
        lines += [
            f"[mcp_servers.{TOOLS_SERVER}]",
            f"command = {toml_string(command)}",
            f"args = {toml_list(arguments)}",
        ]
    return "\n".join(lines) + "\n"
