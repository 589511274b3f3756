"""What a turn stores grows with what was said, not with its square."""

from __future__ import annotations

from heinzelwerk.commit import Commit
from heinzelwerk.ports import Policy
from tests.unit.engine.desk import SESSION, Desk, calls, desk, outcome

PAGE = "x" * 5_000


async def worked(rounds: int) -> Desk:
    """A turn with this many tool calls, 5 KB each, one after the other."""
    reads = ("read_one", "read_two", "read_three")
    replies = [calls(reads[at % 3], prefix=f"c{at}-") for at in range(rounds)]
    found = await desk(*replies, outcome(), policy=Policy(max_requests=500, max_tool_calls=500))
    for name in ("one.md", "two.md", "three.md"):
        found.house.pages.pages[name] = PAGE
    turn = await found.finish()
    assert turn.state.value == "completed", turn.reason
    assert turn.usage.tool_calls >= rounds
    return found


def written(commit: Commit) -> int:
    """The bytes that a commit hands to the store."""
    texts = (
        *commit.lines,
        *(turn.model_dump_json().encode() for turn in commit.turns),
        *(item for one in commit.histories for item in one.items),
        *(one.record for one in commit.calls),
        *(body.content for body in commit.bodies),
    )
    return sum(map(len, texts))


async def stored(found: Desk) -> int:
    """The bytes that stay: spine, messages, call ledger, bodies."""
    store = found.store
    bodies = [await store.body(SESSION, 1, name) or b"" for name in await store.body_names(SESSION, 1)]
    calls = (await store.calls(SESSION, 1)).values()
    kept = (*await store.spine(SESSION), *await store.history(SESSION, 1), *bodies)
    return sum(map(len, kept)) + sum(len(one.model_dump_json()) for one in calls)


async def test_twice_the_calls_are_about_twice_the_bytes() -> None:
    """At 50 and 100 tool calls of 5 KB: what is stored, and what all checkpoints together have written."""
    half, whole = await worked(50), await worked(100)
    assert await stored(whole) / await stored(half) <= 2.2
    assert sum(map(written, whole.store.commits)) / sum(map(written, half.store.commits)) <= 2.2
