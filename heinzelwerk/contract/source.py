"""From bytes to lines: size, encoding, line ends, control characters, and where the frontmatter ends.

The steps and their order are those of the contract format, section 1.1, 1 to 4 and 6.
"""

import re
from dataclasses import dataclass

LARGEST_FILE = 262_144
"""Bytes of a contract file; exactly as many are still read."""

FIRST_FRONTMATTER_LINE = 2
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MOST_CONTROL_LINES = 20
_CLOSING_FENCES = ("---", "...")


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong at a line, before it is known in which file; the reader makes diagnostics of it."""

    line: int
    code: str
    field: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Split:
    """A contract file in two parts: the YAML text from line 2 on, and the body with the number of its first line."""

    frontmatter: str
    body: str
    body_line: int


def decode(data: bytes) -> str | tuple[Finding, ...]:
    """The file's text, line ends as line feeds and one byte order mark dropped; or what forbids to read it."""
    if len(data) > LARGEST_FILE:
        message = f"the file has {len(data):,} bytes; a contract has at most {LARGEST_FILE:,}"
        return (Finding(1, "HZC001", "file", message, "Move long material to a document and read it as an input."),)
    try:
        content = data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"the file is not UTF-8: byte {error.start + 1} does not belong to any character"
        return (Finding(1, "HZC001", "file", message, "Save the file as UTF-8."),)
    content = content.replace("\r\n", "\n").removeprefix("\ufeff")
    return _control_findings(content) or content


def _control_findings(content: str) -> tuple[Finding, ...]:
    if _CONTROL.search(content) is None:
        return ()
    findings: list[Finding] = []
    for number, line in enumerate(content.split("\n"), start=1):
        found = _CONTROL.search(line)
        if found is not None:
            message = f"the line holds the control character U+{ord(found[0]):04X} at column {found.start() + 1}"
            findings.append(
                Finding(number, "HZC005", "file", message, "Delete it; only tabs and line feeds are allowed.")
            )
        if len(findings) == _MOST_CONTROL_LINES:
            break
    return tuple(findings)


def split(content: str) -> Split | Finding:
    """The two parts of a contract's text; a Finding where the first line opens no frontmatter or nothing closes it."""
    lines = content.split("\n")
    if lines[0].rstrip() != "---":
        message = "the first line is not ---, so there is no frontmatter"
        return Finding(
            1, "HZC001", "frontmatter", message, "Begin the file with a line --- and the contract's keys below it."
        )
    for index in range(1, len(lines)):
        if lines[index].rstrip() in _CLOSING_FENCES:
            return Split("\n".join(lines[1:index]), "\n".join(lines[index + 1 :]), index + 2)
    message = "the frontmatter that line 1 opens is never closed"
    return Finding(1, "HZC001", "frontmatter", message, "Add a line --- below the last key.")
