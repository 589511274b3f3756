"""The first text of a new contract: valid as it is, does nothing until its reader has changed it."""

from heinzelwerk.contract import reader
from heinzelwerk.ids import is_name

_TEXT = """\
---
name: {name}
kind: responsibility
description: Say in one sentence what {name} keeps true, and for whom.
hz:
  schema: 1
  title: {title}
  # schedule: "0 7 * * MON"    # minute, hour, day of month, month, day of week; without it, it runs by hand
  # timezone: Europe/Berlin    # without it, the team's
  requires: [documents:read]
  inputs:
    notes:
      read: documents.read
      args: {{ref: notes.md}}     # a page in the directory of [documents]
  outputs:
    page: {{format: markdown}}
  # publishes:                 # where an approved draft goes
  #   - {{action: documents.replace-section, output: page, args: {{ref: page.md, marker: {name}}}}}
  # The page needs two lines, between which it goes: <!-- heinzelwerk:begin {name} --> and <!-- heinzelwerk:end {name} -->
---

### Goal

Say what is true when this contract holds, so that a reader can tell whether it does.

### Requires

- `notes`: what the page is made of.

### Maintains

- `page`: what the page shows.

### Done when

- [ ] Every statement of the page can be found in the notes.

### Invariants

- Names of people are left out.
"""


def template(name: str) -> str:
    """The text of `<name>.prose.md` for a new contract; ValueError where `name` is no contract name."""
    if not is_name(name):
        raise ValueError(f"{name[:80]!r} is no contract name: use a-z, 0-9 and single dashes, at most 64 characters")
    title = name.replace("-", " ").capitalize()
    return _TEXT.format(name=name, title=title)


def file_name(name: str) -> str:
    """The name of a contract's file."""
    return f"{name}{reader.SUFFIX}"
