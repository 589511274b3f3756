"""Old turns are summed up by the fast model, only where their lines outgrow the budget; it is a help, not a condition."""

from __future__ import annotations

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from heinzelwerk.engine.trouble import RetryRules
from heinzelwerk.ports import Interrupt, Policy
from heinzelwerk.turn import TurnState
from tests.unit.engine.desk import Desk, desk, outcome
from tests.unit.engine.test_trouble import http

FAST = "spare:scripted"


def fast(heard: list[str], *, fails: bool = False) -> FunctionModel:
    """A fast model that sums up, or fails."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        heard.append(str(messages[-1].parts[-1].content))  # type: ignore[union-attr]
        if fails:
            raise http(503)
        usage = RequestUsage(input_tokens=200, output_tokens=20)
        return ModelResponse(parts=[TextPart("It wrote the page every week.")], usage=usage)

    return FunctionModel(answer, model_name="fast")


async def old(heard: list[str], *, budget: int, fails: bool = False) -> Desk:
    """A desk with four ended turns, whose fifth is about to start."""
    found = await desk(
        outcome(report="Wrote the page of this week, with everything that a reader could want to know of it."),
        policy=Policy(history_tokens=budget),
        settings={"model_fast": FAST},
        models={"spare": lambda name: fast(heard, fails=fails)},
        rules=RetryRules(short_s=(0.0, 0.0)),
    )
    for number in range(1, 5):
        await found.go()
        await found.house.wake(key=f"manual/{number + 1}")
    heard.clear()
    found.model.requests.clear()
    return found


async def test_lines_that_fit_are_never_summed_up() -> None:
    """No model is asked as long as every line stands there."""
    heard: list[str] = []
    found = await old(heard, budget=10_000)
    await found.go()
    assert heard == []
    assert "turn 1," in found.model.heard()


async def test_lines_over_the_budget_cost_one_priced_request() -> None:
    """The summary is a step with its purpose, tokens and cost; its words reach the turn, and the body keeps them."""
    heard: list[str] = []
    found = await old(heard, budget=90)
    await found.go()
    assert len(heard) == 1
    assert "turn 1," in heard[0]
    assert "summed up:\nIt wrote the page every week." in found.model.heard()
    turn = await found.turn(5)
    assert turn is not None
    assert turn.state is TurnState.COMPLETED
    (step,) = [event for event in await found.events("step.model") if event.get("purpose") == "summary"]
    assert (step["model"], step["cost_micros"]) == (FAST, 300)
    assert turn.usage.cost_micros == 300 + 1_500
    assert await found.body("summary", 5) == "It wrote the page every week."
    assert (await found.store.spent("core")).reserved == 0


async def test_a_fast_model_in_trouble_stops_no_turn() -> None:
    """The turn goes on with the lines that fit."""
    heard: list[str] = []
    found = await old(heard, budget=90, fails=True)
    await found.go()
    turn = await found.turn(5)
    assert turn is not None
    assert turn.state is TurnState.COMPLETED
    assert len(heard) == 3
    assert "older turns are left out" in found.model.heard()
    assert (await found.store.spent("core")).reserved == 0


async def test_a_stop_ends_a_summary_that_hangs() -> None:
    """A person does not wait for a model that only helps."""
    import asyncio

    heard: list[str] = []
    found = await old(heard, budget=90)

    async def hangs(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        for held in found.house.keeper.held:
            held.interrupt(Interrupt.STOPPED)
        await asyncio.sleep(60)
        raise AssertionError("nobody waits that long")

    found.engine.fast().model.function = hangs  # type: ignore[union-attr]
    await found.go()
    turn = await found.turn(5)
    assert turn is not None
    assert turn.state is TurnState.CANCELLED
    assert turn.usage.possible_micros > 0
    assert found.model.requests == []
