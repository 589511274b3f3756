"""Where settings come from: the file, secret files and the environment, later ones first; all faults found at once.

File: `--config`, else HEINZELWERK_CONFIG, else ./heinzelwerk.toml where it exists. Environment:
HEINZELWERK_<SECTION>__<KEY>, REDIS_URL, and *_API_KEY as the vendors name them. A secret file is an environment
variable by its file name, in any case: HEINZELWERK_SECRETS, else /run/secrets, names the directory (Docker's habit).
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as UnreadableValue

from config.settings import Settings

PREFIX = "HEINZELWERK_"
DEFAULT_FILE = "heinzelwerk.toml"
SHIPPED_PRICES = Path(__file__).with_name("prices.toml")
EXAMPLE = Path(__file__).with_name("heinzelwerk.example.toml")
_SECRETS_DIRECTORY = "/run/secrets"
_LONGEST_SECRET = 64 * 1024
_NO_SECTIONS = frozenset({"HEINZELWERK_CONFIG", "HEINZELWERK_SECRETS"})

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """One bad setting: where it stands (a file or `environment`), its key as written there, what is wrong, the fix."""

    place: str
    key: str
    reason: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.key}: {self.reason}" if self.key else f"{self.place}: {self.reason}"


class BadSettings(ValueError):
    """Settings that cannot be used, with every fault that was found."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and the file that they were read from (None: there was none)."""

    settings: Settings
    file: Path | None


@dataclass(slots=True)
class _Origins:
    """Who said what: keys given by the environment, so that a fault names the place a person has to edit."""

    file: Path | None
    variables: dict[tuple[str, ...], str] = field(default_factory=dict)

    def of(self, path: tuple[str, ...]) -> tuple[str, str]:
        """The place and the key as written there."""
        for length in range(len(path), 0, -1):
            if name := self.variables.get(path[:length]):
                return "environment", name
        return str(self.file or "settings"), written(path)


def load(
    config: Path | str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    overrides: Tree | None = None,
) -> Loaded:
    """Read all settings. BadSettings names every fault. `overrides` win over everything (`up` sets its own server)."""
    variables = dict(os.environ if environment is None else environment)
    here = directory or Path.cwd()
    file = find_file(config, variables, here)
    variables = _secret_files(variables) | variables
    faults: list[Fault] = []
    origins = _Origins(file)
    tree = _file_tree(file, faults)
    _merge(tree, _environment_tree(variables, origins, faults))
    _merge(tree, overrides or {})
    _merge(tree, {"heinzel": {"prices": _shipped_prices() | dict(tree.get("heinzel", {}).get("prices", {}))}})
    base = file.parent.resolve() if file else here.resolve()
    try:
        loaded = Loaded(Settings.model_validate(tree, context={"base": base}), file)
    except ValidationError as error:
        faults += [_fault(detail, origins) for detail in error.errors(include_url=False, include_input=False)]
        raise BadSettings(faults) from None
    if faults:
        raise BadSettings(faults)
    return loaded


def find_file(config: Path | str | None, environment: Mapping[str, str], here: Path) -> Path | None:
    """The settings file that counts; BadSettings where one was named and is not there."""
    for named, place in ((config, "--config"), (environment.get("HEINZELWERK_CONFIG"), "HEINZELWERK_CONFIG")):
        if named:
            path = (here / named).absolute()
            if not path.is_file():
                raise BadSettings(
                    [Fault(place, "", f"{named} is not a file", "name the settings file, or leave it out")]
                )
            return path
    default = here / DEFAULT_FILE
    return default if default.is_file() else None


def written(path: Iterable[str | int]) -> str:
    """A key as it is written in the file: `[store] lease`."""
    first, *rest = (str(part) for part in path)
    return " ".join(filter(None, [f"[{first.replace('_', '-')}]", ".".join(rest)]))


def _file_tree(file: Path | None, faults: list[Fault]) -> Tree:
    if file is None:
        return {}
    try:
        tree = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        faults.append(
            Fault(str(file), "", f"cannot be read as TOML: {error}", "correct the line, or the file's rights")
        )
        return {}
    if "keys" in tree:
        faults.append(
            Fault(str(file), "[keys]", "keys do not belong into this file", "set ANTHROPIC_API_KEY and the like")
        )
    return {name.replace("-", "_"): value for name, value in tree.items() if name != "keys"}


