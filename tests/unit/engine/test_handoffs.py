"""Handoffs over the in-memory store with a runner of the test's: what it is given, what comes back, what is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest

from heinzelwerk import handing
from heinzelwerk.budget import Caps
from heinzelwerk.engine import lending
from heinzelwerk.errors import StoreUnavailable
from heinzelwerk.handoff import (
    AgentInfo,
    HandoffRequest,
    HandoffResult,
    OutputFile,
    SandboxInfo,
    Status,
    ToolAnswer,
    ToolCount,
    TranscriptInfo,
    TurnTool,
    Usage,
)
from heinzelwerk.handoff_job import Task, request_body, transcript_body
from heinzelwerk.ports import Policy
from heinzelwerk.turn import TurnState
from tests.unit.engine.desk import Desk, calls, desk, outcome, returns

TASK = {"task": "Check the docs.", "files": {"a.md": "A"}, "budget_share": 0.5}
KEY = "sk-ant-" + "a1" * 20


@dataclass
class FakeRunner:
    """Remembers what it was asked for and answers what it was told to; calls the turn's tools that it is given."""

    result: HandoffResult
    asks: Sequence[tuple[str, dict[str, Any]]] = ()
    left: bytes = b""
    name: str = "fake"
    asked: list[HandoffRequest] = field(default_factory=list)
    heard: list[ToolAnswer] = field(default_factory=list)

    async def run(
        self,
        request: HandoffRequest,
        *,
        on_event: Callable[[str], None],
        stop: Callable[[], bool],
        turn_tools: Sequence[TurnTool] = (),
    ) -> HandoffResult:
        self.asked.append(request)
        offered = {tool.name: tool for tool in turn_tools}
        self.heard += [await offered[name].call(given) for name, given in self.asks]
        return self.result

    def left_behind(self, run_id: str) -> bytes:
        return self.left


def completed(report: str = "All fine.", **more: Any) -> HandoffResult:
    given: dict[str, Any] = {
        "agent": AgentInfo(name="fake", version="1.2.3"),
        "sandbox": SandboxInfo(backend="bubblewrap"),
        "model": "m",
        "turns": 2,
        "tool_calls": {"Read": ToolCount(calls=3, failed=1)},
        "usage": Usage(input=10, output=5),
        "usage_source": "proxy",
        "cost_usd": Decimal("0.01"),
        "cost_source": "proxy",
    }
    return HandoffResult(status=Status.COMPLETED, report=report, **(given | more))


async def _hand_over(found: Desk, runner: FakeRunner) -> str:
    """What a handoff worker does with the turn's first job."""
    turn = await found.turn()
    assert turn is not None
    works = replace(found.house.works, runners={"fake": runner})
    return await handing.hand_over("core", turn.waits[0].id, works, worker="w")


async def test_the_runner_gets_task_files_contract_and_share_once() -> None:
    """Once: a second doorbell finds nothing to do. The contract's body is the agent's standing instruction."""
    found = await desk(calls(("handoff", TASK)), outcome(), runners=("fake",), policy=Policy(caps=Caps(turn=101_500)))
    await found.go()
    runner = FakeRunner(completed())
    assert await _hand_over(found, runner) == "completed"
    assert await _hand_over(found, runner) == "nothing_due"
    (request,) = runner.asked
    assert (request.prompt, [(file.path, file.data) for file in request.files]) == ("Check the docs.", [("a.md", b"A")])
    assert "### Goal" in request.contract
    assert (request.limits.max_usd, request.limits.timeout_s) == (Decimal("0.05"), 300.0)


async def test_the_spine_keeps_figures_and_hashes_and_the_body_the_words() -> None:
    """step.handoff: runner, model, status, tool counts, cost, duration, hashes of task and report; no word of either."""
    found = await desk(calls(("handoff", TASK)), outcome(), runners=("fake",))
    await found.go()
    transcript = TranscriptInfo(bytes=2, kept=2, sha256="t" * 64, data=b"{}")
    await _hand_over(found, FakeRunner(completed("Fine, says ada@example.com.", transcript=transcript)))
    ended = await found.finish()
    (event,) = await found.events("step.handoff")
    assert (event["runner"], event["agent"], event["agent_version"], event["model"]) == ("fake", "fake", "1.2.3", "m")
    assert (event["status"], event["cost_micros"], event["cost_source"]) == ("completed", 10_000, "proxy")
    assert event["tool_calls"] == {"Read": {"calls": 3, "failed": 1, "denied": 0}}
    assert (event["input_tokens"], event["output_tokens"], event["ms"]) == (10, 5, 0)
    assert event["task_sha256"] == hashlib.sha256(b"Check the docs.").hexdigest()
    assert event["report_sha256"] == hashlib.sha256(b"Fine, says [email].").hexdigest()
    assert event["transcript_sha256"] == "t" * 64
    assert "Fine" not in str(await found.events())
    assert await found.body(transcript_body(event["job"])) == "{}"
    assert ended.usage.cost_micros >= 10_000
    assert "Fine, says [email]." in returns(found.model.requests[-1][0])["c0"].model_response_str()


