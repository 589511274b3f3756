"""Passwords as scrypt hashes, `scrypt:<N>:<r>:<p>:<salt>:<hash>`: made once, compared in constant time."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os

SHORTEST = 10
"""Characters of a password."""
_N, _R, _P = 32_768, 8, 3
"""32 MiB and about a quarter of a second for each guess."""
_MEMORY = 256 * 1024 * 1024
_SALT, _LENGTH = 16, 32

NOBODY = "scrypt:32768:8:3:JzI5AyX0sGsw6jcOsuP8mQ:4BMieVMI6NS3xcw-TvoMJcl26UEhzqgn1KClrex97nM"
"""A hash of random bytes, of which nobody knows a password: whoever is not known costs the same time."""


def made(password: str) -> str:
    """A hash of this password, with a salt of its own."""
    salt = os.urandom(_SALT)
    return ":".join(("scrypt", str(_N), str(_R), str(_P), _text(salt), _text(_derived(password, salt, _N, _R, _P))))


def fits(password: str, stored: str) -> bool:
    """Whether the stored hash is of this password. Takes as long whatever is wrong."""
    _, n, r, p, salt, wanted = stored.split(":")
    found = _derived(password, _bytes(salt), int(n), int(r), int(p))
    return hmac.compare_digest(found, _bytes(wanted))


def _derived(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode("utf-8", "replace"), salt=salt, n=n, r=r, p=p, maxmem=_MEMORY, dklen=_LENGTH)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
