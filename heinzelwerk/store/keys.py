"""The key table: every key that the store writes, its type, its owner, and its TTL or the reason why it has none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: `pattern` after `hw:`, the type, who writes it; `ttl` is `always`, `never` or `sometimes`, `why` says why."""

    pattern: str
    type: str
    owner: str
    ttl: str
    why: str


_H: Final = r"s:<name>"
TABLE: Final[tuple[Rule, ...]] = (
    Rule("meta", "hash", "prepare", "never", "the format mark of the whole store"),
    Rule("teams", "set", "load", "never", "which teams there are"),
    Rule("workers", "zset", "heartbeat", "never", "members end by score; one entry per living worker"),
    Rule("worker:<any>", "hash", "heartbeat", "always", "a worker that is silent for so long is dead"),
    Rule("flag:<any>", "string", "flag", "never", "an operator sets it and an operator clears it"),
    Rule("turns:<any>", "string", "take_turns", "always", "one caller per period"),
    Rule("{provider:<name>}:flight", "zset", "begin_request", "always", "the longest lease in it"),
    Rule("{provider:<name>}:asking", "zset", "begin_request", "always", "who asked in the last 1.5 s"),
    Rule("{provider:<name>}:served", "zset", "begin_request", "always", "a team that got nothing for an hour is first"),
    Rule("{<name>}:generation", "hash", "load", "never", "the newest generation, overwritten by the next"),
    Rule("{<name>}:contracts", "hash", "load", "never", "the newest generation, overwritten by the next"),
    Rule("{<name>}:text:<any>", "string", "load", "sometimes", "no TTL while the newest generation names it"),
    Rule("{<name>}:paused", "set", "pause", "never", "an operator resumes"),
    Rule("{<name>}:counters", "hash", "every script", "never", "a few numbers per team"),
    Rule("{<name>}:sessions", "set", "accept", "never", "who ever had a wake: as many as contracts"),
    Rule("{<name>}:due", "zset", "every script", "never", "entries go when nothing is due"),
    Rule("{<name>}:backoff", "hash", "ring", "never", "entries go with progress"),
    Rule("{<name>}:slots", "zset", "ring, claim, renew", "never", "entries end by score"),
    Rule("{<name>}:seen:<name>:<id>", "hash", "accept, commit", "sometimes", "no TTL while the wake is open"),
    Rule(
        "{<name>}:op:<any>",
        "string",
        "scripts with an operation id",
        "always",
        "outlives every repetition of a command",
    ),
    Rule("{<name>}:effect:<id>", "string", "the ledger", "sometimes", "no TTL until the effect has ended"),
    Rule("{<name>}:effect:<id>:text", "string", "the ledger", "sometimes", "no TTL until the effect has ended"),
    Rule("{<name>}:effects", "zset", "commit", "never", "entries go with tidy, after their records"),
    Rule("{<name>}:effects:ids", "zset", "commit", "never", "entries go with tidy, after their records"),
    Rule("{<name>}:undecided", "zset", "the ledger", "never", "entries go with the decision"),
    Rule("{<name>}:unknown", "zset", "the ledger", "never", "entries go when somebody knows"),
    Rule(
        "{<name>}:target:<any>", "zset", "the ledger", "never", "open effects and the newest placed one of each output"
    ),
    Rule("{<name>}:job:<any>:lease", "string", "claim_job, renew", "always", "a lease"),
    Rule("{<name>}:job:<any>", "string", "the ledger", "sometimes", "no TTL until the job has ended"),
    Rule("{<name>}:budget:<number>", "hash", "money", "always", "a day's money is asked for while its month lasts"),
    Rule("{<name>}:reservations", "hash", "money", "never", "entries are booked, then forgotten, by their end"),
    Rule("{<name>}:reservations:due", "zset", "money", "never", "entries are booked, then forgotten, by their end"),
    Rule(f"{{<name>}}:{_H}", "hash", "the lease holder", "never", "the head of a session's spine"),
    Rule(f"{{<name>}}:{_H}:lease", "string", "claim, renew", "always", "a lease"),
    Rule(f"{{<name>}}:{_H}:inbox", "list", "accept", "never", "entries go as they are worked off"),
    Rule(f"{{<name>}}:{_H}:mail", "list", "post", "never", "entries go with the next commit"),
    Rule(f"{{<name>}}:{_H}:spine", "list", "commit", "never", "kept until prune seals it"),
    Rule(f"{{<name>}}:{_H}:memo", "hash", "commit, quarantine", "never", "small facts of a session, overwritten"),
    Rule(f"{{<name>}}:{_H}:open", "zset", "commit", "never", "entries go when turns end"),
    Rule(f"{{<name>}}:{_H}:turns", "hash", "commit", "never", "records are kept until prune, after their retention"),
    Rule(
        f"{{<name>}}:{_H}:words",
        "hash",
        "commit, the ledger",
        "never",
        "which bodies wait for effects; fields go with the turn",
    ),
    Rule(
        f"{{<name>}}:{_H}:drafts",
        "hash",
        "commit, decide, load",
        "sometimes",
        "no TTL while the contract is loaded",
    ),
    Rule(f"{{<name>}}:{_H}:fills:<number>", "hash", "post, the ledger", "sometimes", "no TTL while the turn is open"),
    Rule(
        f"{{<name>}}:{_H}:body:<number>",
        "hash",
        "commit",
        "sometimes",
        "no TTL until the turn and its last effect have ended",
    ),
    Rule(
        f"{{<name>}}:{_H}:history:<number>",
        "list",
        "commit",
        "sometimes",
        "no TTL until the turn and its last effect have ended",
    ),
    Rule(
        f"{{<name>}}:{_H}:calls:<number>",
        "hash",
        "commit",
        "sometimes",
        "no TTL until the turn and its last effect have ended",
    ),
)

_WORDS: Final = {"name": r"[a-z](?:-?[a-z0-9])*", "number": r"\d+", "id": r"[^:]+", "any": r"[\s\S]+"}


def _compiled(rule: Rule) -> re.Pattern[str]:
    pattern = re.escape(rule.pattern)
    for word, expression in _WORDS.items():
        pattern = pattern.replace(re.escape(f"<{word}>"), expression)
    return re.compile("hw:" + pattern)


_RULES: Final = tuple((_compiled(rule), rule) for rule in TABLE)


def base(prefix: str, team: str) -> str:
    """The beginning of all of a team's keys; the braces make it one hash tag."""
    return f"{prefix}hw:{{{team}}}:"


def glob(prefix: str, name: str) -> str:
    """A deployment-wide key."""
    return f"{prefix}hw:{name}"


def rule_of(key: str, prefix: str = "") -> Rule | None:
    """The row of a key; None where the table does not know it."""
    bare = key.removeprefix(prefix)
    return next((rule for pattern, rule in _RULES if pattern.fullmatch(bare)), None)


def audit(key: str, type: str, ttl: int, *, prefix: str = "") -> str | None:  # noqa: A002 - Redis calls it TYPE
    """What is wrong with a key as a SCAN found it, or None. `ttl` as PTTL answers it: milliseconds, -1 for none."""
    rule = rule_of(key, prefix)
    if rule is None:
        return f"{key}: not in the key table"
    if rule.type != type:
        return f"{key}: is a {type}, the table says {rule.type}"
    if rule.ttl == "always" and ttl < 0:
        return f"{key}: has no TTL: {rule.why}"
    if rule.ttl == "never" and ttl >= 0:
        return f"{key}: has a TTL of {ttl} ms, the table says none: {rule.why}"
    return None
