"""What every capability checks before it reads: the method's name, its arguments, the names that an operator gave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from heinzelwerk.errors import ReadFailed
from heinzelwerk.ports import Capability

Arguments = TypeVar("Arguments", bound=BaseModel)


def arguments(capability: Capability, method: str, given: Mapping[str, str], *, of: type[Arguments]) -> Arguments:
    """The arguments of a call, checked; ReadFailed for a method that the capability lacks or arguments that do not fit."""
    offered = capability.methods()
    if offered.get(method) is not of:
        names = ", ".join(sorted(offered))
        raise ReadFailed(f"{capability.name} has no method {method!r}: it offers {names}")
    try:
        return of.model_validate(dict(given))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg'].lower()}" for e in error.errors())
        wanted = ", ".join(of.model_fields)
        raise ReadFailed(
            f"{capability.name}.{method} does not take these arguments ({faults}): give {wanted}"
        ) from None


def unknown_name(kind: str, name: str, known: Iterable[str], *, setting: str) -> ReadFailed:
    """The error for a name that the operator did not give; it lists those that exist, and where they are set."""
    names = ", ".join(sorted(known)) or "none yet"
    return ReadFailed(
        f"no {kind} is named {name[:80]!r}: use one of those in [{setting}] ({names}); a path is never a name",
        fix=f"add it to [{setting}] in heinzelwerk.toml",
    )
