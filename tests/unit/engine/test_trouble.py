"""A provider in trouble: short waits, stored waits, the fallback, a clear failure; every attempt counted."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from pydantic_ai import exceptions
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from heinzelwerk.engine.trouble import Circuit, Enough, Park, RetryRules, Wait, classify, next_step
from heinzelwerk.turn import TurnState, WaitKind
from tests.unit.engine.desk import Desk, Reply, calls, desk, outcome

RULES = RetryRules(short_s=(0.0, 0.0))


def http(status: int, *, after: float | None = None) -> Exception:
    category = {
        401: exceptions.ModelAuthenticationError,
        402: exceptions.ModelQuotaExceededError,
        404: exceptions.ModelNotFoundError,
        429: exceptions.ModelRateLimitError,
        500: exceptions.ModelServerError,
        503: exceptions.ModelUnavailableError,
        529: exceptions.ModelOverloadedError,
    }[status]
    return exceptions.ModelHTTPError.for_category(
        category, status_code=status, model_name="scripted", retry_after=after
    )


def fails(times: int, error: Callable[[], Exception], reply: Reply) -> tuple[Reply, list[int]]:
    """A reply that raises so many times first; the list counts every request that it heard."""
    heard: list[int] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        heard.append(1)
        if len(heard) <= times:
            raise error()
        found = reply(messages, info)
        assert isinstance(found, ModelResponse)
        return found

    return answer, heard


async def attempts(found: Desk) -> int:
    return len(await found.events("step.model"))


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_a_short_trouble_is_waited_out_in_the_segment(status: int) -> None:
    """Two failures are two attempts on the spine with their status; the third answers, and nothing was paid for the first two."""
    reply, heard = fails(2, lambda: http(status), outcome())
    found = await desk(reply, rules=RULES)
    ended = await found.finish()
    assert ended.state is TurnState.COMPLETED
    assert len(heard) == await attempts(found) == ended.usage.requests == 3
    assert (ended.usage.cost_micros, ended.usage.possible_micros) == (1_500, 0)
    failed = [event for event in await found.events("step.model") if "failed" in event]
    assert [(event["status"], event["attempt"]) for event in failed] == [(status, 1), (status, 2)]
    assert ended.segment == 1


@pytest.mark.parametrize(
    ("error", "spent"),
    [
        (lambda: exceptions.ModelRequestTimeout("scripted", 120.0), True),
        (lambda: exceptions.ModelConnectionError("scripted", "refused", phase="connect"), False),
        (lambda: exceptions.ModelConnectionError("scripted", "cut", phase="read"), True),
        (lambda: httpx.ConnectError("refused"), False),
        (lambda: httpx.ReadError("cut"), True),
    ],
)
async def test_what_may_have_been_spent_is_booked_as_possible(error: Callable[[], Exception], spent: bool) -> None:
    """A request that may have reached the provider keeps its reservation as possible spend; a refused connection does not."""
    reply, _ = fails(1, error, outcome())
    found = await desk(reply, rules=RULES)
    ended = await found.finish()
    assert ended.state is TurnState.COMPLETED
    assert (ended.usage.possible_micros > 0) is spent
    day = await found.store.spent("core")
    assert day.spent + day.possible == ended.usage.counted_micros
    assert day.reserved == 0


async def test_the_third_wait_in_a_segment_is_stored() -> None:
    """The worker is freed; the turn waits with a retry item and goes on in a new segment."""
    reply, heard = fails(3, lambda: http(529), outcome())
    found = await desk(reply, rules=RULES)
    did = await found.go()
    assert did.did == "waiting"
    turn = await found.turn()
    assert turn is not None
    assert [item.kind for item in turn.waits] == [WaitKind.RETRY]
    assert turn.waits[0].deadline_ms > found.clock.ms()
    assert turn.holds_session
    ended = await found.finish()
    assert ended.state is TurnState.COMPLETED
    assert len(heard) == await attempts(found) == 4
    assert ended.segment == 2


async def test_a_long_retry_after_is_obeyed_by_a_stored_wait() -> None:
    """A wanted wait over 20 s frees the worker at once and is not shortened."""
    reply, _ = fails(1, lambda: http(429, after=90.0), outcome())
    found = await desk(reply, rules=RULES)
    await found.go()
    turn = await found.turn()
    assert turn is not None
    assert turn.waits[0].deadline_ms >= found.clock.ms() + 90_000


async def test_after_every_wait_the_fallback_is_asked() -> None:
    """The configured fallback answers with its own price, and the spine says who did and why."""
    reply, heard = fails(99, lambda: http(503), outcome())
    spare: list[int] = []

    def other(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        spare.append(1)
        found = outcome()(messages, info)
        assert isinstance(found, ModelResponse)
        found.usage = RequestUsage(input_tokens=10, output_tokens=10)
        return found

    found = await desk(
        reply,
        rules=RetryRules(short_s=(), parks=2),
        settings={"fallback": "spare:scripted"},
        models={"spare": lambda name: FunctionModel(other, model_name="spare")},
    )
    ended = await found.finish()
    assert ended.state is TurnState.COMPLETED
    assert (len(heard), len(spare)) == (3, 1)
    fell = (await found.events("model.fallback"))[0]
    assert (fell["from"], fell["to"], fell["why"]) == ("double:scripted", "spare:scripted", "unavailable")
    assert (await found.events("step.model"))[-1]["model"] == "spare:scripted"


async def test_without_a_fallback_the_turn_fails_with_the_providers_words() -> None:
    """The reason names trouble, status and model; the provider's message is in the body."""
    reply, heard = fails(99, lambda: http(500), outcome())
    found = await desk(reply, rules=RetryRules(short_s=(0.0,), parks=2))
    ended = await found.finish()
    assert ended.state is TurnState.FAILED
    assert ended.reason == "provider: server_error (500) from double:scripted"
    assert "500" in await found.body("failure")
    assert len(heard) == await attempts(found)


