"""The vendors' real client libraries against a server that speaks their protocols: turns, trouble, money."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest

from heinzelwerk.engine import Price
from heinzelwerk.engine.run import Fragment
from heinzelwerk.engine.trouble import RetryRules
from heinzelwerk.ports import Policy
from heinzelwerk.turn import TurnRecord, TurnState
from heinzelwerk.wake import Cause
from tests.support.fake_model import HANG, Answer, FakeModel, Seen, Tokens, calls, fails, fake_model, says
from tests.unit.engine.desk import Desk, desk

NAMES = ("anthropic:fake-model", "openai-chat:fake-model", "openai:fake-model")
PRICE = Price(Decimal(1), Decimal(5), cache_read=Decimal("0.1"))
RULES = RetryRules(short_s=(0.0, 0.0), parks=1)
TOKENS = Tokens(input=1_000, output=100, cache_read=0)
CHAT = {"cause": Cause.ASKED, "key": "asked/test/1", "text": "Please do.", "conversation": "c"}
Step = Answer | Callable[[Seen], Answer]


def outcome(seen: Seen) -> Answer:
    """The outcome that fits the turn, read from the request like a model reads it."""
    body = seen.body
    system = body.get("system") or body.get("instructions") or body["messages"][0]["content"]
    words = system if isinstance(system, str) else "".join(block["text"] for block in system)
    facts = json.loads(words.rpartition("<turn-facts>")[2].partition("</turn-facts>")[0])
    done = [{"item": item, "met": True, "evidence": "read"} for item in facts["done_when"]]
    draft = {"text": "Hello.", "output": "page", "contract_version": facts["contract_version"], "done_when": done}
    return Answer(tool="final_result", arguments={"report": "Wrote it.", "draft": draft}, tokens=TOKENS)


@asynccontextmanager
async def served(name: str, *steps: Step, key: str | None = None, **more: Any) -> AsyncIterator[tuple[Desk, FakeModel]]:
    """A desk whose model is the real client, and the server that it talks to; the last step repeats."""
    count = [0]

    def script(seen: Seen) -> Answer:
        step = steps[min(count[0], len(steps) - 1)]
        count[0] += 1
        return step if isinstance(step, Answer) else step(seen)

    async with fake_model(script, key=key) as model:
        base_url = model.url if name.startswith("anthropic") else f"{model.url}/v1"
        keys = {"anthropic": "right", "openai": "right", "openai-chat": "right"}
        settings = {"model": name, "base_url": base_url, "keys": keys, "prices": {name: PRICE}}
        found = await desk(settings=settings, rules=RULES, **more)
        try:
            yield found, model
        finally:
            await found.engine.close()


async def agree(found: Desk, model: FakeModel, ended: TurnRecord) -> None:
    """The server's own count, the spine's attempts, the turn's usage and the day's ledger say the same."""
    steps = await found.events("step.model")
    assert len(model.asked) == len(steps) == ended.usage.requests
    assert sum(step["cost_micros"] for step in steps if "cost_micros" in step) == ended.usage.cost_micros
    assert sum(step.get("possible_micros", 0) for step in steps) == ended.usage.possible_micros
    day = await found.store.spent("core")
    assert (day.spent, day.possible, day.reserved) == (ended.usage.cost_micros, ended.usage.possible_micros, 0)


@pytest.mark.parametrize("name", NAMES)
async def test_a_turn_with_tools_and_a_structured_outcome(name: str) -> None:
    """Reading tools, a typed outcome, tokens and money as the wire reported them."""
    async with served(name, Answer(tool="read_one", tokens=TOKENS), outcome) as (found, model):
        ended = await found.finish()
        assert (ended.state, ended.reason) == (TurnState.COMPLETED, "")
        assert "Hello one." in json.dumps(model.asked[1].body)
        assert (ended.usage.input_tokens, ended.usage.output_tokens) == (2_000, 200)
        assert ended.usage.cost_micros == 2 * 1_500
        await agree(found, model, ended)
        for seen in model.asked:
            limits = [seen.body.get(key) for key in ("max_tokens", "max_completion_tokens", "max_output_tokens")]
            assert any(limits)
            assert not seen.body.get("stream")


@pytest.mark.parametrize("name", NAMES)
async def test_a_rejection_reaches_the_wire_without_its_record(name: str) -> None:
    """The provider gets the words that say what was wrong; causes, attempts and limits are ours and in no request."""
    wrong = calls("previous_turns", n=0)
    async with served(name, wrong, outcome) as (found, model):
        assert (await found.finish()).state is TurnState.COMPLETED
        sent = json.dumps(model.asked[1].body)
        assert "greater than or equal to 1" in sent
        (step,) = [event for event in await found.events("step.tools") if event.get("retries")]
        assert (step["retries"][0]["cause"], step["retries"][0]["limit"]) == ("validation_error", 2)
        for word in ("validation_error", "max_retries", '"attempt"', '"retry"'):
            assert word not in sent, word


@pytest.mark.parametrize("name", NAMES)
async def test_a_chat_streams_to_its_readers(name: str) -> None:
    """The same turn streamed: readers hear the words as they come, with the attempt they belong to."""
    heard: list[Fragment] = []

    async def reader(fragment: Fragment) -> None:
        heard.append(fragment)
        raise ConnectionError("this reader has gone")

    steps = (says("Let me see.", tokens=TOKENS), outcome)
    async with served(name, *steps, wake=CHAT, fragments=reader) as (found, model):
        ended = await found.finish()
        assert (ended.state, ended.reason) == (TurnState.COMPLETED, "")
        assert "".join(fragment.text for fragment in heard) == "Let me see."
        assert {fragment.attempt for fragment in heard} == {1}
        assert all(seen.body["stream"] for seen in model.asked)
        await agree(found, model, ended)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("status", "error"), [(429, "rate_limit_error"), (529, "overloaded_error"), (500, "api_error")]
)
async def test_each_attempt_of_ours_is_one_request_of_theirs(name: str, status: int, error: str) -> None:
    """The clients' own retries are off: two failures and an answer are three requests."""
    async with served(name, fails(status, error), fails(status, error), outcome) as (found, model):
        ended = await found.finish()
        assert ended.state is TurnState.COMPLETED
        assert len(model.asked) == 3
        assert ended.usage.possible_micros == 0
        await agree(found, model, ended)


