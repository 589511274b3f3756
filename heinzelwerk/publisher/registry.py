"""Which publishers a deployment has, built from plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import cast

from heinzelwerk import plugin
from heinzelwerk.errors import ConfigurationError
from heinzelwerk.ports import Publisher
from heinzelwerk.publisher.documents import DocumentSections

GROUP = "heinzelwerk.publishers"
"""The entry point group in which other packages offer a factory `(settings) -> Publisher`."""


def build(
    *,
    documents: Path | None,
    plugins: Mapping[str, plugin.Settings] | None = None,
    installed: Iterable[EntryPoint] | None = None,
) -> dict[str, Publisher]:
    """The publishers by action: `documents.replace-section` where a directory is configured, and the named plugins.

    ConfigurationError where a plugin is missing, broken, or offers an action that is there already.
    """
    built: dict[str, Publisher] = {}
    if documents is not None:
        built[DocumentSections.action] = DocumentSections(documents)
    return plugin.bind(GROUP, built, plugins, checked=_checked, called=lambda one: one.action, installed=installed)


def _checked(name: str, adapter: object) -> Publisher:
    """A plugin's adapter, if it has the shape of one: better refused at the start than after an approval."""
    fits = (
        isinstance(getattr(adapter, "action", None), str)
        and isinstance(getattr(adapter, "refuses_late", None), bool)
        and all(callable(getattr(adapter, verb, None)) for verb in ("target", "view", "place"))
    )
    if not fits:
        raise ConfigurationError(
            f"{GROUP}: what {name!r} built is no publisher: it needs action, refuses_late, target(), view() and place()"
        )
    return cast("Publisher", adapter)
