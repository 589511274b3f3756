"""Durable agent turns for teams, on Celery and Redis.

`docs/data-path.md` follows one wake from its acceptance to the placed draft; `heinzelwerk.advance` is that path.
"""

__version__ = "0.1.0"
