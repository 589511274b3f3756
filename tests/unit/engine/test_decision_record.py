"""The table of ADR 0050 names files that exist and tests that are collected, and the house keeps its walls."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TABLE = (ROOT / "docs" / "adr-0050.md").read_text().splitlines()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE if line.startswith("| ")][1:]
VENDORS = {"anthropic", "openai", "google", "groq", "mistralai", "cohere", "boto3", "claude_agent_sdk"}


@cache
def names_in(path: Path) -> frozenset[str]:
    """The names of a file's test functions."""
    tree = ast.parse(path.read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:60] for row in ROWS])
def test_each_row_names_code_and_tests_that_exist(row: list[str]) -> None:
    """No cell is empty; a renamed file or test breaks its row."""
    statement, code, tests = row
    assert re.match(r"(?:1[0-3]|[1-9])\. |Confirmation: ", statement), statement
    places, named = re.findall(r"`([^`]+)`", code), re.findall(r"`([^`]+)`", tests)
    assert places
    assert named
    for place in places:
        assert (ROOT / place).is_file(), place
    for name in named:
        path, _, function = name.partition("::")
        assert function in names_in(ROOT / "tests" / path), name


def test_every_statement_has_a_row() -> None:
    """Thirteen statements and the confirmation."""
    found = {row[0].partition(". ")[0] for row in ROWS if row[0][0].isdigit()}
    assert found == {str(number) for number in range(1, 14)}


def imports(path: Path) -> set[str]:
    """The top-level modules that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def test_only_this_room_imports_the_library_and_nothing_imports_a_vendor() -> None:
    """import-linter holds the same wall; this one also sees imports inside functions."""
    for room in ("heinzelwerk", "tasks", "workers", "config"):
        for path in (ROOT / room).rglob("*.py"):
            found = imports(path)
            assert not found & VENDORS, path
            inside = path.is_relative_to(ROOT / "heinzelwerk" / "engine")
            assert inside or "pydantic_ai" not in found, path


def test_no_test_names_a_real_models_address() -> None:
    """The tests' models are functions and servers on the loopback."""
    hosts = re.compile(r"https://(?:api\.anthropic\.com|api\.openai\.com|generativelanguage\.googleapis\.com)")
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path != Path(__file__):
            for line in path.read_text().splitlines():
                assert not (hosts.search(line) and "base_url=" in line), (path, line)