async def test_a_dead_workers_transcript_is_kept_with_its_interrupted_job() -> None:
    """What a killed run had written goes to the body; the model is told, nothing runs again, the cost counts at the cap."""
    found = await desk(calls(("handoff", TASK)), outcome(), runners=("fake",), policy=Policy(caps=Caps(turn=101_500)))
    await found.go()
    turn = await found.turn()
    assert turn is not None
    await found.store.claim_job("core", turn.waits[0].id, nonce="dead", worker="dead")
    runner = FakeRunner(completed(), left=b"begun\n")
    assert await _hand_over(found, runner) == "held"
    found.clock.pass_(20)
    assert await _hand_over(found, runner) == "interrupted"
    ended = await found.finish()
    assert runner.asked == []
    (event,) = await found.events("step.handoff")
    assert (event["status"], event["report_sha256"]) == ("interrupted", None)
    assert event["transcript_sha256"] == hashlib.sha256(b"begun\n").hexdigest()
    assert await found.body(transcript_body(event["job"])) == "begun\n"
    assert returns(found.model.requests[-1][0])["c0"].outcome == "interrupted"
    assert ended.usage.possible_micros == 50_000


async def test_files_that_came_back_are_listed_with_hashes_and_read_on_demand() -> None:
    """The model reads them by the handoff's id; a wrong id or path is told with what there is; a long one is cut."""
    data = b"| merges | 4 |"
    file = OutputFile(path="found.md", bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), data=data)
    found = await desk(calls(("handoff", TASK)), runners=("fake",), policy=Policy(result_bytes=8))
    await found.go()
    turn = await found.turn()
    assert turn is not None
    job = turn.waits[0].id
    wanted = [(job, "found.md", {}), (job, "found.md", {"start": 9}), (job, "no.md", {}), ("zzz", "found.md", {})]
    reads = [("read_handoff_file", {"handoff": name, "path": path, **more}) for name, path, more in wanted]
    found.model.replies = (*found.model.replies, calls(*reads, prefix="r"), outcome())
    await _hand_over(found, FakeRunner(completed(files=(file,))))
    ended = await found.finish()
    assert ended.state is TurnState.COMPLETED
    told = {name: part.model_response_str() for name, part in returns(found.model.requests[-1][0]).items()}
    assert file.sha256 in told["c0"]
    assert job in told["c0"]
    assert "| merges\n[cut: 6 of 14 characters are missing here]" in told["r0"]
    assert "| 4 |" in told["r1"]
    assert "it left found.md" in told["r2"]
    assert "no ended handoff" in told["r3"]


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"task": "Check.", "files": {"env": f"x\nANTHROPIC={KEY}\n"}}, "env:2 (Anthropic key)"),
        ({"task": "Check.", "files": {"../a": "x"}}, "`..`"),
        ({"task": "Check.", "files": {"out/a": "x"}}, "the agent's"),
        ({"task": " "}, "The task is empty"),
    ],
)
async def test_what_must_not_be_handed_over_is_a_tool_error(task: dict[str, Any], said: str) -> None:
    """Keys, paths that leave, an empty task: the model is told what and where, no job is made."""
    found = await desk(calls(("handoff", task)), outcome(), runners=("fake",))
    ended = await found.finish()
    assert ended.state is TurnState.COMPLETED
    part = returns(found.model.requests[-1][0])["c0"]
    assert part.outcome == "retried"
    assert said in part.model_response_str()
    assert KEY not in part.model_response_str()
    assert [job for commit in found.store.commits for job in commit.jobs] == []


