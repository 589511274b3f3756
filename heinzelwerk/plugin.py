"""Adapters that other packages bring, found through entry points and built only where the operator names them.

An installed package alone changes nothing: its factory is imported when its name stands in the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from heinzelwerk.errors import ConfigurationError

Settings = Mapping[str, object]
Adapter = TypeVar("Adapter")


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


def bind(
    group: str,
    built: dict[str, Adapter],
    wanted: Mapping[str, Settings] | None,
    *,
    checked: Callable[[str, object], Adapter],
    called: Callable[[Adapter], str],
    installed: Iterable[EntryPoint] | None = None,
) -> dict[str, Adapter]:
    """`built` with the adapters that `wanted` names, each by the name that `called` gives it, once `checked` lets it pass.

    ConfigurationError as for `load`, and where an adapter's name is there already.
    """
    for name, loaded in load(group, wanted or {}, installed=installed).items():
        adapter = checked(name, loaded)
        offered = called(adapter)
        if offered in built:
            raise ConfigurationError(
                f"{group}: {name!r} offers {offered!r}, which is there already: unset one of the two"
            )
        built[offered] = adapter
    return built
