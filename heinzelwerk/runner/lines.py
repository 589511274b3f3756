"""Reading the JSON lines of a stranger: every accessor here takes anything and raises nothing."""

import json
import math
from decimal import Decimal
from typing import Any

_TOKENS_MAX = 2**53  # beyond it JSON numbers are no longer exact, and no count is real


def event(line: bytes) -> dict[str, Any] | None:
    """The object on a line, or None where the line is no JSON object (then it is text, and kept as such)."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # RecursionError: ten thousand brackets are a line too
        return None
    return value if isinstance(value, dict) else None


def complaint(line: bytes) -> str:
    """What a line that is no event says went wrong, as command line tools say it, or nothing."""
    told = line.strip()
    return told[:500].decode("utf-8", "replace") if told[:5].lower() == b"error" else ""


def mapping(value: object) -> dict[str, Any]:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list; anything else in it is left out."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: object) -> str:
    """The string, made encodable (JSON can spell a lone surrogate), or an empty one."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else ""


def count(value: object) -> int:
    """A whole number of tokens or turns, or 0."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return value if 0 <= value <= _TOKENS_MAX else 0


def whole(value: object) -> int | None:
    """A whole number of any sign, or None; true and false are none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def dollars(value: object) -> Decimal | None:
    """An amount as the shortest decimal that is this number, or None where it is no amount."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return Decimal(value) if 0 <= value <= _TOKENS_MAX else None
    return Decimal(repr(value)) if math.isfinite(value) and value >= 0 else None


def block_text(content: object) -> str:
    """The text of a message's content: a string, or the `text` blocks of a list, joined."""
    if isinstance(content, str):
        return text(content)
    return "".join(text(block.get("text")) for block in objects(content) if block.get("type") == "text")
