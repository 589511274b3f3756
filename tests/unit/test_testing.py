"""What a team's own tests are made of: one contract, the real engine, a scripted model."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from heinzelwerk import errors, testing
from heinzelwerk.capability.shapes import MergeKind, PullRequest
from heinzelwerk.testing import MemoryCodeHost, MemoryDocuments, MemorySections, calls, desk, outcome
from heinzelwerk.turn import TurnState

EXAMPLE = Path(__file__).parents[2] / "examples" / "team"
WHEN = datetime.fromtimestamp(testing.HandClock().seconds - 86_400, UTC)


def change(title: str) -> PullRequest:
    return PullRequest(
        repository="this",
        number=7,
        title=title,
        url=None,
        author="Ada",
        merged_at=WHEN,
        labels=[],
        kind=MergeKind.MERGE,
        sha="0" * 40,
    )


async def test_a_contract_is_tried_from_wake_to_placed_draft() -> None:
    """The example's changelog reads its input, drafts, is approved, and stands in the document; no server, no model."""
    documents = {path.name: path.read_text() for path in (EXAMPLE / "documents").glob("*.md")}
    trial = await desk(
        EXAMPLE / "workflows" / "changelog.prose.md",
        replies=[calls("read_merged"), outcome(draft__text="- Add a door")],
        capabilities={
            "code-host": MemoryCodeHost({"this": [change("Add a door")]}),
            "documents": MemoryDocuments({name: text.encode() for name, text in documents.items()}),
        },
        publishers=[MemorySections(documents)],
    )
    turn = await trial.run()
    assert turn.state is TurnState.COMPLETED, turn.reason
    assert "Add a door" in trial.model.heard()
    ((draft, text),) = await trial.drafts()
    assert text == "- Add a door"
    placed = await trial.approve(draft)
    assert placed.state.value == "completed", placed.reason
    assert "- Add a door" in documents["changes.md"]


async def test_a_contract_with_errors_is_refused_with_its_lines() -> None:
    """The test that a team wrote fails with the place, not with a turn that does nothing."""
    with pytest.raises(errors.ContractRefused) as raised:
        await desk("---\nname: bad\n---\n", replies=[outcome()])
    assert raised.value.diagnostics


async def test_an_unmet_item_plans_nothing() -> None:
    """What the model says of the contract's items counts: unmet, nothing waits for approval."""
    text = testing.house.page("page")
    unmet = [{"item": "It says what the page says.", "met": False, "evidence": "It does not."}]
    trial = await desk(
        text,
        replies=[calls("read_page"), outcome(draft__done_when=unmet)],
        capabilities={"documents": MemoryDocuments({"page.md": b"Hello."})},
        publishers=[testing.house.Wall()],
    )
    turn = await trial.run()
    assert turn.state is TurnState.SKIPPED
    assert await trial.drafts() == []
