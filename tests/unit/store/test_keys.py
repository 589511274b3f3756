"""Claims about the key table and the scripts' files."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from heinzelwerk.store import keys, link

LUA = [entry for entry in (resources.files("heinzelwerk.store") / "lua").iterdir() if entry.name.endswith(".lua")]


@pytest.mark.parametrize(
    ("key", "kind", "ttl", "complaint"),
    [
        ("hw:{docs}:due", "zset", -1, None),
        ("hw:{docs}:due", "zset", 5_000, "table says none"),
        ("hw:{docs}:due", "hash", -1, "is a hash"),
        ("hw:{docs}:s:weekly:lease", "string", -1, "has no TTL"),
        ("hw:{docs}:s:weekly:lease", "string", 15_000, None),
        ("hw:{docs}:s:on-call-2:body:17", "hash", -1, None),
        ("hw:{docs}:s:weekly:body:x", "hash", -1, "not in the key table"),
        ("hw:{docs}:effect:ab12:text", "string", 1, None),
        ("hw:{docs}:target:documents:a.md#b c", "zset", -1, None),
        ("hw:{docs}:job:j:1:lease", "string", -1, "has no TTL"),
        ("hw:meta", "hash", -1, None),
        ("hw:worker:turns@host:1", "hash", 30_000, None),
        ("celery", "list", -1, "not in the key table"),
    ],
)
def test_audit(key: str, kind: str, ttl: int, complaint: str | None) -> None:
    """A key is judged by its row; what stands in no row is a complaint."""
    for prefix in ("", "test-1:"):
        found = keys.audit(prefix + key, kind, ttl, prefix=prefix)
        assert (found is None) if complaint is None else (found is not None and complaint in found)


def test_every_row_says_why() -> None:
    """No key is permanent, or sometimes permanent, without a written reason and an owner."""
    assert all(rule.why and rule.owner and rule.ttl in ("always", "never", "sometimes") for rule in keys.TABLE)


def test_every_key_of_a_team_has_its_tag() -> None:
    """All that one script touches lies in one slot of a cluster."""
    assert keys.base("x:", "docs") == "x:hw:{docs}:"
    assert all(
        rule.pattern.startswith("{<name>}:") or ":" not in rule.pattern.split("<")[0][:-1] for rule in keys.TABLE
    )


@pytest.mark.parametrize("entry", LUA, ids=lambda entry: entry.name)
def test_every_script_says_what_it_does(entry) -> None:
    """A script begins with a comment, names its keys there, compares only the server's time, and loads with its libraries."""
    text = entry.read_text()
    assert text.startswith("-- ")
    assert not re.search(r"\bos\.(time|clock)\b", text)
    if not entry.name.startswith("lib"):
        assert "Answers" in text
        assert link.script(entry.name.removesuffix(".lua")).source.count("local B = KEYS[1]") == 1


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("redis://kim:secret@host:6379/2?x=1", "redis://host:6379/2"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
    ],
)
def test_an_address_is_shown_without_its_secret(url: str, seen: str) -> None:
    """Errors and logs name the server, never the password."""
    assert link.shown(url) == seen
