"""Claude Code as a handoff runner (facts section 2: flags, environment, private HOME)."""

from heinzelwerk.handoff import HandoffRequest, Refusal
from heinzelwerk.runner.adapter import (
    TOOLS_SERVER,
    Find,
    Launch,
    Plan,
    mcp_settings,
    proxy_environment,
)
from heinzelwerk.runner.claude_stream import ClaudeReader
from heinzelwerk.runner.transcript import keep_all

# Given files can run code outside any tool permission (hooks, key helpers, MCP servers of a directory): `-p` skips the
# question whether the directory is trusted. Each of these closes one such way.
_ISOLATION = ("--restricted", "--disable-slash-commands", "--strict-mcp-config", "--no-session-persistence")
_SAFE_MODE = ("--safe-mode",)
# Safe mode leaves out every MCP server, ours too. Without it, no settings at all are read instead: the same hostile
# directory was seen to run nothing and to reach no prompt either way.
_NO_SETTINGS = ("--setting-sources", "")


class ClaudeCode:
    """`claude -p` with stream-json output."""

    name = "claude-code"
    find = Find(
        name="claude",
        flags=(
            *_ISOLATION,
            *_SAFE_MODE,
            _NO_SETTINGS[0],
            "--tools",
            "--allowed-tools",
            "--permission-mode",
            "--max-budget-usd",
            "--mcp-config",
        ),
        versions=((2, 1, 332), (2, 2, 0)),
    )
    read_tools = ("Read", "Grep", "Glob")
    more_tools = ("Write", "Edit", "Bash")
    turn_tools = True
    lean = staticmethod(keep_all)

    def reader(self) -> ClaudeReader:
        """A new one for each run."""
        return ClaudeReader()

    def plan(self, request: HandoffRequest, launch: Launch) -> Plan | Refusal:
        """The prompt goes in on stdin; standing instructions and MCP settings are read-only files of the run."""
        allowed = [*launch.tools, *(f"mcp__{TOOLS_SERVER}__{tool}" for tool in launch.turn_tools)]
        argv = [*launch.argv, "-p", "--output-format", "stream-json", "--verbose", *_ISOLATION]
        argv += _NO_SETTINGS if launch.turn_tools else _SAFE_MODE
        argv += ["--permission-mode", "dontAsk", "--tools", ",".join(launch.tools)]
        argv += ["--allowed-tools", ",".join(allowed), "--model", launch.model]
        run_files = {}
        if request.contract.strip():
            argv += ["--append-system-prompt-file", launch.layout.contract]
            run_files["contract.md"] = request.contract.encode()
        if launch.turn_tools:
            argv += ["--mcp-config", f"{launch.layout.run}/mcp.json"]
            run_files["mcp.json"] = mcp_settings(launch)
        if request.effort is not None:
            argv += ["--effort", request.effort]
        if request.limits.max_turns is not None:
            argv += ["--max-turns", str(request.limits.max_turns)]
        if launch.logged_in and request.limits.max_usd is not None:
            # With a proxy the budget is the proxy's, by the operator's prices; this one goes by the vendor's list.
            argv += ["--max-budget-usd", str(request.limits.max_usd)]
        return Plan(
            argv=tuple(argv),
            environment=self._environment(launch),
            run_files=run_files,
            stdin=request.prompt.encode(),
            wires=frozenset({"anthropic-messages"}),
            counts_turns=True,
        )

    @staticmethod
    def _environment(launch: Launch) -> dict[str, str]:
        quiet = {
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_MAX_RETRIES": "2",
            # Its small tasks must not ask for a model that the run may not use.
            "ANTHROPIC_SMALL_FAST_MODEL": launch.model,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": launch.model,
        }
        if launch.logged_in:
            return quiet | proxy_environment(launch.layout)
        return quiet | {"ANTHROPIC_BASE_URL": launch.layout.model_url, "ANTHROPIC_API_KEY": launch.key}
