"""Blocking work beside the event loop, to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def whole(call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run `call` on a thread and await its end even when cancelled, then be cancelled.

    A thread cannot be stopped: the directory or descriptor that it works on must not be removed under it.
    """
    task = asyncio.ensure_future(asyncio.to_thread(call, *arguments, **named))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
