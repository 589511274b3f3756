"""The table of endings, rule by rule, on transcripts made for each rule."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heinzelwerk.handoff import HandoffResult, Status, ToolCount, Usage
from heinzelwerk.runner import ending
from heinzelwerk.runner.ending import READERS, RunEnd, parse_transcript
from heinzelwerk.runner.meter import ProxyReport
from heinzelwerk.runner.reading import Reading
from tests.support.patience import patient

TRANSCRIPTS = Path(__file__).parents[2] / "data" / "transcripts"
AGENTS = sorted(READERS)


def transcript(*events: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def claude_result(**changes: Any) -> dict[str, Any]:
    result = {"type": "result", "subtype": "success", "is_error": False, "result": "done", "num_turns": 2}
    return {**result, "total_cost_usd": 0.01, "modelUsage": {}, "terminal_reason": "completed", **changes}


def claude_call(call: str, name: str) -> dict[str, Any]:
    block = {"type": "tool_use", "id": call, "name": name, "input": {}}
    return {"type": "assistant", "message": {"id": f"msg-{call}", "model": "m", "content": [block]}}


def claude_answer(call: str, *, error: bool, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": "no", "is_error": error}
    return {"type": "user", "message": {"content": [block]}, **more}


def claude(*events: dict[str, Any], **ends: Any) -> HandoffResult:
    return parse_transcript("claude-code", transcript(*events), **{"exit_code": 0, **ends})


def codex(*events: dict[str, Any], **ends: Any) -> HandoffResult:
    return parse_transcript("codex", transcript({"type": "turn.started"}, *events), **{"exit_code": 0, **ends})


def codex_item(identity: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"id": identity, "type": kind, **more}}


CODEX_TEXT = codex_item("t", "agent_message", text="done")
CODEX_END = {"type": "turn.completed", "usage": {"input_tokens": 10, "cached_input_tokens": 4, "output_tokens": 3}}


def pi_message(stop: str, text: str = "", cost: float = 0.0, tokens: int = 5, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}] if text else []
    usage = {"input": tokens, "output": 1 if tokens else 0, "cost": {"total": cost}}
    message = {"role": "assistant", "content": content, "usage": usage, "stopReason": stop, "model": "m", **more}
    return {"type": "message_end", "message": message}


def pi(*events: dict[str, Any], **ends: Any) -> HandoffResult:
    return parse_transcript("pi", transcript({"type": "agent_start"}, *events), **{"exit_code": 0, **ends})


PI_END = {"type": "agent_settled", "aborted": False}


@pytest.mark.parametrize("subtype", ["error_max_budget_usd", "error_max_turns"])
def test_claude_at_its_own_limits_is_budget(subtype: str) -> None:
    """Both of Claude Code's limits end as `budget`, with no report although a text was there."""
    result = claude(claude_result(subtype=subtype, is_error=True), exit_code=1)
    assert (result.status, result.report, result.cost_usd) == (Status.BUDGET, None, Decimal("0.01"))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 529])
def test_claude_names_api_errors_as_success_and_is_failed(status: int) -> None:
    """`is_error` wins over subtype success, and the advice fits the HTTP status."""
    result = claude(claude_result(is_error=True, api_error_status=status, result="API Error"), exit_code=1)
    assert (result.status, result.report) == (Status.FAILED, None)
    assert result.fix


def test_claude_without_is_error_is_not_taken_for_a_success() -> None:
    """A result event that does not say `is_error: false` is no success."""
    event = claude_result()
    del event["is_error"]
    assert claude(event).status is Status.FAILED


def test_claude_counts_repeated_blocks_once_and_its_answer_tool_never() -> None:
    """A call that is repeated in the stream counts once; StructuredOutput is the answer, not a call."""
    call = claude_call("a", "Read")
    result = claude(call, call, claude_call("b", "StructuredOutput"), claude_result())
    assert result.tool_calls == {"Read": ToolCount(calls=1)}


def test_claude_keeps_failed_and_denied_apart() -> None:
    """A rejected call is denied and not failed, whichever of the three marks says so."""
    meta = {"tool_result_meta": [{"id": "b", "permission_decision": {"decision": "reject"}}]}
    events = (
        claude_call("a", "Read"),
        claude_answer("a", error=True),
        claude_call("b", "Read"),
        claude_answer("b", error=True, **meta),
        claude_call("c", "Read"),
        {"type": "system", "subtype": "permission_denied", "tool_use_id": "c"},
        claude_call("d", "Read"),
        claude_call("e", "Read"),
    )
    result = claude(*events, claude_result(permission_denials=[{"tool_use_id": "d"}]))
    assert result.tool_calls == {"Read": ToolCount(calls=5, failed=1, denied=3)}
    assert result.warnings == ("3 of 5 tool calls were not allowed.",)


