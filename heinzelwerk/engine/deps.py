"""What a turn's tools work on: the dependencies of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heinzelwerk.engine.segment import Segment
from heinzelwerk.opening import Opening
from heinzelwerk.ports import Capability, Policy


@dataclass(frozen=True, slots=True)
class Reads:
    """All that a tool which only reads touches: the opening (inputs, lessons, earlier turns) and the read handles by name."""

    opening: Opening
    policy: Policy
    capabilities: Mapping[str, Capability]


@dataclass(frozen=True, slots=True)
class TurnDeps(Reads):
    """With the segment's record, for what a turn writes down and asks for."""

    segment: Segment
