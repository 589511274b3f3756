"""The engine of one process, built when a turn first needs it: loading an agent library takes a second that no list needs."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from config.settings import Settings
from heinzelwerk.ports import Capability, Clock, Ids, Policy
from heinzelwerk.publisher import section

if TYPE_CHECKING:
    from heinzelwerk.claim import Claim
    from heinzelwerk.contract import Contract
    from heinzelwerk.ending import Ending
    from heinzelwerk.engine import Models, ModelSettings, Operation, PydanticEngine
    from heinzelwerk.opening import Opening
    from heinzelwerk.turn import EnginePins

_PREFIX_OF_KEY = {"co": "cohere", "gemini": "google", "azure-openai": "azure"}


class EngineRoom:
    """What the engines of all teams share: models, capabilities, the names of coding agents."""

    def __init__(
        self,
        settings: Settings,
        *,
        capabilities: Mapping[str, Capability],
        clock: Clock,
        ids: Ids,
        factories: Mapping[str, Callable[[str], Any]] | None,
    ) -> None:
        self._settings = settings
        self._capabilities = capabilities
        self._clock = clock
        self._ids = ids
        self._factories = factories
        self._building = threading.Lock()
        self._models: Models | None = None

    @property
    def models(self) -> Models:
        """The models of this process."""
        from heinzelwerk.engine import Models

        with self._building:
            if self._models is None:
                self._models = Models(model_settings(self._settings), factories=self._factories)
            return self._models

    def engine(self, policy: Policy) -> PydanticEngine:
        """An engine under one team's policy."""
        from heinzelwerk.engine import PydanticEngine

        return PydanticEngine(
            models=self.models,
            policy=policy,
            capabilities=self._capabilities,
            runners=offered(self._settings),
            lends=lent(self._settings),
            operations=chat_operations(self._settings),
            clock=self._clock,
            ids=self._ids,
            jitter=random.random,
        )


class ReplaceSection(BaseModel):
    """A chat's proposal for a document: the section between two markers, and the text that shall stand there."""

    ref: str = Field(min_length=1, max_length=1_024, description="The document, such as notes/changes.md.")
    marker: str = Field(min_length=1, max_length=64, description="The name in the section's begin and end markers.")
    text: str = Field(min_length=1, max_length=100_000, description="The whole new text of the section, Markdown.")


def chat_operations(settings: Settings) -> tuple[Operation, ...]:
    """What people may ask for in a chat beside reading: proposals that a person confirms, where the operator lets chats."""
    from heinzelwerk.engine import Operation

    documents = settings.documents
    if documents.directory is None or not documents.chat:
        return ()
    words = "Propose new text for a marked section of a document. Nothing is changed before a person has confirmed it."
    return (Operation(section.ACTION, words, ReplaceSection),)


class EngineAtFirstUse:
    """The port `Engine`; the real one is built at the first call."""

    def __init__(self, room: EngineRoom, policy: Policy) -> None:
        self._room = room
        self._policy = policy
        self._engine: PydanticEngine | None = None

    def pins(self, contract: Contract) -> EnginePins:
        """What a new turn of this contract is pinned to."""
        return self._built().pins(contract)

    async def run(self, opening: Opening, claim: Claim) -> Ending:
        """Run one segment."""
        return await self._built().run(opening, claim)

    def _built(self) -> PydanticEngine:
        if self._engine is None:
            self._engine = self._room.engine(self._policy)
        return self._engine


def offered(settings: Settings) -> tuple[str, ...]:
    """The names of the coding agents that turns may hand work to, wherever their workers are."""
    chosen = settings.handoff.runner
    return tuple(settings.handoff.runners) if chosen is None else (chosen,)


def lent(settings: Settings) -> tuple[str, ...]:
    """Patterns of the turn's read tools that the first of them may call over MCP."""
    return next((settings.handoff.runners[name].turn_tools for name in offered(settings)), ())


def model_settings(settings: Settings) -> ModelSettings:
    """Which models the engine may use, their prices and keys."""
    from heinzelwerk.engine import ModelSettings, Price

    heinzel = settings.heinzel
    return ModelSettings(
        model=heinzel.model,
        model_fast=heinzel.model_fast,
        base_url=heinzel.base_url,
        api=heinzel.api,
        fallback=heinzel.fallback,
        classes={str(hint): model for hint, model in heinzel.classes.items()},
        prices={name: Price(**price.model_dump()) for name, price in heinzel.prices.items()},
        keys={_prefix(name): key.get_secret_value() for name, key in settings.keys.items()},
        max_tokens=heinzel.max_tokens,
    )


def _prefix(variable: str) -> str:
    """`ANTHROPIC_API_KEY` -> `anthropic`: the prefix of the model strings that the key is for."""
    name = variable.removesuffix("_API_KEY").lower().replace("_", "-")
    return _PREFIX_OF_KEY.get(name, name)
