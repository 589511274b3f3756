"""A damaged spine sets its session aside: nothing runs, nothing is written, until a person lets it go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heinzelwerk import inbox, quarantine, verification
from heinzelwerk.advance import advance
from heinzelwerk.client import Client
from heinzelwerk.commit import Commit, CommitReply
from heinzelwerk.ids import SessionId
from heinzelwerk.session import SOLO_CLAIMS, STUCK_CLAIMS
from heinzelwerk.store.memory import MemoryStore
from heinzelwerk.store.memory_state import SessionState
from heinzelwerk.testing import house
from heinzelwerk.testing.house import HandClock, House, ScriptedEngine, finish

PAGE = SessionId(house.TEAM, "page")


def stored(home: House) -> SessionState:
    assert isinstance(home.store, MemoryStore)
    return home.store._state.teams[house.TEAM].sessions["page"]


def altered(line: bytes) -> bytes:
    return line.replace(b'"kind":"', b'"kind":"x', 1)


async def ran() -> House:
    """One turn ran; there is an engine for two more."""
    home = house.build(engine=ScriptedEngine([finish(), finish(), finish()]))
    await home.load(house.page())
    await home.wake()
    assert (await advance(PAGE, home.works)).did == "completed"
    return home


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda lines: lines.__setitem__(-1, altered(lines[-1])), "does not follow"),
        (lambda lines: lines.pop(), "does not follow"),
        (lambda lines: lines.clear(), "no whole line"),
    ],
)
async def test_a_damaged_end_stops_everything_before_it_runs(damage, says) -> None:
    """Changed, lost or all gone: the next claim writes nothing and asks no model; wakes wait; people see line and reason."""
    home = await ran()
    await home.wake(key="manual/2")
    damage(stored(home).spine)
    lines, seq = list(stored(home).spine), stored(home).seq
    assert (await advance(PAGE, home.works)).did == "quarantined"
    assert (await advance(PAGE, home.works)).did == "quarantined"
    assert (stored(home).spine, stored(home).lease, len(stored(home).inbox)) == (lines, None, 1)
    seen = await home.store.overview(PAGE)
    assert seen is not None
    (item,) = inbox.items(undecided=(), recent=(), sessions=[seen])
    assert (item.kind, item.next) == (inbox.Waiting.QUARANTINE, "heinzelwerk resume page")
    assert f"spine line {seq}" in item.what
    assert says in item.what


async def test_resuming_goes_on_with_the_record_as_it_is() -> None:
    """After a person resumed it the session works; the bad line is still named, and damage after it is found again."""
    home = await ran()
    client = Client(home.works, house.TEAM)
    stored(home).spine[-1] = altered(stored(home).spine[-1])
    await home.wake(key="manual/2")
    assert (await advance(PAGE, home.works)).did == "quarantined"
    await client.pause("page", paused=False)
    assert (await advance(PAGE, home.works)).did == "completed"
    assert await client.inspect("page") is None
    assert not verification.verify_lines(await home.store.spine(PAGE)).ok
    stored(home).spine[-1] = altered(stored(home).spine[-1])
    await home.wake(key="manual/3")
    assert (await advance(PAGE, home.works)).did == "quarantined"


@pytest.mark.parametrize("newest", [None, 4])
async def test_an_earlier_damaged_line_is_found_by_inspection(newest: int | None) -> None:
    """A claim looks at the last line only; who reads them all names the bad one, and sets the session aside."""
    home = await ran()
    spine = stored(home).spine
    assert await quarantine.inspect(PAGE, home.store, newest=newest) is None
    place = len(spine) - 3
    del spine[place]
    await home.wake(key="manual/2")
    found = await quarantine.inspect(PAGE, home.store, newest=newest)
    assert found is not None
    assert found.seq in (place + 1, place)  # the newest four begin one later, where one is gone
    assert (await advance(PAGE, home.works)).did == "quarantined"


async def test_a_doubled_last_line_is_found_by_inspection() -> None:
    """The last line is the right one; that it stands there twice is seen by who reads the one before."""
    home = await ran()
    spine = stored(home).spine
    spine.append(spine[-1])
    found = await quarantine.inspect(PAGE, home.store, newest=2)
    assert found is not None
    assert found.seq == len(spine)


class Breaking(MemoryStore):
    """A store behind a program with a bug: whoever commits dies of it, for as long as `broken` says so."""

    broken = True

    async def commit(self, session: SessionId, token: str, commit: Commit) -> CommitReply:
        if self.broken:
            raise ZeroDivisionError("a bug")
        return await super().commit(session, token, commit)


async def test_a_session_of_which_every_claim_dies_is_set_aside() -> None:
    """Where even ending the turn as poison fails, trying for ever helps nobody: people are told, and nothing is lost."""
    clock = HandClock()
    store = Breaking(clock.ms)
    home = house.build(engine=ScriptedEngine([finish()]), store=store, clock=clock)
    home.works = replace(home.works, solo=True)
    await home.load(house.page())
    await home.wake()
    for _ in range(STUCK_CLAIMS - 1):
        with pytest.raises(ZeroDivisionError):
            await advance(PAGE, home.works)
        clock.pass_(60)
    assert (await advance(PAGE, home.works)).did == "quarantined"
    assert (await advance(PAGE, home.works)).did == "quarantined"
    seen = await store.overview(PAGE)
    assert seen is not None
    (item,) = inbox.items(undecided=(), recent=(), sessions=[seen])
    assert (item.next, "6 claims in a row died" in item.what) == ("heinzelwerk resume page", True)
    store.broken = False
    await Client(home.works, house.TEAM).pause("page", paused=False)
    assert (await advance(PAGE, home.works)).did == "completed"


async def test_who_killed_workers_is_sent_to_solo_at_once() -> None:
    """An old doorbell at a worker that runs others beside it: nothing runs, the session is rung on `solo` in the same moment."""
    home = house.build(engine=ScriptedEngine([finish()]))
    await home.load(house.page())
    await home.wake()
    stored(home).dead = SOLO_CLAIMS
    beside = replace(home.works, solo=False)
    assert (await advance(PAGE, beside)).did == "solo"
    assert home.works.bell.rung[-1].solo  # type: ignore[attr-defined]
    assert (await advance(PAGE, home.works)).did == "completed"


async def test_sealed_spines_are_whole() -> None:
    """Where all lines were archived the seal stands for the last one."""
    home = await ran()
    await home.store.prune(house.TEAM, before_ms=home.store._clock_ms() + 1, archive=None)  # type: ignore[attr-defined]
    assert stored(home).spine == []
    assert await quarantine.inspect(PAGE, home.store) is None
    await home.wake(key="manual/2")
    assert (await advance(PAGE, home.works)).did == "completed"
    assert await quarantine.inspect(PAGE, home.store) is None
    assert await quarantine.inspect(PAGE, home.store, newest=2) is None
