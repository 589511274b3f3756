"""Reading a form that a browser posted: its size, its shape, where it comes from."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from workers.serving import READING_S

LARGEST = 4 * 1024 * 1024
"""Bytes: the longest text that may be drafted, each byte of it written as three."""
_MOST_FIELDS = 20
_TYPE = "application/x-www-form-urlencoded"


async def read(request: Request, *, largest: int = LARGEST) -> Mapping[str, str]:
    """The fields, each once, line ends as line feeds. HTTPException 400, 408, 413 or 415 for what is no form of ours."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _TYPE:
        raise HTTPException(415, "a form of these pages is expected")
    body = await _body(request, largest)
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=_MOST_FIELDS,
        )
    except ValueError:
        raise HTTPException(400, "this is no form") from None
    fields = {name: value.replace("\r\n", "\n").replace("\r", "\n") for name, value in pairs}
    if len(fields) != len(pairs):
        raise HTTPException(400, "a field stands in the form twice")
    return fields


async def _body(request: Request, largest: int) -> bytes:
    kept = bytearray()
    try:
        async with asyncio.timeout(READING_S):
            async for chunk in request.stream():
                kept += chunk
                if len(kept) > largest:
                    raise HTTPException(413, f"the form is longer than {largest:,} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the form did not come within {READING_S:.0f} s") from None
    return bytes(kept)
