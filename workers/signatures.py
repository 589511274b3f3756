"""Who sent a webhook: GitHub's and Slack's signatures over its raw bytes, as pure rules over headers, body and time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

GITHUB, SLACK = "github", "slack"
_GITHUB_SIGNATURE = "x-hub-signature-256"
_SLACK_SIGNATURE, _SLACK_TIME = "x-slack-signature", "x-slack-request-timestamp"


@dataclass(frozen=True, slots=True)
class Sender:
    """One source of events: its name (part of every key), its scheme, its secret, whose Heinzelmännchen it wakes."""

    name: str
    scheme: str
    secret: bytes = field(repr=False)
    team: str | None = None


def verified(
    headers: Mapping[str, str], body: bytes, senders: Iterable[Sender], *, now_s: float, replay_s: float
) -> Sender | str:
    """The sender whose signature stands over `body`, or why there is none. Header names are lower case.

    Every comparison takes the same time whatever is wrong, and the reason never says how close a guess came.
    """
    signatures = {GITHUB: headers.get(_GITHUB_SIGNATURE), SLACK: headers.get(_SLACK_SIGNATURE)}
    if not any(signatures.values()):
        return f"no signature: neither {_GITHUB_SIGNATURE} nor {_SLACK_SIGNATURE}"
    stamp = headers.get(_SLACK_TIME, "")
    found = None
    for sender in senders:
        given = signatures.get(sender.scheme)
        if given is not None and hmac.compare_digest(
            _expected(sender, body, stamp), given.encode("latin-1", "replace")
        ):
            found = sender
    if found is None:
        return "the signature is of no sender that is set up here"
    if found.scheme == SLACK and not _recent(stamp, now_s=now_s, replay_s=replay_s):
        return f"its time is more than {replay_s:.0f} s away from now: repeated, or a clock is wrong"
    return found


def _expected(sender: Sender, body: bytes, stamp: str) -> bytes:
    if sender.scheme == SLACK:
        signed = b"v0:" + stamp.encode("latin-1", "replace") + b":" + body
        return b"v0=" + hmac.new(sender.secret, signed, hashlib.sha256).hexdigest().encode()
    return b"sha256=" + hmac.new(sender.secret, body, hashlib.sha256).hexdigest().encode()


def _recent(stamp: str, *, now_s: float, replay_s: float) -> bool:
    return stamp.isascii() and stamp.isdigit() and len(stamp) < 20 and abs(now_s - int(stamp)) <= replay_s
