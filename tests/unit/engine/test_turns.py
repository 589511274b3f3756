"""ADR 0050's Confirmation, the engine's part: what a turn comes to."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai.conversation import ConversationTypeAdapter
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage

from heinzelwerk.budget import Caps
from heinzelwerk.engine import Price, messages
from heinzelwerk.ports import Policy
from heinzelwerk.turn import TurnState
from heinzelwerk.wake import Cause
from tests.unit.engine.desk import NAME, PRICE, SESSION, calls, desk, outcome, returns, says


async def test_a_turn_produces_a_valid_outcome() -> None:
    """The draft passes its gate and is planned as an effect that waits for a person."""
    found = await desk(calls("read_one"), outcome())
    assert (await found.finish()).state is TurnState.COMPLETED
    effect = (await found.store.effects("core"))[0]
    assert (effect.output, effect.action) == ("page", "notes.place")
    assert await found.store.effect_text("core", effect.id) == "The pages say hello."


async def test_an_invalid_outcome_ends_failed_with_the_error() -> None:
    """After the retries the turn fails with the error's type and place; its words are in the body only."""
    found = await desk(outcome(report=17), policy=Policy(retries_of_output=2))
    ended = await found.finish()
    assert ended.state is TurnState.FAILED
    assert ended.reason == "outcome not valid after 2 retries: report: string_type"
    assert "valid string" in await found.body("failure")
    assert len(found.model.requests) == 3
    last = (await found.events("step.tools"))[-1]
    assert last["retries"] == [
        {"tool": "final_result", "call": "end", "cause": "validation_error", "attempt": 3, "limit": 2}
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"draft__contract_version": "v0"}, "contract version"),
        ({"draft__output": "other"}, "does not declare"),
        ({"draft__done_when": [{"item": "Something else.", "met": True, "evidence": "x"}]}, "Done-when"),
    ],
)
async def test_an_outcome_for_another_contract_ends_failed_with_the_reason(change: dict[str, Any], words: str) -> None:
    """Wrong version, undeclared output, wrong set of items: told to the model, then the turn's failure."""
    found = await desk(outcome(**change))
    ended = await found.finish()
    assert ended.state is TurnState.FAILED
    assert words in ended.reason
    assert words in found.model.heard()
    assert await found.store.effects("core") == ()


async def test_a_model_can_mend_its_outcome() -> None:
    """A rejected outcome comes back as that call's own result, and a valid one after it counts."""
    found = await desk(outcome(draft__output="other"), outcome())
    assert (await found.finish()).state is TurnState.COMPLETED
    part = returns(found.model.requests[1][0])["end"]
    assert (part.outcome, part.retry is not None and part.retry.cause) == ("retried", "model_retry")


async def test_an_unmet_item_ends_skipped_and_places_nothing() -> None:
    """A postcondition gates the write."""
    item = {"item": "It says what the pages say.", "met": False, "evidence": "Page two is empty."}
    found = await desk(outcome(draft__done_when=[item]))
    ended = await found.finish()
    assert (ended.state, ended.reason) == (TurnState.SKIPPED, "not done: It says what the pages say.")
    assert await found.store.effects("core") == ()


async def test_the_cap_stops_a_run_between_steps() -> None:
    """A request that does not fit any more is not sent, and what was paid stays counted."""
    found = await desk(calls("read_one"), calls("read_two"), outcome(), policy=Policy(caps=Caps(turn=4_000)))
    ended = await found.finish()
    assert ended.state is TurnState.BUDGET
    assert ended.usage.cost_micros == 1_500 * ended.usage.requests <= 4_000
    assert len(found.model.requests) == ended.usage.requests < 3
    assert (await found.store.spent("core")).reserved == 0


async def test_the_token_ceiling_stops_inside_a_step() -> None:
    """A provider that ignores max_tokens is cut off by what the cap can buy; the response is paid and kept."""
    found = await desk(calls("read_one"), outcome(), policy=Policy(caps=Caps(turn=20_000)))
    found.model.usage = RequestUsage(input_tokens=100, output_tokens=50_000)
    ended = await found.finish()
    assert ended.state is TurnState.BUDGET
    assert ended.usage.cost_micros == 250_100
    assert len(found.model.requests) == 1


async def test_max_tokens_is_always_sent_and_fits_the_cap() -> None:
    """Each request says how much it may bring at most; near the cap that is less."""
    settings = []
    found = await desk(calls("read_one"), outcome(), policy=Policy(caps=Caps(turn=20_000)))
    await found.finish()
    for _, info in found.model.requests:
        assert info.model_settings is not None
        settings.append(info.model_settings["max_tokens"])
        assert info.model_settings["max_retries"] == 0
    assert settings[1] < settings[0] < 8_192


