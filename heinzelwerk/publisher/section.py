"""Marked sections of a Markdown document: where they are, what they hold, and a document with one of them replaced.

A section lies between two lines of their own, `<!-- heinzelwerk:begin NAME -->` and `<!-- heinzelwerk:end NAME -->`.
The begin line of a placed section also says which effect placed it (`key=`, percent-encoded) and the SHA-256 of what
it placed (`sha256=`), so that a later edit by hand shows. Lines inside code blocks are no markers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from markdown_it import MarkdownIt

from heinzelwerk import folder, ids
from heinzelwerk.errors import Refused, TargetConflict, TargetMissing
from heinzelwerk.ports import Placement, TargetView

ACTION = "documents.replace-section"

_NAME = r"[A-Za-z0-9](?:[-._]?[A-Za-z0-9])*"
_LONGEST_NAME = 64
_MARKER = re.compile(rf"\ufeff? {{0,3}}<!--\s*heinzelwerk:(begin|end)\s+({_NAME})((?:\s+[a-z0-9]+=\S+)*)\s*-->\s*")
_NEARLY = re.compile(r"\s*<!--\s*heinzelwerk\b")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_BLOCKS = MarkdownIt("commonmark").disable("inline")


@dataclass(frozen=True, slots=True)
class Where:
    """A section by its document's reference and its marker's name."""

    ref: str
    marker: str

    @property
    def target(self) -> str:
        """The target's name in the ledger."""
        return f"documents:{self.ref}#{self.marker}"

    def __str__(self) -> str:
        return f"section {self.marker} of {self.ref}"


@dataclass(frozen=True, slots=True)
class Section:
    """A section as it stands. `begin` and `end` are its markers' line numbers from 0; `text` has `\\n` line ends and
    no blank lines around it; `newline` is how its document ends lines."""

    begin: int
    end: int
    text: str
    key: str
    sha256: str
    newline: str

    @property
    def shown(self) -> str:
        """The fingerprint of the text, "" for an empty section: what an approval is bound to."""
        return fingerprint(self.text)

    @property
    def placed_by(self) -> str:
        """The key of the effect that placed this text; "" where nobody did or somebody has edited it since."""
        return self.key if self.sha256 == ids.digest(self.text) else ""


@dataclass(frozen=True, slots=True)
class _Marker:
    line: int
    opens: bool
    name: str
    attributes: Mapping[str, str]


def where(arguments: Mapping[str, str]) -> Where:
    """The section that a contract's `args` name; Refused says which argument is wrong, and how to write it."""
    if set(arguments) != {"ref", "marker"}:
        given = ", ".join(sorted(arguments)) or "nothing"
        raise Refused(
            f"{ACTION} takes ref and marker, not {given}: write args: {{ref: notes/changes.md, marker: weekly}}"
        )
    try:
        folder.parts(arguments["ref"])
    except ValueError as error:
        raise Refused(f"{ACTION}: {error}") from None
    marker = arguments["marker"]
    if len(marker) > _LONGEST_NAME or re.fullmatch(_NAME, marker) is None:
        raise Refused(f"{ACTION}: {marker[:80]!r} names no section: use letters, digits and single - . _ between them")
    return Where(arguments["ref"], marker)


def fingerprint(text: str) -> str:
    """The fingerprint of a section's text as `Section.shown` has it."""
    plain = canonical(text)
    return ids.digest(plain) if plain else ""


def canonical(text: str) -> str:
    """Text as sections compare it: `\\n` line ends, no blank lines around it."""
    return re.sub(r"\r\n?", "\n", text).strip("\n")


def view(content: str, at: Where, *, revision: str) -> TargetView:
    """What a person is shown of a section, and what read-back looks at."""
    section = find(content, at)
    return TargetView(at.target, section.shown, section.text, section.placed_by, revision)


def find(content: str, at: Where) -> Section:
    """The one section of that name. TargetMissing: there is none; TargetConflict: its markers do not fit together."""
    lines = _LINE.findall(content)
    markers = _markers(lines)
    mine = [marker for marker in markers if marker.name == at.marker]
    begins = [marker.line for marker in mine if marker.opens]
    ends = [marker.line for marker in mine if not marker.opens]
    if not begins and not ends:
        raise TargetMissing(
            f"{at.ref} has no section {at.marker}{_near(lines, markers)}: add the two lines {_pair(at.marker)}"
        )
    if len(begins) > 1 or len(ends) > 1:
        numbers = _numbers(begins if len(begins) > 1 else ends)
        raise TargetConflict(f"{at.ref} marks {at.marker} more than once, in lines {numbers}: keep one pair of markers")
    if not ends:
        raise TargetConflict(f"{at}, begun in line {begins[0] + 1}, never ends: add {_end(at.marker)} below its text")
    if not begins or begins[0] > ends[0]:
        raise TargetConflict(
            f"{at} ends in line {ends[0] + 1} before it begins: put {_begin(at.marker)} above its text"
        )
    begin, end = begins[0], ends[0]
    _refuse_nesting(markers, at, begin, end)
    attributes = next(marker.attributes for marker in mine if marker.opens)
    return Section(
        begin,
        end,
        canonical("".join(lines[begin + 1 : end])),
        unquote(attributes.get("key", "")),
        attributes.get("sha256", ""),
        re.sub(r"[^\r\n]", "", lines[begin]),
    )


