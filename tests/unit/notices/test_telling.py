"""Telling people what waits: once each, again after trouble, nothing of what a turn said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from heinzelwerk import advance, errors, telling
from heinzelwerk.claim import Claim
from heinzelwerk.ending import Ending, Failed, Finished, Tail
from heinzelwerk.ids import SessionId
from heinzelwerk.notice import Notice
from heinzelwerk.opening import Opening
from heinzelwerk.outcome import Outcome
from heinzelwerk.telling import Memory
from heinzelwerk.testing import house
from heinzelwerk.testing.house import House, ScriptedEngine

SECRET_WORDS = "The merger is on Friday."


@dataclass
class Ear:
    """A messenger that keeps what it was told; `deaf` times it fails first."""

    name: str = "ear"
    deaf: int = 0
    heard: list[Notice] = field(default_factory=list)

    async def tell(self, notice: Notice) -> None:
        if self.deaf:
            self.deaf -= 1
            raise errors.TargetUnavailable("the line is busy")
        self.heard.append(notice)


def asks(opening: Opening, claim: Claim) -> Ending:
    return Finished(Tail(opening.turn), Outcome(report=SECRET_WORDS, question=SECRET_WORDS))


def breaks(opening: Opening, claim: Claim) -> Ending:
    return Failed(Tail(opening.turn), SECRET_WORDS, SECRET_WORDS)


async def after(segment: Callable[[Opening, Claim], Ending]) -> House:
    """A house in which one turn with this segment has run."""
    home = house.build(engine=ScriptedEngine([segment]))
    await home.load(house.page())
    await home.wake()
    await advance.advance(SessionId(house.TEAM, "page"), home.works)
    return home


async def told(home: House, *ears: Ear, memory: Memory | None = None) -> int:
    return await telling.tell(house.TEAM, ears, home.works, memory or Memory())


async def test_a_waiting_draft_is_told_once_by_each_messenger() -> None:
    """Also to a process that starts anew and remembers nothing: the store knows."""
    home, mail, chat = await after(house.finish(SECRET_WORDS)), Ear("mail"), Ear("chat")
    for memory in (Memory(), Memory(), None):
        await told(home, mail, chat, memory=memory)
    assert [len(ear.heard) for ear in (mail, chat)] == [1, 1]
    (draft,) = mail.heard
    assert (draft.kind, draft.heinzel, draft.title, draft.target) == ("draft", "page", "One page", "notes:wall")
    assert draft.next.startswith("heinzelwerk approve ")
    assert draft.id == chat.heard[0].id


async def test_a_question_and_a_failed_turn_are_told_without_their_words() -> None:
    """Ids, the contract's title and the next command leave the store; the words stay behind the login."""
    for segment, kind in ((asks, "question"), (breaks, "turn-failed")):
        ear = Ear()
        home = await after(segment)
        await told(home, ear)
        (one,) = ear.heard
        assert one.kind == kind
        assert SECRET_WORDS not in str(one.data())
        assert "page" in one.next


async def test_what_did_not_arrive_is_told_again_later() -> None:
    """The next attempt waits, longer each time; what one messenger has told is not told again for the other's trouble."""
    home, well, ill, memory = await after(house.finish()), Ear("well"), Ear("ill", deaf=2), Memory()
    for _ in range(5):
        await told(home, well, ill, memory=memory)
    assert (len(well.heard), len(ill.heard), ill.deaf) == (1, 0, 1)
    home.clock.pass_(31)
    await told(home, well, ill)
    assert (ill.heard, ill.deaf) == ([], 0)
    home.clock.pass_(3_601)
    await told(home, well, ill, memory=memory)
    assert (len(well.heard), len(ill.heard)) == (1, 1)


async def test_a_decided_draft_is_told_nobody() -> None:
    """Who decides before the notice went out spares everybody the notice."""
    home, ear = await after(house.finish()), Ear(deaf=1)
    await told(home, ear)
    (draft,) = await home.store.effects(house.TEAM)
    await house_decides(home, draft.id)
    home.clock.pass_(3_601)
    await told(home, ear)
    assert ear.heard == []


async def house_decides(home: House, effect_id: str) -> None:
    from heinzelwerk.client import Client

    await Client(home.works, house.TEAM).decline(effect_id, by="ada")


async def test_an_old_failure_is_no_news() -> None:
    """Whoever sets a webhook up is not told of last month."""
    home, ear = await after(breaks), Ear()
    home.clock.pass_(2 * 86_400)
    await told(home, ear)
    assert ear.heard == []


async def test_a_backlog_goes_out_in_portions() -> None:
    """Fifty drafts reach a new messenger over several looks, each once."""
    names = [f"page-{number}" for number in range(50)]
    home, ear, memory = house.build(), Ear(), Memory()
    await home.load(*(house.page(name) for name in names))
    for name in names:
        await home.wake(name, key=f"manual/{name}")
        await advance.advance(SessionId(house.TEAM, name), home.works)
    portions = [await told(home, ear, memory=memory) for _ in range(4)]
    assert portions == [20, 20, 10, 0]
    assert len({one.id for one in ear.heard}) == 50


async def test_a_link_is_filled_in() -> None:
    """An operator's page is named with team, heinzel, turn and id; a brace that means nothing stays."""
    home, ear = await after(house.finish()), Ear()
    await telling.tell(
        house.TEAM, [ear], home.works, Memory(), link="https://x.example/{team}/{heinzel}/{turn}?{id}{y}"
    )
    (draft,) = await home.store.effects(house.TEAM)
    assert ear.heard[0].link == f"https://x.example/core/page/1?{draft.id}{{y}}"
