"""The list says what is wrong with a contract, and where."""

import io
from datetime import UTC

from heinzelwerk.generation import ContractEntry
from workers.show import roster
from workers.show.screen import Screen

LINE = "workflows/page.prose.md:3 HZC002 kind is not one of 'responsibility'"


def test_a_broken_contract_is_listed_with_file_and_line() -> None:
    """In the table instead of a report, and as JSON, so that nobody has to guess which file sleeps."""
    entry = ContractEntry(name="page", sha256="sha256:x", broken=(LINE, "a second one"))
    row = roster.row("page", entry, None, None, now=0)
    assert (row["state"], row["broken"]) == ("broken", (LINE, "a second one"))
    out = io.StringIO()
    Screen(out, io.StringIO()).result(roster.as_table([row], now=0, zone=UTC, team="crew"))
    assert "workflows/page.prose.md:3" in out.getvalue().replace("\n", "")
