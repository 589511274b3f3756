"""What a turn's tools work on: the dependencies of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heinzelwerk.engine.segment import Segment
from heinzelwerk.opening import Opening
from heinzelwerk.ports import Capability, Policy


@dataclass(frozen=True, slots=True)
class TurnDeps:
    """The opening (inputs, lessons, earlier turns), the capabilities' read handles by name, and the segment's record."""

    opening: Opening
    policy: Policy
    capabilities: Mapping[str, Capability]
    segment: Segment
