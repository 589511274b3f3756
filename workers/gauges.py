"""What Prometheus is told, as pure rules: facts in, metric families out. No words, no turn ids: teams, names, states, sums.

The names are an interface: dashboards and alerts of others rely on them (docs/operations.md lists them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from heinzelwerk import budget, inbox
from heinzelwerk.budget import Caps, Spent
from heinzelwerk.effect import EffectRecord
from heinzelwerk.generation import ContractEntry
from heinzelwerk.inbox import Item
from heinzelwerk.session import QUARANTINE, Due, Overview

MOST_DUE = 1_000
"""Due entries of a team that are counted; there may be more."""
_STATES = ("asleep", "queued", "running", "waiting", "paused", "quarantined")


@dataclass(frozen=True, slots=True)
class TeamFacts:
    """What one look at a team finds; `due` are at most MOST_DUE, oldest first."""

    team: str
    contracts: Mapping[str, ContractEntry]
    sessions: Mapping[str, Overview]
    undecided: Sequence[EffectRecord]
    recent: Sequence[EffectRecord]
    due: Sequence[Due]
    whole: Spent
    each: Mapping[str, Spent]
    caps: Caps
    counts: Mapping[str, int]

    def waiting(self) -> tuple[Item, ...]:
        """What waits for people."""
        return inbox.items(undecided=self.undecided, recent=self.recent, sessions=self.sessions.values())


@dataclass(frozen=True, slots=True)
class Facts:
    """What one look at a deployment finds; `took_s` is how long it took."""

    now_ms: int
    took_s: float
    teams: Sequence[TeamFacts]
    workers: Mapping[str, Mapping[str, str]]
    server: Mapping[str, str]
    drained: bool


def families(facts: Facts) -> Iterable[Metric]:
    """All metrics of one look."""
    yield from _deployment(facts)
    for gauge in (_contracts, _sessions, _people, _due, _money):
        yield from gauge(facts)
    yield from _counts(facts)


def state(seen: Overview) -> str:
    """One word for what a session does now."""
    if seen.memo.get(QUARANTINE):
        return "quarantined"
    if seen.held:
        return "running"
    if seen.turns:
        return "waiting"
    if seen.inbox:
        return "queued"
    return "paused" if seen.paused else "asleep"


def _gauge(name: str, says: str, labels: Sequence[str] = ()) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"heinzelwerk_{name}", says, labels=list(labels))


def _deployment(facts: Facts) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "heinzelwerk_look_seconds", "How long the look took that these figures are of.", facts.took_s
    )
    drained = "Whether workers were told to claim nothing more (heinzelwerk drain)."
    yield GaugeMetricFamily("heinzelwerk_drained", drained, float(facts.drained))
    workers = _gauge("workers", "Workers whose heartbeat has not expired.", ("profile", "version"))
    for (profile, version), count in Counter(
        (beat.get("profile", "unknown"), beat.get("version", "unknown")) for beat in facts.workers.values()
    ).items():
        workers.add_metric([profile, version], count)
    yield workers
    for name, key, says in (
        ("store_memory_bytes", "used_memory", "Memory that the store's server uses."),
        (
            "store_memory_limit_bytes",
            "maxmemory",
            "Memory that it may use; 0: all there is. Full, it refuses every write.",
        ),
    ):
        value = facts.server.get(key, "")
        if value.isdigit():
            yield GaugeMetricFamily(f"heinzelwerk_{name}", says, float(value))
    written = facts.server.get("aof_last_write_status")
    if written is not None:
        says = "Whether the server's last write of its append-only file went well."
        yield GaugeMetricFamily("heinzelwerk_store_durable", says, float(written == "ok"))


def _contracts(facts: Facts) -> Iterable[Metric]:
    found = _gauge("contracts", "Contracts of the newest generation; broken ones sleep.", ("team", "state"))
    for one in facts.teams:
        broken = sum(not entry.acts for entry in one.contracts.values())
        found.add_metric([one.team, "loaded"], len(one.contracts) - broken)
        found.add_metric([one.team, "broken"], broken)
    yield found


def _sessions(facts: Facts) -> Iterable[Metric]:
    states = _gauge("sessions", "Heinzelmännchen that ever woke, by what they do now.", ("team", "state"))
    queued = _gauge("queued_wakes", "Accepted wakes whose turn has not started.", ("team",))
    turns = CounterMetricFamily("heinzelwerk_turns_started", "Turns that ever started.", labels=["team"])
    for one in facts.teams:
        counts = Counter(map(state, one.sessions.values()))
        for name in _STATES:
            states.add_metric([one.team, name], counts[name])
        queued.add_metric([one.team], sum(len(seen.inbox) for seen in one.sessions.values()))
        turns.add_metric([one.team], sum(seen.last_turn for seen in one.sessions.values()))
    yield from (states, queued, turns)


def _people(facts: Facts) -> Iterable[Metric]:
    many = _gauge("waiting_for_people", "What waits for a person, by what it is.", ("team", "heinzel", "kind"))
    oldest = _gauge("waiting_for_people_oldest_seconds", "How long the oldest of a kind has waited.", ("team", "kind"))
    for one in facts.teams:
        items = one.waiting()
        for (heinzel, kind), count in Counter((item.heinzel, item.kind) for item in items).items():
            many.add_metric([one.team, heinzel, kind.value], count)
        for kind in inbox.Waiting:
            since = [item.since_ms for item in items if item.kind is kind and item.since_ms]
            if since:
                oldest.add_metric([one.team, kind.value], max(0, facts.now_ms - min(since)) / 1000)
    yield from (many, oldest)


def _due(facts: Facts) -> Iterable[Metric]:
    says = f"Sessions, effects, jobs and slots that are due and not running (at most {MOST_DUE} of a team are counted)."
    many = _gauge("due", says, ("team", "kind"))
    oldest = _gauge("due_oldest_seconds", "For how long the oldest of them has been due.", ("team",))
    for one in facts.teams:
        for kind, count in Counter(entry.kind for entry in one.due).items():
            many.add_metric([one.team, kind], count)
        ages = [facts.now_ms - entry.due_ms for entry in one.due]
        oldest.add_metric([one.team], max([0, *ages]) / 1000)
    yield from (many, oldest)


def _money(facts: Facts) -> Iterable[Metric]:
    spent = _gauge("spent_today_dollars", "Money of this UTC day: spent, possibly spent, put aside.", ("team", "kind"))
    each = _gauge("heinzel_spent_today_dollars", "Spent on this UTC day, possibly spent included.", ("team", "heinzel"))
    caps = _gauge("cap_dollars", "What may be spent: by the team a day, by each Heinzelmännchen a day.", ("team", "of"))
    for one in facts.teams:
        for kind, amount in (
            ("spent", one.whole.spent),
            ("possible", one.whole.possible),
            ("reserved", one.whole.reserved),
        ):
            spent.add_metric([one.team, kind], _dollars(amount))
        for name, found in one.each.items():
            if found.spent or found.possible:
                each.add_metric([one.team, name], _dollars(found.spent + found.possible))
        for of, cap in (("team_day", one.caps.team_day), ("heinzel_day", one.caps.session_day)):
            if cap is not None:
                caps.add_metric([one.team, of], _dollars(cap))
    yield from (spent, each, caps)


def _counts(facts: Facts) -> Iterable[Metric]:
    says = "What is counted and is no event: duplicate and refused wakes, doorbells that found nothing to do, ..."
    found = CounterMetricFamily("heinzelwerk_counts", says, labels=["team", "what"])
    for one in facts.teams:
        for what, count in sorted(one.counts.items()):
            found.add_metric([one.team, what], count)
    yield found


def _dollars(micros: int) -> float:
    return float(budget.usd(micros))
