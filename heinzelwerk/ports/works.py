"""The engine's port, what an operator allows, and the frozen bundle of all ports that travels down the path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import TYPE_CHECKING, Protocol

from heinzelwerk.budget import Caps
from heinzelwerk.ports.outside import Capability, Channel, Publisher, Runner
from heinzelwerk.ports.process import Bell, Clock, Ids, Keeper
from heinzelwerk.ports.store import Store
from heinzelwerk.turn import EnginePins

if TYPE_CHECKING:
    from heinzelwerk.claim import Claim
    from heinzelwerk.contract import Contract
    from heinzelwerk.ending import Ending
    from heinzelwerk.opening import Opening


class Engine(Protocol):
    """Runs one segment of a turn. It checkpoints through the claim and returns its end; it never raises for expected ends."""

    def pins(self, contract: Contract) -> EnginePins:
        """The model (by the contract's class), engine version and price table that a new turn of this contract gets.

        ConfigurationError where the configured model cannot run: missing extra, missing key, no price set.
        """

    async def run(self, opening: Opening, claim: Claim) -> Ending:
        """Run from the stored history to an outcome, a wait or a stop. LeaseLost and StoreUnavailable escape."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What an operator allows, as values: caps, unattended targets, times. Built once from the settings, read everywhere."""

    caps: Caps = field(default_factory=Caps)
    unattended: frozenset[tuple[str, str]] = frozenset()  # (action, target)
    effect_timeout_s: float = 60.0
    effect_margin_s: float = 15.0
    approval_ttl_s: float = 30 * 86_400.0
    question_ttl_s: float = 30 * 86_400.0
    budget_ttl_s: float = 7 * 86_400.0
    turns_an_hour: int = 60
    history_tokens: int = 12_000
    input_bytes: int = 262_144
    result_bytes: int = 65_536
    tool_timeout_s: float = 60.0
    max_requests: int = 40
    max_tool_calls: int = 200
    retries_of_output: int = 2
    retries_of_tool: int = 2
    request_timeout_s: float = 120.0
    in_flight: Mapping[str, int] = field(default_factory=dict)  # requests at a provider, by prefix of a model string
    roles: tuple[str, ...] = ()  # of the team, and what its contracts are about: what skills say that they apply to
    asset_types: tuple[str, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)  # values that are redacted wherever text leaves a turn


@dataclass(frozen=True, slots=True)
class Works:
    """Everything that the path needs, plugged together once by the composition root and handed down."""

    store: Store
    bell: Bell
    keeper: Keeper
    engine: Engine
    clock: Clock
    ids: Ids
    capabilities: Mapping[str, Capability]
    publishers: Mapping[str, Publisher]
    policy: Policy
    timezone: tzinfo
    runners: Mapping[str, Runner] = field(default_factory=dict)
    channels: Mapping[str, Channel] = field(default_factory=dict)
    solo: bool = True  # whether sessions that killed workers may run here
