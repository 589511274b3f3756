"""A generation: one numbered set of a team's contracts and skills, as everybody reads it from the store."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class Publishing(BaseModel):
    """One entry of a contract's `publishes`, with the publisher's own arguments."""

    model_config = _FROZEN

    action: str
    output: str
    args: dict[str, str] = Field(default_factory=dict)


class ContractEntry(BaseModel):
    """What the store needs to know of a contract without reading its text: identity, schedule, what it publishes and reads.

    `sha256` (`sha256:<hex>` of the file's bytes) names the text. `broken` holds the diagnostics of a file that has
    errors (`file:line code field message`); such a contract sleeps and keeps its spine. `reads` are the sessions whose outputs
    it takes as inputs (`<heinzel>#<output>`).
    """

    model_config = _FROZEN

    name: str
    file: str = ""
    sha256: str
    title: str = ""
    schedule: str | None = None
    timezone: str | None = None
    catch_up: str = "latest"
    on: tuple[str, ...] = ()
    publishes: tuple[Publishing, ...] = ()
    outputs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    @property
    def acts(self) -> bool:
        """Whether it may wake."""
        return not self.broken


@dataclass(frozen=True, slots=True)
class Generation:
    """A team's contracts as loaded together: `entries` by name, `texts` by hash (contract files and skills)."""

    team: str
    entries: dict[str, ContractEntry]
    texts: dict[str, bytes] = field(default_factory=dict)
    skills: dict[str, str] = field(default_factory=dict)  # skill name -> sha256 of its packed files
    source: str = ""  # where it was read from, for people: a directory, or URL@commit
    timezone: str = "UTC"
    number: int = 0  # given by the store


@dataclass(frozen=True, slots=True)
class LoadReply:
    """What a load did: the generation's number, and the names that came, changed and went."""

    number: int
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
