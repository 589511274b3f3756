"""Fixtures of the fault suite, and the table that `make faults` prints: row, fault, injection, proof, outcome, recovery."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.faults import invariants
from tests.faults.control import Failpoint
from tests.faults.world import House, World

_PROPERTY = "fault_row"


@dataclass
class Record:
    """What one test says of its rows; a row without proof that its fault fired fails."""

    rows: list[int] = field(default_factory=list)
    injected: str = ""
    proof: str = ""
    outcome: str = ""
    recovery_s: float | None = None
    _since: float = 0.0

    def covers(self, *rows: int, injected: str) -> None:
        """Which rows, and what is injected."""
        self.rows, self.injected = list(rows), injected

    def proven(self, proof: str) -> None:
        """The fault fired, as something outside of our own records counted it; recovery is timed from the first proof."""
        self.proof = f"{self.proof}; {proof}" if self.proof else proof
        self._since = self._since or time.monotonic()

    def shot(self, point: Failpoint, times: int = 1) -> None:
        """The same by a failpoint's counter."""
        fired = point.fired()
        assert len(fired) >= times, f"{point.name} fired {len(fired)} times, not {times}"
        self.proven(f"{point.name} fired {len(fired)}x in {', '.join(sorted({str(shot.pid) for shot in fired}))}")
        self._since = time.monotonic() - max(0.0, time.time() - fired[-1].at)

    def came_to(self, outcome: str) -> None:
        """What happened, and that it is over."""
        self.outcome = outcome
        if self._since and self.recovery_s is None:
            self.recovery_s = time.monotonic() - self._since


@pytest.fixture
def row(request: pytest.FixtureRequest, record_property: Any) -> Iterator[Record]:
    """The row that a test answers for."""
    found = Record()
    yield found
    if request.node.stash.get(_FAILED, False):
        record_property(_PROPERTY, json.dumps({**asdict(found), "outcome": "FAILED"}))
        return
    assert found.rows, "this test names no row"
    assert found.proof, f"row {found.rows}: nothing proves that the fault fired"
    assert found.outcome, f"row {found.rows}: no outcome"
    record_property(_PROPERTY, json.dumps(asdict(found)))


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.stash[_FAILED] = report.failed


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One deployment for the rows of a module, each with Heinzelmännchen of its own; what a row kills is replaced."""
    found = World(tmp_path_factory.mktemp("world") / "w")
    yield found
    found.close()


@pytest.fixture
async def house(world: World) -> AsyncIterator[House]:
    """The module's world on this test's loop: staffed before, held to the invariants after."""
    world.control.disarm()
    (world.control.directory / "released" / "all").unlink(missing_ok=True)
    async with world.open() as found:
        await found.begin("turns", "turns", "upkeep")
        yield found
        world.control.disarm()
        world.staff("turns", "turns", "upkeep")
        await invariants.check(found, parked=tuple(world.parked))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fault-table", default=None, help="write what each test of a fault row came to, as JSON lines")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What `make faults` makes its table of: one line for each test, with its rows where it names any."""
    if (path := config.getoption("--fault-table")) is None:
        return
    tests: dict[str, dict[str, Any]] = {}
    for kind in ("passed", "", "failed", "error", "skipped"):  # "": setups and teardowns that passed
        for report in terminalreporter.stats.get(kind, []):
            found = tests.setdefault(report.nodeid, {"test": report.nodeid, "passed": True, "rows": []})
            found["passed"] = found["passed"] and not report.failed
            if report.skipped:
                found["skipped"] = True
            for name, value in report.user_properties:
                if name == _PROPERTY:
                    found.update(json.loads(value))
    Path(path).write_text("".join(json.dumps(found) + "\n" for found in tests.values()))
