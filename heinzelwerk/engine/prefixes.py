"""Which prefix of a model string needs which optional dependency: the table of the pinned library, as data.

The table is compared with the library itself by a test; which distributions an extra brings is read from the
library's own metadata, so nothing here imports a vendor's client.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import metadata
from types import MappingProxyType

_LIBRARY = "pydantic-ai-slim"
_OPENAI = (
    "openai openai-chat openai-responses openai-decisions openai-codex openai-chatgpt deepseek vercel azure"
    " azure-responses moonshotai meta fireworks together heroku ollama github github-copilot litellm vllm nebius ovhcloud"
    " alibaba sambanova"
)
_EXTRAS = {
    "anthropic": "anthropic",
    "bedrock": "bedrock",
    "bedrock-mantle": "bedrock-mantle",
    "cerebras": "cerebras",
    "cohere": "cohere",
    "crusoe": "crusoe",
    "google": "google google-cloud google-decisions",
    "groq": "groq",
    "huggingface": "huggingface",
    "mistral": "mistral",
    "openai": _OPENAI,
    "openrouter": "openrouter",
    "snowflake": "snowflake",
    "typesafe": "typesafe",
    "xai": "xai",
    "zai": "zai",
}

EXTRA_OF = MappingProxyType({prefix: extra for extra, prefixes in _EXTRAS.items() for prefix in prefixes.split()})
"""The extra that each prefix needs; it has the same name here and in the library."""
EXTRAS = tuple(sorted(_EXTRAS))
"""The extras that serve chat models."""
BARE = ("system-one",)
"""Prefixes that need no vendor's client."""
OURS = ("offline",)
"""Models that this product brings along."""

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+).*\bextra\s*==\s*['\"]([^'\"]+)['\"]", re.DOTALL)


def known_prefixes() -> tuple[str, ...]:
    """Every prefix that a model string may begin with; each may itself be prefixed `gateway/`."""
    return tuple(sorted((*EXTRA_OF, *BARE, *OURS)))


def prefix_of(model: str) -> str:
    """The part before the colon, without `gateway/`; the whole text where there is no colon."""
    return model.partition(":")[0].removeprefix("gateway/")


def family(model: str) -> str:
    """The wire protocol that a prefix speaks: `openai`, `anthropic`, or its own name."""
    prefix = prefix_of(model)
    return "openai" if EXTRA_OF.get(prefix) == "openai" else prefix


@lru_cache(maxsize=1)
def _distributions() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for requirement in metadata.requires(_LIBRARY) or ():
        parsed = _REQUIREMENT.match(requirement)
        if parsed is not None:
            found.setdefault(parsed[2], []).append(parsed[1])
    return {extra: tuple(names) for extra, names in found.items()}


def distributions(extra: str) -> frozenset[str]:
    """What an extra of the library installs, without the speed-ups that a request works without."""
    return frozenset(_distributions().get(extra, ())) - {"tiktoken", "hf-xet"}


def _installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def missing_extra(model: str) -> str | None:
    """The extra (`heinzelwerk[<extra>]`) that this model string needs and that is not installed, or None."""
    extra = EXTRA_OF.get(prefix_of(model))
    if extra is None:
        return None
    return None if all(_installed(name) for name in distributions(extra)) else extra
