"""The doctor: looks at everything a deployment needs; each finding says what is wrong, where, and what to do.

Rules here are pure: facts in, findings out. `workers/examining.py` gathers the facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from heinzelwerk.effect import EffectRecord, EffectState
from heinzelwerk.generation import ContractEntry
from heinzelwerk.session import POISON_CLAIMS, QUARANTINE, Due, Overview
from heinzelwerk.turn import WaitKind

OLDEST_SERVER = (6, 2)
SKEW_MS = 2_000
"""Clocks of machines further apart than this make logs misleading; leases never depend on them."""
OLDEST_BEAT_MS = 60_000
"""A heartbeat older than this has expired in the store."""
LATE_MS = 120_000
"""What is due for longer than this is not only waiting for its turn."""
MANY_WAITING = 1_000
NEWEST_LINES = 500
"""Of each spine so many lines are checked; `heinzelwerk export` checks all of one."""


class Level(StrEnum):
    """Whether something is fine, worth a look, or down."""

    OK = "ok"
    WARN = "warn"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: `area` says where it belongs, `fix` is empty where nothing is to be done."""

    level: Level
    area: str
    what: str
    fix: str = ""


def is_down(findings: Iterable[Finding]) -> bool:
    """Whether something does not work at all."""
    return any(found.level is Level.DOWN for found in findings)


def store(facts: Mapping[str, str], *, appendfsync: str, here_ms: int) -> list[Finding]:
    """The server: version, durability, eviction, memory, clock."""
    found: list[Finding] = []
    version = facts.get("redis_version", "")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers and numbers < OLDEST_SERVER:
        wanted = ".".join(map(str, OLDEST_SERVER))
        found.append(
            Finding(
                Level.DOWN,
                "store",
                f"server {version} is older than {wanted}",
                f"upgrade to Valkey, or Redis {wanted} or newer",
            )
        )
    policy = facts.get("maxmemory-policy") or facts.get("maxmemory_policy") or "noeviction"
    if policy != "noeviction":
        found.append(
            Finding(
                Level.DOWN,
                "store",
                f"maxmemory-policy is {policy}: the server may delete turns and drafts when memory is short",
                "CONFIG SET maxmemory-policy noeviction, and in the server's configuration file",
            )
        )
    found += _durability(facts, appendfsync)
    found += _memory(facts)
    skew = abs(int(facts.get("clock_ms", here_ms)) - here_ms)
    if skew > SKEW_MS:
        found.append(
            Finding(
                Level.WARN,
                "store",
                f"the server's clock and this machine's are {skew / 1000:.1f} s apart: times in logs mislead",
                "run NTP (chrony, systemd-timesyncd) on both machines",
            )
        )
    if found:
        return found
    known = (
        f"Valkey {facts['valkey_version']}"
        if "valkey_version" in facts
        else f"Redis {version}"
        if version
        else "the server"
    )
    return [Finding(Level.OK, "store", f"{known} answers, keeps an append-only file, evicts nothing")]


def _durability(facts: Mapping[str, str], wanted: str) -> list[Finding]:
    if facts.get("appendonly", "yes") == "no" or facts.get("aof_enabled", "1") == "0":
        return [
            Finding(
                Level.DOWN,
                "store",
                "the append-only file is off: a restart of the server forgets turns, drafts and what was placed",
                "CONFIG SET appendonly yes, and in the server's configuration file",
            )
        ]
    fsync = facts.get("appendfsync", wanted)
    if fsync == "no" or (fsync == "everysec" and wanted == "always"):
        loss = "up to two seconds" if fsync == "everysec" else "up to half a minute"
        return [
            Finding(
                Level.WARN,
                "store",
                f"appendfsync is {fsync}, the settings say {wanted}: a power loss may cost {loss} of acknowledged work",
                f"CONFIG SET appendfsync {wanted}, or [store] appendfsync = {fsync!r} to accept it",
            )
        ]
    if fsync == "everysec":
        return [
            Finding(
                Level.OK,
                "store",
                "appendfsync is everysec, as configured: a power loss may cost two seconds, a crash nothing",
            )
        ]
    return []


