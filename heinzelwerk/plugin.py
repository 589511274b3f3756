"""Adapters that other packages bring, found through entry points and built only where the operator names them.

An installed package alone changes nothing: its factory is imported when its name stands in the settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points

from heinzelwerk.errors import ConfigurationError

Settings = Mapping[str, object]


def load(
    group: str, wanted: Mapping[str, Settings], *, installed: Iterable[EntryPoint] | None = None
) -> dict[str, object]:
    """Build the adapters that `wanted` names, each by its entry point's factory from its own settings.

    The entry point of group `group` loads to a callable that takes the settings and returns the adapter.
    ConfigurationError names the adapter and the reason: not installed, not importable, its factory refused.
    `installed` replaces the entry points of the running environment.
    """
    if not wanted:
        return {}
    found = {point.name: point for point in (entry_points(group=group) if installed is None else installed)}
    built: dict[str, object] = {}
    for name, settings in wanted.items():
        point = found.get(name)
        if point is None:
            names = ", ".join(sorted(found)) or "none"
            raise ConfigurationError(
                f"{group}: no installed package brings {name!r} (installed: {names}): install it, or take it out of the settings"
            )
        try:
            built[name] = point.load()(settings)
        except ConfigurationError:
            raise
        except Exception as error:  # a stranger's code: whatever it raises is the operator's to read
            reason = f"{type(error).__name__}: {error}"
            raise ConfigurationError(f"{group}: {name!r} ({point.value}) could not be built: {reason}") from error
    return built