async def _reserved() -> list[int]:
    """What a turn with one round of reading puts aside for each of its two requests."""
    found = await desk(calls("read_one"), outcome())
    await found.finish()
    return [commit.reserve.amount for commit in found.store.commits if commit.reserve]


async def test_a_days_cap_of_the_team_stops_the_turn() -> None:
    """The store refuses the reservation; nothing was sent, everything else of the checkpoint is kept."""
    first, second = await _reserved()
    assert second + 1_500 > first
    found = await desk(calls("read_one"), outcome(), policy=Policy(caps=Caps(team_day=first)))
    ended = await found.finish()
    assert (ended.state, ended.reason) == (TurnState.BUDGET, "the team cap would be crossed")
    assert len(found.model.requests) == 1
    assert len(await found.events("step.tools")) == 1


async def test_a_person_can_raise_the_cap() -> None:
    """`on_budget: ask` waits; one word of a person buys the turn its cap once more."""
    found = await desk(
        calls("read_one"),
        calls("read_two"),
        outcome(),
        policy=Policy(caps=Caps(turn=4_000)),
        extra="  on_budget: ask\n",
    )
    await found.go()
    turn = await found.turn()
    assert turn is not None
    assert turn.state is TurnState.WAITING
    from heinzelwerk.mail import Mail, MailKind

    raised = Mail(id="r1", kind=MailKind.BUDGET_RAISED, turn=1, fills="budget-1", value="raised", by="ada")
    await found.store.post(SESSION, raised)
    await found.go()
    turn = await found.turn()
    assert turn is not None
    assert turn.state is TurnState.COMPLETED
    assert len(found.model.requests) == 3


async def test_a_model_without_a_price_is_refused_before_money_is_spent() -> None:
    """No request is made, the turn says which setting is missing."""
    found = await desk(outcome(), settings={"prices": {}})
    await found.go()
    assert found.model.requests == []
    turn = await found.turn()
    assert turn is not None
    assert turn.state is TurnState.FAILED
    assert "no price" in turn.reason


async def test_a_cost_that_cannot_be_computed_counts_at_the_cap() -> None:
    """A response without usage costs what is left of the turn; the next request is not sent."""
    found = await desk(calls("read_one"), outcome(), policy=Policy(caps=Caps(turn=90_000)))
    found.model.usage = RequestUsage(unmeasured_requests=1)
    ended = await found.finish()
    assert ended.state is TurnState.BUDGET
    assert (ended.usage.unpriced, ended.usage.cost_micros) == (1, 90_000)
    assert (await found.events("step.model"))[0]["unpriced"] is True


async def test_cached_tokens_have_their_own_price() -> None:
    """Cached tokens are a part of the input and cheaper where the table says so."""
    price = Price(Decimal(10), Decimal(50), cache_read=Decimal(1))
    found = await desk(outcome(), settings={"prices": {NAME: price}})
    found.model.usage = RequestUsage(input_tokens=1_000, cache_read_tokens=900, output_tokens=100)
    ended = await found.finish()
    assert ended.usage.cost_micros == 100 * 10 + 900 * 1 + 100 * 50


async def test_a_scheduled_wake_shares_its_cap_between_its_attempts() -> None:
    """`retries: 3` gives each attempt of a schedule a quarter of the cap; a wake by hand gets all of it."""
    first, second = (amount - 8_192 * 5 + 256 * 5 for amount in await _reserved())
    assert second + 1_500 > first
    for cause, requests in ((Cause.SCHEDULED, 1), (Cause.MANUAL, 2)):
        found = await desk(
            calls("read_one"),
            outcome(),
            policy=Policy(caps=Caps(turn=4 * (first + 10))),
            extra="  retries: 3\n",
            wake={"cause": cause},
        )
        await found.go()
        assert len(found.model.requests) == requests


async def test_a_checkpoint_follows_every_step() -> None:
    """One event for each node of the run, in order, and the last one travels with the turn's end."""
    found = await desk(calls("read_one"), calls("read_one", "read_two", prefix="d"), outcome())
    await found.finish()
    kinds = [event["kind"] for event in await found.events()]
    assert kinds[:7] == ["turn.started", *["step.model", "step.tools"] * 3]
    steps = await found.events("step.model", "step.tools")
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5, 6]
    assert found.store.commits[-1].histories
    assert {c.turns[0].steps for c in found.store.commits if c.turns} >= {1, 2, 3, 4, 5, 6}


