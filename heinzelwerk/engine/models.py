"""From a model string in the settings to a model that can be asked: built once for each process, refused before money.

Nothing here reads an environment: keys and addresses come in with `ModelSettings`. What a vendor's client finds in the
environment by itself is the vendor's documented behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from typing import Any

from pydantic_ai import exceptions
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class

from heinzelwerk import errors
from heinzelwerk.engine import prefixes, prices
from heinzelwerk.engine.prefixes import known_prefixes, missing_extra
from heinzelwerk.engine.prices import Price, Quote
from heinzelwerk.engine.trouble import Circuit

__all__ = ["ModelSettings", "Models", "known_prefixes", "missing_extra", "missing_key", "version"]


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which models an operator configured. `base_url` is a company gateway that speaks `api`: `openai` or `anthropic`
    (None: what the prefix of `model` speaks); every configured model of that protocol goes there. `classes` maps a
    contract's hint (`fast`, `standard`, `best`) to a model string. `keys` are API keys by prefix. `max_tokens` is sent
    with every request.
    """

    model: str = "offline"
    model_fast: str | None = None
    base_url: str | None = None
    api: str | None = None
    fallback: str | None = None
    classes: Mapping[str, str] = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_tokens: int = 8_192

    def named(self) -> tuple[str, ...]:
        """Every configured model string, each once: what `doctor` checks."""
        found = (self.model, self.model_fast, self.fallback, *self.classes.values())
        return tuple(dict.fromkeys(name for name in found if name))

    def for_class(self, hint: str | None) -> str:
        """The model string for a contract's hint; `standard` and None are `model`, `fast` falls back to `model_fast`."""
        if hint is not None and hint in self.classes:
            return self.classes[hint]
        return self.model_fast or self.model if hint == "fast" else self.model

    def through_gateway(self, name: str) -> bool:
        """Whether requests of this model go to `base_url`."""
        if name.startswith("gateway/"):
            return True
        return self.base_url is not None and prefixes.family(name) == (self.api or prefixes.family(self.model))


@cache
def version() -> str:
    """What a turn pins as its engine."""
    return f"pydantic-ai:{metadata.version('pydantic-ai-slim')}"


class Models:
    """The models of one process, each built at its first use. `factories` add prefixes of the caller's own."""

    def __init__(
        self, settings: ModelSettings, *, factories: Mapping[str, Callable[[str], Model]] | None = None
    ) -> None:
        self.settings = settings
        self._factories = dict(factories or {})
        self._models: dict[str, Model] = {}
        self._quotes: dict[str, Quote] = {}
        self._circuits: dict[str, Circuit] = {}
        self._digest = prices.table_digest(settings.prices)

    @property
    def prices_digest(self) -> str:
        """The hash of the price table and of the published list's release."""
        return self._digest

    def model(self, name: str) -> Model:
        """The model of a string; ConfigurationError names the missing extra, the missing key or the unknown prefix."""
        if name not in self._models:
            self._models[name] = self._build(name)
        return self._models[name]

    def quote(self, name: str) -> Quote:
        """What the model costs; ConfigurationError where nobody knows, so that nothing is sent unpriced."""
        if name not in self._quotes:
            self._quotes[name] = self._price(name)
        return self._quotes[name]

    def circuit(self, model: Model) -> Circuit:
        """What this process knows of the health of the provider behind a model: one circuit for each address."""
        return self._circuits.setdefault(f"{model.system} {model.base_url or ''}", Circuit())

    async def close(self) -> None:
        """Close the connections of every model that was used; a model asked afterwards opens new ones."""
        for model in self._models.values():
            async with model:  # leaving it is the library's way to close its client
                pass

    def _price(self, name: str) -> Quote:
        if prefixes.prefix_of(name) in prefixes.OURS:
            return prices.FREE
        gateway = self.settings.through_gateway(name)
        found = prices.quote(name, self.model(name), self.settings.prices, gateway=gateway)
        if found is not None:
            return found
        why = "a gateway's prices are its own" if gateway else "it is in no published price list"
        raise errors.ConfigurationError(
            f"model {name!r} has no price: {why}",
            fix=f'Set it: [heinzel.prices] "{name}" = {{ input = 1.0, output = 5.0 }} (dollars for a million tokens).',
        )

    def _build(self, name: str) -> Model:
        prefix = prefixes.prefix_of(name)
        if prefix in self._factories:
            return self._factories[prefix](name)
        if prefix == "offline":
            from heinzelwerk.engine.offline import OfflineModel  # it needs what this module's importers need not

            return OfflineModel()
        extra = missing_extra(name)
        if extra is not None:
            raise errors.ConfigurationError(
                f"model {name!r} needs the extra {extra!r}, which is not installed",
                fix=f"Install it: pip install 'heinzelwerk[{extra}]', or in a checkout: pip install '.[{extra}]'.",
            )
        try:
            found: Model = infer_model(name, provider_factory=self._provider)
            return found
        except (exceptions.UserError, ImportError, ValueError) as error:
            raise errors.ConfigurationError(f"model {name!r} cannot be used: {error}", fix=_fix(prefix)) from error

    def _provider(self, provider: str) -> Provider[Any]:
        key = self.settings.keys.get(provider) or self.settings.keys.get(prefixes.EXTRA_OF.get(provider, provider))
        base_url = self.settings.base_url if self.settings.through_gateway(f"{provider}:") else None
        if provider.startswith("gateway/") or (key is None and base_url is None):
            return infer_provider(provider)
        arguments: dict[str, Any] = {}
        if key is not None:
            arguments["api_key"] = key
        if base_url is not None:
            arguments["base_url"] = base_url
            arguments.setdefault("api_key", "none")  # a gateway with a login of its own takes any
        return infer_provider_class(provider)(**arguments)


def _fix(prefix: str) -> str:
    if prefix in known_prefixes():
        return "Set the key that the message names, or correct the model's name."
    return f"Write <prefix>:<model>, with one of: {', '.join(known_prefixes())}."


def missing_key(name: str, models: Models) -> str | None:
    """Why this model could not be asked for want of a key, in one sentence, or None; no request is made."""
    try:
        models.model(name)
    except errors.ConfigurationError as error:
        text = str(error)
        return text if "key" in text.lower() or "credential" in text.lower() else None
    return None
