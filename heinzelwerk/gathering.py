"""Fetching the declared inputs of a turn: once, whole or not at all, cleaned, hashed, ready for the body."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from pydantic import JsonValue

from heinzelwerk import errors, ids
from heinzelwerk.capability import registry
from heinzelwerk.ids import SessionId
from heinzelwerk.opening import FetchedInput

if TYPE_CHECKING:
    from heinzelwerk.contract import Contract, InputSpec
    from heinzelwerk.ports import Capability, Works


def canonical(data: JsonValue) -> str:
    """Sorted keys, no blanks, non-ASCII as it is: what an input's hash is taken over."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


async def gather(contract: Contract, *, team: str, as_of: datetime, works: Works) -> dict[str, FetchedInput]:
    """Read all declared inputs side by side, as of one instant.

    ReadFailed names the input and the reason; an input over the policy's bytes fails too, with the advice to narrow
    its window, because a silently cut input would make a wrong draft look right.
    """
    async with asyncio.TaskGroup() as group:
        reads = {
            name: group.create_task(_fetch(name, spec, team, as_of, works)) for name, spec in contract.inputs.items()
        }
    results = {name: task.result() for name, task in reads.items()}
    failed = next((result for result in results.values() if isinstance(result, errors.ReadFailed)), None)
    if failed is not None:
        raise failed
    return {name: result for name, result in results.items() if isinstance(result, FetchedInput)}


async def _fetch(
    name: str, spec: InputSpec, team: str, as_of: datetime, works: Works
) -> FetchedInput | errors.ReadFailed:
    try:
        fetched = await (
            _from_contract(name, spec, spec.contract, team, works)
            if spec.contract
            else _from_capability(name, spec, as_of, works)
        )
    except errors.ReadFailed as error:
        # A value, so that one input's failure does not cancel the others' connections in the middle of a reply.
        return errors.ReadFailed(f"input {name} ({spec.read}): {error}", fix=error.fix)
    size = len(canonical(fetched.data).encode())
    if size > works.policy.input_bytes:
        return errors.ReadFailed(
            f"input {name} ({spec.read}) has {size:,} bytes; an input holds at most {works.policy.input_bytes:,}",
            fix="narrow the window of this input in the contract",
        )
    return fetched


def unserved(spec: InputSpec, capabilities: Mapping[str, Capability]) -> errors.ReadFailed | None:
    """What a turn fails with because no capability of this deployment reads the input; None where one does, or a contract."""
    name, _, method = spec.read.partition(".")
    capability = capabilities.get(name)
    if spec.contract is not None or (capability is not None and method in capability.methods()):
        return None
    known = ", ".join(sorted(capabilities)) or "none"
    return errors.ReadFailed(
        f"nothing here serves {spec.read}; capabilities that are set up: {known}",
        fix=f"set up {name} in heinzelwerk.toml, then run `heinzelwerk doctor`",
    )


async def _from_capability(name: str, spec: InputSpec, as_of: datetime, works: Works) -> FetchedInput:
    lacking = unserved(spec, works.capabilities)
    if lacking is not None:
        raise lacking
    capability_name, _, method = spec.read.partition(".")
    capability = works.capabilities[capability_name]
    since, until = spec.window.around(as_of) if spec.window else (None, None)
    data = await capability.read(method, spec.args, since=since, until=until)
    return FetchedInput(
        name=name,
        read=spec.read,
        arguments=dict(spec.args),
        since=since.isoformat() if since else None,
        until=until.isoformat() if until else None,
        data=data,
        sha256=ids.digest(canonical(data)),
        fingerprint=registry.fingerprint(spec.read, data),
    )


async def _from_contract(
    name: str, spec: InputSpec, source: tuple[str, str, str], team: str, works: Works
) -> FetchedInput:
    _, producer, output = source
    found = await works.store.draft(SessionId(team, producer), output, approved=True)
    if found is None:
        gap = f"nobody has approved an output {output} of {producer} yet"
        return FetchedInput(name=name, read=spec.read, gap=gap, sha256=ids.digest(gap), fingerprint="gap")
    number, words = found
    data: JsonValue = {"output": output, "turn": number, "text": words}
    return FetchedInput(
        name=name, read=spec.read, data=data, sha256=ids.digest(canonical(data)), fingerprint=ids.digest(words)
    )
