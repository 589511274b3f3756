"""Files made to be slow: the cost of reading stays in proportion to the size, up to the largest file."""

import time

import pytest

from heinzelwerk import contract
from heinzelwerk.contract import source
from tests.unit.contract.writing import document

HEAD = "---\nname: x\nkind: responsibility\ndescription: D\nhz:\n  schema: 1\n  title: T\n  outputs:\n    page: {}\n"
TAIL = "---\n\n### Goal\n\nx\n\n### Maintains\n\n- `page`: p\n\n### Done when\n\n- y\n"
MAIL = "  requires: [mail:read]\n  inputs:\n    a: {read: mail.messages, window: 7d, args: {query: '%s'}}\n"
PEOPLE = (
    MAIL.replace("mail:read", "calendar:read").replace("mail.messages", "calendar.free_busy").replace("query", "people")
)

FRONTMATTER = [
    "[",
    "x-a: [",
    "{",
    "- ",
    "? ",
    "&a ",
    "*a ",
    "!",
    '"',
    "'",
    "# x\n",
    "a: ",
    "|\n",
    "\u2028",
    "x ",
    "- - - - -\n",
    "--- a\n",
    "[{a: ",
]
BODY = [
    "<!--",
    "<!-- -->",
    "-->",
    "### x\n",
    "### #\n",
    "```\n",
    "- a\n",
    "- `page`\n",
    " ",
    "\n",
    "#",
    "### ### ",
    "1. ",
    "`",
    "### Done when\n- x\n",
]
VALUES = {
    "schedule": ('  schedule: "', "*,", '* * * * *"\n'),
    "mail": ("", "from:a ", ""),
    "name": ("x-a: ", "a-", "\n"),
    "uses": ("  uses: [", "k%d, ", "]\n"),
    "requires": ("  requires: [", "tracker:read, ", "]\n"),
    "timezone": ("  timezone: ", "a/", "\n"),
    "base 60": ('x-a: !!int "', "1:", '1"\n'),
    "binary": ("x-a: !!int 0b", "1", "\n"),
    "digits": ("x-a: ", "9", "\n"),
    "hexadecimal": ("  retries: 0x", "f", "\n"),
    "version": ("x-v: ", "1.", "\n"),
    "action": ("  publishes: [{action: ", "a.", ", output: page}]\n"),
    "contract": ("  inputs:\n    a: {read: contract:me/", "a-", "#b}\n"),
    "people": ("", "a@b.", ""),
}


def filled(unit: str, size: int) -> str:
    count = max(size // len(unit.encode()), 1)
    return "".join(unit % n for n in range(count)) if "%d" in unit else unit * count


def frontmatter(unit: str, size: int) -> str:
    return f"{HEAD}{filled(unit, size)}\n{TAIL}"


def value(name: str, size: int) -> str:
    before, unit, after = VALUES[name]
    if name in ("mail", "people"):
        return HEAD + (MAIL if name == "mail" else PEOPLE) % filled(unit, size) + TAIL
    return HEAD + before + filled(unit, size) + after + TAIL


def seconds(text: str) -> float:
    data = text.encode()[: source.LARGEST_FILE]
    best = float("inf")
    for _ in range(2):
        begun = time.thread_time()
        contract.read(data, file_name="x.prose.md")
        best = min(best, time.thread_time() - begun)
    return best


CASES = [
    *(
        pytest.param(lambda size, unit=unit: frontmatter(unit, size), id=f"frontmatter {unit!r}")
        for unit in FRONTMATTER
    ),
    *(pytest.param(lambda size, unit=unit: document() + filled(unit, size), id=f"body {unit!r}") for unit in BODY),
    *(pytest.param(lambda size, name=name: value(name, size), id=f"value {name}") for name in VALUES),
]


@pytest.mark.parametrize("make", CASES)
def test_cost_grows_with_the_size_alone(make) -> None:
    """Four times the bytes cost about four times the time, never sixteen: there is no quadratic file."""
    quarter, whole = make(source.LARGEST_FILE // 4 - 600), make(source.LARGEST_FILE - 1000)
    for _ in range(4):
        small, large = seconds(quarter), seconds(whole)
        # Below two seconds of processor time a busy machine's noise is larger than the work; a file whose cost were
        # quadratic in its tens of thousands of lines or keys would take minutes.
        if large < 2.0 or large < small * 12:
            return
    pytest.fail(f"{large:.3f} s for 256 KiB against {small:.3f} s for 64 KiB")
