"""What a day cost by model, read off a spine: each answered request and each handoff says what it cost and who was asked."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

_COSTING = (b'"kind":"step.model"', b'"kind":"step.handoff"', b'"kind":"request.unknown"')


@dataclass(frozen=True, slots=True)
class Asked:
    """What one model was asked and what it cost, in micro-dollars; `possible`: sent, and nobody knows whether it counts."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    spent: int = 0
    possible: int = 0

    def plus(self, other: Asked) -> Asked:
        """Both."""
        return Asked(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.spent + other.spent,
            self.possible + other.possible,
        )


def by_model(lines: Iterable[bytes], *, day: str) -> dict[str, Asked]:
    """What the events of one UTC day (`YYYY-MM-DD`) come to, by model; `unanswered` are requests of processes that died."""
    found: dict[str, Asked] = {}
    for line in lines:
        if not any(kind in line for kind in _COSTING):
            continue
        event = json.loads(line)
        if not event["ts"].startswith(day):
            continue
        name, asked = _asked(event["kind"], event["data"])
        found[name] = found.get(name, Asked()).plus(asked)
    return found


def day_of(line: bytes) -> str:
    """The UTC day of an event."""
    return str(json.loads(line)["ts"])[:10]


def _asked(kind: str, data: dict[str, object]) -> tuple[str, Asked]:
    if kind == "step.model":
        name = str(data.get("model", "unknown"))
    elif kind == "step.handoff":
        name = str(data.get("model") or f"handoff {data.get('runner', '')}".strip())
    else:
        name = "unanswered"
    figures = (_whole(data, key) for key in ("input_tokens", "output_tokens", "cost_micros", "possible_micros"))
    return name, Asked(1, *figures)


def _whole(data: dict[str, object], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) else 0
