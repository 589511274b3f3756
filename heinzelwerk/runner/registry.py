"""Which runners there are: the four of this house, and those that other packages bring by an entry point.

A third party's entry point in the group `heinzelwerk.runners` names a class (or function) without arguments that
gives an `Adapter`; its name is the runner's. It is found here and started like the built-in ones: sandbox, proxy,
limits and judgement are not the adapter's to choose.
"""

from collections.abc import Callable
from importlib import metadata

from heinzelwerk.errors import ConfigurationError
from heinzelwerk.runner.adapter import Adapter, RunnerSettings
from heinzelwerk.runner.attempt import House
from heinzelwerk.runner.claude_code import ClaudeCode
from heinzelwerk.runner.codex import Codex
from heinzelwerk.runner.command import Command
from heinzelwerk.runner.pi import Pi
from heinzelwerk.runner.run import SandboxedRunner

GROUP = "heinzelwerk.runners"
BUILT_IN: dict[str, Callable[[], Adapter]] = {
    "claude-code": ClaudeCode,
    "codex": Codex,
    "pi": Pi,
    "command": Command,
}


def names() -> tuple[str, ...]:
    """Every runner that could be bound; nothing is imported for it."""
    return (*BUILT_IN, *sorted(_third_party().keys() - BUILT_IN.keys()))


def adapter_for(name: str) -> Adapter:
    """The adapter of a runner. Raises ConfigurationError where there is none or its package does not load."""
    make = BUILT_IN.get(name)
    if make is not None:
        return make()
    entry = _third_party().get(name)
    if entry is None:
        raise ConfigurationError(
            f"There is no runner {name!r}; there are {', '.join(names())}.",
            fix=f"Correct the runner's name, or install the package that brings it (entry point group {GROUP}).",
        )
    try:
        adapter: Adapter = entry.load()()
    except Exception as problem:
        raise ConfigurationError(
            f"The runner {name!r} ({entry.value}) does not load: {type(problem).__name__}: {problem}",
            fix="Update or remove the package that brings it.",
        ) from problem
    return adapter


def runner_for(name: str, settings: RunnerSettings, house: House) -> SandboxedRunner:
    """The runner of a name as an operator set it up. Raises ConfigurationError like `adapter_for`."""
    return SandboxedRunner(adapter_for(name), settings, house)


def _third_party() -> dict[str, metadata.EntryPoint]:
    return {entry.name: entry for entry in metadata.entry_points(group=GROUP)}
