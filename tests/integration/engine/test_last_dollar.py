"""Eight workers race for the last money of a team's day, on a real server."""

from __future__ import annotations

import asyncio

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from heinzelwerk import advance
from heinzelwerk.budget import Caps
from heinzelwerk.engine import Models, ModelSettings, PydanticEngine
from heinzelwerk.ids import SessionId
from heinzelwerk.ports import Policy
from heinzelwerk.store.client import RedisStore
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.testing import house
from heinzelwerk.testing.house import HandClock, House
from heinzelwerk.turn import TurnRecord, TurnState
from tests.support.server import Server
from tests.unit.engine.desk import NAME, PRICE

WORKERS = 8
REQUEST = 1_500  # micro-dollars of each answer below


def model(asked: list[str]) -> FunctionModel:
    """Reads for ever, a little differently each time; every answer costs the same and takes a moment."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append("request")
        await asyncio.sleep(0.002)
        count = sum(isinstance(message, ModelResponse) for message in messages)
        call = ToolCallPart("previous_turns", {"n": count % 50 + 1}, tool_call_id=f"c{count}")
        return ModelResponse(parts=[call], usage=RequestUsage(input_tokens=1000, output_tokens=100))

    return FunctionModel(answer, model_name="scripted")


async def worker(server: Server, policy: Policy, asked: list[str]) -> tuple[House, RedisStore]:
    """A process of its own as far as the store can see: its own connections, engine and model."""
    clock, store = HandClock(), RedisStore(server.url, StoreOptions())
    settings = ModelSettings(model=NAME, prices={NAME: PRICE}, max_tokens=1_000)
    models = Models(settings, factories={"double": lambda name: model(asked)})
    engine = PydanticEngine(models, policy, {"documents": house.Pages()}, clock=clock)
    return house.build(engine=engine, store=store, clock=clock, policy=policy), store


async def test_the_overshoot_is_at_most_the_requests_in_flight(server: Server) -> None:
    """No worker sends what the day no longer holds; ledger, turns and the providers' count agree to the micro-dollar."""
    asked: list[str] = []
    cap = 60_000
    policy = Policy(caps=Caps(team_day=cap))
    workers = [await worker(server, policy, asked) for _ in range(WORKERS)]
    first = workers[0][0]
    await first.store.prepare()
    names = [f"page-{n}" for n in range(WORKERS)]
    await first.load(*(house.page(name) for name in names))
    for name in names:
        await first.wake(name, key=f"manual/{name}")
    await asyncio.gather(
        *(
            advance.advance(SessionId(house.TEAM, name), own.works)
            for name, (own, _) in zip(names, workers, strict=True)
        )
    )
    found = [await first.store.turn(SessionId(house.TEAM, name), 1) for name in names]
    turns: list[TurnRecord] = [turn for turn in found if turn is not None]
    assert [turn.state for turn in turns] == [TurnState.BUDGET] * WORKERS
    assert {turn.reason for turn in turns} == {"the team cap would be crossed"}
    day = await first.store.spent(house.TEAM)
    assert day.spent == sum(turn.usage.cost_micros for turn in turns) == len(asked) * REQUEST
    assert (day.reserved, day.possible) == (0, 0)
    assert cap - 20_000 < day.spent <= cap  # reservations are larger than costs: nothing overshoots, little is left
    for _, store in workers:
        await store.close()