def _memory(facts: Mapping[str, str]) -> list[Finding]:
    used, most = int(facts.get("used_memory", 0) or 0), int(facts.get("maxmemory", 0) or 0)
    if not most or used / most < 0.8:
        return []
    return [
        Finding(
            Level.WARN,
            "store",
            f"{used / most:.0%} of the server's memory is used; when it is full every write is refused",
            "raise maxmemory, or shorten [retention] and run `heinzelwerk prune`",
        )
    ]


def workers(beats: Mapping[str, Mapping[str, str]], *, here: str, now_ms: int) -> list[Finding]:
    """The processes: one that runs turns must live; versions, formats and clocks should agree."""
    profiles = sorted({facts.get("profile", "?") for facts in beats.values()})
    if not any(profile in ("turns", "all") for profile in profiles):
        return [
            Finding(
                Level.DOWN,
                "workers",
                "no turn worker is alive: wakes are kept and nothing runs"
                + (f" (alive: {', '.join(profiles)})" if profiles else ""),
                "`heinzelwerk up`, or `heinzelwerk worker turns` under your supervisor",
            )
        ]
    found: list[Finding] = []
    if not any(profile in ("upkeep", "effects", "all") for profile in profiles):
        found.append(
            Finding(
                Level.DOWN,
                "workers",
                "no upkeep worker is alive: approved drafts are not placed",
                "`heinzelwerk worker upkeep`",
            )
        )
    if not any(profile in ("solo", "all") for profile in profiles):
        what = "no solo worker is alive: a turn that killed two workers waits 15 min for one, then runs beside others"
        found.append(Finding(Level.WARN, "workers", what, "`heinzelwerk worker solo`"))
    versions = sorted({facts["version"] for facts in beats.values() if facts.get("version")})
    if len(versions) > 1 or (versions and versions[0] != here):
        found.append(
            Finding(
                Level.WARN,
                "workers",
                f"versions differ: workers run {', '.join(versions)}, this is {here}",
                "finish the deploy; until then new formats are not written",
            )
        )
    for name, facts in sorted(beats.items()):
        skew = _skew(facts, now_ms)
        if skew > SKEW_MS:
            found.append(
                Finding(
                    Level.WARN,
                    "workers",
                    f"the clock of {name} is {skew / 1000:.0f} s away from the server's",
                    f"run NTP on {facts.get('host', 'its machine')}",
                )
            )
    return [Finding(Level.OK, "workers", f"{len(beats)} alive: {', '.join(profiles)}"), *found]


def handoff_workers(beats: Mapping[str, Mapping[str, str]]) -> list[Finding]:
    """Where coding agents are set up: somebody must start them."""
    if any(facts.get("profile") in ("handoffs", "all") for facts in beats.values()):
        return []
    return [
        Finding(
            Level.WARN,
            "workers",
            "no handoff worker is alive: turns that hand work over wait, and go on without it at their deadline",
            "`heinzelwerk worker handoffs`",
        )
    ]


def _skew(facts: Mapping[str, str], now_ms: int) -> int:
    """How far a worker's clock is from the server's, as far as a beat that may be some seconds old can tell."""
    try:
        theirs = int(datetime.fromisoformat(facts["clock"]).timestamp() * 1000)
    except (KeyError, ValueError):
        return 0
    ahead = theirs - now_ms
    return ahead if ahead > 0 else max(0, -ahead - OLDEST_BEAT_MS)


def contracts(team: str, entries: Mapping[str, ContractEntry]) -> list[Finding]:
    """The loaded set: broken contracts by file and line."""
    if not entries:
        fix = f"`heinzelwerk load DIRECTORY --team {team}`"
        return [Finding(Level.WARN, "contracts", f"team {team} has no contracts loaded", fix)]
    broken = [
        Finding(
            Level.WARN,
            "contracts",
            f"{team}/{name} sleeps: {line}",
            f"correct the file, `heinzelwerk check`, `heinzelwerk load --team {team}`",
        )
        for name, entry in sorted(entries.items())
        for line in entry.broken[:3]
    ]
    return broken or [Finding(Level.OK, "contracts", f"team {team}: {len(entries)} loaded, none broken")]


