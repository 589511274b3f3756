"""The ports to the world outside: what a turn reads, where a draft is placed, who runs agents, where people are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from pydantic import BaseModel, JsonValue

from heinzelwerk.ids import SessionId
from heinzelwerk.notice import Notice

if TYPE_CHECKING:
    from heinzelwerk.handoff import HandoffRequest, HandoffResult, TurnTool


class Capability(Protocol):
    """One adapter of a capability: read methods over something outside, bound by the operator."""

    name: str

    def methods(self) -> Mapping[str, type[BaseModel]]:
        """The read methods that it offers, with the pydantic model of each one's arguments (the window left out)."""

    async def read(
        self, method: str, arguments: Mapping[str, str], *, since: datetime | None, until: datetime | None
    ) -> JsonValue:
        """Answer one read, whole, oldest first, half-open `[since, until)`. ReadFailed with the reason otherwise."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What a publisher is to place: under which key, where, which text, over which section as shown."""

    key: str
    arguments: Mapping[str, str]
    text: str
    shown: str


@dataclass(frozen=True, slots=True)
class TargetView:
    """A target as it is: `shown` fingerprints its section, `before` is its text, `key` the effect that placed it (or "")."""

    target: str
    shown: str
    before: str
    key: str = ""
    revision: str = ""


class Publisher(Protocol):
    """Places text in one kind of target. `refuses_late` says whether the target itself refuses a request that arrives late."""

    action: str
    refuses_late: bool

    def target(self, arguments: Mapping[str, str]) -> str:
        """The name of the target; two effects with the same name never run at once. Refused where arguments are wrong."""

    async def view(self, arguments: Mapping[str, str]) -> TargetView:
        """Read the target. TargetMissing where it is not there; TargetUnavailable where it cannot be reached."""

    async def place(self, placement: Placement, *, deadline_s: float) -> str:
        """Place the text if the section still is as shown; answers the target's revision.

        TargetConflict, TargetMissing: decided, nothing changed. TargetUnavailable: provably nothing changed.
        TargetUnknown or any other error: nobody knows.
        """


class Runner(Protocol):
    """Runs one coding agent once, in a sandbox; misconfiguration and stopped runs are results, not errors."""

    name: str

    async def run(
        self,
        request: HandoffRequest,
        *,
        on_event: Callable[[str], None],
        stop: Callable[[], bool],
        turn_tools: Sequence[TurnTool] = (),
    ) -> HandoffResult:
        """Run it; never retried here. `turn_tools` are the read tools that the request names."""

    def left_behind(self, run_id: str) -> bytes:
        """The transcript of a run whose worker on this machine died, as far as it was written; empty where there is none."""


class Channel(Protocol):
    """Where people write and read: the built-in one, or an adapter to a chat system."""

    name: str

    async def reply(self, session: SessionId, turn: int, text: str) -> None:
        """Show a turn's words to the people of its conversation."""


class Messenger(Protocol):
    """Tells people outside that something waits for them: a webhook, mail."""

    name: str

    async def tell(self, notice: Notice) -> None:
        """Deliver one notice; the same id may come twice. TargetUnavailable where it did not arrive."""
