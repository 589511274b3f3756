"""The body of a contract: its sections, what they must hold, and the text that the agent gets.

The rules are those of the contract format, section 1.3. They are rules of lines, and differ from CommonMark where it counts:
comments go before headings are read, items inside fences count, any fence line of the same sign closes a fence, and
only column 0 begins a section. A Markdown parser would have to be undone at each of these, so lines are read here.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from heinzelwerk.contract.source import Finding

KNOWN = ("Description", "Goal", "Requires", "Maintains", "Continuity", "Steps", "Done when", "Invariants")
RETIRED = ("Criteria", "Ensures", "Fulfillment", "Constraints", "Memory", "Services", "Wiring", "Execution")
DEFERRED = ("Tools",)

_KNOWN = {name.casefold(): name for name in KNOWN}
_RETIRED = {name.casefold() for name in RETIRED}
_DEFERRED = {name.casefold() for name in DEFERRED}

_KNOWN_HINT = f"Known are {', '.join(KNOWN)}; deeper headings are free."

_HEADING = re.compile(r"(#{1,3})[ \t]+(.*)")
_CLOSING = re.compile(r"(?:^|[ \t]+)#+[ \t]*$")
_FENCE = re.compile(r"[ \t]{0,3}(`{3,}|~{3,})")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ \t]+(\S.*)")
_NAMED_ITEM = re.compile(r"[-*+][ \t]+`([a-z][a-z0-9_]*)`")
_CHECKBOX = re.compile(r"\[[ xX]\](?:[ \t]+|$)")
_SECTION_DEPTH = 3


@dataclass(frozen=True, slots=True)
class Section:
    """One `### Name` with its text lines, which `#` and `##` headings end; `line` is the heading's number in the file."""

    name: str
    line: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Body:
    """A body that was read: the agent's text, the sections in order, and the number of the last line with text."""

    text: str
    sections: tuple[Section, ...]
    last_line: int

    def first(self, name: str) -> Section | None:
        """The section of this name that counts: the first, whatever its case."""
        wanted = _key(name)
        return next((section for section in self.sections if _key(section.name) == wanted), None)


def read(text: str, *, first_line: int) -> Body:
    """Sections and the agent's text of a body whose first line has the number `first_line` in its file."""
    lines = text.split("\n")
    filled = [index for index, line in enumerate(lines) if line.strip()]
    last = first_line + filled[-1] if filled else first_line
    visible = _without_comments(text, keep_lines=True).split("\n")
    return Body(_without_comments(text, keep_lines=False).strip(), tuple(_sections(visible, first_line)), last)


def _without_comments(text: str, *, keep_lines: bool) -> str:
    """`text` without its closed HTML comments; `keep_lines` leaves their line feeds. Linear: one search for each end."""
    parts: list[str] = []
    position = 0
    while (start := text.find("<!--", position)) >= 0:
        end = text.find("-->", start + 4)
        if end < 0:
            break
        parts.append(text[position:start])
        if keep_lines:
            parts.append("\n" * text.count("\n", start, end))
        position = end + 3
    parts.append(text[position:])
    return "".join(parts)


def _sections(lines: Sequence[str], first_line: int) -> Iterable[Section]:
    fence = ""
    name: str | None = None
    begun, held = 0, []
    for number, line in enumerate(lines, start=first_line):
        was_open, fence = fence, _fence_after(line, fence)
        heading = None if was_open or fence else _HEADING.match(line)
        if heading is None:
            held.append(line)
            continue
        if name is not None:
            yield Section(name, begun, tuple(held))
        deep_enough = len(heading[1]) == _SECTION_DEPTH
        name = _heading_name(heading[2]) if deep_enough else None
        begun, held = number, []
    if name is not None:
        yield Section(name, begun, tuple(held))


def _heading_name(text: str) -> str:
    stripped = text.rstrip(" \t")
    closing = _CLOSING.search(stripped)
    # `### ###` has no name but its hashes; everywhere else a closing run of hashes is no part of the name.
    return stripped[: closing.start()].rstrip(" \t") if closing is not None and closing.start() > 0 else stripped


