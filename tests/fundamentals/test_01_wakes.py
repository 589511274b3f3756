"""1. A wake is one reason to start a turn. Its key makes it one, however often it is delivered."""

from __future__ import annotations

from heinzelwerk.advance import advance
from heinzelwerk.ids import SessionId
from heinzelwerk.testing.house import House
from heinzelwerk.wake import Cause, Disposition, Wake

PAGE = SessionId("core", "page")


async def test_the_same_key_is_accepted_once(home: House) -> None:
    """A webhook that delivers twice, a person who clicks twice: the second is a duplicate."""
    wake = Wake(team="core", heinzel="page", key="event/github/42", cause=Cause.EVENT)
    first = await home.store.accept(wake, nonce="first delivery")
    second = await home.store.accept(wake, nonce="second delivery")
    assert first.disposition is Disposition.ACCEPTED
    assert second.disposition is Disposition.DUPLICATE


async def test_a_lost_answer_is_asked_for_again(home: House) -> None:
    """The nonce tells a repeated call from a second delivery: it gets the first answer once more."""
    wake = Wake(team="core", heinzel="page", key="event/github/43", cause=Cause.EVENT)
    await home.store.accept(wake, nonce="n")
    assert (await home.store.accept(wake, nonce="n")).disposition is Disposition.ACCEPTED


async def test_an_accepted_wake_makes_its_session_due_and_becomes_a_turn(home: House) -> None:
    """State decides: nothing was sent to anybody, and yet the next look finds work."""
    await home.wake(key="manual/1")
    (due,) = await home.store.due("core")
    assert (due.kind, due.name) == ("session", "page")
    assert (await advance(PAGE, home.works)).did == "completed"