def _shipped_prices() -> Tree:
    return tomllib.loads(SHIPPED_PRICES.read_text("utf-8"))


def _secret_files(environment: Mapping[str, str]) -> dict[str, str]:
    directory = Path(environment.get("HEINZELWERK_SECRETS", _SECRETS_DIRECTORY))
    found: dict[str, str] = {}
    if not directory.is_dir():
        return found
    for path in sorted(directory.iterdir()):
        if _concerns_us(path.name.upper()) and path.is_file() and path.stat().st_size <= _LONGEST_SECRET:
            found[path.name.upper()] = path.read_text("utf-8", "replace").strip()
    return found


def _concerns_us(name: str) -> bool:
    return name.startswith(PREFIX) or name == "REDIS_URL" or name.endswith("_API_KEY")


class _Environment(Settings, BaseSettings):
    """The settings as pydantic-settings reads them from variables; never built, only described."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True)


class _Variables(EnvSettingsSource):
    """pydantic-settings' reading of variables, over a mapping that we were given instead of the process's own."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._given = variables
        super().__init__(_Environment)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in self._given.items()}


def _environment_tree(variables: Mapping[str, str], origins: _Origins, faults: list[Fault]) -> Tree:
    tree: Tree = {}
    for name in sorted(name for name in variables if name.startswith(PREFIX) and name not in _NO_SECTIONS):
        path = tuple(name.removeprefix(PREFIX).lower().split("__"))
        if path[0] not in Settings.model_fields or path[0] == "keys" or len(path) < 2:
            near = difflib.get_close_matches(path[0], Settings.model_fields, n=1)
            hint = f"did you mean {PREFIX}{near[0].upper()}__...?" if near else f"write {PREFIX}<SECTION>__<KEY>"
            faults.append(Fault("environment", name, "names no setting", hint))
            continue
        origins.variables[path] = name
        try:
            _merge(tree, _Variables({name: variables[name]})())
        except UnreadableValue:
            faults.append(
                Fault("environment", name, "is not valid JSON, which a list or a table needs here", "quote it")
            )
    if variables.get("REDIS_URL") and "url" not in tree.get("store", {}):
        origins.variables["store", "url"] = "REDIS_URL"
        _merge(tree, {"store": {"url": variables["REDIS_URL"]}})
    keys = {name: value for name, value in variables.items() if name.endswith("_API_KEY") and value}
    return tree | {"keys": keys} if keys else tree


def _merge(into: Tree, more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, Mapping) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = dict(value) if isinstance(value, Mapping) else value


def _fault(detail: ErrorDetails, origins: _Origins) -> Fault:
    path = tuple(str(part) for part in detail["loc"] if part != "[key]")
    reason = detail["msg"].removeprefix("Value error, ")
    if not path:
        return Fault(str(origins.file or "settings"), "", reason)
    place, key = origins.of(path)
    if detail["type"] != "extra_forbidden":
        return Fault(place, key, reason[:1].lower() + reason[1:])
    near = difflib.get_close_matches(path[-1], _keys_beside(path), n=1)
    known = ", ".join(sorted(name.replace("_", "-") if len(path) == 1 else name for name in _keys_beside(path)))
    hint = f"did you mean {near[0]!r}?" if near else f"known here: {known}"
    return Fault(place, key, f"is not a setting; {hint}", hint)


def _keys_beside(path: tuple[str, ...]) -> list[str]:
    """The keys that exist where this path's last part stands."""
    model: Any = Settings
    for part in path[:-1]:
        fields = getattr(model, "model_fields", None)
        annotation = fields[part].annotation if fields and part in fields else (get_args(model) or (None,))[-1]
        model = annotation
    if isinstance(model, type) and issubclass(model, BaseModel):
        return list(model.model_fields)
    inner = (get_args(model) or (None,))[0]
    return list(inner.model_fields) if isinstance(inner, type) and issubclass(inner, BaseModel) else []