@pytest.mark.parametrize("status", [401, 402, 404])
async def test_what_cannot_get_better_is_not_tried_again(status: int) -> None:
    """A wrong key, an empty account or an unknown model ends the turn at the first answer."""
    reply, heard = fails(99, lambda: http(status), outcome())
    found = await desk(reply, rules=RULES)
    ended = await found.finish()
    assert ended.state is TurnState.FAILED
    assert len(heard) == 1
    assert ended.usage.counted_micros == 0


async def test_an_answer_that_breaks_the_library_ends_the_turn_with_its_words() -> None:
    """Not as a dead worker, again and again: once, with the error in the body and the money counted as possibly spent."""

    def broken(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise KeyError("usage")

    found = await desk(broken)
    ended = await found.finish()
    assert ended.state is TurnState.FAILED
    assert ended.reason == "provider: unreadable from double:scripted"
    assert "KeyError" in await found.body("failure")
    assert ended.usage.possible_micros > 0


async def test_an_open_circuit_parks_turns_without_asking() -> None:
    """While a provider is known to be down, turns wait apart from each other and send nothing."""
    reply, heard = fails(99, lambda: http(529), outcome())
    found = await desk(reply, rules=RetryRules(short_s=(), parks=50))
    for _ in range(5):
        await found.go()
        found.clock.pass_(2_000)
    before = len(heard)
    await found.go()
    assert len(heard) == before + 1  # one may try when the time is over
    turn = await found.turn()
    assert turn is not None
    assert turn.state is TurnState.WAITING


def test_a_circuit_opens_after_failures_and_lets_one_through() -> None:
    """Five failures open it; after its time one caller may try, and a success closes it."""
    circuit = Circuit()
    for n in range(4):
        circuit.failed(float(n))
        assert circuit.blocked_s(float(n)) == 0
    circuit.failed(4.0)
    assert circuit.blocked_s(5.0) == 29.0
    assert circuit.blocked_s(34.0) == 0
    assert circuit.blocked_s(34.5) > 0
    circuit.succeeded()
    assert circuit.blocked_s(34.6) == 0


def test_waits_grow_and_are_spread() -> None:
    """Stored waits double up to their limit; two turns with other jitter never wait the same time."""
    trouble = classify(http(503))
    assert trouble is not None
    rules = RetryRules()
    steps = [next_step(trouble, rules, waited=2, parked=n, jitter=0.0) for n in range(6)]
    assert [step.seconds for step in steps if isinstance(step, Park)] == [30, 60, 120, 240, 480, 900]
    assert next_step(trouble, rules, waited=2, parked=6, jitter=0.0) == Enough()
    assert next_step(trouble, rules, waited=0, parked=0, jitter=0.5) == Wait(1.25)
    one, two = (next_step(trouble, rules, waited=2, parked=0, jitter=j) for j in (0.1, 0.9))
    assert one != two


async def test_a_crash_during_trouble_keeps_the_count() -> None:
    """Attempts on the spine stay the provider's own count, whatever commit the process dies after."""

    async def build(at: int | None) -> tuple[Desk, list[int]]:
        reply, heard = fails(2, lambda: http(429), outcome())
        found = await desk(calls("read_one"), reply, rules=RULES)
        found.store.at = at
        return found, heard

    plain, _ = await build(None)
    await plain.finish()
    for at in range(2, len(plain.store.commits)):
        found, heard = await build(at)
        ended = await found.finish()
        assert ended.state is TurnState.COMPLETED
        assert len(await found.events("step.model")) == 1 + len(heard), at
        day = await found.store.spent("core")
        assert day.spent + day.possible == ended.usage.counted_micros, at
