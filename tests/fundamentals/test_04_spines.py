"""4. The spine is the session's append-only log: a hash chain of small lines. Words live in bodies, which expire."""

from __future__ import annotations

import json

from heinzelwerk.advance import advance
from heinzelwerk.event import line_digest
from heinzelwerk.ids import SessionId
from heinzelwerk.testing.house import House

PAGE = SessionId("core", "page")


async def test_each_line_names_the_hash_of_the_line_before(home: House) -> None:
    """Whoever holds the last hash can tell whether anything before it was changed."""
    await home.wake()
    await advance(PAGE, home.works)
    lines = await home.store.spine(PAGE)
    events = [json.loads(line) for line in lines]
    assert [event["seq"] for event in events] == [1, 2, 3]
    assert events[0]["prev"] is None
    assert events[1]["prev"] == line_digest(lines[0])


async def test_the_draft_is_in_the_body_and_only_its_hash_on_the_spine(home: House) -> None:
    """Everything that reads a spine works when every body is gone."""
    await home.wake()
    await advance(PAGE, home.works)
    spine = b"".join(await home.store.spine(PAGE))
    assert b"The page says hello." not in spine
    outcome = await home.store.body(PAGE, 1, "outcome")
    assert outcome is not None
    assert b"The page says hello." in outcome
