"""Texts by their hash, kept in this process: a hash never names other bytes, so what was read once stays true."""

from __future__ import annotations

MOST_BYTES = 32 * 2**20


class Shelf:
    """The texts that were read last, together at most `most_bytes`; the oldest goes first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._bytes = most_bytes, 0
        self._texts: dict[tuple[str, str], bytes] = {}

    def get(self, team: str, sha256: str) -> bytes | None:
        """A team's text; None where it is not kept. No team is given what only another one has loaded."""
        return self._texts.get((team, sha256))

    def keep(self, team: str, sha256: str, text: bytes) -> None:
        """Keep a text that the store answered."""
        if (team, sha256) in self._texts or len(text) > self._most:
            return
        self._texts[team, sha256] = text
        self._bytes += len(text)
        while self._bytes > self._most:
            self._bytes -= len(self._texts.pop(next(iter(self._texts))))
