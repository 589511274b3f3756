"""A process dies at any commit: another one goes on, nothing is paid twice, one outcome."""

from __future__ import annotations

import json

import pytest

from heinzelwerk.event import Chain, line_digest
from heinzelwerk.ports import TargetView
from heinzelwerk.session import POISON_CLAIMS
from heinzelwerk.turn import TurnState
from tests.unit.engine.desk import SESSION, Desk, calls, desk, outcome, returns

READ_ALL = calls(
    "read_one", "read_two", ("report", {"verb": "read", "target": "three pages", "description": "Read them."})
)


async def _desk(at: int | None = None, *, written: bool = True) -> Desk:
    found = await desk(calls("read_three", prefix="a"), READ_ALL, outcome())
    found.store.at, found.store.written = at, written
    return found


async def _commits() -> int:
    found = await _desk()
    await found.finish()
    return len(found.store.commits)


async def _whole(found: Desk) -> None:
    """The spine is one gapless chain, with one end, one report and one effect."""
    chain = Chain()
    for line in await found.store.spine(SESSION):
        event = json.loads(line)
        assert (event["seq"], event["prev"]) == (chain.seq + 1, chain.head)
        chain = Chain(event["seq"], line_digest(line))
    for kind in ("turn.started", "turn.ended", "report", "effect.planned"):
        assert len(await found.events(kind)) == 1, kind


async def test_dying_right_after_any_commit_costs_no_request() -> None:
    """Every response is stored before it is acted on, so a successor asks for none again."""
    for at in range(1, await _commits()):
        found = await _desk(at)
        ended = await found.finish()
        assert ended.state is TurnState.COMPLETED, at
        assert len(found.model.requests) == 3, at
        await _whole(found)


async def test_dying_before_any_commit_loses_at_most_the_response_in_it() -> None:
    """The lost request is sent once more, and is on the spine and in the usage as possibly spent."""
    lost = 0
    for at in range(2, await _commits() + 1):
        found = await _desk(at, written=False)
        ended = await found.finish()
        assert ended.state is TurnState.COMPLETED, at
        unknown = await found.events("request.unknown")
        again = found.model.answered - 3
        assert again <= len(unknown) <= 1, at
        assert ended.usage.requests == 3 + len(unknown), at
        assert ended.usage.possible_micros == sum(event["possible_micros"] for event in unknown), at
        lost += again
        await _whole(found)
    assert lost == 3  # each of the three responses once


async def test_the_last_request_holds_each_result_once_whatever_died() -> None:
    """Calls that finished are answered from the record, the others run again; none is told that it was interrupted."""
    for at in range(1, await _commits()):
        found = await _desk(at)
        await found.finish()
        results = returns(found.model.requests[-1][0])
        assert sorted(results) == ["a0", "c0", "c1", "c2"], at
        assert {part.outcome for part in results.values()} == {"success"}, at


async def test_dying_again_and_again_ends_once() -> None:
    """A process that dies after each of its commits is still only slow."""
    found = await _desk()
    for _ in range(29):
        found.store.at = len(found.store.commits) + 2
        try:
            await found.go()
        except Exception:
            found.clock.pass_(20)
        turn = await found.turn()
        if turn is not None and turn.state.ended:
            break
    assert turn is not None
    assert turn.state is TurnState.COMPLETED
    assert len(found.model.requests) == 3
    await _whole(found)


@pytest.mark.parametrize("kill", ["first", "second"])
async def test_a_crash_between_parallel_calls_runs_only_what_had_not_finished(kill: str) -> None:
    """In a batch each result is stored as it finishes."""
    found = await _desk()
    await found.finish()
    per_call = [i for i, commit in enumerate(found.store.commits, 1) if commit.calls]
    assert len(per_call) == 3
    found = await _desk(per_call[0 if kill == "first" else 1])
    await found.finish()
    stored = await found.store.calls(SESSION, 1)
    assert {record.tool for record in stored.values()} == {"read_one", "read_two", "report"}
    assert len(found.model.requests) == 3


async def test_a_bug_in_closing_ends_the_turn_as_poison_and_is_paid_once() -> None:
    """Each claim gets as far as the outcome and dies of it: they count, and none asks a model again."""
    found = await _desk()

    async def view(arguments: object) -> TargetView:
        raise ZeroDivisionError("a bug")

    found.house.wall.view = view  # type: ignore[method-assign]
    for _ in range(POISON_CLAIMS):
        with pytest.raises(ZeroDivisionError):
            await found.go()
        found.clock.pass_(60)
    await found.go()
    ended = await found.turn()
    assert ended is not None
    assert (ended.state, ended.reason) == (TurnState.FAILED, "poison")
    assert len(found.model.requests) == 3
