"""How a run ended: one table over what the agent said, what the proxy saw, and what we did. Pure.

The order of the rules is the order of `Status`; each agent's own events were already read into a `Reading`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from heinzelwerk.handoff import AgentInfo, CostSource, HandoffResult, Status, ToolCount, Usage, UsageSource
from heinzelwerk.runner.claude_stream import ClaudeReader
from heinzelwerk.runner.codex_stream import CodexReader
from heinzelwerk.runner.command_stream import CommandReader
from heinzelwerk.runner.meter import ProxyReport
from heinzelwerk.runner.pi_stream import PiReader
from heinzelwerk.runner.reading import Reader, Reading

READERS: dict[str, Callable[[], Reader]] = {
    "claude-code": ClaudeReader,
    "codex": CodexReader,
    "pi": PiReader,
    "command": CommandReader,
}

StoppedBy = Literal["person", "timeout", "idle", "budget", "output", "disk", "after_end", "lost"]
"""Why we ended the run: a person's stop, the clock, silence, a cap on dollars, printed bytes or written files; after
its final event, because it did not end by itself; or because its worker was lost."""

_DETAIL_CHARS = 4000
_HTTP_FIXES = {
    400: "The provider refused the request; the agent's version and the model may not fit together.",
    401: "Check the key that the operator configured for handoffs.",
    403: "Check that the configured key may use this model, and that the model is on the run's allow-list.",
    404: "Check the model's name and the gateway's base URL.",
    402: "Check the account's balance at the provider.",
    429: "The provider was limiting requests; try again later.",
}


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How the run ended as seen from outside the agent."""

    exit_code: int | None = None
    signal: int | None = None
    stopped_by: StoppedBy | None = None
    setup_failure: str | None = None
    """The sandbox's own words where the agent was never started."""
    max_usd: Decimal | None = None
    exit_decides: bool = False
    """For a command: its exit code is all the final event there is."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A status, why, and what would help."""

    status: Status
    why: str = ""
    fix: str | None = None


def decide(reading: Reading, end: RunEnd, proxy: ProxyReport | None) -> Verdict:
    """The first rule that applies."""
    return _stopped(end) or _budget(reading, end, proxy) or _failed(reading, end) or Verdict(Status.COMPLETED)


def _stopped(end: RunEnd) -> Verdict | None:
    match end.stopped_by:
        case "lost":
            return Verdict(Status.INTERRUPTED, "The worker that ran the agent was lost; it is not started again.")
        case "person":
            return Verdict(Status.CANCELLED, "A person stopped it.")
        case "timeout":
            return Verdict(
                Status.TIMEOUT, "It ran longer than its time limit.", "Give a smaller task, or more of the turn's time."
            )
        case "idle":
            return Verdict(
                Status.TIMEOUT,
                "It printed nothing and asked the model nothing for too long.",
                "Look at the end of the transcript for what it was waiting for.",
            )
    return None


def _budget(reading: Reading, end: RunEnd, proxy: ProxyReport | None) -> Verdict | None:
    more = "Give a smaller task, or a larger share of the turn's budget."
    cost = _cost(reading, proxy)[0]
    if proxy is not None and proxy.cut == "requests":
        return Verdict(Status.BUDGET, "It reached its limit of requests to the model.", more)
    if (proxy is not None and proxy.cut == "dollars") or end.stopped_by == "budget":
        return Verdict(Status.BUDGET, "It reached its limit in dollars.", more)
    if reading.final == "budget" or (proxy is None and reading.api_status == 402):
        return Verdict(Status.BUDGET, reading.trouble or "It reached its limit.", more)
    if end.max_usd is not None and cost is not None and cost > end.max_usd:
        return Verdict(Status.BUDGET, f"It cost ${cost}, over its limit of ${end.max_usd}.", more)
    return None


def _failed(reading: Reading, end: RunEnd) -> Verdict | None:
    if end.setup_failure is not None:
        return _failure(f"The sandbox could not start it: {end.setup_failure}", "Run `heinzelwerk doctor`.")
    if end.stopped_by == "output":
        return _failure("It printed more than its cap.", "Give a smaller task.")
    if end.stopped_by == "disk":
        return _failure("It wrote more files to out/ than its cap.", "Ask for fewer or smaller files.")
    if reading.flaw:
        return _failure(reading.flaw, "Run `heinzelwerk doctor`, which tests the sandbox.")
    if reading.final in ("error", "aborted"):
        return _failure(reading.trouble or "The agent ended with an error.", _http_fix(reading.api_status))
    after_end = end.stopped_by == "after_end"
    if not after_end and (end.exit_code not in (None, 0) or end.signal is not None):
        how = f"signal {end.signal}" if end.signal is not None else f"exit code {end.exit_code}"
        told = f": {reading.trouble}" if reading.trouble else ""
        return _failure(f"It ended with {how}{told}.", _http_fix(reading.api_status))
    if reading.final != "success" and not (end.exit_decides and end.exit_code == 0):
        told = f"; last: {reading.trouble}" if reading.trouble else ""
        return _failure(f"Its output stopped before its final event{told}.", _http_fix(reading.api_status))
    if not reading.text.strip():
        return _failure("Its report is empty.", "Say in the task what the report should contain.")
    return _all_tools_failed(reading.tools)


