"""Any command line tool as a handoff runner, by an argument list with placeholders.

It fails closed: until the operator records that the command only reads, nothing is started. The sandbox holds it in
any case; the record is about what the command may do with what the sandbox lets it reach.
"""

import re

from heinzelwerk.handoff import HandoffRequest, Refusal
from heinzelwerk.runner.adapter import Launch, Plan, mcp_settings, proxy_environment
from heinzelwerk.runner.command_stream import CommandReader
from heinzelwerk.runner.meter import WIRES
from heinzelwerk.runner.transcript import keep_all

REPORT_FILE = "report.md"
PLACEHOLDERS = (
    "prompt_file",
    "contract_file",
    "output_file",
    "working_dir",
    "tools",
    "model",
    "timeout_seconds",
    "max_usd",
    "mcp_config",
)
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Command:
    """What its argument list names."""

    name = "command"
    find = None
    read_tools = ()
    more_tools = ()
    turn_tools = True
    lean = staticmethod(keep_all)

    def reader(self) -> CommandReader:
        """A new one for each run."""
        return CommandReader()

    def plan(self, request: HandoffRequest, launch: Launch) -> Plan | Refusal:
        """The prompt is on stdin and in {prompt_file}; the report is stdout, or {output_file} where one was written."""
        layout = launch.layout
        values = {
            "prompt_file": f"{layout.run}/prompt.md",
            "contract_file": layout.contract,
            "output_file": f"{layout.out}/{REPORT_FILE}",
            "working_dir": layout.work,
            "tools": ",".join(launch.tools),
            "model": launch.model,
            "timeout_seconds": f"{request.limits.timeout_s:g}",
            "max_usd": "" if request.limits.max_usd is None else str(request.limits.max_usd),
            "mcp_config": f"{layout.run}/mcp.json",
        }
        argv = []
        for part in launch.argv:
            filled = fill(part, values)
            if isinstance(filled, Refusal):
                return filled
            argv.append(filled)
        return Plan(
            argv=tuple(argv),
            environment=_environment(launch),
            run_files={
                "prompt.md": request.prompt.encode(),
                "contract.md": request.contract.encode(),
                "mcp.json": mcp_settings(launch),
            },
            stdin=request.prompt.encode(),
            wires=frozenset({launch.settings.wire} if launch.settings.wire else WIRES.values()),
            report_file=REPORT_FILE,
        )


def fill(part: str, values: dict[str, str]) -> str | Refusal:
    """One argument with its placeholders filled; `{{` and `}}` are braces. A strange placeholder is refused."""
    for match in _FIELD.finditer(part):
        whole = match.group()
        if whole not in ("{{", "}}") and match.group(1) not in values:
            return Refusal(
                detail=f"The command's argument {part!r} holds {whole!r}, which is no placeholder.",
                fix=f"Use one of {', '.join(f'{{{name}}}' for name in values)}, or write a brace twice.",
            )
    return _FIELD.sub(lambda match: values[match.group(1)] if match.group(1) else match.group()[0], part)


def _environment(launch: Launch) -> dict[str, str]:
    if launch.logged_in:
        return proxy_environment(launch.layout)
    if launch.settings.access is None:
        return {}
    url = launch.layout.model_url
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": launch.key,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": launch.key,
    }
