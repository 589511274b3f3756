"""Signed cookies and the tokens of forms, as pure rules over a secret, a browser's nonce and the time.

A cookie says who logged in and when, under a key made of the secret and that person's password hash: a changed password
ends their sessions. Each browser has a nonce, before the login another one than after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC

from itsdangerous import BadData, Signer, TimestampSigner

NOBODY = ""
"""Who has not logged in."""
_LONGEST = 512
_AHEAD_S = 60
"""Another console's clock may be ahead by so much."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What a cookie says: `who` logged in (NOBODY: not yet), the browser's `nonce`, the second of the login."""

    who: str
    nonce: str
    since_s: int


class Seals:
    """Signs and reads. `hashes` are the password hashes by person; a pass ends `lasts_s` after it was made."""

    def __init__(self, secret: bytes, hashes: Mapping[str, str], *, lasts_s: float) -> None:
        self._secret = secret
        self._hashes = hashes
        self._lasts_s = lasts_s

    def written(self, given: Pass) -> str:
        """The cookie's value."""
        return (
            _At(given.since_s, self._secret, self._salt("pass", given.who)).sign(f"{given.who}.{given.nonce}").decode()
        )

    def read(self, cookie: str, *, now_s: float) -> Pass | None:
        """The pass that we wrote; None for one that was changed, ended, or is of a person who is not known any more."""
        who = cookie.partition(".")[0]
        if len(cookie) > _LONGEST or (who != NOBODY and who not in self._hashes):
            return None
        try:
            signer = TimestampSigner(self._secret, salt=self._salt("pass", who), digest_method=hashlib.sha256)
            value, since = signer.unsign(cookie.encode("utf-8", "replace"), return_timestamp=True)
        except BadData:
            return None
        since_s = int(since.replace(tzinfo=since.tzinfo or UTC).timestamp())
        if not -_AHEAD_S <= now_s - since_s < self._lasts_s:
            return None
        return Pass(who, value.decode().partition(".")[2], since_s)

    def token(self, given: Pass, path: str) -> str:
        """The token of a form that is posted to this path by this browser."""
        return self._forms(given).get_signature(_form(given, path)).decode()

    def token_fits(self, token: str, given: Pass, path: str) -> bool:
        """Whether a form came from a page of ours, for this browser and this path."""
        return self._forms(given).verify_signature(_form(given, path), token.encode("utf-8", "replace"))

    def _forms(self, given: Pass) -> Signer:
        return Signer(self._secret, salt=self._salt("form", given.who), digest_method=hashlib.sha256)

    def _salt(self, what: str, who: str) -> bytes:
        return f"{what}\0{who}\0{self._hashes.get(who, '')}".encode()


class _At(TimestampSigner):
    """A signer whose time is the pass's own."""

    def __init__(self, at_s: int, secret: bytes, salt: bytes) -> None:
        super().__init__(secret, salt=salt, digest_method=hashlib.sha256)
        self._at_s = at_s

    def get_timestamp(self) -> int:
        """The second that the signature says."""
        return self._at_s


def _form(given: Pass, path: str) -> bytes:
    return f"{given.nonce}\0{given.since_s}\0{path}".encode("utf-8", "replace")