def place(content: str, at: Where, placement: Placement) -> str:
    """The document with the text in its section; the same document where this effect has placed its text already.

    TargetConflict: the section no longer is what was shown, or the text would not end where the section ends.
    """
    section = find(content, at)
    text = canonical(placement.text)
    if section.key == placement.key:
        return content  # an earlier attempt arrived; where somebody edited its text since, the edit is theirs to keep
    if section.shown != placement.shown:
        raise TargetConflict(f"{at} is no longer what was shown for approval: look at it and ask again")
    lines = _LINE.findall(content)
    body = f"{text}\n".replace("\n", section.newline) if text else ""
    indent = lines[section.begin].partition("<")[0]
    begin = f"{indent}{_begin(at.marker, key=placement.key, sha256=ids.digest(text))}{section.newline}"
    after = "".join((*lines[: section.begin], begin, body, *lines[section.end :]))
    _check_it_reads_back(content, after, at, text)
    return after


def _check_it_reads_back(before: str, after: str, at: Where, text: str) -> None:
    """A text with markers of its own, or with a code block that never closes, would swallow what follows it."""
    try:
        after.encode("utf-8")
        same = find(after, at).text == text and _names(before) == _names(after)
    except (TargetConflict, TargetMissing, UnicodeEncodeError):
        same = False
    if not same:
        raise TargetConflict(
            f"the text cannot stand in {at}: it holds section markers of its own, a code block that is never closed, "
            "or characters that no file can hold: edit it and approve the edited text"
        )


def _markers(lines: list[str]) -> list[_Marker]:
    code: set[int] = set()
    for token in _BLOCKS.parse("".join(lines)):
        if token.type in ("fence", "code_block") and token.map is not None:
            code.update(range(*token.map))
    found = []
    for number, line in enumerate(lines):
        matched = _MARKER.fullmatch(line) if number not in code else None  # a byte order mark may precede the first
        if matched is not None:
            pairs = (pair.partition("=") for pair in matched[3].split())
            found.append(_Marker(number, matched[1] == "begin", matched[2], {key: value for key, _, value in pairs}))
    return found


def _refuse_nesting(markers: list[_Marker], at: Where, begin: int, end: int) -> None:
    opened: dict[str, int] = {}
    for marker in markers:
        if begin < marker.line < end:
            raise TargetConflict(
                f"{at} holds a marker of {marker.name} in line {marker.line + 1}: sections do not nest"
            )
        if marker.line < begin and marker.opens:
            opened[marker.name] = marker.line
        elif marker.line < begin:
            opened.pop(marker.name, None)
    for name, line in opened.items():
        closes = any(marker.name == name and not marker.opens and marker.line > end for marker in markers)
        if closes:
            raise TargetConflict(f"{at} lies inside section {name}, begun in line {line + 1}: sections do not nest")


def _names(content: str) -> list[tuple[str, bool]]:
    return [(marker.name, marker.opens) for marker in _markers(_LINE.findall(content))]


def _near(lines: list[str], markers: list[_Marker]) -> str:
    """Where a marker was perhaps meant: what a person would look for first."""
    read = {marker.line for marker in markers}
    odd = [number for number, line in enumerate(lines) if _NEARLY.match(line) and number not in read]
    return f" (line {_numbers(odd[:5])} is no marker: check its spelling, and code blocks above it)" if odd else ""


def _numbers(lines: list[int]) -> str:
    return ", ".join(str(line + 1) for line in lines)


def _begin(name: str, **attributes: str) -> str:
    # `--` could end the comment early, so it is encoded as well.
    written = {
        key: quote(value, safe="/:@._+~", errors="replace").replace("--", "%2D%2D") for key, value in attributes.items()
    }
    return " ".join(("<!-- heinzelwerk:begin", name, *(f"{key}={value}" for key, value in written.items()), "-->"))


def _end(name: str) -> str:
    return f"<!-- heinzelwerk:end {name} -->"


def _pair(name: str) -> str:
    return f"{_begin(name)} and {_end(name)}"
