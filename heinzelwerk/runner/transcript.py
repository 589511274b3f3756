"""Keeping what an agent printed: the beginning and the end of it, scrubbed, on disk while the run goes on.

Facts 7.3: every line is read before anything is cut, so the last event is never lost; an interrupted run keeps what
was written, because each line is appended and flushed.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from heinzelwerk.handoff import KEY_PATTERN, TranscriptInfo, sha256
from heinzelwerk.runner import lines

LINE_BYTES = 256 * 1024
STDERR_BYTES = 64 * 1024
_HEAD, _TAIL = "head", ("tail.0", "tail.1")

Scrub = Callable[[bytes], bytes]
Lean = Callable[[dict[str, Any]], dict[str, Any] | None]
"""Drops from an event what the transcript says elsewhere; None drops all of it."""


def scrubber(*, secrets: Iterable[str], paths: Mapping[str, str]) -> Scrub:
    """Replace known key values, anything shaped like a vendor's key, and host paths (host -> what to show).

    Longer ones go first, so that a path below another one is shown as its own.
    """
    shown = {path.encode(): alias.encode() for path, alias in paths.items() if path}
    hidden = {secret.encode(): b"[redacted]" for secret in secrets if len(secret) >= 6}
    replacements = hidden | shown
    known = re.compile(b"|".join(re.escape(one) for one in sorted(replacements, key=len, reverse=True)) or rb"(?!)")

    def scrub(line: bytes) -> bytes:
        line = known.sub(lambda match: replacements[match.group()], line)
        return KEY_PATTERN.sub(b"[redacted]", line)

    return scrub


def keep_all(event: dict[str, Any]) -> dict[str, Any] | None:
    """For agents that say everything once."""
    return event


def lean_pi(event: dict[str, Any]) -> dict[str, Any] | None:
    """pi says every message three times and lists its tools at length; one time is kept."""
    if event.get("type") in ("message_update", "turn_end", "message_start"):
        return None
    if event.get("type") == "agent_end":
        return {name: value for name, value in event.items() if name != "messages"}
    message = event.get("message")
    if isinstance(message, dict) and "toolsAdded" in message:
        return {**event, "message": {name: value for name, value in message.items() if name != "toolsAdded"}}
    return event


class Transcript:
    """Written line by line below a directory: one file for the beginning, two in turn for the end."""

    def __init__(self, directory: Path, *, cap: int, scrub: Scrub, lean: Lean = keep_all) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._half = cap // 2
        self._scrub = scrub
        self._lean = lean
        self._seen = 0
        self._stderr = 0
        self._head = (directory / _HEAD).open("wb")
        self._tail: BinaryIO | None = None
        self._head_size = 0
        self._tail_size = 0
        self._turn = 0

    def add(self, line: bytes, *, stderr: bool = False) -> None:
        """Take one line without its line feed; it is on disk (not yet on the platter) when this returns."""
        self._seen += len(line) + 1
        if stderr:
            self._stderr += len(line) + 1
            if self._stderr > STDERR_BYTES:
                return
            line = json.dumps({"type": "stderr", "text": line.decode("utf-8", "replace")}).encode()
        shortened = short_line(line, self._lean)
        if shortened is not None:
            self._write(self._scrub(shortened) + b"\n")

    def _write(self, line: bytes) -> None:
        if self._tail is None and self._head_size + len(line) <= self._half:
            self._head.write(line)
            self._head.flush()
            self._head_size += len(line)
            return
        tail = self._tail
        if tail is None or self._tail_size + len(line) > self._half:
            tail = self._next_tail()
        tail.write(line)
        tail.flush()
        self._tail_size += len(line)

    def _next_tail(self) -> BinaryIO:
        # Two files of one half each, the older one overwritten: whatever happens, the last half is on disk.
        if self._tail is not None:
            self._tail.close()
        self._tail = (self._directory / _TAIL[self._turn % 2]).open("wb")
        self._turn += 1
        self._tail_size = 0
        return self._tail

    def stop(self) -> None:
        """Write no more; what was written stays as it is. May be called twice."""
        self._head.close()
        if self._tail is not None:
            self._tail.close()

    def close(self) -> TranscriptInfo:
        """Put the parts together; the files stay until their directory goes."""
        self.stop()
        data, lost = assemble(self._directory, half=self._half)
        truncated = lost or self._stderr > STDERR_BYTES
        path = self._directory / "transcript.jsonl"
        path.write_bytes(data)
        return TranscriptInfo(
            path=str(path), bytes=self._seen, kept=len(data), sha256=sha256(data), truncated=truncated, data=data
        )

    def take(self) -> TranscriptInfo:
        """Like `close`, and the files go: whoever asked has the bytes."""
        info = self.close()
        shutil.rmtree(self._directory)
        return info.model_copy(update={"path": None})


def assemble(directory: Path, *, half: int) -> tuple[bytes, bool]:
    """The kept transcript of a run, also of one that was interrupted, and whether something is missing in it."""
    head = _read(directory / _HEAD)
    tails = sorted(
        (path for name in _TAIL if (path := directory / name).exists()), key=lambda path: path.stat().st_mtime_ns
    )
    tail = b"".join(_read(path) for path in tails)
    dropped = len(tail) - half
    if dropped > 0:
        tail = tail[dropped:].partition(b"\n")[2]
    lost = dropped > 0 or len(tails) == 2
    mark = b'{"type":"truncated","where":"middle"}\n' if lost else b""
    return head + mark + tail, lost


def left_behind(directory: Path) -> bytes:
    """What was kept of a run that nobody finished; empty where there is nothing."""
    if not directory.is_dir():
        return b""
    sizes = [path.stat().st_size for name in (_HEAD, *_TAIL) if (path := directory / name).exists()]
    # Its cap is not known any more: no part of it is longer than half of that.
    return assemble(directory, half=max(sizes, default=0))[0]


def clear(root: Path, *, keep: Iterable[str], older_than_s: float, now_s: float) -> tuple[str, ...]:
    """Remove the transcripts below `root` that dead workers left, by run id; those of `keep` and younger ones stay.

    A younger one may still be wanted: whoever closes its job puts it into the turn's body.
    """
    kept = set(keep)
    if not root.is_dir():
        return ()
    old = [
        path
        for path in sorted(root.iterdir())
        if path.is_dir() and path.name not in kept and now_s - path.stat().st_mtime > older_than_s
    ]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
    return tuple(path.name for path in old)


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def short_line(line: bytes, lean: Lean = keep_all) -> bytes | None:
    """The line as it is kept: an event without repetitions and with its long strings cut, or text as it came."""
    event = lines.event(line)
    if event is None:
        return (
            line if len(line) <= LINE_BYTES else line[:LINE_BYTES] + b" [cut: %d more bytes]" % (len(line) - LINE_BYTES)
        )
    leaner = lean(event)
    if leaner is None:
        return None
    if leaner is event and len(line) <= LINE_BYTES:
        return line
    room = LINE_BYTES
    while room >= 64:
        whole = _dump(leaner if room == LINE_BYTES else {**_cut(leaner, room), "truncated": True})
        if len(whole) <= LINE_BYTES:
            return whole
        room //= 4
    return _dump({"type": lines.text(event.get("type"))[:100], "truncated": True, "bytes": len(line)})


def _dump(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def _cut(value: Any, room: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= room else f"{value[:room]} [cut: {len(value) - room} more characters]"
    if isinstance(value, dict):
        return {name: _cut(part, room) for name, part in value.items()}
    return [_cut(part, room) for part in value] if isinstance(value, list) else value
