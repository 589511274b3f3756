"""What an agent's output says about its run, as one value that every adapter's reader fills alike."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, Protocol

from heinzelwerk.handoff import ToolCount, Usage

Stream = Literal["stdout", "stderr"]
# How the agent itself said that it ended. `none`: it never did.
Final = Literal["none", "success", "error", "budget", "aborted"]


@dataclass(frozen=True, slots=True)
class Reading:
    """The agent's own account. None is "it did not say": such figures are never made up from parts that lie."""

    final: Final = "none"
    text: str = ""
    """The last text meant for the reader: the report, if the run completed."""
    trouble: str = ""
    """The agent's own words about what went wrong, or empty."""
    api_status: int | None = None
    """The HTTP status of the model's last refusal, where the agent named it."""
    flaw: str = ""
    """Why a run is failed although its final event says success, or empty."""
    version: str | None = None
    model: str | None = None
    turns: int | None = None
    usage: Usage | None = None
    cost_usd: Decimal | None = None
    cost_is_list: bool = True
    """False where the agent guessed a price."""
    tools: dict[str, ToolCount] = field(default_factory=dict)


class Reader(Protocol):
    """Fed with the raw lines of a run as they come; gives a reading at any time. Neither ever raises."""

    def feed(self, line: bytes, stream: Stream = "stdout") -> None:
        """Take one line, with or without its line feed."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the agent's final event was seen: what is still alive after it is only waited for."""
        ...

    def reading(self) -> Reading:
        """What was said so far."""
        ...


class ToolTally:
    """Tool calls by their ids, so that an event that is repeated counts once."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._failed: set[str] = set()
        self._denied: set[str] = set()

    def called(self, call_id: str, name: str) -> None:
        """A call was seen; a second event of the same call changes nothing."""
        if call_id and name:
            self._names.setdefault(call_id, name)

    def failed(self, call_id: str) -> None:
        """The call ended in an error."""
        self._failed.add(call_id)

    def denied(self, call_id: str) -> None:
        """The call was not allowed; it is then no failure."""
        self._denied.add(call_id)

    def counts(self) -> dict[str, ToolCount]:
        """Per tool, in order of first use."""
        counts: dict[str, ToolCount] = {}
        for call_id, name in self._names.items():
            so_far = counts.get(name, ToolCount())
            denied = call_id in self._denied
            counts[name] = ToolCount(
                calls=so_far.calls + 1,
                failed=so_far.failed + (call_id in self._failed and not denied),
                denied=so_far.denied + denied,
            )
        return counts
