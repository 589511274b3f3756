"""The conformance corpus: recorded answers of the format's first implementation, and the rows that we answer otherwise."""

import json
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parents[2] / "data" / "corpus"

DEVIATIONS = {
    "159-schema-true.prose.md": "schema: true is refused (HZC002): a version is a whole number",
    "160-schema-float.prose.md": "schema: 1.0 is refused (HZC002): a version is a whole number",
    "162-max-usd-true.prose.md": "max_usd: true is refused (HZC002): an amount is a number",
    "R 7 * * *": "a random minute is refused (HZC011): a slot must be repeatable",
}
"""Row -> why we answer otherwise on purpose. The tests below hold us to these answers too."""


def rows(file: str) -> list[dict[str, Any]]:
    """The rows of one file of the corpus."""
    with (CORPUS / file).open(encoding="utf-8") as opened:
        return [json.loads(line) for line in opened]


def kept(file: str, key: str) -> list[dict[str, Any]]:
    """The rows that we answer as recorded."""
    return [row for row in rows(file) if row[key] not in DEVIATIONS]
