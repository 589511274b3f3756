"""Skills on their whole way: from a team's directory, by a load, into a turn's instructions and tools."""

from __future__ import annotations

from pathlib import Path

from heinzelwerk import loading, skill_directory
from heinzelwerk.contract.sets import Installed
from heinzelwerk.skill import Layer, Skill
from heinzelwerk.testing import house
from heinzelwerk.turn import TurnState
from tests.unit.engine.desk import THREE, calls, desk, outcome, returns

LONG = "Write short sentences. " * 400
USES = THREE.replace("EXTRA", "  uses: [style]\n")


async def test_a_skill_over_the_limit_is_read_whole_when_it_is_wanted(tmp_path: Path) -> None:
    """Its text is in no request until the tool is called, then whole, as is a file beside it; the fingerprint is pinned."""
    directory = tmp_path / "skills" / "style"
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text(f"---\nname: style\ndescription: How to write.\n---\n{LONG}")
    (directory / "words.md").write_text("Say use, not utilise.")
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "page.prose.md").write_text(USES)
    wanted = calls(("read_skill", {"name": "style"}), ("read_skill", {"name": "style", "file": "words.md"}))
    made = await desk(wanted, outcome())
    found = skill_directory.read_skills(tmp_path / "skills", layer=Layer.TEAM)
    skills = tuple(entry for entry in found if isinstance(entry, Skill))
    loaded = await loading.load(
        house.TEAM,
        loading.read_repository(tmp_path, skills=skills),
        timezone="UTC",
        source="x",
        installed=Installed(actions={"notes.place": "write"}, skills=frozenset({"style"})),
        store=made.store,
    )
    assert loaded.report.readings[0].valid
    turn = await made.finish()
    assert turn.state is TurnState.COMPLETED, turn.reason
    assert "Write short sentences." not in made.model.heard(0)
    assert "How to write." in made.model.heard(0)
    answers = returns(made.model.requests[1][0])
    assert LONG.strip() in answers["c0"].model_response_str()
    assert "Say use, not utilise." in answers["c1"].model_response_str()
    (started,) = await made.events("turn.started")
    assert started["pins"]["skills"] == {"style": skills[0].fingerprint}
