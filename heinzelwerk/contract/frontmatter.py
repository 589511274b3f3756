"""YAML frontmatter as plain values with the line of every key: the core-schema subset of the contract format, section 1.4.

PyYAML parses; its event stream is read twice. The first pass refuses what contracts do not allow (anchors, tags, depth,
size) as soon as the parser meets it, so that a hostile file costs no more than its first refused construct. The second
pass builds values, where duplicate keys, keys that are no text and escaped control characters show.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml
from yaml.constructor import SafeConstructor
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from heinzelwerk.contract.source import FIRST_FRONTMATTER_LINE, Finding

MOST_NODES = 10_000
DEEPEST = 32
_LONGEST_NUMBER = 4300

Path = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"

_SCALAR_TAGS = frozenset({f"{_TAG}{name}" for name in ("str", "bool", "int", "float", "null")} | {"!"})
_TEXT_TAGS = frozenset({None, "!", f"{_TAG}str"})
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A frontmatter's top mapping, and the line in the file of each key and list item by its path."""

    data: dict[str, object]
    lines: dict[Path, int]

    def line_of(self, path: Path) -> int:
        """The line of the deepest part of `path` that stands in the file; the first key's for a missing top-level key."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return min(self.lines.values(), default=FIRST_FRONTMATTER_LINE)


class _Refused(Exception):
    """Ends a pass at its first finding."""

    def __init__(self, line: int, code: str, message: str, hint: str = "", *, place: str = "frontmatter") -> None:
        super().__init__(message)
        self.finding = Finding(line, code, place, message, hint)


def load(text: str) -> Loaded | Finding:
    """The values and lines of a frontmatter's text, or the first thing that is wrong with it."""
    try:
        events = _scan(text)
        builder = _Builder(iter(events))
        data = builder.document()
    except _Refused as refused:
        return refused.finding
    except yaml.MarkedYAMLError as error:
        return _syntax_finding(error, text)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # An unprintable character, an escape beyond Unicode, a number that does not fit its tag: no place is known.
        message = f"the frontmatter is no YAML that can be read: {_first_line(error)}"
        hint = "Write the value in quotes, without a tag."
        return Finding(FIRST_FRONTMATTER_LINE, "HZC001", "frontmatter", message, hint)
    if not isinstance(data, dict):
        message = "the frontmatter is not a mapping of keys to values"
        return Finding(FIRST_FRONTMATTER_LINE, "HZC001", "frontmatter", message, "Write one `key: value` a line.")
    return Loaded(data, builder.lines)


def _line(event: Event) -> int:
    mark = event.start_mark
    return (mark.line if mark is not None else 0) + FIRST_FRONTMATTER_LINE


def _scan(text: str) -> list[Event]:
    """All events of the text; raises at the first construct that is not allowed, or where the parser stops."""
    events: list[Event] = []
    depth = nodes = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        events.append(event)
        if isinstance(event, NodeEvent):
            nodes += 1
            _refuse_node(event)
            if nodes > MOST_NODES:
                raise _Refused(_line(event), "HZC004", f"more than {MOST_NODES:,} values", "Move data to a document.")
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise _Refused(_line(event), "HZC004", f"nested deeper than {DEEPEST} levels", "Write it flatter.")
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            depth -= 1
    for event in events:
        documents += isinstance(event, DocumentStartEvent)
        if documents > 1:
            message = "a second YAML document begins here"
            raise _Refused(_line(event), "HZC001", message, "Keep all keys in one document, between the two lines ---.")
    return events


def _refuse_node(event: NodeEvent) -> None:
    line = _line(event)
    if isinstance(event, AliasEvent):
        raise _Refused(
            line, "HZC004", f"*{event.anchor} repeats another value", "Write the value out; quote a text with *."
        )
    if event.anchor is not None:
        raise _Refused(
            line, "HZC004", f"&{event.anchor} names a value for reuse", "Write values out; quote a text with &."
        )
    tag = getattr(event, "tag", None)
    if tag is None:
        return
    if not isinstance(event, ScalarEvent):
        raise _Refused(line, "HZC004", f"the tag {tag} on a list or mapping", "Delete the tag.")
    if tag not in _SCALAR_TAGS:
        raise _Refused(line, "HZC004", f"the tag {tag}", "Delete the tag, or quote a text that begins with !.")