async def test_shares_that_sum_over_one_are_scaled_in_money_and_time() -> None:
    """Three handoffs that each ask for everything get a third; two of a quarter keep it."""
    for shares, scaled in (((1.0, 1.0, 1.0), 1 / 3), ((0.25, 0.25), 0.25)):
        asked = [("handoff", {"task": f"Check {n}.", "budget_share": share}) for n, share in enumerate(shares)]
        policy = Policy(caps=Caps(turn=101_500))
        found = await desk(calls(*asked), outcome(), runners=("fake",), policy=policy)
        await found.go()
        turn = await found.turn()
        assert turn is not None
        jobs = [await found.store.job("core", item.id) for item in turn.waits]
        assert [job.max_micros for job in jobs if job is not None] == [int(100_000 * scaled)] * len(shares)
        assert [round(job.timeout_s, 6) for job in jobs if job is not None] == [round(600 * scaled, 6)] * len(shares)


async def test_the_days_caps_bind_a_handoff_too() -> None:
    """What session and team may still spend today is put aside with the job, and no more than that."""
    policy = Policy(caps=Caps(turn=10_000_000, team_day=1_000_000))
    found = await desk(calls(("handoff", TASK)), outcome(), runners=("fake",), policy=policy)
    await found.go()
    turn = await found.turn()
    assert turn is not None
    job = await found.store.job("core", turn.waits[0].id)
    assert job is not None
    spent = await found.store.spent("core")
    assert job.max_micros == spent.reserved == 1_000_000 - spent.spent


async def test_a_job_that_was_queued_for_long_gets_the_time_that_is_left() -> None:
    """Its result is there before the turn stops waiting for it."""
    found = await desk(calls(("handoff", TASK)), outcome(), runners=("fake",))
    await found.go()
    found.clock.pass_(300)
    runner = FakeRunner(completed())
    await _hand_over(found, runner)
    assert runner.asked[0].limits.timeout_s == pytest.approx(300 + 120 - 300 - handing.CLOSING_S)


def test_an_operators_patterns_lend_read_tools_and_no_other() -> None:
    """The action log, handoffs and their files stay with the turn."""
    names = ["read_page", "search_documents_list", "lessons", "report", "handoff", "read_handoff_file"]
    assert lending.lent(names, ["*"]) == ("read_page", "search_documents_list", "lessons")
    assert lending.lent(names, ["read_*"]) == ("read_page",)
    assert lending.lent(names, []) == ()


async def test_an_agent_reads_through_the_turn_and_each_call_is_on_record() -> None:
    """The turn's own tools with their own answers; wrong arguments are told; the spine counts the calls."""
    found = await desk(calls(("handoff", TASK)), outcome(), runners=("fake",), lends=("read_*", "last_approved"))
    await found.go()
    turn = await found.turn()
    assert turn is not None
    task = Task.model_validate_json(await found.body(request_body(turn.waits[0].id)))
    assert set(task.turn_tools) == {"read_one", "read_two", "read_three", "last_approved"}
    asks = [("read_one", {}), ("read_one", {"x": 1}), ("last_approved", {}), ("last_approved", {"output": "none"})]
    runner = FakeRunner(completed(), asks=asks)
    assert await _hand_over(found, runner) == "completed"
    good, *bad = runner.heard
    assert good.ok
    assert "Hello one." in good.text
    assert [answer.ok for answer in bad] == [False, False, False]
    assert "output" in bad[1].text
    await found.finish()
    (event,) = await found.events("step.handoff")
    assert event["reads"] == {"read_one": {"calls": 2, "failed": 1}, "last_approved": {"calls": 2, "failed": 2}}


async def test_a_result_waits_for_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was paid for: neither a server that is down at its end nor a lease that ran out meanwhile loses it."""
    monkeypatch.setattr(handing, "_LOOK_EVERY_S", 0.0)
    found = await desk(calls(("handoff", TASK)), outcome(), runners=("fake",))
    await found.go()
    close, failed = found.store.close_job, []

    async def down(team: str, job_id: str, **more: Any) -> bool:
        if len(failed) < 3:
            failed.append(job_id)
            found.clock.pass_(10)  # its lease is 15 s long, and nobody renews it here
            raise StoreUnavailable("the server is down")
        return await close(team, job_id, **more)

    monkeypatch.setattr(found.store, "close_job", down)
    assert await _hand_over(found, FakeRunner(completed())) == "completed"
    await found.finish()
    (event,) = await found.events("step.handoff")
    assert (event["status"], event["cost_micros"], len(failed)) == ("completed", 10_000, 3)