def test_a_run_whose_every_call_failed_is_failed() -> None:
    """A report that rests on no tool call that worked is no completed run."""
    result = claude(claude_call("a", "Read"), claude_answer("a", error=True), claude_result())
    assert (result.status, result.report) == (Status.FAILED, None)


def test_a_run_whose_every_call_was_denied_is_completed_with_a_warning() -> None:
    """Denied is not failed: the agent was told so and reported."""
    denial = {"permission_denials": [{"tool_use_id": "a"}]}
    result = claude(claude_call("a", "Bash"), claude_answer("a", error=True), claude_result(**denial))
    assert (result.status, result.report) == (Status.COMPLETED, "done")
    assert result.warnings


def test_claude_sums_usage_over_its_models_and_says_where_a_price_was_guessed() -> None:
    """`modelUsage` of all models counts, and one unknown cost basis makes the cost a guess."""
    one = {"inputTokens": 1, "outputTokens": 2, "cacheReadInputTokens": 3, "cacheCreationInputTokens": 4}
    models = {"a": {**one, "costBasis": "list"}, "b": {**one, "thinkingTokens": 1, "costBasis": "unknown"}}
    result = claude(claude_result(modelUsage=models, usage={"input_tokens": 999}))
    assert result.usage == Usage(input=2, output=4, cache_read=6, cache_write=8, reasoning=1)
    assert result.cost_source == "agent-guess"


def test_claude_never_sums_the_usage_of_its_messages() -> None:
    """The figures on assistant events are start values; without a result event there are none."""
    event = claude_call("a", "Read")
    event["message"]["usage"] = {"input_tokens": 100, "output_tokens": 1}
    result = claude(event, exit_code=None)
    assert (result.usage, result.usage_source, result.cost_usd) == (Usage(), "none", None)


@pytest.mark.parametrize("text", ["", "  \n\t "])
def test_an_empty_report_is_failed(text: str) -> None:
    """Success with nothing to read is a failure, for every agent."""
    assert claude(claude_result(result=text)).status is Status.FAILED
    assert codex(codex_item("t", "agent_message", text=text), CODEX_END).status is Status.FAILED
    assert pi(pi_message("stop", text), PI_END).status is Status.FAILED
    assert parse_transcript("command", text.encode(), exit_code=0).status is Status.FAILED


def test_an_empty_last_answer_does_not_borrow_an_earlier_text() -> None:
    """What pi or Codex said before its last, empty answer is no report."""
    assert pi(pi_message("toolUse", "let me see"), pi_message("stop"), PI_END).status is Status.FAILED
    said = codex_item("s", "agent_message", text="let me see")
    assert codex(said, codex_item("t", "agent_message", text=""), CODEX_END).status is Status.FAILED


