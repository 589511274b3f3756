"""What an operator may set about the store, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Times (milliseconds), caps and the format that this release writes.

    `slots` overrides `team_slots` (sessions of a team that may run at once) by team. `prefix` stands in front of every
    key, so that deployments or tests may share a server. `format` is the highest record format that this worker reads
    and writes; a session that a higher one wrote is refused as `newer`. `solo_wait_ms` is how long a session that killed
    workers waits for one that runs nothing beside it, before any may take it.
    """

    lease_ms: int = 15_000
    team_slots: int = 50
    slots: Mapping[str, int] = field(default_factory=dict)
    inbox_cap: int = 1000
    seen_ttl_ms: int = 30 * DAY_MS
    body_ttl_ms: int = 90 * DAY_MS
    approval_ttl_ms: int = 30 * DAY_MS
    budget_ttl_ms: int = 40 * DAY_MS
    settled_ttl_ms: int = 2 * DAY_MS
    op_ttl_ms: int = 3_600_000
    ring_first_ms: int = 5_000
    ring_most_ms: int = 300_000
    solo_wait_ms: int = 900_000
    format: int = 1
    prefix: str = ""

    def slots_of(self, team: str) -> int:
        """How many sessions of this team may run at once."""
        return self.slots.get(team, self.team_slots)