async def test_the_conversation_round_trips_through_the_turn_body() -> None:
    """What is stored loads into the library's own record, equal after its own round trip."""
    found = await desk(calls("read_one"), outcome())
    ended = await found.finish()
    stored = await found.store.history(SESSION, 1)
    conversation = messages.conversation(messages.load(stored), ended.usage, ended.id())
    again = ConversationTypeAdapter.validate_json(ConversationTypeAdapter.dump_json(conversation))
    assert again.messages == conversation.messages
    assert (again.usage.requests, again.usage.input_tokens) == (2, 2_000)
    assert messages.dump(conversation.messages) == stored


async def test_three_identical_calls_in_a_row_end_the_turn() -> None:
    """The third is paid and not made."""
    found = await desk(calls("read_one"))
    ended = await found.finish()
    assert ended.state is TurnState.FAILED
    assert ended.reason.startswith("loop: read_one")
    assert len(found.model.requests) == 3


async def test_text_instead_of_an_outcome_is_refused() -> None:
    """Plain text is answered, then the turn fails with that."""
    found = await desk(says("All good."))
    ended = await found.finish()
    assert ended.state is TurnState.FAILED
    assert "not valid after 2 retries" in ended.reason


async def test_a_question_waits_and_its_answer_resumes_the_same_turn() -> None:
    """The answer reaches the model behind its own question, in the same conversation."""
    from heinzelwerk.mail import Mail, MailKind

    found = await desk(calls("read_one"), outcome(draft=None, question="Which page?"), outcome())
    await found.go()
    answer = Mail(
        id="a1", kind=MailKind.ANSWER, turn=1, fills="question-1", value="answered", text="The first.", by="ada"
    )
    await found.store.post(SESSION, answer)
    await found.go()
    turn = await found.turn()
    assert turn is not None
    assert turn.state is TurnState.COMPLETED
    assert len(found.model.requests) == 3
    assert found.model.heard().count("The first.") == 1
    assert "Hello one." in found.model.heard()


async def test_retry_budgets_survive_a_resume() -> None:
    """A tool that was refused before the crash is refused as often as before, not anew."""

    def bad(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        n = sum(isinstance(m, ModelResponse) for m in messages)
        return ModelResponse(parts=[ToolCallPart("previous_turns", {"n": 900 + n}, tool_call_id=f"b{n}")])

    whole = await desk(bad)
    await whole.finish()
    assert len(whole.model.requests) == 3
    for at in range(2, len(whole.store.commits)):
        found = await desk(bad)
        found.store.at = at
        ended = await found.finish()
        assert ended.state is TurnState.FAILED
        assert ended.reason == "tool previous_turns not valid after 2 retries: n: less_than_equal", at
        assert len(found.model.requests) == 3, at


async def test_an_outcomes_retry_budget_survives_a_resume() -> None:
    """The same for rejected outcomes."""
    whole = await desk(outcome(report=17))
    await whole.finish()
    for at in range(2, len(whole.store.commits)):
        found = await desk(outcome(report=17))
        found.store.at = at
        ended = await found.finish()
        assert ended.state is TurnState.FAILED
        assert len(found.model.requests) == 3, at


async def test_retries_are_on_the_spine_and_metadata_never_reaches_the_model() -> None:
    """Cause, attempt and limit stand in the step event and in the stored part; the request's text has none of it."""
    found = await desk(calls(("previous_turns", {"n": 0})), outcome())
    await found.finish()
    step = (await found.events("step.tools"))[0]
    assert step["retries"] == [
        {"tool": "previous_turns", "call": "c0", "cause": "validation_error", "attempt": 1, "limit": 2}
    ]
    part = returns(found.model.requests[1][0])["c0"]
    assert "max_retries" not in part.model_response_str()


async def test_the_exhausting_rejection_is_in_the_history() -> None:
    """The library records none; here the last one is there with its attempt, and the history still loads."""
    found = await desk(outcome(report=17))
    await found.finish()
    last = messages.load(await found.store.history(SESSION, 1))[-1]
    part = last.parts[-1]
    assert part.retry.attempt == 3
    assert part.outcome == "retried"


def test_the_price_of_the_double() -> None:
    """The tests' own arithmetic: 1,000 tokens in and 100 out at 1 and 5 dollars a million."""
    assert 1_000 * PRICE.input + 100 * PRICE.output == 1_500
    assert json.dumps({"usd": 0.0015}) == '{"usd": 0.0015}'
