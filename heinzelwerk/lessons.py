"""Lessons that a person accepted: kept in the session's memo, offered to every later turn, oldest first."""

from __future__ import annotations

import json
from collections.abc import Mapping

MEMO = "lessons"
MOST = 50
"""Lessons kept per session; the oldest goes when one more is accepted."""


def accepted(memo: Mapping[str, str]) -> tuple[str, ...]:
    """The sentences that were accepted, oldest first."""
    return tuple(json.loads(memo[MEMO])) if MEMO in memo else ()


def accept(memo: Mapping[str, str], sentence: str) -> dict[str, str]:
    """The memo's entry after one more was accepted; a sentence that is there already changes nothing."""
    known = accepted(memo)
    sentences = known if sentence in known else (*known, sentence)[-MOST:]
    return {MEMO: json.dumps(sentences, ensure_ascii=False)}
