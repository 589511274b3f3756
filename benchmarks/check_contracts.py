"""How long checking contracts takes: 1,000 files from a disk as one set, and the slowest files of the largest size.

Run: python benchmarks/check_contracts.py [--contracts 1000] [--runs 7]. Prints median and range in seconds.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from heinzelwerk import contract
from heinzelwerk.contract import directory, source, starter

HEAD = "---\nname: x\nkind: responsibility\ndescription: D\nhz:\n  schema: 1\n  title: T\n  outputs: {page: {}}\n"
TAIL = "---\n\n### Goal\n\nx\n\n### Maintains\n\n- `page`: p\n\n### Done when\n\n- y\n"
HOSTILE = {
    "nested flow": (HEAD, "[{a: ", TAIL),
    "open brackets": (HEAD, "[", TAIL),
    "comments": (HEAD, "# x\n", TAIL),
    "plain words": (HEAD + "x-a: ", "x ", "\n" + TAIL),
    "unknown keys": (HEAD, "  k%d: 1\n", TAIL),
    "base 60": (HEAD + 'x-a: !!int "', "1:", '1"\n' + TAIL),
    "headings": (HEAD + TAIL, "### x\n", ""),
    "open comments": (HEAD + TAIL, "<!--", ""),
    "fences": (HEAD + TAIL, "```\n", ""),
}


def write_set(root: Path, count: int) -> None:
    """Contracts of a working team: a schedule, an input, and every other one reads its neighbour."""
    for n in range(count):
        text = (
            contract.template(f"c{n}")
            .replace('# schedule: "0 7', f'schedule: "{n % 60} 7')
            .replace("notes.md", f"{n}.md")
        )
        if n % 2:
            read = f'    other: {{read: "contract:team/c{n - 1}#page", stage: draft}}\n  outputs:'
            text = text.replace("  outputs:", read, 1).replace(
                "### Maintains", "- `other`: the neighbour.\n\n### Maintains"
            )
        (root / starter.file_name(f"c{n}")).write_text(text, encoding="utf-8")


def hostile(before: str, unit: str, after: str) -> bytes:
    """One file of nearly the largest size, filled with one construct."""
    count = (source.LARGEST_FILE - len(before) - len(after)) // (len(unit) + (4 if "%d" in unit else 0))
    return (before + "".join(unit % n if "%d" in unit else unit for n in range(count)) + after).encode()


def timed(work: Callable[[], object], runs: int) -> str:
    """Median and range of some runs in seconds, and the median of their processor time, which other load leaves alone."""
    seconds, processor = [], []
    for _ in range(runs):
        begun, begun_processor = time.perf_counter(), time.thread_time()
        work()
        seconds.append(time.perf_counter() - begun)
        processor.append(time.thread_time() - begun_processor)
    spread = f"range {min(seconds):.3f} to {max(seconds):.3f} s"
    return f"median {statistics.median(seconds):.3f} s, {spread}, processor {statistics.median(processor):.3f} s, {runs} runs"


def main() -> None:
    """Print one line for the set, one for each hostile file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contracts", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        write_set(root, options.contracts)
        report = contract.check_set(directory.read_directory(root))
        assert len(report.readings) == options.contracts
        assert not report.diagnostics, report.diagnostics[0]
        line = timed(lambda: contract.check_set(directory.read_directory(root)), options.runs)
        print(f"check of {options.contracts} contracts as a set: {line}")
    for name, parts in HOSTILE.items():
        data = hostile(*parts)
        print(
            f"256 KiB of {name}: {timed(lambda data=data: contract.read(data, file_name='x.prose.md'), options.runs)}"
        )


if __name__ == "__main__":
    main()