@dataclass(slots=True)
class _Builder:
    """Makes plain values of a checked event stream; nesting is at most DEEPEST, so it may recurse."""

    events: Iterator[Event]
    lines: dict[Path, int] = field(default_factory=dict)

    def document(self) -> object:
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                return self.value(next(self.events), ())
        return None  # an empty stream

    def value(self, event: Event, path: Path) -> object:
        if isinstance(event, MappingStartEvent):
            return self.mapping(path)
        if isinstance(event, SequenceStartEvent):
            return self.sequence(path)
        assert isinstance(event, ScalarEvent)  # noqa: S101 - aliases were refused; nothing else is a node
        return _scalar(event)

    def mapping(self, path: Path) -> dict[str, object]:
        found: dict[str, object] = {}
        while not isinstance(key_event := next(self.events), MappingEndEvent):
            line = _line(key_event)
            # The tag alone decides: a key tagged !!int is refused as a key before its text is read as a number.
            tagged = isinstance(key_event, ScalarEvent) and key_event.tag not in _TEXT_TAGS
            key = _scalar(key_event) if isinstance(key_event, ScalarEvent) and not tagged else None
            if not isinstance(key, str):
                raise _Refused(line, "HZC004", "the key is not text", "Put the key in quotes.")
            if key in found:
                raise _Refused(line, "HZC004", f"the key {key[:60]} stands here twice", "Keep one of the two.")
            self.lines[(*path, key)] = line
            found[key] = self.value(next(self.events), (*path, key))
        return found

    def sequence(self, path: Path) -> list[object]:
        found: list[object] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            item = (*path, len(found))
            self.lines[item] = _line(event)
            found.append(self.value(event, item))
        return found


def _scalar(event: ScalarEvent) -> object:
    """The value of a scalar by its tag, or by core-schema rules where it is plain; refuses escaped control characters."""
    tag = event.tag
    if tag is None or tag == "!":
        value = _plain(event.value) if event.implicit[0] else event.value
    elif tag == f"{_TAG}str":
        value = event.value
    else:
        value = _tagged(event, tag.removeprefix(_TAG))
    if isinstance(value, str) and (found := _CONTROL.search(value)) is not None:
        message = f"an escape stands for the control character U+{ord(found[0]):04X}"
        raise _Refused(_line(event), "HZC005", message, "Delete the escape; only tabs and line feeds are allowed.")
    return value


def _plain(text: str) -> object:
    """A plain scalar by the YAML 1.2 core schema; all that is no null, boolean or number is text (yes, 010, 1:20, dates)."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _SPECIAL_FLOAT.fullmatch(text):
        return float(text.replace(".", ""))
    return text


def _tagged(event: ScalarEvent, kind: str) -> object:
    """The value of a scalar under an explicit core tag, read as PyYAML reads it."""
    if len(event.value) > _LONGEST_NUMBER:  # base 60 (1:20:30) costs its length squared
        raise ValueError(f"line {_line(event)}: more than {_LONGEST_NUMBER} characters under a tag !!{kind}")
    node = yaml.ScalarNode(f"{_TAG}{kind}", event.value)
    constructor = SafeConstructor()
    try:
        match kind:
            case "int":
                return constructor.construct_yaml_int(node)
            case "float":
                return constructor.construct_yaml_float(node)
            case "bool":
                return constructor.construct_yaml_bool(node)
            case _:
                return None
    except (KeyError, IndexError) as error:
        message = f"line {_line(event)}: {event.value!r:.60} does not fit its tag !!{kind}"
        raise _Refused(1, "HZC001", message, "Delete the tag.", place="file") from error


def _syntax_finding(error: yaml.MarkedYAMLError, text: str) -> Finding:
    """Where the parser stopped, in its own words; a schedule gets the hint that it needs quotes."""
    mark = error.problem_mark or error.context_mark
    index = mark.line if mark is not None else 0
    lines = text.split("\n")
    here = lines[index].lstrip() if index < len(lines) else ""
    hint = "Quote a text that holds `: ` or ` #`, or that begins with a sign such as * & ! @ %."
    if here.startswith("schedule:"):
        hint = 'Put the schedule in quotes: schedule: "0 7 * * MON".'
    message = f"no YAML: {' '.join(part for part in (error.context, error.problem) if part)}"
    return Finding(index + FIRST_FRONTMATTER_LINE, "HZC001", "frontmatter", message, hint)


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:200]
