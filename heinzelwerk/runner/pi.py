"""pi as a handoff runner (facts 4.1): it confines nothing itself, so it never runs without the sandbox."""

import json

from heinzelwerk.handoff import HandoffRequest, Refusal
from heinzelwerk.runner.adapter import Find, Launch, Plan, proxy_environment
from heinzelwerk.runner.meter import Wire
from heinzelwerk.runner.pi_stream import PiReader
from heinzelwerk.runner.transcript import lean_pi

_ISOLATION = (
    "--no-session",
    "--no-extensions",
    "--no-mcp",
    "--no-skills",
    "--no-prompt-templates",
    "--no-themes",
    "--no-context-files",
    "--no-approve",
    "--offline",
)
_APIS: dict[Wire, str] = {
    "openai-chat": "openai-completions",
    "openai-responses": "openai-responses",
    "anthropic-messages": "anthropic-messages",
}


class Pi:
    """`pi --mode json`."""

    name = "pi"
    find = Find(name="pi", flags=(*_ISOLATION, "--mode", "--tools"), versions=((1, 6, 0), (2, 0, 0)))
    read_tools = ("read", "grep", "find", "ls")
    more_tools = ("write", "edit", "bash")
    turn_tools = False
    lean = staticmethod(lean_pi)

    def reader(self) -> PiReader:
        """A new one for each run."""
        return PiReader()

    def plan(self, request: HandoffRequest, launch: Launch) -> Plan | Refusal:
        """The prompt goes in on stdin; the model comes from a `models.json` of its own."""
        model = launch.model if launch.logged_in else f"handoff/{launch.model}"
        argv = [*launch.argv, "--mode", "json", "--model", model, *_ISOLATION, "--tools", ",".join(launch.tools)]
        run_files = {}
        if request.contract.strip():
            argv += ["--append-system-prompt", launch.layout.contract]
            run_files["contract.md"] = request.contract.encode()
        if request.effort is not None:
            argv += ["--thinking", request.effort]
        wire = launch.settings.wire or "openai-chat"
        quiet = {"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"}
        key = proxy_environment(launch.layout) if launch.logged_in else {"HANDOFF_KEY": launch.key}
        return Plan(
            argv=tuple(argv),
            environment=quiet | key,
            home_files={} if launch.logged_in else {".pi/agent/models.json": _models(launch, wire)},
            run_files=run_files,
            stdin=request.prompt.encode(),
            wires=frozenset({wire}),
        )


def _models(launch: Launch, wire: Wire) -> bytes:
    url = launch.layout.model_url if wire == "anthropic-messages" else f"{launch.layout.model_url}/v1"
    model = {
        "id": launch.model,
        "contextWindow": launch.settings.context_window,
        "maxTokens": launch.settings.max_output,
    }
    provider = {"baseUrl": url, "apiKey": "$HANDOFF_KEY", "api": _APIS[wire], "models": [model]}
    return json.dumps({"providers": {"handoff": provider}}).encode()