@pytest.mark.parametrize("name", NAMES)
async def test_a_retry_after_is_read_from_the_answer(name: str) -> None:
    """Longer than a segment waits: the turn parks for at least that long."""
    async with served(name, fails(429, "rate_limit_error", retry_after="77"), outcome) as (found, model):
        assert (await found.go()).did == "waiting"
        turn = await found.turn()
        assert turn is not None
        assert turn.waits[0].deadline_ms >= found.clock.ms() + 77_000
        await agree(found, model, await found.finish())


@pytest.mark.parametrize("name", NAMES)
async def test_a_cut_stream_is_tried_again_and_counted_as_possibly_spent(name: str) -> None:
    """Half a response is none: the next attempt starts afresh, and the first may have been charged."""
    heard: list[Fragment] = []

    async def reader(fragment: Fragment) -> None:
        heard.append(fragment)

    cut = Answer(text="Half of it", cut_after=3, tokens=TOKENS)
    async with served(name, cut, outcome, wake=CHAT, fragments=reader) as (found, model):
        ended = await found.finish()
        assert ended.state is TurnState.COMPLETED
        assert len(model.asked) == 2
        assert ended.usage.possible_micros > 0
        await agree(found, model, ended)


@pytest.mark.parametrize("name", NAMES)
async def test_a_request_that_hangs_is_cut_by_its_time(name: str) -> None:
    """It may have been spent; the next attempt answers."""
    async with served(name, HANG, outcome, policy=Policy(request_timeout_s=0.5)) as (found, model):
        ended = await found.finish()
        assert ended.state is TurnState.COMPLETED
        assert ended.usage.possible_micros > 0
        assert (await found.events("step.model"))[0]["failed"] == "timeout"
        await agree(found, model, ended)


@pytest.mark.parametrize("name", NAMES)
async def test_a_wrong_key_ends_the_turn_at_the_first_answer(name: str) -> None:
    """One request, no cost, and a reason that says it was refused."""
    async with served(name, outcome, key="other") as (found, model):
        ended = await found.finish()
        assert ended.state is TurnState.FAILED
        assert "not_allowed (401)" in ended.reason
        assert len(model.asked) == 1
        assert ended.usage.counted_micros == 0
        assert "right" not in json.dumps(await found.events())


@pytest.mark.parametrize("name", NAMES)
async def test_a_gateway_that_is_not_there_costs_nothing(name: str) -> None:
    """A refused connection is tried again, parked, and then a clear failure; nothing counts as spent."""
    async with served(name, outcome) as (found, model):
        found_model = model.url
    assert found_model
    ended = await found.finish()
    assert ended.state is TurnState.FAILED
    assert "connection" in ended.reason
    assert ended.usage.counted_micros == 0


@pytest.mark.parametrize("name", NAMES)
async def test_a_retry_arrives_on_the_native_error_channel(name: str) -> None:
    """A rejected call comes back as that call's result, marked as an error where the protocol has a mark for it."""
    async with served(name, calls("previous_turns", n=900), outcome) as (found, model):
        assert (await found.finish()).state is TurnState.COMPLETED
        body = model.asked[1].body
        if name.startswith("anthropic"):
            block = body["messages"][-1]["content"][0]
            assert (block["type"], block["is_error"]) == ("tool_result", True)
        elif name.startswith("openai-chat"):
            assert body["messages"][-1]["role"] == "tool"
            assert "error" in json.loads(body["messages"][-1]["content"])
        else:
            assert body["input"][-1]["type"] == "function_call_output"
            assert "error" in json.loads(body["input"][-1]["output"])
        assert "max_retries" not in json.dumps(body)


@pytest.mark.parametrize("name", NAMES)
async def test_an_answer_without_usage_counts_at_the_cap(name: str) -> None:
    """A gateway that reports no tokens cannot be counted, so the turn ends at its cap after one request."""
    from heinzelwerk.budget import Caps

    blind = Answer(tool="read_one", usage=False)
    async with served(name, blind, outcome, policy=Policy(caps=Caps(turn=90_000))) as (found, model):
        ended = await found.finish()
        assert len(model.asked) == 1
        if name.startswith("anthropic"):  # its client cannot read such an answer at all
            assert ended.reason == f"provider: unreadable from {name}"
            assert ended.usage.possible_micros > 0
        else:
            assert (ended.state, ended.usage.cost_micros) == (TurnState.BUDGET, 90_000)


@pytest.mark.parametrize("name", NAMES)
async def test_a_resumed_turn_sends_what_an_undisturbed_one_would(name: str) -> None:
    """After a crash the next request is the same to the byte, but for the provider's own ids: its cache still serves."""

    def plain(seen: Seen) -> str:
        return re.sub(r"(?:toolu|call|fc|resp|msg)_[0-9a-z_]+", "ID", json.dumps(seen.body, sort_keys=True))

    bodies = []
    for at in (None, 4):
        async with served(name, Answer(tool="read_one", tokens=TOKENS), outcome) as (found, model):
            found.store.at = at
            ended = await found.finish()
            assert ended.state is TurnState.COMPLETED
            assert len(model.asked) == 2
            bodies.append(plain(model.asked[1]))
    assert bodies[0] == bodies[1]
