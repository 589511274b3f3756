"""Durable agent turns for teams, on Celery and Redis.

`docs/data-path.md` follows one wake from its acceptance to the placed draft; `heinzelwerk.advance` is that path.
A team's own program talks to its Heinzelmännchen with `heinzelwerk.connect` and the `Client` that it gives:

    async with heinzelwerk.connect("redis://localhost:6379/0", team="docs") as client:
        await client.wake("changelog", by="release.py")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heinzelwerk.client import Client as Client
    from heinzelwerk.connecting import connect as connect

__version__ = "0.1.0"

__all__ = ["Client", "__version__", "connect"]

_HOMES = {"Client": "heinzelwerk.client", "connect": "heinzelwerk.connecting"}


def __getattr__(name: str) -> Any:
    """Import the public names at their first use, so that `import heinzelwerk` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'heinzelwerk' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
