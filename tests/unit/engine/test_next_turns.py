"""What people accept of one turn acts in the next ones: lessons, and changes of the contract itself (ADR 0050 statement 4)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from heinzelwerk import amending, apply, loading
from heinzelwerk.client import Client
from heinzelwerk.contract.sets import Installed
from heinzelwerk.effect import EffectRecord, EffectState
from heinzelwerk.publisher.contracts import ContractFiles
from heinzelwerk.testing import house
from heinzelwerk.turn import TurnState
from tests.unit.engine.desk import NAME, SESSION, THREE, Desk, Reply, desk, outcome

LESSON = "Say numbers as numbers."
OLD = THREE.replace("EXTRA", "")
NEW = OLD.replace("Keep the page true.", "Keep the page true and short.")


async def at_work(root: Path, *replies: Reply) -> tuple[Desk, Client]:
    """A desk whose contract was loaded from a team's directory, as a deployment does it."""
    (root / "workflows").mkdir()
    (root / "workflows" / "page.prose.md").write_text(OLD)
    made = await desk(*replies)
    works = made.house.works
    amendments = ContractFiles({house.TEAM: root}, partial(loading.text_of, store=works.store))
    made.house.works = replace(works, publishers={**works.publishers, amendments.action: amendments})
    await load(made, root)
    return made, Client(made.house.works, house.TEAM)


async def load(made: Desk, root: Path) -> None:
    installed = Installed(actions={"notes.place": "write"})
    repository = loading.read_repository(root)
    found = await loading.load(
        house.TEAM, repository, timezone="UTC", source=str(root), installed=installed, store=made.store
    )
    assert found.report.readings[0].valid


async def approved(made: Desk, client: Client, action: str) -> EffectRecord:
    """The newest effect of this kind, approved as a person does it and then worked off."""
    record = next(one for one in await client.drafts() if one.action == action and one.undecided)
    await client.approve(record.id, by="ada")
    await apply.apply(house.TEAM, record.id, made.house.works)
    return await client.effect(record.id)


async def again(made: Desk, number: int) -> None:
    await made.house.wake(key=f"manual/{number}")
    while (turn := await made.turn(number)) is None or not turn.state.ended:
        await made.go()


async def test_a_lesson_reaches_the_turns_after_a_person_accepted_it(tmp_path: Path) -> None:
    """Before the decision no request holds it; after it every next turn's instructions do, and its tool says it."""
    made, client = await at_work(tmp_path, outcome(lessons=[{"sentence": LESSON, "hunks": []}]))
    await made.finish()
    await again(made, 2)
    assert LESSON not in made.model.heard()
    assert (await approved(made, client, "lesson.keep")).state is EffectState.COMPLETED
    await again(made, 3)
    await again(made, 4)
    assert [LESSON in made.model.heard(at) for at in (-2, -1)] == [True, True]


async def test_a_lesson_that_was_declined_is_never_offered(tmp_path: Path) -> None:
    """Declining is the end of a lesson."""
    made, client = await at_work(tmp_path, outcome(lessons=[{"sentence": LESSON, "hunks": []}]), outcome())
    await made.finish()
    record = next(one for one in await client.drafts() if one.action == "lesson.keep")
    await client.decline(record.id, by="ada")
    await again(made, 2)
    assert LESSON not in made.model.heard()


async def test_a_day_is_told_by_contract_and_model(tmp_path: Path) -> None:
    """The figures by model add up to the ledger's, from the first event of the day on; another day has none of them."""
    made, client = await at_work(tmp_path, outcome())
    await made.finish()
    for number in range(2, 4):
        await again(made, number)
    whole, _ = await client.costs()
    models = await client.models()
    asked = models["page"][NAME]
    assert (asked.requests, asked.input_tokens, asked.output_tokens) == (3, 3000, 300)
    assert asked.spent == whole.spent > 0
    assert (await client.models(day="2001-01-01")) == {}
    made.clock.pass_(86_400)
    await again(made, 4)
    assert (await client.models())["page"][NAME].requests == 1


async def test_an_approved_amendment_changes_the_file_and_acts_after_a_load(tmp_path: Path) -> None:
    """The proposal shows the contract as it is; approved, its file holds the new text, and after a load a turn runs by it."""
    amendment = {"text": NEW, "reason": "It grew."}
    made, client = await at_work(tmp_path, outcome(amendment=amendment))
    await made.finish()
    record = next(one for one in await client.drafts() if one.action == amending.ACTION)
    assert (await client.before(record), await client.text(record)) == (OLD, NEW)
    assert "contract:page: It grew." in str([item.what for item in await client.inbox()])
    placed = await approved(made, client, amending.ACTION)
    assert placed.state is EffectState.COMPLETED, placed.reason
    assert (tmp_path / "workflows" / "page.prose.md").read_text() == NEW
    await load(made, tmp_path)
    await again(made, 2)
    assert "true and short" in made.model.heard()


async def test_an_amendment_of_a_file_that_changed_meanwhile_fails_with_the_reason(tmp_path: Path) -> None:
    """Nobody's edit is lost: the effect fails, in the inbox, and the file keeps what its person wrote."""
    made, client = await at_work(tmp_path, outcome(amendment={"text": NEW, "reason": "It grew."}))
    await made.finish()
    path = tmp_path / "workflows" / "page.prose.md"
    path.write_text(OLD + "\n### Notes\nMine.\n")
    placed = await approved(made, client, amending.ACTION)
    assert (placed.state, path.read_text()) == (EffectState.FAILED, OLD + "\n### Notes\nMine.\n")
    assert "changed since" in placed.reason


async def test_an_amendment_that_could_not_act_goes_back_to_the_model(tmp_path: Path) -> None:
    """A proposed text with errors is rejected like any invalid outcome, with its first error; a person never sees it."""
    made, client = await at_work(
        tmp_path,
        outcome(amendment={"text": "Be better.", "reason": "It grew."}),
        outcome(amendment={"text": NEW, "reason": "It grew."}),
    )
    turn = await made.finish()
    assert turn.state is TurnState.COMPLETED
    assert "no valid contract file: line 1: HZC" in made.model.heard()
    (record,) = [one for one in await client.drafts() if one.action == amending.ACTION]
    assert await client.text(record) == NEW
    assert record.session == SESSION
