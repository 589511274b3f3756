"""`make faults`: run the fault suite and the tests elsewhere that answer for rows, and print all 64 rows.

python -m tests.faults.table [-n 2]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.faults import matrix
from tests.faults.matrix import Row

SUITE = "tests/faults"


def main(arguments: list[str]) -> int:
    elsewhere = sorted({path for row in matrix.rows() for path in row.elsewhere if not path.startswith(SUITE)})
    there = [path for path in elsewhere if Path(path.partition("::")[0]).exists()]
    with tempfile.TemporaryDirectory() as made:
        report = Path(made) / "tests.jsonl"
        words = [sys.executable, "-m", "pytest", "-q", "--fault-table", str(report), SUITE, *there, *arguments]
        code = subprocess.run(words, check=False).returncode
        tests = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    Console(width=max(Console().width, 180)).print(_table(tests))
    return code


def _table(tests: list[dict[str, Any]]) -> Table:
    table = Table("row", "fault", "injected", "proof that it fired", "outcome", "recovery", show_lines=True)
    for row in matrix.rows():
        own = [test for test in tests if row.number in test["rows"]]
        other = [test for test in tests if any(_is_of(test["test"], path) for path in row.elsewhere)]
        for test in own:
            seconds = test.get("recovery_s")
            time = "" if seconds is None else f"{seconds:.1f} s"
            words = (test["injected"], test["proof"], f"{_verdict(test)} {test['outcome']}", time)
            table.add_row(str(row.number), row.fault, *words)
        if other or not own:
            table.add_row(str(row.number), row.fault, *_from_elsewhere(row, other))
    return table


def _is_of(test: str, path: str) -> bool:
    return test == path or test.startswith((f"{path}::", f"{path}["))


def _verdict(test: dict[str, Any]) -> str:
    return "[yellow]skipped:[/]" if test.get("skipped") else "[green]ok:[/]" if test["passed"] else "[red]FAILED:[/]"


def _from_elsewhere(row: Row, tests: list[dict[str, Any]]) -> tuple[str, str, str, str]:
    if not tests:
        return ("", "", f"[yellow]{row.issue or 'no test has run'}[/]", "")
    bad = [test["test"] for test in tests if not test["passed"]]
    skipped = sum(bool(test.get("skipped")) for test in tests)
    said = f"[red]FAILED: {', '.join(bad)}[/]" if bad else "[green]ok[/]"
    return (
        f"in {', '.join(row.elsewhere)}",
        "counted by those tests",
        f"{said} ({len(tests)} tests, {skipped} skipped)",
        "",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
