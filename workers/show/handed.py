"""What came of a handoff, for people."""

from pathlib import Path

from rich.console import RenderableType

from heinzelwerk import budget
from heinzelwerk.handoff import HandoffResult, Status
from workers.show import figures
from workers.show.screen import ink, line, table

_STYLES = {Status.COMPLETED: "green", Status.REFUSED: "yellow", Status.CANCELLED: "yellow"}


def as_text(result: HandoffResult, *, saved: Path | None = None) -> list[RenderableType]:
    """How it ended, its report or why there is none, the files that it left, and what it used."""
    found: list[RenderableType] = [
        ink(f"{result.status.value}: {line(_who(result))}", _STYLES.get(result.status, "red"))
    ]
    found += [ink(words) for words in (result.report, result.detail) if words]
    if result.fix:
        found.append(ink(f"fix: {result.fix}", "bold"))
    if result.files:
        rows = [(file.path, f"{file.bytes:,}", file.sha256[:16]) for file in result.files]
        found += ["", table(("file", "bytes", "sha256"), rows, right=(1,))]
    found += [ink(f"! {line(warning)}", "yellow") for warning in result.warnings]
    used = _used(result)
    if used:
        found += ["", ink(" · ".join(used), "dim")]
    if saved is not None:
        found.append(f"Files and transcript are in {saved}.")
    elif result.files:
        found.append("Nothing of it is kept here; --save DIR keeps files and transcript.")
    return found


def _who(result: HandoffResult) -> str:
    parts = [result.agent.name, result.agent.version or "", f"({result.model})" if result.model else ""]
    return " ".join(part for part in parts if part)


def _used(result: HandoffResult) -> list[str]:
    calls = sum(count.calls for count in result.tool_calls.values())
    parts = [
        figures.duration(result.duration_ms) if result.duration_ms is not None else "",
        figures.counted(calls, "tool call") if calls else "",
        figures.tokens(result.usage.input + result.usage.cache_read + result.usage.cache_write, result.usage.output),
        figures.money(budget.micros(result.cost_usd)) if result.cost_usd is not None else "",
        f"sandbox {result.sandbox.backend}, network {result.sandbox.network}" if result.sandbox else "",
    ]
    return [part for part in parts if part]
