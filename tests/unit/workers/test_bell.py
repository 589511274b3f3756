"""The bell: publishing never blocks or fails its caller, and is bounded."""

import threading

import pytest

from heinzelwerk.session import Due
from tasks import doorbell
from workers import bell as bells
from workers.bell import CeleryBell


def due(name, kind="session", *, solo=False):
    return Due(kind, "crew", name, 0, solo)


@pytest.mark.parametrize(
    ("entry", "task", "ids", "queue", "shown"),
    [
        (due("page"), "heinzelwerk.turn", ("crew/page",), "turns", "(session=crew/page)"),
        (due("page", solo=True), "heinzelwerk.turn", ("crew/page",), "solo", "(session=crew/page)"),
        (due("ab12", "effect"), "heinzelwerk.effect", ("crew", "ab12"), "effects", "(team=crew, effect=ab12)"),
        (due("j1", "job"), "heinzelwerk.handoff", ("crew", "j1"), "handoffs", "(team=crew, job=j1)"),
    ],
)
def test_each_kind_of_due_has_its_doorbell(entry, task, ids, queue, shown):
    """A doorbell carries ids and nothing else, and shows them."""
    assert doorbell.for_due(entry) == doorbell.Doorbell(task, ids, queue, shown)


def test_a_slot_rings_nobody():
    """The sweep itself fills the slots of schedules."""
    assert doorbell.for_due(due("page", "slot")) is None


async def test_it_publishes_off_the_callers_thread():
    """The caller returns at once; what it asked for is published by another thread, each doorbell once."""
    published, gate = [], threading.Event()

    def publish(ones):
        gate.wait(30.0)
        published.extend(ones)

    bell = CeleryBell(publish)
    await bell.ring([due("a"), due("b")])
    await bell.ring([due("c"), due("c"), due("x", "slot")])
    assert published == []
    gate.set()
    assert bell.flush(30.0)
    assert sorted(one.ids for one in published) == [("crew/a",), ("crew/b",), ("crew/c",)]
    bell.close()


async def test_a_broker_that_is_away_is_nobodys_error():
    """Failures are counted and logged; the next ring is tried again."""
    tries = []

    def publish(ones):
        tries.append(ones)
        if len(tries) == 1:
            raise ConnectionError("away")

    bell = CeleryBell(publish)
    await bell.ring([due("a")])
    assert bell.flush(30.0)
    await bell.ring([due("b")])
    bell.close()
    assert bell.dropped == 1
    assert len(tries) == 2


async def test_it_is_bounded(monkeypatch):
    """What does not fit is dropped: it stays due in the store."""
    monkeypatch.setattr(bells, "LONGEST_QUEUE", 3)
    gate = threading.Event()
    bell = CeleryBell(lambda ones: gate.wait(30.0) and None)
    for number in range(20):
        await bell.ring([due(f"n{number}")])
    assert bell.dropped >= 20 - 1 - 2 * 3
    gate.set()
    bell.close()
