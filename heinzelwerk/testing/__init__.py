"""For teams that test their contracts and adapters: a whole turn in one process, without server, network or model.

    from heinzelwerk.testing import calls, desk, outcome

    async def test_the_changelog_names_every_entry() -> None:
        trial = await desk(Path("workflows/changelog.prose.md"), replies=[calls("read_merged"), outcome(draft__text="...")])
        turn = await trial.run()
        assert turn.state == "completed"
        assert "read_merged" in trial.model.heard()

`heinzelwerk.testing.conformance` has the suites that an adapter of your own must pass; they need pytest.
"""

from heinzelwerk.capability.memory import MemoryCodeHost, MemoryDocuments
from heinzelwerk.engine.scripted import Reply, Scripted, calls, facts, outcome, says
from heinzelwerk.publisher.memory import MemorySections
from heinzelwerk.store.memory import MemoryStore
from heinzelwerk.testing.desk import Desk, desk
from heinzelwerk.testing.house import (
    CountingIds,
    HandClock,
    HandKeeper,
    House,
    QuietBell,
    ScriptedEngine,
    build,
    finish,
)

__all__ = [
    "CountingIds",
    "Desk",
    "HandClock",
    "HandKeeper",
    "House",
    "MemoryCodeHost",
    "MemoryDocuments",
    "MemorySections",
    "MemoryStore",
    "QuietBell",
    "Reply",
    "Scripted",
    "ScriptedEngine",
    "build",
    "calls",
    "desk",
    "facts",
    "finish",
    "outcome",
    "says",
]
