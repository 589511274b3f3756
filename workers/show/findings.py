"""What the doctor found, as people read it."""

from collections.abc import Sequence

from rich.text import Text

from workers.doctor import Finding, Level
from workers.show import figures
from workers.show.screen import ink, line, without_fix

_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.DOWN: "bold red"}


def as_text(findings: Sequence[Finding]) -> Text:
    """One line for each finding, its fix below it, the count last."""
    text = Text()
    for found in findings:
        text.append_text(ink(f"{found.level:<5}", _STYLES[found.level]))
        text.append_text(ink(f"{found.area:<12} {line(without_fix(found.what, found.fix))}\n"))
        if found.fix:
            text.append_text(ink(f"{'':<18}fix: {line(found.fix)}\n", "dim"))
    numbers = {level: sum(found.level is level for found in findings) for level in Level}
    warnings = figures.counted(numbers[Level.WARN], "warning")
    return text.append_text(ink(f"\n{numbers[Level.DOWN]} down, {warnings}, {numbers[Level.OK]} fine"))