def _key(name: str) -> str:
    """What two spellings of one section's name have in common."""
    return name.strip().casefold()


def _fence_after(line: str, fence: str) -> str:
    """The fence that is open after `line`, empty for none, where `fence` was open before it."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    if not fence:
        return found[1]
    closes = found[1][0] == fence[0] and len(found[1]) >= len(fence)
    return "" if closes else fence


def items(section: Section) -> tuple[str, ...]:
    """The texts of a section's list items, check boxes dropped, lines that go on joined by one blank."""
    found: list[str] = []
    going_on = False
    for line in section.lines:
        item = _LIST_ITEM.match(line)
        if item is not None:
            found.append(_CHECKBOX.sub("", item[1], count=1).strip())
        elif going_on and line.strip():
            found[-1] = f"{found[-1]} {line.strip()}".strip()
        going_on = bool(found) and bool(line.strip())
    return tuple(found)


def check_sections(body: Body) -> tuple[Finding, ...]:
    """Headings that are unknown, retired or deferred, and the two sections that no contract may lack."""
    findings = [finding for section in body.sections if (finding := _heading_finding(section)) is not None]
    goal = body.first("Goal")
    if goal is None or not any(line.strip() for line in goal.lines):
        message = "the contract has no goal" if goal is None else "the goal is empty"
        hint = "Say under ### Goal what is true when the contract holds."
        findings.append(Finding(_at(goal, body), "HZC101", "### Goal", message, hint))
    done = body.first("Done when")
    if done is None or not any(_LIST_ITEM.match(line) for line in done.lines):
        message = "nothing says when the draft is done"
        hint = "List under ### Done when what a reader can check, one `- [ ] ...` a line."
        findings.append(Finding(_at(done, body), "HZC107", "### Done when", message, hint))
    return tuple(findings)


def check_items(body: Body, *, inputs: Collection[str], outputs: Collection[str]) -> tuple[Finding, ...]:
    """Whether `### Requires` and `### Maintains` name exactly the declared inputs and outputs."""
    both = (("Requires", "inputs", inputs), ("Maintains", "outputs", outputs))
    findings = [_item_finding(body, name, key, frozenset(declared)) for name, key, declared in both]
    return tuple(finding for finding in findings if finding is not None)


def _item_finding(body: Body, name: str, key: str, declared: frozenset[str]) -> Finding | None:
    section = body.first(name)
    if section is None:
        if not declared:
            return None
        message = f"the section is missing, and the frontmatter declares {_listed(declared)}"
    else:
        named = frozenset(found[1] for line in section.lines if (found := _NAMED_ITEM.match(line)))
        if named == declared:
            return None
        parts = [f"{_listed(declared - named)} is not listed" if declared - named else ""]
        parts.append(f"{_listed(named - declared)} is not declared under hz.{key}" if named - declared else "")
        message = "; ".join(part for part in parts if part)
    hint = f"Write one line - `name`: ... under ### {name} for each of hz.{key}, at the start of the line."
    return Finding(_at(section, body), "HZC103", f"### {name}", message, hint)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _at(section: Section | None, body: Body) -> int:
    return section.line if section is not None else body.last_line


def _heading_finding(section: Section) -> Finding | None:
    lowered, place = _key(section.name), f"### {section.name}"
    if lowered in _KNOWN:
        return None
    if lowered in _DEFERRED:
        hint = "Declare tools under hz.agent.tools, or delete the section."
        return Finding(section.line, "HZC023", place, "planned, and not built in this version", hint)
    if lowered in _RETIRED:
        hint = f"Move its text to one of {', '.join(KNOWN)}."
        return Finding(section.line, "HZC106", place, "a section of an earlier format", hint)
    message = "no section of a contract; the agent reads it, no check does"
    return Finding(section.line, "HZC105", place, message, _KNOWN_HINT)