def _all_tools_failed(tools: dict[str, ToolCount]) -> Verdict | None:
    calls, failed, denied = _sums(tools)
    if failed and failed + denied == calls:
        return _failure("Every tool call of it failed, so its report rests on nothing.", "Look at its transcript.")
    return None


def _sums(tools: dict[str, ToolCount]) -> tuple[int, int, int]:
    counts = tools.values()
    return sum(one.calls for one in counts), sum(one.failed for one in counts), sum(one.denied for one in counts)


def _failure(why: str, fix: str | None = None) -> Verdict:
    return Verdict(Status.FAILED, why, fix)


def _http_fix(status: int | None) -> str | None:
    if status is None:
        return None
    if status >= 500:
        return "The provider had trouble of its own; try again later."
    return _HTTP_FIXES.get(status)


def _cost(reading: Reading, proxy: ProxyReport | None) -> tuple[Decimal | None, CostSource]:
    if proxy is not None and proxy.cost_usd is not None:
        return proxy.cost_usd, "proxy"
    if reading.cost_usd is not None:
        return reading.cost_usd, "agent-list" if reading.cost_is_list else "agent-guess"
    return None, "none"


def _usage(reading: Reading, proxy: ProxyReport | None) -> tuple[Usage, UsageSource]:
    if proxy is not None:
        return proxy.usage, "proxy"
    return (reading.usage, "agent") if reading.usage is not None else (Usage(), "none")


def warnings(reading: Reading, end: RunEnd, proxy: ProxyReport | None) -> tuple[str, ...]:
    """What a reader of the result should know although it changes no status."""
    calls, _, denied = _sums(reading.tools)
    found = []
    if end.stopped_by == "after_end":
        found.append("It was still running after its final event and was ended by us.")
    if denied:
        found.append(f"{denied} of {calls} tool calls were not allowed.")
    if proxy is not None and proxy.estimated:
        found.append(f"{proxy.estimated} answers were cut before they named their usage; it was estimated.")
    if proxy is not None and proxy.unanswered:
        found.append(f"{proxy.unanswered} requests had no answer yet when it ended; they may have been billed.")
    if proxy is not None and proxy.cost_usd is None:
        found.append("The model has no price; its cost was counted at the cap.")
    if proxy is not None and proxy.turned_away:
        found.append(f"The proxy turned away: {'; '.join(proxy.turned_away)}.")
    return tuple(found)


def with_text(reading: Reading, written: bytes) -> Reading:
    """The reading with the report that the agent wrote to its file."""
    return replace(reading, text=written.decode("utf-8", "replace"))


def result_of(reading: Reading, end: RunEnd, proxy: ProxyReport | None, *, agent: AgentInfo) -> HandoffResult:
    """The result as far as it can be known without files, hashes and times, which the run adds."""
    verdict = decide(reading, end, proxy)
    usage, usage_source = _usage(reading, proxy)
    cost, cost_source = _cost(reading, proxy)
    completed = verdict.status is Status.COMPLETED
    return HandoffResult(
        status=verdict.status,
        report=reading.text.strip() if completed else None,
        detail=None if completed else _detail(verdict.why, reading.text),
        fix=verdict.fix,
        warnings=warnings(reading, end, proxy),
        agent=agent.model_copy(update={"version": agent.version or reading.version}),
        model=reading.model,
        turns=reading.turns,
        tool_calls=reading.tools,
        usage=usage,
        usage_source=usage_source,
        cost_usd=cost,
        cost_source=cost_source,
        exit_code=end.exit_code,
        signal=end.signal,
    )


def _detail(why: str, partial: str) -> str:
    told = partial.strip()
    whole = f"{why}\n\nText so far: {told}" if told else why
    if len(whole) <= _DETAIL_CHARS:
        return whole
    return f"{whole[:_DETAIL_CHARS]} [cut: {len(whole) - _DETAIL_CHARS} more characters]"


def parse_transcript(
    agent: str,
    data: bytes,
    *,
    exit_code: int | None = None,
    signal: int | None = None,
    stopped_by: StoppedBy | None = None,
    proxy: ProxyReport | None = None,
    max_usd: Decimal | None = None,
) -> HandoffResult:
    """Read a whole transcript of one of the agents in `READERS`; never raises on any bytes.

    An `exit_code` of None means that it is not known, and nothing is concluded from it.
    """
    reader = READERS[agent]()
    for line in data.split(b"\n"):
        if line:
            reader.feed(line)
    end = RunEnd(
        exit_code=exit_code, signal=signal, stopped_by=stopped_by, max_usd=max_usd, exit_decides=agent == "command"
    )
    return result_of(reader.reading(), end, proxy, agent=AgentInfo(name=agent))
