"""The events of `codex exec --json`, as measured with 0.171.0 (facts 3.2)."""

import re
from typing import Any

from heinzelwerk.handoff import Usage
from heinzelwerk.runner import lines
from heinzelwerk.runner.reading import Final, Reading, Stream, ToolTally

_TOOL_ITEMS = frozenset({"command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call"})
_STATUS = re.compile(r"unexpected status (\d{3})\b")
# Its command sandbox could not start: no command ran at all, and the run still ends with exit 0 and a text.
_NESTED_SANDBOX = "Codex's own command sandbox could not start inside ours, so none of its commands ran"
_NESTED_ON_STDERR = (b"Refusing to create helper binaries under temporary dir", b"codex-linux-sandbox: No such file")


class CodexReader:
    """Reads `codex exec --json`. It gives no cost, and its usage is one cumulative sum at the end."""

    def __init__(self) -> None:
        self._tools = ToolTally()
        self._final: Final = "none"
        self._text = ""
        self._trouble = ""
        self._flaw = ""
        self._usage: Usage | None = None
        self._turns = 0

    @property
    def ended(self) -> bool:
        """`turn.completed` or `turn.failed` was seen."""
        return self._final != "none"

    def feed(self, line: bytes, stream: Stream = "stdout") -> None:
        """Take one line."""
        if stream == "stderr":
            if any(mark in line for mark in _NESTED_ON_STDERR):
                self._flaw = _NESTED_SANDBOX
            self._trouble = self._trouble or lines.complaint(line)
            return
        event = lines.event(line)
        if event is None:
            self._trouble = self._trouble or lines.complaint(line)
            return
        match event.get("type"):
            case "turn.started":
                self._turns += 1
                self._final = "none"
            case "item.started" | "item.updated" | "item.completed":
                self._item(lines.mapping(event.get("item")), completed=event.get("type") == "item.completed")
            case "turn.completed":
                self._final = "success"
                self._usage = _usage(event.get("usage")) or self._usage
            case "turn.failed":
                self._final = "error"
                self._trouble = _words(lines.mapping(event.get("error")).get("message")) or self._trouble
            case "error":
                self._trouble = _words(event.get("message")) or self._trouble

    def _item(self, item: dict[str, Any], *, completed: bool) -> None:
        kind = item.get("type")
        if kind == "agent_message":
            if completed:
                self._text = lines.text(item.get("text"))
            return
        if kind not in _TOOL_ITEMS:  # `error` items are mere warnings: unknown model metadata, deprecated keys
            return
        call = lines.text(item.get("id"))
        self._tools.called(call, _tool_name(item))
        if not completed:
            return
        exit_code = lines.whole(item.get("exit_code"))
        if item.get("status") == "declined":
            self._tools.denied(call)
        elif item.get("status") == "failed" or exit_code not in (None, 0) or item.get("error"):
            self._tools.failed(call)
        if kind == "command_execution" and lines.text(item.get("aggregated_output")).startswith("bwrap:"):
            self._flaw = _NESTED_SANDBOX

    def reading(self) -> Reading:
        """What was said so far."""
        status = _STATUS.search(self._trouble)
        return Reading(
            final=self._final,
            text=self._text,
            trouble="" if self._final == "success" else self._trouble,
            api_status=int(status.group(1)) if status and self._final != "success" else None,
            flaw=self._flaw,
            turns=self._turns or None,
            usage=self._usage,
            tools=self._tools.counts(),
        )


def _words(message: object) -> str:
    """The message, or what the provider said where the message is its whole answer."""
    told = lines.text(message)
    answer = lines.mapping(lines.event(told.encode())) if told.startswith("{") else {}
    return lines.text(lines.mapping(answer.get("error")).get("message")) or told


def _tool_name(item: dict[str, Any]) -> str:
    if item.get("type") == "mcp_tool_call":
        return f"mcp__{lines.text(item.get('server'))}__{lines.text(item.get('tool'))}"
    return lines.text(item.get("type"))


def _usage(value: object) -> Usage | None:
    if not isinstance(value, dict):
        return None
    cached = lines.count(value.get("cached_input_tokens"))
    return Usage(
        input=max(0, lines.count(value.get("input_tokens")) - cached),
        output=lines.count(value.get("output_tokens")),
        cache_read=cached,
        cache_write=lines.count(value.get("cache_write_input_tokens")),
        reasoning=lines.count(value.get("reasoning_output_tokens")),
    )
