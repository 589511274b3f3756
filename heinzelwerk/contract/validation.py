"""From plain values to a validated frontmatter, or to findings at the lines where people wrote them."""

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from heinzelwerk.contract import model
from heinzelwerk.contract.frontmatter import Loaded, Path
from heinzelwerk.contract.source import Finding

_DEFERRED_HZ = ("owner", "maintainers", "tags", "freshness", "idempotency", "tools", "concurrency", "cost", "overrides")
_DEFERRED_BELOW = {
    "agent": ("runner", "model", "effort", "max_turns"),
    "inputs": ("source", "query", "facets", "required"),
    "outputs": ("target", "facets"),
    "publishes": ("auto_approve", "target"),
}
_DEFERRED_VALUES = {"catch_up": "all"}

_MESSAGES = {
    "missing": ("the key is missing", "Add it."),
    "extra_forbidden": (
        "unknown key",
        "Check the spelling, or delete it; keys of other tools begin with x- at the top.",
    ),
    "string_type": ("must be text", "Put the value in quotes."),
    "string_too_short": ("must not be empty", "Write a text."),
    "string_too_long": ("is longer than {max_length} characters", "Shorten it."),
    "string_unicode": ("holds half of a character pair (a lone surrogate)", "Write the character itself."),
    "literal_error": ("is not one of {expected}", "Choose one of them."),
    "int_type": ("must be a whole number", "Write it without quotes and without a point."),
    "less_than_equal": ("is more than {le}", "Write at most {le}."),
    "greater_than_equal": ("is less than {ge}", "Write at least {ge}."),
    "greater_than": ("must be more than {gt}", "Write a larger number."),
    "float_type": ("must be a number", "Write an amount such as 0.50."),
    "float_parsing": ("must be a number", "Write an amount such as 0.50."),
    "invalid_key": ("holds a key that is no text", "Write the key with plain characters."),
    "finite_number": ("must be a finite number", "Write an amount such as 0.50."),
    "list_type": ("must be a list", "Write [a, b], or one `- item` a line."),
    "dict_type": ("must be a mapping", "Write one `key: value` a line below it."),
    "model_type": ("must be a mapping", "Write one `key: value` a line below it."),
}
_PATTERNS = {
    "name": "Use a-z, 0-9 and single dashes, beginning with a letter.",
    "id": "Use 26 characters of 0-9 and A-Z without I, L, O and U.",
    "version": 'Write MAJOR.MINOR.PATCH in quotes, such as "1.2.0".',
    "action": "Write <publisher>.<action> with a-z, 0-9 and dashes, such as documents.replace-section.",
    "[key]": "Use a-z, 0-9 and underscores, beginning with a letter.",
    "on": "Write inputs, or event.<name>.",
    "uses": "Use a skill's name: a-z, 0-9 and single dashes.",
}


def validate(loaded: Loaded) -> tuple[model.Frontmatter | None, tuple[Finding, ...]]:
    """The frontmatter, or why it counts as unread: deferred keys, else a newer schema, else all that does not validate."""
    data = {key: value for key, value in loaded.data.items() if not key.startswith("x-")}
    findings = _deferred(data, loaded) or _newer(data, loaded)
    if findings:
        return None, findings
    try:
        return model.Frontmatter.model_validate(data), ()
    except ValidationError as error:
        return None, tuple(
            _finding(details, loaded) for details in error.errors(include_url=False, include_input=False)
        )


def _deferred(data: Mapping[str, object], loaded: Loaded) -> tuple[Finding, ...]:
    hz = data.get("hz")
    if not isinstance(hz, dict):
        return ()
    paths: list[Path] = [("hz", key) for key in _DEFERRED_HZ if key in hz]
    paths += [("hz", key) for key, value in _DEFERRED_VALUES.items() if hz.get(key) == value]
    for container, keys in _DEFERRED_BELOW.items():
        for path, entry in _entries(container, hz.get(container)):
            paths += [(*path, key) for key in keys if key in entry]
    hint = "Delete it; docs list what this version builds."
    return tuple(
        Finding(loaded.line_of(path), "HZC023", _dotted(path), "planned, and not built in this version", hint)
        for path in paths
    )


def _entries(container: str, value: object) -> list[tuple[Path, dict[str, object]]]:
    """The mappings below a container, by key or by index: also where it was written as the wrong kind."""
    if container == "agent":
        return [(("hz", container), value)] if isinstance(value, dict) else []
    items: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [(("hz", container, key), entry) for key, entry in items if isinstance(entry, dict)]


def _newer(data: Mapping[str, object], loaded: Loaded) -> tuple[Finding, ...]:
    hz = data.get("hz")
    schema = hz.get("schema") if isinstance(hz, dict) else None
    if type(schema) is not int or schema <= model.SCHEMA:
        return ()
    message = f"written for a newer schema than {model.SCHEMA}, which this version reads"
    hint = f"Update Heinzelwerk, or write the contract for schema: {model.SCHEMA}."
    return (Finding(loaded.line_of(("hz", "schema")), "HZC003", "hz.schema", message, hint),)


def _finding(details: ErrorDetails, loaded: Loaded) -> Finding:
    context: dict[str, Any] = details.get("ctx", {})
    path: Path = details["loc"]
    kind = details["type"]
    message, hint = _words(kind, details, context, path)
    if kind == model.PLACED:
        path = (*path, *context["path"])
    code = "HZC011" if path[:2] == ("hz", "schedule") else "HZC002"
    return Finding(loaded.line_of(path), code, _dotted(path), message, hint)


def _words(kind: str, details: ErrorDetails, context: dict[str, Any], path: Path) -> tuple[str, str]:
    if kind == model.PLACED:
        return (context["message"], context["hint"]) if context["hint"] else _apart(context["message"])
    if kind == "value_error":
        return _apart(str(context["error"]))
    if kind == "extra_forbidden":
        return _MESSAGES[kind][0], _nearest(path) or _MESSAGES[kind][1]
    if kind == "string_pattern_mismatch":
        names = [part for part in reversed(path) if isinstance(part, str)]
        return "is not written as it must be", next(_PATTERNS[name] for name in (*names, "[key]") if name in _PATTERNS)
    if kind in _MESSAGES:
        message, hint = _MESSAGES[kind]
        return message.format(**context), hint.format(**context)
    return details["msg"], "See docs/contracts.md for what the key takes."


_OWNERS: dict[str, type[BaseModel]] = {
    "hz": model.Hz, "agent": model.Agent, "inputs": model.Input, "outputs": model.Output, "publishes": model.Publish,
}  # fmt: skip
"""The model of the mappings below a key: of the key itself, or of its entries."""


def _nearest(path: Path) -> str:
    """The known key that an unknown one was probably meant to be, as a hint; empty where none is near."""
    owner = next((_OWNERS[part] for part in reversed(path[:-1]) if part in _OWNERS), model.Frontmatter)
    known = [field.alias or name for name, field in owner.model_fields.items()]
    near = difflib.get_close_matches(str(path[-1])[:64], known, n=1)
    return f"Perhaps {near[0]} was meant." if near else ""


def _apart(sentence: str) -> tuple[str, str]:
    """Reason and fix of a value form's error, which are written `<reason>: <fix>`."""
    message, colon, hint = sentence.rpartition(": ")
    return (message, f"{hint[:1].upper()}{hint[1:]}.") if colon else (sentence, "")


def _dotted(path: Path) -> str:
    return ".".join(str(part) for part in path)
