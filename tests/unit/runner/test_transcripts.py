"""Recorded transcripts of the real CLIs parse to the status, report, counts, usage and cost that they had."""

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from heinzelwerk.handoff import HandoffResult, Status, ToolCount, Usage
from heinzelwerk.runner.ending import StoppedBy, parse_transcript

TRANSCRIPTS = Path(__file__).parents[2] / "data" / "transcripts"
REPORT = "The file says: hello from notes. REPORT-END"
NOTHING = Usage()
CLAUDE_TWO_CALLS = Usage(input=2400, output=80, cache_read=600, cache_write=200)
CODEX_TWO_CALLS = Usage(input=1800, output=80, cache_read=600, reasoning=14)
PI_TWO_CALLS = Usage(input=1800, output=80, cache_read=600)


@dataclass(frozen=True)
class Expected:
    status: Status
    exit_code: int | None
    usage: Usage = NOTHING
    usage_source: str = "agent"
    cost: str | None = None
    cost_source: str = "agent-list"
    turns: int | None = 1
    tools: str = ""
    """`name calls/failed/denied`, comma-separated."""
    detail: str = ""
    stopped_by: StoppedBy | None = None


def claude(
    status: Status, code: int | None, cost: str | None = "0.00933", usage: Usage = CLAUDE_TWO_CALLS, **more: object
) -> Expected:
    return Expected(status, code, usage=usage, cost=cost, **more)  # type: ignore[arg-type]


def codex(status: Status, code: int | None, **more: object) -> Expected:
    given = {"usage_source": "none", "cost_source": "none", **more}
    return Expected(status, code, **given)  # type: ignore[arg-type]


DONE = Status.COMPLETED
CODEX_DONE = {"usage": CODEX_TWO_CALLS, "usage_source": "agent", "tools": "command_execution 1/0/0"}
PI_DONE = {"usage": PI_TWO_CALLS, "cost": "0.00678", "turns": 2}

EXPECTED: dict[str, Expected] = {
    "claude_api_401": claude(Status.FAILED, 1, "0", NOTHING, detail="Invalid API key"),
    "claude_api_429_killed_while_retrying": Expected(
        Status.TIMEOUT, None, usage_source="none", cost_source="none", turns=None, stopped_by="timeout"
    ),
    "claude_api_529_retried": claude(Status.FAILED, 1, "0", NOTHING, detail="API Error: 529 Overloaded"),
    "claude_budget_exceeded": claude(
        Status.BUDGET,
        1,
        "0.023325",
        Usage(input=6000, output=200, cache_read=1500, cache_write=500),
        turns=5,
        tools="Read 5/0/0",
        detail="Reached maximum budget ($0.02)",
    ),
    "claude_in_bwrap_probe": claude(DONE, 0, turns=2, tools="Bash 1/0/0"),
    "claude_ok_read": claude(DONE, 0, turns=2, tools="Read 1/0/0"),
    "claude_partial_messages_multi_block": claude(DONE, 0, turns=2, tools="Read 1/0/0"),
    "claude_proxy_402_mid_run": claude(Status.BUDGET, 1, turns=3, tools="Read 2/0/0", detail="402"),
    "claude_read_outside_denied": claude(DONE, 0, turns=2, tools="Read 1/0/1"),
    "claude_sigint_during_bash": claude(
        Status.CANCELLED,
        0,
        "0.004665",
        Usage(input=1200, output=40, cache_read=300, cache_write=100),
        turns=3,
        tools="Bash 1/1/0",
        stopped_by="person",
    ),
    "claude_sigint_result": claude(Status.CANCELLED, 0, "0", NOTHING, turns=2, stopped_by="person"),
    "claude_tool_unavailable": claude(DONE, 0, turns=2, tools="Bash 1/0/1"),
    "codex_api_401": codex(Status.FAILED, 1, detail="401 Unauthorized"),
    "codex_in_bwrap_probe": codex(DONE, 0, **CODEX_DONE),
    "codex_ok_read": codex(DONE, 0, **CODEX_DONE),
    "codex_private_config": codex(DONE, 0, **CODEX_DONE),
    "codex_proxy_402_mid_run": codex(Status.BUDGET, 1, tools="command_execution 2/0/0", detail="402"),
    "codex_refused_fails_fast": codex(Status.FAILED, 1, detail="Connection failed"),
    "codex_sigint_no_usage": codex(Status.CANCELLED, 1, stopped_by="person"),
    "codex_write_outside_denied": codex(DONE, 0, **CODEX_DONE),
    "pi_0_74_ok_read": Expected(DONE, 0, **PI_DONE, tools="read 1/0/0"),  # type: ignore[arg-type]
    "pi_api_401_rc0": Expected(Status.FAILED, 0, cost="0", detail="401"),
    "pi_in_bwrap_probe": Expected(DONE, 0, **PI_DONE, tools="bash 1/0/0"),  # type: ignore[arg-type]
    "pi_ok_read": Expected(DONE, 0, **PI_DONE, tools="read 1/0/0"),  # type: ignore[arg-type]
    "pi_proxy_402_mid_run": Expected(
        Status.BUDGET, 0, usage=PI_TWO_CALLS, cost="0.00678", turns=3, tools="read 2/0/0", detail="402"
    ),
    "pi_read_outside_ALLOWED": Expected(DONE, 0, **PI_DONE, tools="read 1/0/0"),  # type: ignore[arg-type]
}


def agent_of(name: str) -> str:
    return {"claude": "claude-code"}.get(name.split("_")[0], name.split("_")[0])


def parse(name: str) -> HandoffResult:
    case = EXPECTED[name]
    data = (TRANSCRIPTS / f"{name}.jsonl").read_bytes()
    return parse_transcript(agent_of(name), data, exit_code=case.exit_code, stopped_by=case.stopped_by)


def tools(written: str) -> dict[str, ToolCount]:
    found = {}
    for one in filter(None, written.split(", ")):
        name, figures = one.split(" ")
        calls, failed, denied = map(int, figures.split("/"))
        found[name] = ToolCount(calls=calls, failed=failed, denied=denied)
    return found


def test_every_recorded_transcript_has_an_expectation() -> None:
    """A transcript that is added to the data without saying what it should parse to is noticed."""
    assert {path.stem for path in TRANSCRIPTS.glob("*.jsonl")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recorded_transcript_parses_to_what_happened(name: str) -> None:
    """Status, report, turns, tool counts, usage, cost and their sources are those of the run that was recorded."""
    case, result = EXPECTED[name], parse(name)
    assert (result.status, result.report) == (case.status, REPORT if case.status is DONE else None)
    assert case.detail in (result.detail or "")
    assert (result.detail is None) == (case.status is DONE)
    assert result.turns == case.turns
    assert result.tool_calls == tools(case.tools)
    assert (result.usage, result.usage_source) == (case.usage, case.usage_source)
    assert (result.cost_usd, result.cost_source) == (
        None if case.cost is None else Decimal(case.cost),
        case.cost_source,
    )


@pytest.mark.parametrize("name", [name for name, case in EXPECTED.items() if case.stopped_by is not None])
def test_a_run_that_was_cut_off_by_nobody_known_is_failed(name: str) -> None:
    """Without our own stop an interrupted transcript is a failure that says what was seen last."""
    data = (TRANSCRIPTS / f"{name}.jsonl").read_bytes()
    result = parse_transcript(agent_of(name), data)
    assert result.status is Status.FAILED
    assert result.detail
    assert result.report is None
