"""Changing a contract's own text: where it lies in a repository, what is wrong with a proposed one, and the patch. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from heinzelwerk import contract
from heinzelwerk.contract import Severity

WORKFLOWS = "workflows"
ACTION = "contract.amend"
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def place(name: str) -> str:
    """A contract's file in its team's repository."""
    return f"{WORKFLOWS}/{name}{contract.SUFFIX}"


def fault(text: str, *, name: str) -> str:
    """What is wrong with a proposed text of this contract, as its first error reads; "" where it may act."""
    reading = contract.read(text.encode(), file_name=f"{name}{contract.SUFFIX}")
    found = next((entry for entry in reading.diagnostics if entry.severity is Severity.ERROR), None)
    return "" if found is None else f"line {found.line}: {found.code} {found.field}: {found.message}"


def patch(before: str, after: str, *, name: str) -> str:
    """The change as a patch that `git apply` takes in the repository's root; "" where there is none."""
    path = place(name)
    return "".join(_lines(before, after, path))


def _lines(before: str, after: str, path: str) -> Iterator[str]:
    # By line feeds alone, as git counts lines: Python would also split at form feeds and line separators.
    for line in difflib.unified_diff(_LINE.findall(before), _LINE.findall(after), f"a/{path}", f"b/{path}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
