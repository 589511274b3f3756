"""An exported spine and the verdict about it."""

from rich.text import Text

from heinzelwerk import verification
from heinzelwerk.verification import Verified
from workers.show import figures
from workers.show.screen import ink


def verify(exported: bytes) -> Verified:
    """Check an export's chain. One that begins with a seal is checked from there: the seal names the last sealed hash."""
    first, _, rest = exported.partition(b"\n")
    sealed = verification.sealed_end(first)
    if sealed is None:
        return verification.verify(exported)
    found = verification.verify(rest, seq=sealed.seq, head=sealed.head)
    bad = found.bad_line + 1 if found.bad_line is not None else None
    return Verified(found.events, found.hashes, bad, found.why)


def verdict(found: Verified, name: str) -> Text:
    """Whether the chain holds, and where it breaks."""
    whole = figures.counted(len(found.events), "event")
    if found.ok:
        head = f", last {figures.short(found.hashes[-1])}" if found.hashes else ""
        return ink(f"{name}: the chain holds: {whole}{head}", "green")
    why = found.why.words if found.why else "it cannot be read"
    return ink(f"{name}:{found.bad_line}: {why}; the {whole} before it hold", "red")


def as_data(found: Verified) -> dict[str, object]:
    """The verdict for programs."""
    return {
        "ok": found.ok,
        "events": len(found.events),
        "last_sha256": found.hashes[-1] if found.hashes else None,
        "bad_line": found.bad_line,
        "why": found.why.value if found.why else None,
    }
