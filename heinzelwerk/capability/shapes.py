"""What capabilities answer: the models of their entries, and which of their fields say nothing about what changed.

Source: the contract format, section 1.7. A result is a list of entries, oldest first, or one object.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class MergeKind(StrEnum):
    """How a change came onto the main line."""

    MERGE = "merge"  # a commit with two or more parents
    SQUASH = "squash"  # one parent, and a subject that ends with the number of a pull request
    DIRECT = "direct"  # one parent or none, and no number


class PullRequest(BaseModel):
    """One change on the main line of a repository. `number` and `url` are null where git alone does not know them.

    `author` is a display name, never an address; `merged_at` is UTC. `kind` and `sha` (full, 40 or 64 hex digits) are
    what this adapter adds to the format.
    """

    model_config = _FROZEN

    repository: str
    number: int | None
    title: str
    url: str | None
    author: str | None
    merged_at: datetime
    labels: list[str]
    kind: MergeKind
    sha: str


class Document(BaseModel):
    """One document. `title` is its first heading, `revision` the SHA-256 of its bytes as `sha256:<hex>`."""

    model_config = _FROZEN

    ref: str
    title: str
    text: str
    url: str | None
    revision: str | None


VOLATILE: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        # Where a thing is shown, not what it says.
        "PullRequest": frozenset({"url"}),
        "Message": frozenset({"url"}),
        "Meeting": frozenset({"url"}),
        "MailMessage": frozenset({"url"}),
        "DraftedMail": frozenset({"url"}),
        "SentMail": frozenset({"url"}),
        "Event": frozenset({"url", "conference_url"}),
        # A revision also moves with bytes that a reader never sees: line ends, a byte order mark.
        "Document": frozenset({"url", "revision"}),
        # `updated_at` moves with every touch of a robot; state, title, assignee and labels say what changed.
        "Issue": frozenset({"url", "updated_at"}),
    }
)
"""The fields of each shape that a fingerprint leaves out, by the shape's name in `contract.methods`."""
