"""What a check says about a contract file: one line of one file, a code, and how to repair it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum

from heinzelwerk import text


class Severity(StrEnum):
    """Errors stop the contract that has them; warnings stop nothing."""

    ERROR = "error"
    WARNING = "warning"


CODES = {
    "HZC001": "the file cannot be read as a contract",
    "HZC002": "a key is missing, unknown or has a bad value",
    "HZC003": "hz.schema is newer than this version",
    "HZC004": "a YAML construct that contracts do not allow",
    "HZC005": "a control character",
    "HZC010": "file name and contract name differ",
    "HZC011": "the schedule cannot fire as written",
    "HZC012": "no publisher provides the action",
    "HZC013": "the publish action is a read-only operation",
    "HZC014": "two contracts publish to the same place",
    "HZC015": "a skill that hz.uses names is not there",
    "HZC023": "a key, value or section that is not built yet",
    "HZC024": "the runner does not list the tool as read-only",
    "HZC025": "an asset placeholder was left in",
    "HZC030": "the input lies on a dependency cycle",
    "HZC031": "nobody maintains the output that the input reads",
    "HZC032": "a team's contract reads a personal one",
    "HZC051": "a skill's frontmatter tries to grant something",
    "HZC101": "### Goal is missing or empty",
    "HZC103": "### Requires or ### Maintains differs from the frontmatter",
    "HZC105": "an unknown section",
    "HZC106": "a section of an earlier format",
    "HZC107": "### Done when is missing or has no items",
}
"""Every code and what it is about, for documentation and `check --json` readers."""

_LONGEST_SENTENCE = 400  # a message may quote what the file holds, and a value may be as long as the file

WARNINGS = frozenset({"HZC012", "HZC014", "HZC015", "HZC024", "HZC031", "HZC105"})


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `line` counts from 1 and lies within `file`; `field` is a key path or a heading."""

    file: str
    line: int
    code: str
    severity: Severity
    field: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.code}  {self.field}  {self.message}"

    def as_dict(self) -> dict[str, str | int]:
        """The shape of `check --json`: file, line, code, severity, field, message, hint."""
        return {**asdict(self), "severity": self.severity.value}


def make(code: str, *, file: str, line: int, field: str, message: str, hint: str = "") -> Diagnostic:
    """A diagnostic with the severity of its code; its texts are printable, message and hint of a bounded length."""
    severity = Severity.WARNING if code in WARNINGS else Severity.ERROR
    return Diagnostic(file, line, code, severity, printable(field), _short(message), _short(hint))


def _short(words: str) -> str:
    shown = printable(words[: _LONGEST_SENTENCE + 1])
    return shown if len(words) <= _LONGEST_SENTENCE else f"{shown[: _LONGEST_SENTENCE - 1]}…"


def printable(words: str) -> str:
    """`words` on one line, without control characters and lone surrogates, so that any terminal and file takes them."""
    if words.isascii() and words.isprintable():  # nearly always, and a hostile file may have tens of thousands
        return words
    whole = words.encode("utf-8", "replace").decode("utf-8")
    return text.clean_text(whole.replace("\n", " "))


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Diagnostics by file, line, code and field: the order in which people repair and programs compare."""
    return tuple(sorted(diagnostics, key=lambda d: (d.file, d.line, d.code, d.field)))
