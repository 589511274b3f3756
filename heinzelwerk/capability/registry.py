"""Which capabilities a deployment has, built from plain values, and the fingerprint of what they answered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import cast

from pydantic import BaseModel, JsonValue

from heinzelwerk import ids, plugin
from heinzelwerk.capability.files import FileDocuments
from heinzelwerk.capability.git import GitCodeHost
from heinzelwerk.capability.shapes import VOLATILE
from heinzelwerk.contract.methods import METHODS
from heinzelwerk.errors import ConfigurationError
from heinzelwerk.ports import Capability

GROUP = "heinzelwerk.capabilities"
"""The entry point group in which other packages offer a factory `(settings) -> Capability`."""


def build(
    *,
    repositories: Mapping[str, Path],
    documents: Path | None,
    plugins: Mapping[str, plugin.Settings] | None = None,
    installed: Iterable[EntryPoint] | None = None,
) -> dict[str, Capability]:
    """The capabilities by name: `code-host` and `documents` where they are configured, and the plugins that are named.

    ConfigurationError where a plugin is missing, broken, or offers a capability that is there already.
    """
    built: dict[str, Capability] = {}
    if repositories:
        built["code-host"] = GitCodeHost(repositories)
    if documents is not None:
        built["documents"] = FileDocuments(documents)
    return plugin.bind(GROUP, built, plugins, checked=_checked, called=lambda one: one.name, installed=installed)


def _checked(name: str, adapter: object) -> Capability:
    """A plugin's adapter, if it has the shape of one: better refused at the start than in the middle of a turn."""
    offered = getattr(adapter, "methods", None)
    methods = offered() if callable(offered) else None
    fits = (
        isinstance(getattr(adapter, "name", None), str)
        and callable(getattr(adapter, "read", None))
        and isinstance(methods, Mapping)
        and all(isinstance(model, type) and issubclass(model, BaseModel) for model in methods.values())
    )
    if not fits:
        raise ConfigurationError(f"{GROUP}: what {name!r} built is no capability: it needs name, methods() and read()")
    return cast("Capability", adapter)


def fingerprint(method: str, data: JsonValue) -> str:
    """SHA-256 (hex) of an answer's structured data, the volatile fields of its shape left out.

    `method` is `<capability>.<method>`. Equal fingerprints mean that nothing changed which a turn should act on;
    which fields are left out is the table `shapes.VOLATILE`, and none are for a method that the table does not know.
    """
    known = METHODS.get(method)
    volatile = VOLATILE.get(known.returns.removesuffix("[]"), frozenset()) if known is not None else frozenset()
    entries = data if isinstance(data, list) else [data]
    kept = [
        {key: value for key, value in entry.items() if key not in volatile} if isinstance(entry, dict) else entry
        for entry in entries
    ]
    shaped = kept if isinstance(data, list) else kept[0]
    return ids.digest(json.dumps(shaped, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False))
