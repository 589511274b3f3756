"""What a turn would get, before it gets it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from heinzelwerk.opening import FetchedInput, Opening
from workers.show import figures
from workers.show.screen import ink, table

if TYPE_CHECKING:
    from heinzelwerk.engine.preview import Preview


def as_data(opening: Opening, found: Preview, cap: int | None) -> dict[str, object]:
    """The shape of `wake --dry-run --json`."""
    contract = opening.contract
    return {
        "dry_run": True,
        "packet": {
            "contract": contract.name,
            "as_of": figures.instant(opening.turn.as_of_ms),
            "instructions": found.instructions,
            "prompt": found.prompt,
            "inputs": {
                name: {
                    "read": entry.read,
                    "arguments": entry.arguments,
                    "data": entry.data,
                    "sha256": entry.sha256,
                    "gap": entry.gap,
                }
                for name, entry in opening.inputs.items()
            },
            "output": contract.output,
            "format": contract.outputs[contract.output].format,
            "tools": sorted(contract.agent.tools),
            "timeout_seconds": contract.timeout_s,
            "max_usd": None if cap is None else cap / 1_000_000,
        },
        "model": opening.model,
        "request": {
            "input_tokens": found.input_tokens,
            "output_tokens": found.output_tokens,
            "at_most_usd": None if found.request_micros is None else found.request_micros / 1_000_000,
        },
        "note": _cost(opening, found, cap),
    }


def as_text(opening: Opening, found: Preview, cap: int | None) -> RenderableType:
    """Instructions, first message, inputs with their sizes, and the cost, for people."""
    as_of = figures.instant(opening.turn.as_of_ms)
    places = [f"{entry.action} {' '.join(map(str, entry.args.values()))}" for entry in opening.contract.publishes]
    return Group(
        ink(f"{opening.contract.name}: dry run as of {as_of} UTC, nothing runs", "bold"),
        ink("--- instructions ---", "dim"),
        ink(found.instructions),
        ink("--- first message ---", "dim"),
        ink(found.prompt),
        ink("--- inputs, as the tools would return them ---", "dim"),
        table(
            ("input", "read", "entries", "size", "sha256", "gap"),
            (
                (name, entry.read, _entries(entry), f"{_size(entry):,}", figures.short(entry.sha256), entry.gap or "")
                for name, entry in opening.inputs.items()
            ),
            right=(2, 3),
        ),
        ink("--- cost ---", "dim"),
        ink(_cost(opening, found, cap)),
        ink(f"An approved draft goes to: {', '.join(places) or 'nowhere, it is kept'}"),
    )


def _cost(opening: Opening, found: Preview, cap: int | None) -> str:
    request = figures.money(found.request_micros)
    whole = figures.money(cap) if cap is not None else "without a cap"
    return (
        f"model {opening.model}: one request of about {figures.tokens(found.input_tokens, found.output_tokens)} tokens "
        f"costs at most {request}; the turn is stopped at {whole}"
    )


def _entries(entry: FetchedInput) -> str:
    return f"{len(entry.data):,}" if isinstance(entry.data, list) else "-"


def _size(entry: FetchedInput) -> int:
    return len(json.dumps(entry.data, ensure_ascii=False).encode("utf-8", "replace")) if entry.gap is None else 0
