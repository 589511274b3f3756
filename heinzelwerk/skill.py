"""Skills: advice for turns in the Agent Skills format. A skill says how; it never adds an input, a tool, a target or a cap.

Pure rules over a skill's files; `skill_directory` reads them from a disk. Source: the skill rules of the contract format,
section 3.4, and statement 7 of ADR 0050. An expected bad skill is a `Refusal`, not an exception.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType

from heinzelwerk import text
from heinzelwerk.contract import frontmatter
from heinzelwerk.contract.definition import Contract
from heinzelwerk.contract.source import Finding

MAIN_FILE = "SKILL.md"
LARGEST_FRONTMATTER = 4 * 1024
LARGEST_MAIN = 64 * 1024
LARGEST_FILE = 200 * 1024
LARGEST_SKILL = 1024 * 1024
MOST_FILES = 64
DEEPEST = 4
LONGEST_DESCRIPTION = 1024
HINTS = (
    "license", "compatibility", "metadata", "allowed-tools", "disallowed-tools",
    "argument-hint", "disable-model-invocation", "user-invocable", "model",
)  # fmt: skip
"""Frontmatter keys of the format that are kept as hints and never applied."""

_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_OWN_PREFIXES = ("hz", "heinzel")
_LONGEST_NAME = 64
_LONGEST_HINT = 1024
_APPLIES = "applies"
_KINDS = {"asset_types": "asset", "roles": "role", "capabilities": "capability"}
_ENTRY = re.compile(r"(asset|role|capability):([a-z0-9][a-z0-9._-]*)")
_SECRET = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{40}|glpat-[\w-]{20}|npm_[A-Za-z0-9]{36})"
    r"|\b(?:sk-ant-[\w-]{20}|sk-(?:proj-)?[\w-]{32}|[rs]k_live_[A-Za-z0-9]{20}|AIza[\w-]{35})"
    r"|\b(?:AKIA[0-9A-Z]{16}\b|xox[abprs]-[A-Za-z0-9-]{10}|pypi-[\w-]{50})"
)


class Layer(IntEnum):
    """Where a skill comes from, general to specific; of one name the most specific counts.

    Installed packages that the operator names, the team's repository, the operator's own directories.
    """

    PACKAGE = 0
    TEAM = 1
    OPERATOR = 2


@dataclass(frozen=True, slots=True)
class Applies:
    """Which turns a skill is for, without being named: any of each kind that it states, for all kinds that it states."""

    asset_types: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    capabilities: frozenset[str] = frozenset()

    def matches(self, *, asset_types: Collection[str], roles: Collection[str], capabilities: Collection[str]) -> bool:
        """Whether a turn with these is one of them; a skill that states nothing applies to none by itself."""
        pairs = ((self.asset_types, asset_types), (self.roles, roles), (self.capabilities, capabilities))
        stated = [(wanted, present) for wanted, present in pairs if wanted]
        return bool(stated) and all(not wanted.isdisjoint(present) for wanted, present in stated)


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill that passed every check. `body` is SKILL.md without frontmatter; `files` all files by relative path.

    `fingerprint` is 64 hex digits over all files; turns record it, and readers compare it before they use a file again.
    """

    name: str
    description: str
    body: str
    fingerprint: str
    files: Mapping[str, bytes] = field(repr=False)
    hints: Mapping[str, str] = field(default_factory=dict)
    applies: Applies | None = None
    layer: Layer = Layer.TEAM


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a skill is not loaded: the place, the reason, the fix; `code` is HZC051 where it tries to grant something."""

    name: str
    place: str
    message: str
    hint: str
    code: str | None = None

    def __str__(self) -> str:
        code = f" ({self.code})" if self.code else ""
        return f"skill {self.name}: {self.place}: {self.message}{code}. {self.hint}"


class _Refused(Exception):
    """Ends a reading at its first reason."""

    def __init__(self, place: str, message: str, hint: str, code: str | None = None) -> None:
        super().__init__(message)
        self.reason = (place, message, hint, code)


def read(name: str, files: Mapping[str, bytes], *, layer: Layer = Layer.TEAM) -> Skill | Refusal:
    """The skill of the directory `name` from its files by relative path with slashes; hidden files left out before."""
    try:
        _check_name(name)
        texts = _checked_texts(files)
        meta, body = _main(texts[MAIN_FILE])
        _check_keys(meta)
        if meta.get("name") != name:
            raise _Refused(MAIN_FILE, f"name is not the directory's, {name}", f"Write name: {name}.")
        return Skill(
            name=name,
            description=_description(meta.get("description")),
            body=body,
            fingerprint=fingerprint(files),
            files=MappingProxyType(dict(files)),
            hints=MappingProxyType({key: _hint(key, meta[key]) for key in HINTS if key in meta}),
            applies=_applies(meta),
            layer=layer,
        )
    except _Refused as refused:
        place, message, hint, code = refused.reason
        return Refusal(name, place, message, hint, code)


def fingerprint(files: Mapping[str, bytes]) -> str:
    """SHA-256 over all files in path order, each path and content after its length in bytes and a colon."""
    digest = hashlib.sha256()
    for path in sorted(files):
        for part in (path.encode("utf-8"), files[path]):
            digest.update(b"%d:" % len(part))
            digest.update(part)
    return digest.hexdigest()


def _check_name(name: str) -> None:
    if len(name) > _LONGEST_NAME or _NAME.fullmatch(name) is None:
        raise _Refused("name", "the directory's name is no skill name", "Use a-z, 0-9 and single dashes, at most 64.")
    if name.startswith(_OWN_PREFIXES):
        raise _Refused("name", "names that begin with hz or heinzel are ours", "Choose another name.")


def _checked_texts(files: Mapping[str, bytes]) -> dict[str, str]:
    """Every file as text, after all limits; raises at the first file that breaks one."""
    if MAIN_FILE not in files:
        raise _Refused(MAIN_FILE, "the file is missing", "Add it, with name and description in its frontmatter.")
    if len(files) - 1 > MOST_FILES:
        raise _Refused("files", f"more than {MOST_FILES} files beside {MAIN_FILE}", "Keep fewer files.")
    if sum(map(len, files.values())) > LARGEST_SKILL:
        raise _Refused("files", f"more than {LARGEST_SKILL // 1024} KiB together", "Shorten them.")
    return {path: _checked_text(path, files[path]) for path in sorted(files)}


def _checked_text(path: str, content: bytes) -> str:
    limit = LARGEST_MAIN if path == MAIN_FILE else LARGEST_FILE
    if len(path.split("/")) > DEEPEST:
        raise _Refused(path, f"deeper than {DEEPEST} levels", "Move it up.")
    if len(content) > limit:
        raise _Refused(path, f"larger than {limit // 1024} KiB", "Shorten it.")
    try:
        words = content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise _Refused(path, "not UTF-8 text", "A skill holds text files only.") from None
    if text.clean_text(words) != words:
        line = next(number for number, part in enumerate(words.split("\n"), 1) if text.clean_text(part) != part)
        raise _Refused(f"{path}:{line}", "invisible or control characters", "Delete them; a skill shows all it says.")
    secret = _SECRET.search(words)
    if secret is not None:
        line = words.count("\n", 0, secret.start()) + 1
        raise _Refused(f"{path}:{line}", "this looks like a key or token", "Delete it, and revoke it: it was shared.")
    return words


def _main(content: str) -> tuple[dict[str, object], str]:
    lines = content.split("\n")
    closing = next((i for i, line in enumerate(lines) if i and line.rstrip() == "---"), None)
    if lines[0].rstrip() != "---" or closing is None:
        raise _Refused(
            f"{MAIN_FILE}:1", "no frontmatter between two lines ---", "Begin with ---, name, description, ---."
        )
    head = "\n".join(lines[1:closing])
    if len(head.encode("utf-8")) > LARGEST_FRONTMATTER:
        raise _Refused(f"{MAIN_FILE}:1", "frontmatter larger than 4 KiB", "Move text into the body.")
    loaded = frontmatter.load(head)
    if isinstance(loaded, Finding):
        raise _Refused(f"{MAIN_FILE}:{loaded.line}", loaded.message, loaded.hint)
    return loaded.data, "\n".join(lines[closing + 1 :]).strip()


def _check_keys(meta: Mapping[str, object]) -> None:
    allowed = f"hz.{_APPLIES}"
    metadata, hz = meta.get("metadata"), meta.get("hz")
    own = [key for key in meta if key.lower().startswith("hz") and key not in ("hz", allowed)]
    if isinstance(metadata, dict):
        own += [f"metadata.{key}" for key in metadata if key.lower().startswith("hz") and key != allowed]
    if "hz" in meta:
        own += [f"hz.{key}" for key in hz if key != _APPLIES] if isinstance(hz, dict) else ["hz"]
    if own:
        hint = f"A skill is advice and grants nothing; it may say {allowed} alone."
        raise _Refused(MAIN_FILE, f"the key {own[0][:60]} is refused", hint, "HZC051")
    known = {"name", "description", "hz", allowed, *HINTS}
    unknown = sorted(set(meta) - known)
    if unknown:
        raise _Refused(MAIN_FILE, f"unknown key {unknown[0][:60]}", f"Known are name, description, {', '.join(HINTS)}.")


def _description(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\n" in value.strip():
        raise _Refused(MAIN_FILE, "description is not one line of text", "Say in one line when to use the skill.")
    if len(value) > LONGEST_DESCRIPTION:
        raise _Refused(MAIN_FILE, f"description is longer than {LONGEST_DESCRIPTION} characters", "Shorten it.")
    return value.strip()


def _hint(key: str, value: object) -> str:
    """A hint as text: scalars as they are, lists and mappings of scalars joined."""
    if isinstance(value, dict):
        words = ", ".join(f"{name}={_scalar(key, item)}" for name, item in value.items() if isinstance(name, str))
    elif isinstance(value, list):
        words = ", ".join(_scalar(key, item) for item in value)
    else:
        words = _scalar(key, value)
    if len(words) > _LONGEST_HINT:
        raise _Refused(MAIN_FILE, f"{key} is longer than {_LONGEST_HINT} characters", "Shorten it.")
    return words


def _scalar(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    raise _Refused(MAIN_FILE, f"{key} holds a value that is no text, number or boolean", "Write text.")


def _applies(meta: Mapping[str, object]) -> Applies | None:
    """`hz.applies` from the frontmatter (`hz: {applies: ...}` or the dotted key) or from the format's `metadata` map.

    A mapping of `asset_types`, `roles`, `capabilities` to lists; or text or a list of `asset:x`, `role:x`, `capability:x`.
    """
    dotted = f"hz.{_APPLIES}"
    hz, metadata = meta.get("hz"), meta.get("metadata")
    found = [source.get(key) for source, key in ((hz, _APPLIES), (meta, dotted), (metadata, dotted))
             if isinstance(source, Mapping) and key in source]  # fmt: skip
    if not found:
        return None
    if len(found) > 1:
        raise _Refused(MAIN_FILE, f"{dotted} stands here twice", "Keep one of them.")
    kinds: dict[str, set[str]] = {kind: set() for kind in _KINDS.values()}
    for kind, value in _entries(found[0]):
        kinds[kind].add(value)
    return Applies(frozenset(kinds["asset"]), frozenset(kinds["role"]), frozenset(kinds["capability"]))


def _entries(value: object) -> Iterable[tuple[str, str]]:
    hint = "Write capabilities: [tracker], roles: [...], asset_types: [...]; or capability:tracker role:lead as text."
    if isinstance(value, dict):
        words = [f"{_KINDS.get(str(kind), kind)}:{item}" for kind, items in value.items()
                 for item in (items if isinstance(items, list) else [items])]  # fmt: skip
    elif isinstance(value, str):
        words = value.replace(",", " ").split()
    else:
        words = [str(item) for item in value] if isinstance(value, list) else [""]
    for word in words:
        entry = _ENTRY.fullmatch(word)
        if entry is None:
            raise _Refused(MAIN_FILE, f"hz.{_APPLIES} cannot be read at {word[:60]!r}", hint)
        yield entry[1], entry[2]


@dataclass(frozen=True, slots=True)
class Resolved:
    """The skills that count, general to specific and by name within a layer; and names that nobody decided."""

    skills: tuple[Skill, ...]
    disputed: tuple[str, ...] = ()

    def named(self, name: str) -> Skill | None:
        """The skill of this name, if one counts."""
        return next((skill for skill in self.skills if skill.name == name), None)


def resolve(offered: Iterable[Skill]) -> Resolved:
    """For each name the most specific skill. Two of one layer that differ, with nothing above them: neither."""
    by_name: dict[str, list[Skill]] = {}
    for skill in offered:
        by_name.setdefault(skill.name, []).append(skill)
    winners: list[Skill] = []
    disputed: list[str] = []
    for name, skills in by_name.items():
        top = max(skill.layer for skill in skills)
        candidates = [skill for skill in skills if skill.layer == top]
        if len({skill.fingerprint for skill in candidates}) > 1:
            disputed.append(name)
        else:
            winners.append(candidates[0])
    winners.sort(key=lambda skill: (skill.layer, skill.name))
    return Resolved(tuple(winners), tuple(sorted(disputed)))


@dataclass(frozen=True, slots=True)
class Selection:
    """The skills of a contract's turns, general to specific, and the names in `hz.uses` that are not there."""

    skills: tuple[Skill, ...]
    missing: tuple[str, ...]


def select(
    resolved: Resolved, contract: Contract, *, roles: Collection[str] = (), asset_types: Collection[str] = ()
) -> Selection:
    """What `hz.uses` names, and what says by `hz.applies` that it is for this contract's capabilities, roles or assets."""
    capabilities = frozenset(requirement.partition(":")[0] for requirement in contract.requires)
    chosen = tuple(
        skill
        for skill in resolved.skills
        if skill.name in contract.uses
        or (
            skill.applies is not None
            and skill.applies.matches(asset_types=asset_types, roles=roles, capabilities=capabilities)
        )
    )
    present = {skill.name for skill in chosen}
    return Selection(chosen, tuple(name for name in contract.uses if name not in present))
