"""Claude Code's stream-json, as measured with 2.1.332 (facts 2.3, 2.4)."""

from decimal import Decimal
from typing import Any

from heinzelwerk.handoff import Usage
from heinzelwerk.runner import lines
from heinzelwerk.runner.reading import Final, Reading, Stream, ToolTally

# Carries the answer of `--json-schema`; it is no call that anybody made.
_ANSWER_TOOL = "StructuredOutput"
_SYNTHETIC = "<synthetic>"
_BUDGET_ENDS = frozenset({"error_max_budget_usd", "error_max_turns"})
_REFUSED_PREFIXES = ("No such tool available", "Error: No such tool available")


class ClaudeReader:
    """Reads `claude -p --output-format stream-json --verbose`."""

    def __init__(self) -> None:
        self._tools = ToolTally()
        self._messages: set[str] = set()
        self._result: dict[str, Any] | None = None
        self._text = ""
        self._trouble = ""
        self._api_status: int | None = None
        self._version: str | None = None
        self._model: str | None = None

    @property
    def ended(self) -> bool:
        """The `result` event was seen."""
        return self._result is not None

    def feed(self, line: bytes, stream: Stream = "stdout") -> None:
        """Take one line: an event on stdout, or a complaint on either stream."""
        event = lines.event(line) if stream == "stdout" else None
        if event is None:
            self._trouble = lines.complaint(line) or self._trouble
            return
        match event.get("type"):
            case "system":
                self._system(event)
            case "assistant":
                self._assistant(event)
            case "user":
                self._tool_results(event)
            case "result":
                self._result = event
                for denial in lines.objects(event.get("permission_denials")):
                    self._tools.denied(lines.text(denial.get("tool_use_id")))

    def _system(self, event: dict[str, Any]) -> None:
        match event.get("subtype"):
            case "init":
                self._version = lines.text(event.get("claude_code_version")) or None
                self._model = lines.text(event.get("model")) or None
            case "permission_denied":
                self._tools.denied(lines.text(event.get("tool_use_id")))
            case "api_retry":
                self._api_status = lines.whole(event.get("error_status"))
                status = "" if self._api_status is None else f" {self._api_status}"
                self._trouble = f"the model's API answered{status} {lines.text(event.get('error'))}; it was retrying"

    def _assistant(self, event: dict[str, Any]) -> None:
        message = lines.mapping(event.get("message"))
        if message.get("model") != _SYNTHETIC:
            self._messages.add(lines.text(message.get("id")))
        for block in lines.objects(message.get("content")):
            if block.get("type") == "tool_use" and block.get("name") != _ANSWER_TOOL:
                self._tools.called(lines.text(block.get("id")), lines.text(block.get("name")))
        said = lines.block_text(message.get("content"))
        if event.get("error"):
            self._trouble = said or lines.text(event.get("error"))
            self._api_status = lines.whole(event.get("api_error_status"))
        elif said:
            self._text = said

    def _tool_results(self, event: dict[str, Any]) -> None:
        for block in lines.objects(lines.mapping(event.get("message")).get("content")):
            if block.get("type") != "tool_result":
                continue
            call = lines.text(block.get("tool_use_id"))
            if block.get("is_error") is True:
                self._tools.failed(call)
                said = lines.block_text(block.get("content")).removeprefix("<tool_use_error>")
                if said.startswith(_REFUSED_PREFIXES):
                    self._tools.denied(call)
        for meta in lines.objects(event.get("tool_result_meta")):
            decision = lines.mapping(meta.get("permission_decision")).get("decision")
            if decision == "reject" or meta.get("non_execution_kind") == "permission-rule":
                self._tools.denied(lines.text(meta.get("id")))

    def reading(self) -> Reading:
        """What was said so far; figures come from the `result` event alone, the events before it understate them."""
        result = self._result
        if result is None:
            return Reading(
                text=self._text,
                trouble=self._trouble,
                api_status=self._api_status,
                version=self._version,
                model=self._model,
                turns=len(self._messages) or None,
                tools=self._tools.counts(),
            )
        final = _final(result)
        told = lines.text(result.get("result"))
        status = lines.whole(result.get("api_error_status"))
        return Reading(
            final=final,
            text=told if final == "success" else self._text,
            trouble="" if final == "success" else _trouble(result) or self._trouble,
            api_status=status if status is not None or final == "success" else self._api_status,
            version=self._version,
            model=self._model,
            turns=lines.whole(result.get("num_turns")),
            usage=_usage(result),
            cost_usd=_cost(result),
            cost_is_list=_priced_by_list(result),
            tools=self._tools.counts(),
        )


def _final(result: dict[str, Any]) -> Final:
    subtype = result.get("subtype")
    if subtype in _BUDGET_ENDS:
        return "budget"
    if lines.text(result.get("terminal_reason")).startswith("aborted"):
        return "aborted"
    # `is_error` wins: a refused key ends as subtype success.
    return "success" if subtype == "success" and result.get("is_error") is False else "error"


def _trouble(result: dict[str, Any]) -> str:
    errors = result.get("errors")
    told = [lines.text(error) for error in errors] if isinstance(errors, list) else []
    reason = lines.text(result.get("terminal_reason"))
    if reason.startswith("aborted"):  # its `errors` then hold a diagnostic for its makers
        return "the agent was interrupted"
    return "; ".join(filter(None, told)) or lines.text(result.get("result")) or lines.text(result.get("subtype"))


def _models(result: dict[str, Any]) -> list[dict[str, Any]]:
    return lines.objects(list(lines.mapping(result.get("modelUsage")).values()))


def _usage(result: dict[str, Any]) -> Usage | None:
    # `modelUsage` has the last response of a budget stop, `usage` has not.
    models = _models(result)
    if models:
        return sum((_model_usage(model) for model in models), Usage())
    usage = result.get("usage")
    if not isinstance(usage, dict):
        return None
    return Usage(
        input=lines.count(usage.get("input_tokens")),
        output=lines.count(usage.get("output_tokens")),
        cache_read=lines.count(usage.get("cache_read_input_tokens")),
        cache_write=lines.count(usage.get("cache_creation_input_tokens")),
        reasoning=lines.count(lines.mapping(usage.get("output_tokens_details")).get("thinking_tokens")),
    )


def _model_usage(model: dict[str, Any]) -> Usage:
    return Usage(
        input=lines.count(model.get("inputTokens")),
        output=lines.count(model.get("outputTokens")),
        cache_read=lines.count(model.get("cacheReadInputTokens")),
        cache_write=lines.count(model.get("cacheCreationInputTokens")),
        reasoning=lines.count(model.get("thinkingTokens")),
    )


def _cost(result: dict[str, Any]) -> Decimal | None:
    total = lines.dollars(result.get("total_cost_usd"))
    if total is not None:
        return total
    parts = [lines.dollars(model.get("costUSD")) for model in _models(result)]
    known = [part for part in parts if part is not None]
    return sum(known, Decimal(0)) if known and len(known) == len(parts) else None


def _priced_by_list(result: dict[str, Any]) -> bool:
    return all(model.get("costBasis", "list") == "list" for model in _models(result))
