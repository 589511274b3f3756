"""The output of a command that is no known agent: what it prints is its report."""

from heinzelwerk.runner.reading import Reading, Stream

_REPORT_BYTES = 256 * 1024


class CommandReader:
    """Keeps stdout as the report, up to a cap; the exit code alone says how it ended."""

    def __init__(self) -> None:
        self._out = bytearray()
        self._lost = 0
        self._last_error = b""

    @property
    def ended(self) -> bool:
        """Never: a command says that it has ended by ending."""
        return False

    def feed(self, line: bytes, stream: Stream = "stdout") -> None:
        """Take one line."""
        if stream == "stderr":
            self._last_error = line.strip()[:1000] or self._last_error
            return
        whole = line if line.endswith(b"\n") else line + b"\n"
        kept = whole[: max(0, _REPORT_BYTES - len(self._out))]
        self._out += kept
        self._lost += len(whole) - len(kept)

    def reading(self) -> Reading:
        """Its text so far, with a mark that says how much is missing."""
        told = self._out.decode("utf-8", "replace").strip()
        if self._lost:
            told += f"\n[cut: {self._lost} more bytes]"
        return Reading(final="none", text=told, trouble=self._last_error.decode("utf-8", "replace"))
