"""The operators' page tells what the code does."""

import re
from pathlib import Path

from heinzelwerk.capability.shapes import VOLATILE

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()


def test_every_volatile_field_is_listed() -> None:
    """docs/operations.md names each shape with the fields that a fingerprint leaves out, and no other."""
    (table,) = re.findall(r"\| shape \| left out \|\n.*?\n\n", PAGE, re.DOTALL)
    listed = {
        shape: frozenset(re.findall(r"`(\w+)`", fields))
        for shapes, fields in re.findall(r"^\| (`.+?`) \| (`.+?`) \|$", table, re.MULTILINE)
        for shape in re.findall(r"`(\w+)`", shapes)
    }
    assert listed == dict(VOLATILE)
