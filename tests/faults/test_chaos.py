"""A minute of everything at once, seeded, in every run of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import chaos
from tests.faults.conftest import Record


@pytest.mark.slow
async def test_a_minute_of_chaos(tmp_path: Path, row: Record):
    """Random faults under load, workers of two formats: each accepted wake ended once, no key placed twice, books right."""
    row.covers(57, injected="chaos for 60 s, seed 7")
    report = await chaos.run(tmp_path / "w", seconds=60, seed=7, heinzels=12)
    print(report)
    row.proven(next(line.strip() for line in report.splitlines() if "failpoints fired" in line))
    row.came_to("all invariants hold")
