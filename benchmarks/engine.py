"""What the engine itself costs: processor time for a model request, and for the start of a turn behind many earlier ones.

    python -m benchmarks.engine

The model is a function, the store is in memory, so the figures are the path, the engine and the agent library alone.
Prints medians and ranges; nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import time

import structlog

from heinzelwerk.engine import context
from heinzelwerk.opening import EarlierTurn
from tests.unit.engine.desk import calls, desk, outcome
from tests.unit.engine.test_context import opening

ROUNDS = 15
REQUESTS = 10
BUDGET = 12_000


def line(what: str, figures: list[float], unit: str) -> None:
    print(f"{what:<58} {statistics.median(figures):8.2f} {unit}   {min(figures):.2f} to {max(figures):.2f}")


async def request() -> float:
    """Milliseconds of processor time for each request of a turn with ten, checkpoints included."""
    script = [calls(("previous_turns", {"n": n})) for n in range(1, REQUESTS)]
    found = await desk(*script, outcome())
    began = time.process_time()
    await found.finish()
    return (time.process_time() - began) / REQUESTS * 1_000


def start(earlier: int) -> tuple[float, int]:
    """Milliseconds to render a turn's first messages behind so many earlier turns, and their tokens."""
    turns = tuple(
        EarlierTurn(n, "2026-11-01", "completed", f"Wrote the page of week {n}. " * 6) for n in range(1, earlier + 1)
    )
    given = opening(earlier=turns)
    began = time.perf_counter()
    messages = context.first_messages(given, budget=BUDGET)
    took = (time.perf_counter() - began) * 1_000
    words = "".join(str(getattr(part, "content", "")) for message in messages for part in message.parts)
    return took, context.tokens(words)


def main() -> None:
    """Print the figures."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(request())  # imports and caches
    line(
        "one model request with its checkpoints, processor time", [asyncio.run(request()) for _ in range(ROUNDS)], "ms"
    )
    for earlier in (0, 10, 50, 200, 1_000):
        figures = [start(earlier) for _ in range(ROUNDS)]
        line(f"first messages behind {earlier} earlier turns", [took for took, _ in figures], "ms")
        print(f"{'  of at most ' + format(BUDGET, ',') + ' tokens of history they hold':<58} {figures[0][1]:8,} tokens")


if __name__ == "__main__":
    main()
