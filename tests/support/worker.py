"""The tests' own worker program: the product's composition root with models and wrapped ports of the test's choosing.

    python -P -m tests.support.worker PROFILE [MODULE:FUNCTION ...]

Settings come from HEINZELWERK_CONFIG and the environment as for the real one. Each FUNCTION takes no argument and
returns a `Change`: model factories by prefix, and a function that wraps the bundle of ports. PROFILE may be `beat`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heinzelwerk.ports import Works
from workers import root, running


@dataclass(frozen=True)
class Change:
    """What a test changes in a worker."""

    factories: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    wrap: Callable[[Works], Works] = lambda works: works


def main(arguments: list[str]) -> int:
    profile, *named = arguments
    changes = [_named(name)() for name in named]
    factories = {prefix: make for change in changes for prefix, make in change.factories.items()}

    def wrap(works: Works) -> Works:
        for change in changes:
            works = change.wrap(works)
        return works

    settings = root.read_settings().settings
    if profile == "beat":
        return running.run_beat(root.build(settings, profile="client"), Path(settings.workers.data))
    return running.run_worker(root.build(settings, profile=profile, factories=factories, wrap=wrap))


def _named(name: str) -> Callable[[], Change]:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
