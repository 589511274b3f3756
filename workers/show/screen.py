"""Where output goes: results to stdout, everything else to stderr; colours only on a terminal, control characters never.

Text from files, models and people is never markup and never control: every string goes through `ink` or `line`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

import pydantic_core
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from heinzelwerk.text import clean_text

_PIPED_WIDTH = 100_000
"""Columns where nobody looks: a pipe gets whole lines, whatever their length."""

_LEAST_FOLDING = 18
"""Columns that a cell which folds needs to be read."""

_HIDDEN = {
    point: f"\\u{point:04x}" for point in (*range(0x7F, 0xA0), 0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F))
}
_HIDDEN |= {point: f"\\u{point:04x}" for point in range(0xD800, 0xE000)}
_HIDDEN |= {point: f"\\u{point:04x}" for point in (0x2060, *range(0x2066, 0x206A), 0xFEFF)}


def line(text: str) -> str:
    """The text on one line without anything that moves a cursor, hides or reorders; blanks run together."""
    return " ".join(plain(text).split())


def ink(text: str, style: str = "") -> Text:
    """The text, cleaned, line breaks kept, tabs as blanks, to be printed as it stands in one style."""
    return Text(plain(text).expandtabs(4), style=style)


def both_ends(text: Text, *, most: int) -> Text:
    """The text; of one with more than `most` lines that many, from its beginning and its end, and how many are left out."""
    lines = text.split("\n")
    left_out = len(lines) - most
    if left_out <= 0:
        return text
    end = most // 4
    gap = ink(f"... {left_out:,} more {'line' if left_out == 1 else 'lines'} ...", "dim")
    return Text("\n").join([*lines[: most - end], gap, *lines[len(lines) - end :]])


def without_fix(message: str, fix: str) -> str:
    """The message of an error that ends in its own fix, for a place where the fix stands on a line of its own."""
    return message.removesuffix(fix).rstrip(" :;,.") if fix and message.endswith(fix) else message


def plain(text: str) -> str:
    """Cleaned; half a character pair, which no stream can encode, becomes a question mark."""
    return clean_text(text.encode("utf-8", "replace").decode("utf-8"))


def as_json(value: object) -> str:
    """A JSON document for programs: two blanks of indentation, keys in the given order, no raw control character."""
    plain = pydantic_core.to_jsonable_python(value, fallback=str)
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False).translate(_HIDDEN)


class Screen:
    """Two consoles: `result` and `data` write to stdout, `note` and `problem` to stderr."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self.out = _console(out)
        self.err = _console(err)

    def result(self, *parts: RenderableType) -> None:
        """Print what was asked for."""
        for part in parts:
            _print(self.out, part)

    def data(self, value: object) -> None:
        """Print what was asked for as JSON, nothing else on stdout."""
        self.out.file.write(as_json(value) + "\n")
        self.out.file.flush()

    def raw(self, text: str) -> None:
        """Print lines that a program reads back (exports): as they are, no colour, no wrapping."""
        self.out.file.write(text)
        self.out.file.flush()

    def note(self, *parts: RenderableType) -> None:
        """Say something beside the result: progress, what happens next."""
        for part in parts:
            _print(self.err, part)

    def problem(self, message: str, *, fix: str = "", details: Iterable[str] = ()) -> None:
        """Say what failed, where and why, and what to do about it."""
        self.err.print(Text.assemble(("error: ", "bold red"), ink(without_fix(message, fix))), soft_wrap=True)
        for detail in details:
            self.err.print(ink(f"  {line(detail)}"), soft_wrap=True)
        if fix:
            self.err.print(Text.assemble(("  fix: ", "bold"), ink(fix)), soft_wrap=True)


def _print(console: Console, part: RenderableType) -> None:
    """Words flow over line ends by themselves; a grid is fitted to a terminal, and has no trailing blanks in a pipe."""
    part = ink(part) if isinstance(part, str) else part
    if isinstance(part, Text):
        console.print(part, soft_wrap=True)
    elif console.is_terminal:
        console.print(part)
    else:
        with console.capture() as captured:
            console.print(part)
        console.file.write("".join(f"{written.rstrip()}\n" for written in captured.get().splitlines()))


def _console(file: TextIO) -> Console:
    terminal = file.isatty()
    return Console(
        file=file,
        force_terminal=terminal,
        no_color=None if terminal else True,
        color_system="auto" if terminal else None,
        width=None if terminal else _PIPED_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def table(
    columns: Sequence[str],
    rows: Iterable[Iterable[str | Text]],
    *,
    right: Iterable[int] = (),
    least: Sequence[int] = (),
    folds: Iterable[int] = (-1,),
    headings: bool = True,
) -> Fitted:
    """Rows in columns as wide as their content; those numbered in `right` are set to the right.

    `least` gives the columns' least widths, so that tables printed one after another stand in line. Those in `folds`
    share what a narrow terminal leaves; the others keep their words on one line. Where too little is left for them, they
    stand below their row instead.
    """
    cells = [tuple(cell if isinstance(cell, Text) else ink(line(cell)) for cell in row) for row in rows]
    grid = Table(box=None, pad_edge=False, header_style=Style(bold=True), show_edge=False, show_header=headings)
    at_right, folding = frozenset(right), frozenset(number % len(columns) for number in folds)
    widths = (*least, *([0] * len(columns)))
    for number, heading in enumerate(columns):
        grid.add_column(
            Text(heading),
            min_width=widths[number] or None,
            justify="right" if number in at_right else "left",
            overflow="fold",
            no_wrap=number not in folding,
        )
    for row in cells:
        grid.add_row(*row)
    fixed = [
        max([widths[number], len(heading) if headings else 0, *(row[number].cell_len for row in cells)])
        for number, heading in enumerate(columns)
        if number not in folding
    ]
    return Fitted(grid, cells, folding, sum(fixed) + 2 * len(columns))


@dataclass(frozen=True, slots=True)
class Fitted:
    """A grid, and the same rows for a terminal that is too narrow for it; `fixed` are the cells that it cannot do without."""

    grid: Table
    rows: Sequence[Sequence[Text]]
    folding: frozenset[int]
    fixed: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The grid where it fits, else each row as one line with what folds below it."""
        folding = [number for number in sorted(self.folding) if any(row[number].plain.strip() for row in self.rows)]
        if options.max_width - self.fixed >= _LEAST_FOLDING * len(folding) or not folding:
            yield self.grid
            return
        for row in self.rows:
            kept = [cell for number, cell in enumerate(row) if number not in self.folding and cell.plain.strip()]
            yield Text("  ").join(kept)
            for number in folding:
                if row[number].plain.strip():
                    yield Padding(row[number], (0, 0, 0, 4), expand=False)
