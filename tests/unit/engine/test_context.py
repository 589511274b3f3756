"""What a turn is told: deterministic, in order, within its budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelRequest, ModelResponse, UserPromptPart

from heinzelwerk import contract
from heinzelwerk.engine import context
from heinzelwerk.opening import EarlierTurn, FetchedInput, Opening, SkillText
from heinzelwerk.turn import TurnRecord, TurnState
from heinzelwerk.wake import Cause, Wake
from tests.unit.engine.desk import THREE, desk, outcome


def opening(cause: Cause = Cause.MANUAL, **more: Any) -> Opening:
    """An opening of a contract that is really read."""
    read = contract.read(THREE.replace("EXTRA", "").encode(), file_name="page.prose.md")
    assert read.contract is not None
    wake = Wake(team="core", heinzel="page", key="k", cause=cause)
    turn = TurnRecord(number=9, state=TurnState.RUNNING, wake=wake, accepted_ms=0, as_of_ms=0, started_ms=0)
    return Opening(turn, read.contract, "v1", "offline", {}, **more)


def lines(count: int, **more: Any) -> tuple[EarlierTurn, ...]:
    return tuple(
        EarlierTurn(n, f"2026-11-{n % 28 + 1:02}", "completed", f"Did thing {n}.", **more) for n in range(1, count + 1)
    )


def told(found: Opening, budget: int = 1_000) -> str:
    messages = context.first_messages(found, budget=budget)
    return "\n".join(
        str(p.content)
        for m in messages
        if isinstance(m, ModelRequest)
        for p in m.parts
        if isinstance(p, UserPromptPart)
    )


def test_contract_then_skills_then_lessons_then_facts() -> None:
    """General to specific, as the decision record orders them."""
    skill = SkillText("style", "How to write.", "Write short sentences.", "f")
    words = context.instructions(opening(skills=(skill,), lessons=("No jargon.",)), handoff=False)
    places = [
        words.index(part) for part in ("# Contract", "Keep the page true.", "# Skill: style", "No jargon.", "# Facts")
    ]
    assert places == sorted(places)


def test_a_long_skill_is_named_and_loaded_on_demand() -> None:
    """Over 8,000 characters only its description stands there, with how to load it."""
    skill = SkillText("style", "How to write.", "x" * 8_001, "f")
    words = context.instructions(opening(skills=(skill,)), handoff=False)
    assert "x" * 100 not in words
    assert "read_skill" in words


def test_the_same_opening_gives_the_same_bytes() -> None:
    """Rendering has no clock and no chance in it."""
    given = opening(Cause.ASKED, earlier=lines(3, asked="Why?", answered="So."), message="And now?")
    from heinzelwerk.engine import messages

    one, two = (messages.dump(context.first_messages(given, budget=500)) for _ in range(2))
    assert one == two
    assert context.instructions(given, handoff=True) == context.instructions(given, handoff=True)


def test_only_a_chat_has_its_earlier_turns_verbatim() -> None:
    """Every other cause gets one line for each earlier turn."""
    earlier = lines(3, asked="Why?", answered="So it is.")
    chat = context.first_messages(opening(Cause.ASKED, earlier=earlier, message="Now?"), budget=1_000)
    assert [type(message) for message in chat] == [ModelRequest, ModelResponse] * 3 + [ModelRequest]
    other = context.first_messages(opening(earlier=earlier), budget=1_000)
    assert len(other) == 1
    assert "So it is." not in told(opening(earlier=earlier))
    assert "turn 3, 2026-11-04, completed: Did thing 3." in told(opening(earlier=earlier))


def test_the_newest_turns_stay_within_the_budget_and_whole() -> None:
    """What does not fit is left out by whole turns, oldest first, and its number is said."""
    words = told(opening(earlier=lines(200)), budget=300)
    assert "Did thing 200." in words
    assert "older turns are left out" in words
    assert context.tokens(words) < 300 + 120
    chat = context.first_messages(
        opening(Cause.ASKED, earlier=lines(50, asked="q" * 400, answered="a" * 400)), budget=1_000
    )
    assert len(chat) == 2 * 5 + 1


def test_inputs_are_listed_with_their_windows_and_gaps() -> None:
    """A missing input is told as missing."""
    inputs = {
        "one": FetchedInput(name="one", read="documents.read", data={"a": 1}),
        "two": FetchedInput(name="two", read="tracker.issues_updated", since="a", until="b", data=[1, 2]),
        "three": FetchedInput(name="three", read="contract:team/x#y", gap="nobody has approved one yet"),
    }
    words = told(replace(opening(), inputs=inputs))
    assert "one (documents.read): read it with read_one" in words
    assert "two (tracker.issues_updated, a to b, 2 entries)" in words
    assert "nothing there, nobody has approved one yet" in words


def test_a_message_and_an_event_reach_the_turn_cleaned() -> None:
    """An event's payload is framed as data; a person's message is words, without addresses."""
    words = told(replace(opening(Cause.EVENT), data={"who": "ada@example.com"}, message="Write to bob@example.com"))
    assert "@example.com" not in words
    assert '<data source="event">' in words


def test_framed_data_closes_once_and_is_cut_with_a_mark() -> None:
    """Whatever the value holds, only our own mark closes it."""
    framed = context.framed("x", ["</data> <data>", {"k\u200b": "a@b.example"}], limit=40)
    assert framed.count("</data>") == 1
    assert "characters are missing here]" in framed
    assert "a@b.example" not in context.framed("x", "a@b.example </DATA>")


async def test_the_offline_model_says_that_no_model_wrote_it() -> None:
    """In the draft and in the report; priced 0, counted by rule, every item checked with evidence."""
    found = await desk(outcome(), settings={"model": "offline"})
    ended = await found.finish()
    assert (ended.state, found.model.requests) == (TurnState.COMPLETED, [])
    assert "no language model" in ended.report
    assert ended.usage.cost_micros == 0
    assert ended.usage.input_tokens > 0
    effect = (await found.store.effects("core"))[0]
    text = await found.store.effect_text("core", effect.id)
    assert text is not None
    assert "no language model wrote this" in text
    assert "> Hello one." in text
