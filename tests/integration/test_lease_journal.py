"""A process that died is known to be dead: its lock is gone, and what it held is read from its journal."""

from __future__ import annotations

import signal
import subprocess
import sys

from heinzelwerk.session import Hold
from heinzelwerk.turn import TurnState
from tests.faults.world import World
from workers import journal
from workers.journal import LeaseJournal

HOLDER = """
import sys, time
from pathlib import Path
from heinzelwerk.session import Hold
from workers.journal import LeaseJournal
own = LeaseJournal(Path(sys.argv[1]), "holder")
own.open()
for name in ("a", "b", "c"):
    own.keep(Hold("session", "crew", name, f"1-{name}"))
own.forget(Hold("session", "crew", "b", "1-b"))
print("ready", flush=True)
time.sleep(600)
"""


def hold(name: str) -> Hold:
    return Hold("session", "crew", name, f"1-{name}")


def test_the_dead_leave_what_they_held_and_the_living_nothing(tmp_path):
    """While the holder lives, stopped or not, its file is locked; after a kill it is read once, then it is gone."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        (path,) = journal.others(tmp_path, than=tmp_path / "mine.holds")
        holder.send_signal(signal.SIGSTOP)
        with journal.bequeathed(path) as holds:
            assert holds == ()
        assert path.exists()
    finally:
        holder.kill()
        holder.communicate()
    with journal.bequeathed(path) as holds:
        assert holds == (hold("a"), hold("c"))
        with journal.bequeathed(path) as seen_by_another:
            assert seen_by_another == ()
    assert journal.others(tmp_path, than=tmp_path / "mine.holds") == ()
    with journal.bequeathed(path) as holds:
        assert holds == ()


def test_an_heir_that_fails_leaves_the_journal_to_the_next(tmp_path):
    """The store was away while leases were to be ended: nothing is forgotten."""
    dead = LeaseJournal(tmp_path, "dead")
    dead.open()
    dead.keep(hold("a"))
    dead.close()  # as a process that still held something when it ended
    try:
        with journal.bequeathed(dead.path):
            raise ConnectionError
    except ConnectionError:
        pass
    with journal.bequeathed(dead.path) as holds:
        assert holds == (hold("a"),)


def test_a_line_cut_short_ends_the_reading(tmp_path):
    """What was written before the kill counts."""
    (tmp_path / "dead.holds").write_bytes(
        b'{"keep": ["session", "crew", "a", "1-a"]}\n{"keep": ["session", "crew", "b"'
    )
    with journal.bequeathed(tmp_path / "dead.holds") as holds:
        assert holds == (hold("a"),)


def test_a_busy_journal_stays_small_and_an_idle_one_is_empty(tmp_path):
    """Thousands of leases come and go beside one that stays: the file is written anew now and then."""
    own = LeaseJournal(tmp_path, "own")
    own.open()
    own.keep(hold("stays"))
    for number in range(5_000):
        own.keep(hold(f"n{number}"))
        own.forget(hold(f"n{number}"))
    assert own.path.stat().st_size < 100_000
    assert journal._read(own.path) == (hold("stays"),)
    own.forget(hold("stays"))
    assert own.path.stat().st_size == 0
    own.close()
    assert not own.path.exists()


def test_a_directory_that_cannot_be_written_costs_nothing_but_time(tmp_path):
    """No journal: every call still works, and the leases run out by themselves."""
    (tmp_path / "data").write_text("a file where a directory should be")
    own = LeaseJournal(tmp_path / "data", "own")
    own.open()
    own.keep(hold("a"))
    own.forget(hold("a"))
    own.close()
    assert journal.others(tmp_path / "data", than=own.path) == ()


async def test_a_killed_workers_turn_goes_on_without_waiting_for_its_lease(tmp_path):
    """A lease of ten minutes: only the journal can end it within the test's time. The next worker takes the turn over."""
    world = World(tmp_path / "w", lease_s=600.0)
    try:
        async with world.open() as house:
            world.contract("page", "plain")
            await house.begin("turns", "upkeep")
            point = house.control.arm("model.sent", "kill", of="page")
            await house.wake("page")
            await world.death(point)
            world.staff("turns", "upkeep")
            turn = await house.ended("page")
            assert turn.state is TurnState.COMPLETED
            assert turn.segment == 2
    finally:
        world.close()