def test_a_stream_that_stops_before_the_final_event_is_failed() -> None:
    """Exit 0 without a final event is failed; the text so far is in the detail and not in the report."""
    for result in (
        claude({"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "partial"}]}}),
        codex(codex_item("t", "agent_message", text="partial")),
        pi(pi_message("stop", "partial")),
    ):
        assert (result.status, result.report) == (Status.FAILED, None)
        assert "partial" in (result.detail or "")


@pytest.mark.parametrize("code", [1, 2, 137, -9])
def test_a_non_zero_exit_is_failed_unless_we_ended_it_after_its_final_event(code: int) -> None:
    """A good final event does not outweigh a bad exit, except for an agent that did not end by itself."""
    assert claude(claude_result(), exit_code=code).status is Status.FAILED
    result = claude(claude_result(), exit_code=code, stopped_by="after_end")
    assert (result.status, result.report) == (Status.COMPLETED, "done")
    assert any("still running" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("stopped_by", "status"),
    [
        ("lost", Status.INTERRUPTED),
        ("person", Status.CANCELLED),
        ("timeout", Status.TIMEOUT),
        ("idle", Status.TIMEOUT),
        ("budget", Status.BUDGET),
        ("output", Status.FAILED),
        ("disk", Status.FAILED),
    ],
)
def test_our_own_stop_decides_and_keeps_the_cost(stopped_by: Any, status: Status) -> None:
    """Whoever stopped it names the status, whatever the agent still printed; what it cost is kept."""
    aborted = claude_result(subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools")
    result = claude(aborted, stopped_by=stopped_by)
    assert (result.status, result.cost_usd, result.report) == (status, Decimal("0.01"), None)


def test_statuses_are_declared_in_the_order_in_which_they_are_decided() -> None:
    """The order that the specification names is the order of the enumeration."""
    assert " ".join(Status) == "refused interrupted cancelled timeout budget failed completed"


def test_the_sum_over_the_limit_is_budget() -> None:
    """A run that ended well but over its dollars is `budget`; its text is kept in the detail."""
    result = claude(claude_result(), max_usd=Decimal("0.009"))
    assert (result.status, result.report) == (Status.BUDGET, None)
    assert "done" in (result.detail or "")
    assert claude(claude_result(), max_usd=Decimal("0.01")).status is Status.COMPLETED


@pytest.mark.parametrize("cut", ["dollars", "requests"])
def test_a_cut_by_the_proxy_is_budget_whatever_the_agent_made_of_it(cut: Any) -> None:
    """The proxy knows that it cut; an agent that ends politely after it is still over its budget."""
    proxy = ProxyReport(requests=3, cut=cut)
    for result in (
        claude(claude_result(), proxy=proxy),
        codex(CODEX_TEXT, CODEX_END, proxy=proxy),
        pi(pi_message("stop", "done"), PI_END, proxy=proxy),
    ):
        assert (result.status, result.report) == (Status.BUDGET, None)


def test_a_402_of_the_provider_is_no_budget_of_ours() -> None:
    """With a proxy that did not cut, a 402 is the provider's own refusal; without one it is taken for ours."""
    event = claude_result(is_error=True, api_error_status=402, result="API Error: 402")
    assert claude(event, exit_code=1, proxy=ProxyReport(requests=1)).status is Status.FAILED
    assert claude(event, exit_code=1).status is Status.BUDGET


def test_the_proxy_figures_win_over_the_agents() -> None:
    """Where a proxy metered the run, usage and cost are its own; a model without a price falls back to the agent's."""
    usage = Usage(input=7)
    result = claude(claude_result(), proxy=ProxyReport(requests=1, usage=usage, cost_usd=Decimal("0.5")))
    assert (result.usage, result.usage_source) == (usage, "proxy")
    assert (result.cost_usd, result.cost_source) == (Decimal("0.5"), "proxy")
    unpriced = claude(claude_result(), proxy=ProxyReport(requests=1, usage=usage, cost_usd=None))
    assert (unpriced.cost_usd, unpriced.cost_source) == (Decimal("0.01"), "agent-list")
    assert any("no price" in warning for warning in unpriced.warnings)


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500])
def test_codex_turn_failed_is_failed_with_its_words(status: int) -> None:
    """`turn.failed` decides, and its HTTP status brings the advice."""
    error = {"message": f"unexpected status {status} Something: no"}
    result = codex({"type": "turn.failed", "error": error}, exit_code=1)
    assert result.status is Status.FAILED
    assert str(status) in (result.detail or "")
    assert result.fix


def test_codex_warnings_are_no_trouble() -> None:
    """`error` items are mere warnings and no tool calls; a reconnect that worked is forgotten."""
    events = (codex_item("w", "error", message="deprecated"), {"type": "error", "message": "Reconnecting... 1/1"})
    result = codex(*events, CODEX_TEXT, CODEX_END)
    assert (result.status, result.report, result.tool_calls) == (Status.COMPLETED, "done", {})
    assert result.usage == Usage(input=6, output=3, cache_read=4)


def test_codex_counts_commands_tools_and_refusals() -> None:
    """Calls count by item id; exit codes and statuses tell failed from declined; MCP calls carry their server."""
    started = {"type": "item.started", "item": {"id": "a", "type": "command_execution", "status": "in_progress"}}
    events = (
        started,
        codex_item("a", "command_execution", exit_code=0, status="completed", aggregated_output="x"),
        codex_item("b", "command_execution", exit_code=2, status="failed", aggregated_output="x"),
        codex_item("c", "command_execution", exit_code=None, status="declined", aggregated_output=""),
        codex_item("d", "mcp_tool_call", server="turn", tool="read_mail", status="completed"),
    )
    result = codex(*events, CODEX_TEXT, CODEX_END)
    assert result.tool_calls == {
        "command_execution": ToolCount(calls=3, failed=1, denied=1),
        "mcp__turn__read_mail": ToolCount(calls=1),
    }


def test_codex_whose_inner_sandbox_did_not_start_is_failed() -> None:
    """One command whose output begins with `bwrap:` fails the run: none of its commands ran, whatever it reports."""
    broken = codex_item("a", "command_execution", exit_code=1, aggregated_output="bwrap: Creating new namespace failed")
    fine = codex_item("b", "command_execution", exit_code=0, aggregated_output="ok")
    result = codex(broken, fine, CODEX_TEXT, CODEX_END)
    assert (result.status, result.report) == (Status.FAILED, None)
    assert "sandbox" in (result.detail or "")


def test_codex_that_cannot_make_its_tools_says_so_on_stderr_only() -> None:
    """Without its tool binaries Codex shows no command at all and succeeds; stderr gives it away."""
    reader = READERS["codex"]()
    reader.feed(b"Refusing to create helper binaries under temporary dir", "stderr")
    reader.feed(json.dumps(CODEX_TEXT).encode())
    reader.feed(json.dumps(CODEX_END).encode())
    assert ending.decide(reader.reading(), RunEnd(exit_code=0), None).status is Status.FAILED


def test_codex_reports_the_last_cumulative_usage() -> None:
    """`turn.completed` is cumulative: two of them are not summed."""
    later = {"type": "turn.completed", "usage": {"input_tokens": 30, "cached_input_tokens": 10, "output_tokens": 9}}
    result = codex(CODEX_TEXT, CODEX_END, {"type": "turn.started"}, CODEX_TEXT, later)
    assert result.usage == Usage(input=20, output=9, cache_read=10)


@pytest.mark.parametrize("stop", ["error", "length", "aborted", "toolUse", ""])
def test_pi_without_stop_is_failed_although_it_exits_0(stop: str) -> None:
    """Only the last `stopReason` tells: anything but `stop` is a failure."""
    result = pi(pi_message(stop, "half", errorMessage="401: no"), PI_END)
    assert (result.status, result.report) == (Status.FAILED, None)


def test_pi_that_recovers_after_a_retry_is_completed() -> None:
    """An error before a retry that worked does not fail the run, and both answers' tokens count."""
    events = (
        pi_message("error", errorMessage="429: slow", tokens=0),
        {"type": "agent_end", "willRetry": True},
        {"type": "auto_retry_start", "attempt": 1},
        pi_message("stop", "done", cost=0.25),
        {"type": "agent_end", "willRetry": False},
    )
    result = pi(*events)
    assert (result.status, result.report) == (Status.COMPLETED, "done")
    assert (result.usage, result.cost_usd) == (Usage(input=5, output=1), Decimal("0.25"))


def test_pi_without_a_price_table_has_no_cost() -> None:
    """Tokens that cost exactly nothing were not priced."""
    result = pi(pi_message("stop", "done"), PI_END)
    assert (result.cost_usd, result.cost_source, result.usage_source) == (None, "none", "agent")


def test_pi_counts_each_message_once_although_it_prints_it_three_times() -> None:
    """turn_end and agent_end repeat what message_end said."""
    message = pi_message("stop", "done", cost=0.5)
    repeats = ({"type": "turn_end", **message}, {"type": "agent_end", "messages": [message["message"]]})
    events = (message, {**repeats[0], "type": "turn_end"}, repeats[1])
    assert pi(*events, PI_END).cost_usd == Decimal("0.5")


def test_pi_tools_that_failed_and_that_were_not_offered() -> None:
    """A tool that does not exist was not allowed; one that raised has failed."""
    said = {"content": [{"type": "text", "text": "Tool bash not found"}]}
    events = (
        {"type": "tool_execution_start", "toolCallId": "a", "toolName": "bash"},
        {"type": "tool_execution_end", "toolCallId": "a", "toolName": "bash", "isError": True, "result": said},
        {"type": "tool_execution_end", "toolCallId": "b", "toolName": "read", "isError": True, "result": {}},
        {"type": "tool_execution_end", "toolCallId": "c", "toolName": "read", "isError": False, "result": {}},
    )
    result = pi(*events, pi_message("stop", "done"), PI_END)
    assert result.tool_calls == {"bash": ToolCount(calls=1, denied=1), "read": ToolCount(calls=2, failed=1)}


def test_line_separators_inside_a_line_do_not_split_it() -> None:
    """U+2028 and a carriage return are legal inside a JSON line; only the line feed ends one."""
    result = claude(claude_result(result="one\u2028two\rthree"))
    raw = json.dumps(claude_result(result="one\u2028two"), ensure_ascii=False).encode()
    assert result.report == "one\u2028two\rthree"
    assert parse_transcript("claude-code", raw, exit_code=0).report == "one\u2028two"


def test_a_command_reports_what_it_printed_and_its_exit_code_decides() -> None:
    """Any CLI: stdout is the report, exit 0 is success, and an unknown exit is none."""
    assert parse_transcript("command", b"all good\n", exit_code=0).report == "all good"
    assert parse_transcript("command", b"all good\n", exit_code=3).status is Status.FAILED
    assert parse_transcript("command", b"all good\n").status is Status.FAILED


def test_a_setup_failure_is_failed_with_the_sandbox_words() -> None:
    """An agent that was never started is failed, with what the sandbox said and where to look."""
    verdict = ending.decide(Reading(), RunEnd(exit_code=1, setup_failure="no user namespaces"), None)
    assert verdict.status is Status.FAILED
    assert "no user namespaces" in verdict.why
    assert verdict.fix


@pytest.mark.parametrize("agent", ["claude-code", "codex", "pi"])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_complaint_before_the_first_event_is_passed_on(agent: str, stream: Any) -> None:
    """An agent that does not start says why in one line that is no event; the result repeats it."""
    reader = READERS[agent]()
    reader.feed(b"error: unknown option '--restricted'\n", stream)
    verdict = ending.decide(reader.reading(), RunEnd(exit_code=1), None)
    assert verdict.status is Status.FAILED
    assert "unknown option '--restricted'" in verdict.why


LINES = [line for path in sorted(TRANSCRIPTS.glob("*.jsonl")) for line in path.read_bytes().split(b"\n") if line]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
KEYS = st.sampled_from(
    [
        "type",
        "subtype",
        "message",
        "content",
        "item",
        "usage",
        "cost",
        "total",
        "id",
        "name",
        "is_error",
        "result",
        "modelUsage",
        "permission_denials",
        "errors",
        "terminal_reason",
        "num_turns",
        "total_cost_usd",
        "error",
        "api_error_status",
        "tool_result_meta",
        "stopReason",
        "role",
        "toolCallId",
    ]
)


@st.composite
def bent_lines(draw: st.DrawFn) -> bytes:
    """A real line with some of its values replaced by anything at all, or a piece cut out of it."""
    line = draw(st.sampled_from(LINES))
    if draw(st.booleans()):
        start, end = draw(st.integers(0, len(line))), draw(st.integers(0, len(line)))
        return line[: min(start, end)] + line[max(start, end) :]
    event = json.loads(line)
    for target in (event, event.get("message"), event.get("item")):
        if isinstance(target, dict) and draw(st.booleans()):
            target[draw(KEYS)] = draw(JSON)
    return json.dumps(event).encode()


@patient
@given(
    st.sampled_from(AGENTS),
    st.lists(st.binary(max_size=200) | bent_lines(), max_size=6),
    st.sampled_from([None, 0, 1, 143]),
)
def test_reading_never_raises(agent: str, pieces: list[bytes], exit_code: int | None) -> None:
    """Whatever the bytes, there is a result, it has a JSON form, and a run without its final event is not completed."""
    result = parse_transcript(agent, b"\n".join(pieces), exit_code=exit_code)
    assert json.loads(json.dumps(result.as_json()))["status"] == result.status
    assert (result.report is not None) == (result.status is Status.COMPLETED)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(
    "line",
    [
        b"[" * 200_000,
        b'{"type":"result","total_cost_usd":' + b"9" * 6000 + b"}",
        b'{"type":"result","subtype":"success","is_error":false,"result":"\\ud800 x","total_cost_usd":NaN}',
        b'{"type":"result","usage":{"input_tokens":1e999},"modelUsage":[1],"num_turns":true}',
        b"\xff\xfe\x00",
    ],
)
def test_hostile_lines_give_a_result(agent: str, line: bytes) -> None:
    """Deep nesting, endless digits, lone surrogates, NaN and infinity are lines like others."""
    result = parse_transcript(agent, line, exit_code=0)
    json.dumps(result.as_json()).encode()
