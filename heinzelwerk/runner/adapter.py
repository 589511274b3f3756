"""What each coding agent is to this house: how it is found, how it is started, and how its output is read.

An adapter plans and reads; it starts nothing. `heinzelwerk.runner.run` does that, the same way for all of them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Protocol

from heinzelwerk.handoff import HandoffRequest, Refusal
from heinzelwerk.runner.meter import Price, Wire
from heinzelwerk.runner.metering import ModelAccess
from heinzelwerk.runner.reading import Reader
from heinzelwerk.runner.transcript import Lean
from heinzelwerk.sandbox.spec import Layout

PLACEHOLDER_KEY = "handoff-placeholder-key"
"""How what the agent takes for its key begins; the proxy puts the real one in its place."""
TOOLS_SERVER = "turn"
"""The name of the MCP server that serves the turn's own read tools."""

Version = tuple[int, int, int]


def unpriced(model: str, usage: object, reported: Decimal | None) -> Decimal | None:
    """The price rule of an operator who set none: what the gateway names, or nothing."""
    return reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A subscription instead of a key: a directory whose copy becomes HOME, and the provider's hosts."""

    credentials: Path
    hosts: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSettings:
    """What an operator says about one runner. A team's repository can set none of it."""

    runner: str
    """`claude-code`, `codex`, `pi`, `command`, or the name of an entry point."""
    executable: Path | None = None
    """None: looked for on `search_path` by the agent's usual name."""
    node: Path | None = None
    """The Node for agents that are scripts; None: looked for on `search_path`."""
    search_path: str = "/usr/local/bin:/usr/bin:/bin"
    read_only: tuple[Path, ...] = ()
    """More of the host that the agent may read and execute, such as a toolchain."""
    model: str | None = None
    access: ModelAccess | None = None
    login: Login | None = None
    price: Price = unpriced
    tools: tuple[str, ...] | None = None
    """Tools of the agent that a run may use; None: the adapter's read-only ones."""
    versions: tuple[Version, Version] | None = None
    """From, and below; None: the range that this release was tested with."""
    wire: Wire | None = None
    """For agents that speak several; None: the adapter's own."""
    command: tuple[str, ...] = ()
    """For `command`: the argument list with its placeholders."""
    trust_command: bool = False
    """For `command`: the operator records that the command only reads."""
    context_window: int = 200_000
    max_output: int = 32_000
    """Tokens; for agents that must be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a plan is made from, besides the request."""

    layout: Layout
    argv: tuple[str, ...]
    """How the agent itself is started: its executable, or an interpreter and its script."""
    model: str
    tools: tuple[str, ...]
    """Already checked against the adapter's."""
    turn_tools: tuple[str, ...] = ()
    """The turn's own tools that are served over MCP."""
    settings: RunnerSettings
    key: str = PLACEHOLDER_KEY
    """What the agent takes for its key: of this run alone, because the proxy lets nobody in without it."""

    @property
    def logged_in(self) -> bool:
        """Whether a copied login is used, and the agent talks to its provider through the CONNECT proxy."""
        return self.settings.login is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to start the agent. Paths in the mappings are relative to HOME and to the run's read-only directory."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    home_files: Mapping[str, bytes] = field(default_factory=dict)
    run_files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    wires: frozenset[Wire] = frozenset()
    """The formats in which the agent may talk to the model."""
    counts_turns: bool = False
    """Whether the agent keeps the request's limit of turns itself."""
    report_file: str | None = None
    """A file below out/ that is the report where the agent wrote one."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Find:
    """How an agent's executable is recognised."""

    name: str
    """On the search path."""
    native: str | None = None
    """Of an npm installation: the real binary, relative to the package's `node_modules`; may hold `*`."""
    version: tuple[str, ...] = ("--version",)
    help: tuple[str, ...] = ("--help",)
    flags: tuple[str, ...] = ()
    """Without one of these in its help a run would not be confined as planned, so it is refused."""
    versions: tuple[Version, Version] = ((0, 0, 0), (1_000_000, 0, 0))


class Adapter(Protocol):
    """One coding agent."""

    @property
    def name(self) -> str:
        """The runner's name in settings and results."""
        ...

    @property
    def find(self) -> Find | None:
        """How its executable is recognised; None: the operator's command names it."""
        ...

    @property
    def read_tools(self) -> tuple[str, ...]:
        """What a run may use without the operator saying more."""
        ...

    @property
    def more_tools(self) -> tuple[str, ...]:
        """What an operator may add, inside the sandbox: a shell, writing below out/."""
        ...

    @property
    def turn_tools(self) -> bool:
        """Whether the agent speaks MCP."""
        ...

    @property
    def lean(self) -> Lean:
        """What of its events the transcript leaves out."""
        ...

    def reader(self) -> Reader:
        """A new one for each run."""
        ...

    def plan(self, request: HandoffRequest, launch: Launch) -> Plan | Refusal:
        """How to start it for this request."""
        ...


def choose_tools(adapter: Adapter, request: HandoffRequest, settings: RunnerSettings) -> tuple[str, ...] | Refusal:
    """The tools of a run: those asked for, of those that the operator allows."""
    known = (*adapter.read_tools, *adapter.more_tools)
    allowed = adapter.read_tools if settings.tools is None else settings.tools
    strange = sorted(set(allowed) - set(known))
    if strange and known:
        return Refusal(
            detail=f"The settings allow {', '.join(strange)}, which {adapter.name} does not have.",
            fix=f"Name tools of {', '.join(known)}.",
        )
    unsafe = sorted(set(request.tools) - set(allowed))
    if unsafe:
        return Refusal(
            detail=f"The tools {', '.join(unsafe)} are not allowed for {adapter.name}.",
            fix=f"Ask for tools of {', '.join(allowed) or 'none'}, or let the operator allow more.",
        )
    return request.tools or tuple(allowed)


def proxy_environment(layout: Layout) -> dict[str, str]:
    """For an agent with its own login: everything leaves through the CONNECT proxy."""
    return {"HTTPS_PROXY": layout.model_url, "https_proxy": layout.model_url, "NO_PROXY": "127.0.0.1,localhost"}


def mcp_settings(launch: Launch) -> bytes:
    """The `mcpServers` JSON that agents read: the turn's tools, by the sandbox's stdio script; or no server."""
    command, *arguments = launch.layout.tools_argv
    servers = {TOOLS_SERVER: {"command": command, "args": arguments}} if launch.turn_tools else {}
    return json.dumps({"mcpServers": servers}).encode()


def toml_string(text: str) -> str:
    """A TOML basic string of any text."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    safe = text.encode("utf-8", "replace").decode("utf-8")
    return '"' + "".join(escapes.get(c, c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}") for c in safe) + '"'


def toml_list(items: Sequence[str]) -> str:
    """A TOML array of strings."""
    return f"[{', '.join(map(toml_string, items))}]"
