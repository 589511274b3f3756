"""The format's documentation and the code name the same keys and codes."""

import re
from pathlib import Path

from heinzelwerk.contract import CODES, model
from heinzelwerk.contract.body import KNOWN
from heinzelwerk.contract.diagnostic import WARNINGS

TEXT = (Path(__file__).parents[3] / "docs" / "contracts.md").read_text(encoding="utf-8")


def test_every_code_is_documented_with_its_severity() -> None:
    """The table of diagnostics has each code once and says which are warnings."""
    rows = dict(re.findall(r"^\| (HZC\d{3}) \| (.+) \|$", TEXT, re.MULTILINE))
    assert set(rows) == set(CODES)
    assert {code for code, what in rows.items() if what.startswith("warning")} == WARNINGS


def test_every_key_is_documented() -> None:
    """Each key of the frontmatter stands in the table of keys."""
    for key in model.Frontmatter.model_fields:
        assert f"`{key}`" in TEXT or key == "hz"
    for name, field in model.Hz.model_fields.items():
        assert f"`hz.{field.alias or name}" in TEXT
    for owner in (model.Input, model.Output, model.Publish, model.Agent):
        for name in owner.model_fields:
            assert f"`{name}" in TEXT


def test_every_section_is_documented() -> None:
    """The body's sections are listed."""
    assert all(section in TEXT for section in KNOWN)
