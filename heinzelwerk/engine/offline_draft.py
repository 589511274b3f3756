"""A draft by rule: what can be said about inputs without a language model, and an honest check of what it fulfils.

Pure: inputs in, text and checks out. Entries of a code host are grouped and dated, each once with its short hash; of
documents the beginning is quoted word for word; other lists become one line for each entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heinzelwerk import text

NOTICE = "_Written by rule from the inputs; no language model wrote this text._"
_QUOTED = 1_200
_GROUPS = {
    "feat": "Features",
    "fix": "Fixes",
    "perf": "Performance",
    "docs": "Documentation",
    "doc": "Documentation",
    "refactor": "Refactoring",
    "test": "Tests",
    "tests": "Tests",
    "build": "Build and upkeep",
    "ci": "Build and upkeep",
    "chore": "Build and upkeep",
    "style": "Build and upkeep",
    "revert": "Reverted",
    "merge": "Merged changes",
    "squash": "Squashed changes",
    "direct": "Direct changes",
}
_PREFIX = re.compile(r"([A-Za-z]+)(?:\([^)]*\))?!?:\s+(.+)", re.DOTALL)
_HASH = re.compile(r"\b[0-9a-f]{7,64}\b")
_TITLES = ("title", "subject", "name", "text", "key", "ref", "id")
_DATES = ("merged_at", "updated_at", "posted_at", "received_at", "start", "started_at", "ended_at", "date")


@dataclass(frozen=True, slots=True)
class Source:
    """One input as it was read: its name, its data (None where there was nothing), why there was nothing."""

    name: str
    data: Any
    gap: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a draft: group, day, words, short hash; `once` is what must stand in the text exactly once."""

    group: str
    day: str
    words: str
    once: str = ""

    def line(self) -> str:
        """As Markdown."""
        day = f"{self.day} " if self.day else ""
        return f"- {day}{self.words}" + (f" `{self.once}`" if self.once else "")


@dataclass(frozen=True, slots=True)
class Written:
    """A draft by rule with everything that its checks look at."""

    text: str
    entries: tuple[Entry, ...]
    quotes: tuple[str, ...]
    sources: tuple[Source, ...]

    @property
    def basis(self) -> str:
        """What it was made of, counted: `5 entries`, `1 input`."""
        if self.entries:
            return "1 entry" if len(self.entries) == 1 else f"{len(self.entries)} entries"
        return "1 input" if len(self.sources) == 1 else f"{len(self.sources)} inputs"


def write(title: str, sources: Sequence[Source], *, output_format: str = "markdown") -> Written:
    """The draft of these inputs."""
    entries = tuple(entry for source in sources for entry in _entries(source))
    quotes = tuple(quote for source in sources for quote in _quotes(source))
    if output_format == "json":
        lines = [{"group": e.group, "day": e.day, "text": e.words, "hash": e.once} for e in entries]
        document = {"title": title, "entries": lines, "quotes": list(quotes), "written": NOTICE.strip("_")}
        return Written(json.dumps(document, ensure_ascii=False, indent=2), entries, quotes, tuple(sources))
    parts = [f"## {_plain(title)}", _count(entries, sources)]
    groups = dict.fromkeys(entry.group for entry in entries)
    parts.extend(f"### {group}\n\n" + "\n".join(e.line() for e in entries if e.group == group) for group in groups)
    parts.extend(quotes)
    parts.extend(f"There is nothing from `{s.name}` yet: {_plain(s.gap)}" for s in sources if s.gap is not None)
    return Written("\n\n".join([*parts, NOTICE]) + "\n", entries, quotes, tuple(sources))


def _count(entries: Sequence[Entry], sources: Sequence[Source]) -> str:
    if not any(isinstance(source.data, list) for source in sources):
        return f"From {', '.join(f'`{source.name}`' for source in sources) or 'no inputs'}."
    if not entries:
        return "Nothing happened in this window."
    return "One entry." if len(entries) == 1 else f"{len(entries)} entries."


def _entries(source: Source) -> list[Entry]:
    if not isinstance(source.data, list):
        return []
    rows = [row for row in source.data if isinstance(row, dict)]
    hashes = [str(row["sha"]) for row in rows if row.get("sha")]
    length = _short(hashes)
    shorts = {full[:length] for full in hashes}
    found = [_entry(source.name, row, length, shorts) for row in rows]
    return sorted(
        found, key=lambda entry: list(_GROUPS.values()).index(entry.group) if entry.group in _GROUPS.values() else 99
    )


def _short(hashes: Sequence[str]) -> int:
    """The fewest characters, at least ten, that tell these hashes apart."""
    return next((n for n in range(10, 64) if len({full[:n] for full in hashes}) == len(set(hashes))), 64)


