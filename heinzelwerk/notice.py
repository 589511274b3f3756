"""A notice: that something waits for a person, told outside the store: ids, a title, a link, never a turn's words."""

from __future__ import annotations

from dataclasses import dataclass

from heinzelwerk import ids

FIRST_RETRY_MS, LAST_RETRY_MS = 30_000, 3_600_000

_SAID = {
    "draft": "a draft waits for approval",
    "question": "a question waits for an answer",
    "budget": "a turn waits at its cap",
    "unknown": "nobody knows whether a draft was placed",
    "failed": "a draft could not be placed",
    "quarantine": "a turn was stopped because it killed its workers",
    "turn-failed": "a turn ended without a result",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that waits. `id` is the same however often it is told; `next` is the command that ends the wait.

    `since_ms` is server time. `title` is the contract's, `target` names where a draft goes ("" where nothing does).
    """

    id: str
    team: str
    kind: str
    heinzel: str
    turn: int
    title: str
    target: str
    next: str
    since_ms: int
    link: str = ""

    @property
    def headline(self) -> str:
        """One line for a chat or a subject."""
        return f"{self.title or self.heinzel} ({self.team}/{self.heinzel}): {_SAID.get(self.kind, self.kind)}"

    @property
    def text(self) -> str:
        """A few lines: the headline, where to, what to do."""
        lines = [
            self.headline,
            f"turn {self.turn}" + (f", to {self.target}" if self.target else ""),
            self.link,
            self.next,
        ]
        return "\n".join(line for line in lines if line)

    def data(self) -> dict[str, str | int]:
        """For programs; `text` is what chats show of an incoming webhook."""
        return {
            "id": self.id,
            "kind": self.kind,
            "team": self.team,
            "heinzel": self.heinzel,
            "turn": self.turn,
            "title": self.title,
            "target": self.target,
            "link": self.link,
            "next": self.next,
            "since_ms": self.since_ms,
            "text": self.text,
        }


def notice_id(team: str, kind: str, what: str, stamp: int) -> str:
    """The same for the same wait; another one when the same thing waits anew (`stamp`: its deadline or its beginning)."""
    return ids.digest(f"{team}\n{kind}\n{what}\n{stamp}")[:24]


def link(template: str | None, *, team: str, heinzel: str, turn: int, id: str) -> str:  # noqa: A002 - as people write it
    """An operator's link with `{team}`, `{heinzel}`, `{turn}` and `{id}` filled in; "" without one."""
    text = template or ""
    for name, value in (("team", team), ("heinzel", heinzel), ("turn", turn), ("id", id)):
        text = text.replace(f"{{{name}}}", str(value))
    return text


def retry_ms(age_ms: int) -> int:
    """How long after an attempt the next may follow: a quarter of the notice's age, at least 30 s, at most an hour."""
    return max(FIRST_RETRY_MS, min(LAST_RETRY_MS, age_ms // 4))
