"""Health is progress: a heartbeat of this host, a tick, an answer."""

import os
from pathlib import Path

from workers import health


def test_a_worker_is_well_by_its_own_hosts_heartbeat() -> None:
    """The same profile on another host, or another profile here, says nothing about this one."""
    here = {"profile": "turns", "host": "a"}
    assert health.no_heartbeat("turns", {"x": here}, host="a") is None
    for other in ({"profile": "turns", "host": "b"}, {"profile": "solo", "host": "a"}, {}):
        assert (
            health.no_heartbeat("turns", {"x": other}, host="a") == "no worker turns on a has given a heartbeat lately"
        )


def test_beat_is_well_while_it_ticks(tmp_path: Path) -> None:
    """A file that no tick has touched for a minute is a beat that hangs; none at all, one that never started."""
    assert "has not ticked yet" in (health.beat(tmp_path) or "")
    tick = tmp_path / "beat.tick"
    tick.touch()
    assert health.beat(tmp_path) is None
    os.utime(tick, (0, 0))
    assert "has not ticked for" in (health.beat(tmp_path) or "")


def test_what_does_not_answer_is_named() -> None:
    """With its port and why."""
    assert "flower does not answer at port 1: ConnectError" in (health.answers("flower", 1, "/healthcheck") or "")