def sessions(seen: Iterable[Overview], *, now_ms: int) -> list[Finding]:
    """Heinzelmännchen that are overdue, quarantined, or wait past their deadline."""
    found: list[Finding] = []
    for one in seen:
        name = str(one.session)
        if one.next_slot_ms is not None and one.next_slot_ms < now_ms - LATE_MS and not one.paused:
            found.append(
                Finding(
                    Level.DOWN,
                    "overdue",
                    f"{name} should have woken {(now_ms - one.next_slot_ms) // 1000} s ago",
                    "start an upkeep worker: `heinzelwerk worker upkeep`; the slot is still accounted for",
                )
            )
        found += _set_aside(one)
        found += _stuck(one, now_ms)
    return found


def _set_aside(one: Overview) -> list[Finding]:
    name = one.session.heinzel
    if one.memo.get(QUARANTINE):
        what = f"{one.session} is set aside, {one.memo[QUARANTINE]}"
        fix = (
            f"`heinzelwerk export {name} -o FILE`, `heinzelwerk export --verify FILE`: where the record is damaged, restore the "
            f"store from a backup, or `heinzelwerk resume {name}` to go on with it as it is; else mend the cause first"
        )
        return [Finding(Level.DOWN, "quarantined", what, fix)]
    if one.dead_claims >= POISON_CLAIMS:
        what = f"{one.session} killed its worker {one.dead_claims} times"
        fix = f"`heinzelwerk log {name}` shows the turn; wake it again when the cause is gone"
        return [Finding(Level.WARN, "quarantined", what, fix)]
    return []


def _stuck(one: Overview, now_ms: int) -> list[Finding]:
    return [
        Finding(
            Level.WARN,
            "waits",
            f"{one.session} turn {turn.number}: a {item.kind.value} is {(now_ms - item.deadline_ms) // 1000} s past its deadline",
            "the sweep closes it: start an upkeep worker; `heinzelwerk stop` ends the turn",
        )
        for turn in one.turns
        for item in turn.waits
        if item.open and item.kind is not WaitKind.RETRY and item.deadline_ms < now_ms - LATE_MS
    ]


def queues(team: str, due: Sequence[Due], *, now_ms: int, many: int = MANY_WAITING) -> list[Finding]:
    """What is due and nobody takes."""
    late = [entry for entry in due if entry.due_ms < now_ms - LATE_MS]
    if not late:
        return []
    oldest = (now_ms - min(entry.due_ms for entry in late)) // 1000
    more = "or more " if len(due) >= many else ""
    return [
        Finding(
            Level.WARN,
            "queues",
            f"team {team}: {len(late)} {more}due entries wait, the oldest for {oldest} s",
            "start more turn workers, raise [teams.<name>] slots, or look for a stopped broker",
        )
    ]


def effects(team: str, recent: Iterable[EffectRecord]) -> list[Finding]:
    """Effects of which nobody knows whether they arrived."""
    return [
        Finding(
            Level.WARN,
            "effects",
            f"{team}: {effect.id} to {effect.target} has an unknown end" + (f" ({effect.seen})" if effect.seen else ""),
            f"look at the target, then `heinzelwerk resolve {effect.id} --as completed|failed|retry`",
        )
        for effect in recent
        if effect.state is EffectState.UNKNOWN
    ]


def drained(flag: str | None) -> list[Finding]:
    """Whether workers were told to claim nothing."""
    if flag is None:
        return []
    return [
        Finding(
            Level.WARN,
            "workers",
            "drained: no worker claims anything",
            "`heinzelwerk drain --off` when the deploy is done",
        )
    ]