def _entry(name: str, row: Mapping[str, Any], length: int, shorts: set[str]) -> Entry:
    words = _plain(next((str(row[key]) for key in _TITLES if row.get(key)), "without a title"))
    day = next((str(row[key])[:10] for key in _DATES if row.get(key)), "")
    kind = str(row.get("kind") or "")
    found = _PREFIX.fullmatch(words)
    group = _GROUPS.get(found[1].lower()) if found else None
    if found and group:
        words = found[2][:1].upper() + found[2][1:]
    elif kind in _GROUPS:
        group = _GROUPS[kind]
    words = _HASH.sub(lambda m: "an earlier change" if _names(m[0], shorts) else m[0], words)
    number = row.get("number")
    if number is not None and f"#{number}" not in words:
        words = f"{words} (#{number})"
    return Entry(group or f"From {name}", day, words, str(row["sha"])[:length] if row.get("sha") else "")


def _names(word: str, shorts: set[str]) -> bool:
    return any(short.startswith(word) or word.startswith(short) for short in shorts)


def _quotes(source: Source) -> list[str]:
    data = source.data
    if isinstance(data, str):
        return [_quote(source.name, data)]
    if isinstance(data, dict) and isinstance(data.get("text"), str):
        return [_quote(str(data.get("title") or source.name), data["text"])]
    if isinstance(data, dict):
        return [f"### {_plain(source.name)}\n\n" + "\n".join(f"- {_plain(k)}: {_plain(v)}" for k, v in data.items())]
    return []


def _quote(title: str, words: str) -> str:
    """The beginning of a text, by whole paragraphs, as a quotation."""
    kept: list[str] = []
    room = _QUOTED
    for paragraph in re.split(r"\n\s*\n", text.safe(words).strip()):
        room -= len(paragraph)
        if kept and room < 0:
            break
        kept.append(paragraph[:_QUOTED])
    quoted = "\n>\n".join("\n".join(f"> {line}" for line in p.splitlines()) for p in kept)
    return f"### {_plain(title)}\n\n{quoted}".replace("<!--", "&lt;!--")


def _plain(value: object) -> str:
    """One line that opens no markup: comments in a draft could be taken for a publisher's markers."""
    return text.clean_line(str(value), limit=300).replace("<", "&lt;")


# -- what of Done when can be checked by rule -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Check:
    """An item with what a rule found."""

    item: str
    met: bool
    evidence: str


def check(item: str, written: Written) -> Check:
    """Check an item by the first rule that understands it; one that no rule understands is not met, and says so."""
    for pattern, rule in _RULES:
        if pattern.search(item):
            met, evidence = rule(written)
            return Check(item, met, evidence)
    return Check(item, met=False, evidence="No rule can check this and no language model read it: set [heinzel] model.")


Rule = Callable[[Written], tuple[bool, str]]


def _no_address(written: Written) -> tuple[bool, str]:
    clean = text.redact_emails(written.text) == written.text
    return clean, "The pattern for addresses finds none in the text." if clean else "The pattern finds an address."


def _each_once(written: Written) -> tuple[bool, str]:
    named = [entry.once or entry.words for entry in written.entries]
    wrong = [name for name in named if written.text.count(name) != 1]
    if wrong:
        return False, f"{len(wrong)} of {len(named)} entries do not stand there exactly once, the first is {wrong[0]}."
    return True, f"Counted: each of {len(named)} entries of the input stands in the text exactly once."


def _dated(written: Written) -> tuple[bool, str]:
    bare = sum(1 for entry in written.entries if not entry.day)
    return bare == 0, f"{len(written.entries) - bare} of {len(written.entries)} entries carry their date."


def _grouped(written: Written) -> tuple[bool, str]:
    groups = list(dict.fromkeys(entry.group for entry in written.entries))
    return True, f"Each heading stands over the entries of its kind: {', '.join(groups) or 'there are no entries'}."


def _quoted(written: Written) -> tuple[bool, str]:
    return True, "The text holds only titles and paragraphs copied from the inputs, word for word, and their count."


_WORDS: tuple[tuple[str, Rule], ...] = (
    (r"e-?mail|address", _no_address),
    (r"exactly once|each once|every (?:entry|change|item).*(?:hash|once|listed|stands)", _each_once),
    (r"\bdate[ds]?\b", _dated),
    (r"\bgroup(?:s|ed)?\b", _grouped),
    (r"can be found in|says what|nothing (?:else|is invented)|stands in the (?:input|source|note)", _quoted),
)
_RULES = tuple((re.compile(words, re.IGNORECASE), rule) for words, rule in _WORDS)
