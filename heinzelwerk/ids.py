"""Names of records: teams, sessions, turns, effects. All are text that a person can read back."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

TEAM_NAME = re.compile(r"[a-z](?:-?[a-z0-9])*")
HEINZEL_NAME = TEAM_NAME
_LONGEST = 64


@dataclass(frozen=True, slots=True, order=True)
class SessionId:
    """The durable life of one contract in one team; written `<team>/<heinzel>`."""

    team: str
    heinzel: str

    def __str__(self) -> str:
        return f"{self.team}/{self.heinzel}"

    @classmethod
    def parse(cls, text: str) -> SessionId:
        """Read `<team>/<heinzel>`; ValueError where either part is not a name."""
        team, slash, heinzel = text.partition("/")
        if not slash or not is_name(team) or not is_name(heinzel):
            raise ValueError(
                f"{text!r} is not a session: expected <team>/<heinzel>, names of a-z, 0-9 and single dashes"
            )
        return cls(team, heinzel)


def is_name(text: str) -> bool:
    """Whether this may name a team or a Heinzelmännchen: `^[a-z](?:-?[a-z0-9])*$`, at most 64 characters."""
    return len(text) <= _LONGEST and TEAM_NAME.fullmatch(text) is not None


def turn_id(session: SessionId, number: int) -> str:
    """The name of a turn on spines, in logs and keys: `<team>/<heinzel>/<number>`, numbers from 1."""
    return f"{session}/{number}"


def wake_id(key: str) -> str:
    """A short name for a wake, the same for the same key: 16 hex digits."""
    return digest(key)[:16]


def effect_id(key: str) -> str:
    """A short name for an effect that a person can type, the same for the same key: 12 hex digits."""
    return digest(key)[:12]


def digest(content: str | bytes) -> str:
    """SHA-256 of the content (text as UTF-8), 64 lower-case hex digits."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content).hexdigest()
