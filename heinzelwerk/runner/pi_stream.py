"""The events of pi's json mode, as measured with 1.6.0 and 0.74.2 (facts 4.2)."""

import re
from decimal import Decimal
from typing import Any

from heinzelwerk.handoff import Usage
from heinzelwerk.runner import lines
from heinzelwerk.runner.reading import Final, Reading, Stream, ToolTally

_STATUS = re.compile(r"(\d{3})(?::|\s|$)")
_NOT_OFFERED = re.compile(r"Tool \S+ not found")


class PiReader:
    """Reads `pi --mode json`. Exit code and events tell nothing of an API error: only the last `stopReason` does."""

    def __init__(self) -> None:
        self._tools = ToolTally()
        self._settled = False
        self._aborted = False
        self._stop_reason = ""
        self._text = ""
        self._earlier_text = ""
        self._error = ""
        self._complaint = ""
        self._model: str | None = None
        self._turns = 0
        self._usage: Usage | None = None
        self._cost = Decimal(0)

    @property
    def ended(self) -> bool:
        """`agent_settled` was seen, or (before pi 1.0) an `agent_end` after which nothing is retried."""
        return self._settled

    def feed(self, line: bytes, stream: Stream = "stdout") -> None:
        """Take one line: an event on stdout, or a complaint on either stream."""
        event = lines.event(line) if stream == "stdout" else None
        if event is None:
            self._complaint = lines.complaint(line) or self._complaint
            return
        match event.get("type"):
            case "turn_start":
                self._turns += 1
            case "message_end":  # every message occurs three times; it is complete and counted here alone
                self._message(lines.mapping(event.get("message")))
            case "tool_execution_start":
                self._tools.called(lines.text(event.get("toolCallId")), lines.text(event.get("toolName")))
            case "tool_execution_end":
                self._tool_end(event)
            case "agent_start" | "auto_retry_start":
                self._settled = False
            case "agent_end":
                self._settled = event.get("willRetry") is not True
            case "agent_settled":
                self._settled = True
                self._aborted = event.get("aborted") is True

    def _message(self, message: dict[str, Any]) -> None:
        if message.get("role") != "assistant":
            return
        self._model = lines.text(message.get("model")) or self._model
        self._stop_reason = lines.text(message.get("stopReason"))
        self._error = lines.text(message.get("errorMessage"))
        self._earlier_text = self._text or self._earlier_text
        self._text = lines.block_text(message.get("content"))
        for block in lines.objects(message.get("content")):
            if block.get("type") == "toolCall":
                self._tools.called(lines.text(block.get("id")), lines.text(block.get("name")))
        usage = message.get("usage")
        if isinstance(usage, dict):
            self._usage = (self._usage or Usage()) + _usage(usage)
            self._cost += lines.dollars(lines.mapping(usage.get("cost")).get("total")) or Decimal(0)

    def _tool_end(self, event: dict[str, Any]) -> None:
        call = lines.text(event.get("toolCallId"))
        self._tools.called(call, lines.text(event.get("toolName")))
        if event.get("isError") is True:
            self._tools.failed(call)
            if _NOT_OFFERED.match(lines.block_text(lines.mapping(event.get("result")).get("content"))):
                self._tools.denied(call)

    def reading(self) -> Reading:
        """What was said so far. Costs are those of the price table that we gave it; all zero means it had none."""
        final = self._final()
        status = _STATUS.match(self._error)
        priced = self._usage is not None and (self._cost > 0 or self._usage.total == 0)
        return Reading(
            final=final,
            text=self._text if final == "success" else self._text or self._earlier_text,
            trouble="" if final == "success" else self._error or self._complaint or self._unfinished(),
            api_status=int(status.group(1)) if status else None,
            model=self._model,
            turns=self._turns or None,
            usage=self._usage,
            cost_usd=self._cost if priced else None,
            tools=self._tools.counts(),
        )

    def _final(self) -> Final:
        if not self._settled:
            return "none"
        if self._aborted or self._stop_reason == "aborted":
            return "aborted"
        return "success" if self._stop_reason == "stop" else "error"

    def _unfinished(self) -> str:
        return f"the last answer ended with {self._stop_reason!r}" if self._stop_reason else ""


def _usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        input=lines.count(usage.get("input")),
        output=lines.count(usage.get("output")),
        cache_read=lines.count(usage.get("cacheRead")),
        cache_write=lines.count(usage.get("cacheWrite")),
        reasoning=lines.count(usage.get("reasoning")),
    )
