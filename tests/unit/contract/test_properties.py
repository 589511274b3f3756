"""What holds for any bytes: reading never raises, never guesses, and points into the file."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heinzelwerk import contract
from heinzelwerk.contract import CODES, Reading
from tests.unit.contract.corpus import CORPUS

FILES = sorted((CORPUS / "cases").iterdir())
PIECES = [
    "&a ",
    "*a",
    "!x ",
    "!!int ",
    "!!bool ",
    "! ",
    '"',
    "'",
    "[",
    "]",
    "{",
    "}",
    ": ",
    " #",
    "- ",
    "? ",
    "|\n",
    "%",
    "\t",
    "\n",
    "---\n",
    "...\n",
    "<!--",
    "-->",
    "### ",
    "## ",
    "```\n",
    "~~~\n",
    "\u2028",
    "\u00a0",
    "\ufeff",
    "\x07",
    "\r",
    "\\x07",
    "~",
    "true",
    "0x10",
    "1e999",
    ".inf",
    "[]",
    "{}",
    "2h",
    "next 7d",
    "contract:me/x#y",
    "owner: x\n",
    "### Goal\n",
    "### Memory\n",
    "### Tools\n",
    "- `page`: x\n",
    "\u0130",
    "<<: 1\n",
    "uses: [a]\n",
    "on: [inputs]\n",
    "timezone: UTC\n",
    "9" * 4400,
    "0x" + "f" * 5000,
    "\\uD800",
    "\ud7ff",
    "\U0010ffff",
    "hz:\n",
    "x-a: 1\n",
    "schedule: ",
]


def check_reading(data: bytes, reading: Reading) -> None:
    last = data.count(b"\n") + 1
    for found in reading.diagnostics:
        assert 1 <= found.line <= last
        assert found.code in CODES
        assert found.message
        assert found.hint
        # The outermost guard is for faults of ours: none may be known to a test.
        assert "unexpectedly" not in found.message
        str(found).encode("utf-8")
    assert (reading.contract is not None) <= reading.valid
    assert reading.valid <= (reading.definition is not None)
    report = contract.check_set([reading])
    assert report.as_dict()["files"] == [reading.file]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=2000))
def test_arbitrary_bytes(data: bytes) -> None:
    """Any bytes give a reading."""
    check_reading(data, contract.read(data, file_name="x.prose.md"))


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=400), st.text(max_size=400), st.text(max_size=30))
def test_arbitrary_frontmatter_and_body(head: str, body: str, file_name: str) -> None:
    """Any text between the fences, any body and any file name give a reading."""
    data = f"---\n{head}\n---\n{body}".encode("utf-8", "replace")
    check_reading(data, contract.read(data, file_name=file_name))


def mutated(text: str, rng: random.Random) -> str:
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        lines = text.split("\n")
        at = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                lines.pop(at)
            case 1:
                lines.insert(at, rng.choice(lines))
            case 2:
                lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
            case 3:
                key, colon, _ = lines[at].partition(": ")
                lines[at] = key + colon + rng.choice(PIECES)
            case _:
                position = rng.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:position] + rng.choice(PIECES) + lines[at][position:]
        text = "\n".join(lines)
    return text


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(FILES), st.integers(min_value=0, max_value=2**32))
def test_mutated_corpus_files(file, seed: int) -> None:
    """A file of the corpus with a few edits gives a reading, the same one each time."""
    text = file.read_bytes().decode("utf-8", "surrogateescape")
    data = mutated(text, random.Random(seed)).encode("utf-8", "surrogateescape")
    reading = contract.read(data, file_name=file.name)
    check_reading(data, reading)
    assert contract.read(data, file_name=file.name) == reading


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_prefix_of_a_file(file) -> None:
    """A file that was cut anywhere (an interrupted copy) gives a reading."""
    data = file.read_bytes()
    for end in range(0, min(len(data), 900), 29):
        check_reading(data[:end], contract.read(data[:end], file_name=file.name))
