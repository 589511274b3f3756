"""Rows 20, 48, 51 to 55, 64: people who write, stop, decide and edit at the wrong moment, and contracts that change meanwhile."""

from __future__ import annotations

import asyncio
import json
import signal

import redis

from heinzelwerk.effect import Decision, EffectRecord, EffectState, Moved
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Posting
from heinzelwerk.turn import TurnState
from heinzelwerk.wake import Cause, WhenBusy
from tests.faults import targets
from tests.faults.conftest import Record
from tests.faults.world import TEAM, House, Worker


async def test_reordered_chat_messages(house: House, row: Record):
    """Messages count in the order in which the store took them; each is said once, whatever its id or clock says."""
    row.covers(20, injected="three messages with ids in reverse order during one turn")
    await house.add("chat", "steps-3", place="")
    held = house.control.arm("model.sent", "hold", of="chat")
    first = await house.client.ask("chat", "begin", by="ada")
    house.world.accepted.append(("chat", first.key))
    await house.world.fired(held)
    replies = []
    for number in (3, 2, 1):
        replies.append(
            await house.client.wake(
                "chat", key=f"asked/cli/m{number}", cause=Cause.ASKED, when_busy=WhenBusy.STEER, text=f"word {number}",
                by="ada", channel="cli", conversation="cli",
            )
        )  # fmt: skip
    held.release()
    turn = await house.ended("chat")
    events = await house.events("chat")
    steered = [event for event in events if event["kind"] == "turn.steered"]
    words = house.control.logged("request", of="chat")[-1]["words"]
    places = [words.find(f"word {number}") for number in (3, 2, 1)]
    row.proven(f"{len(steered)} messages on the spine of one running turn")
    row.came_to(f"{turn.state}; the model read them in order of arrival: {places}")
    assert len(steered) == 3
    assert -1 not in places
    assert places == sorted(places)
    assert await house.turn("chat", 2) is None


async def test_fifty_pieces_of_mail(house: House, row: Record):
    """Fifty steers and effect transitions during one turn: each on the spine once, in order, nothing paid twice."""
    row.covers(51, injected="25 steers and 25 decisions posted during one turn")
    await house.add("mail", "steps-2", place="shelf.place")
    for number in range(1, 6):
        await house.wake("mail", f"manual/mail/{number}")
    for number in range(1, 6):
        await house.ended("mail", number)
    held = house.control.arm("model.sent", "hold", of="mail")
    await house.wake("mail", "manual/mail/6")
    await house.world.fired(held)
    open_effects = [effect for effect in await house.effects("mail") if effect.undecided]
    posts = [house.client.steer("mail", f"say {number}", by="ada") for number in range(50)]
    decisions = [house.client.decline(effect.id, by="bob") for effect in open_effects]
    answers = await asyncio.gather(*posts, *decisions)
    held.release()
    turn = await house.ended("mail", 6)
    await house.world.until(lambda: _read(house, "mail"), "the mail to be read")
    steered = [event["key"] for event in await house.events("mail") if event["kind"] == "turn.steered"]
    row.proven(f"{len(answers)} answers while the request was out")
    row.came_to(f"{turn.state}, {len(steered)} steers on the spine, each once; {house.requests('mail')} requests")
    assert turn.state is TurnState.COMPLETED
    assert len(steered) == len(set(steered)) == 50
    assert house.requests("mail") == 6 * 3


async def _read(house: House, name: str) -> bool:
    return not await house.store.unread_mail(SessionId(TEAM, name))


async def test_steer_stop_and_answer_at_once(house: House, row: Record):
    """All three in the same instant at a waiting turn: one order on the spine, one end, nobody is left without an answer."""
    row.covers(51, injected="answer, steer and stop of one waiting turn at once, five times")
    row.proven("15 posts")
    ends = []
    for number in range(5):
        name = f"torn-{number}"
        await house.add(name, "asks", place="shelf.place")
        await house.wake(name)
        await house.waiting(name)
        found = await asyncio.gather(
            house.client.answer(name, "This one.", by="ada"),
            house.client.steer(name, "And hurry.", by="bob", turn=1),
            house.client.stop(name, by="eve", turn=1),
            return_exceptions=True,
        )
        assert not [one for one in found if isinstance(one, BaseException)], found
        turn = await house.ended(name)
        ends.append(str(turn.state))
        await house.world.until(lambda name=name: _read(house, name), "mail to be read")  # type: ignore[misc]
    row.came_to(f"ends: {', '.join(sorted(set(ends)))}")
    assert set(ends) <= {"cancelled", "completed"}


async def test_a_steer_in_the_finish_window(house: House, row: Record):
    """A steer that arrives after the last request is answered becomes the next wake; a stop then is told that it ended."""
    row.covers(51, injected="a steer between the last reply and the last commit")
    await house.add("finish", "steps-1", place="")
    held = house.control.arm("commit:turn.ended.before", "hold", of="finish")
    await house.wake("finish")
    await house.world.fired(held)
    posted = await house.client.steer("finish", "One more thing.", by="ada")
    row.proven(f"posted while the last commit was held: {posted.posting}")
    held.release()
    turn = await house.ended("finish")
    second = await house.ended("finish", 2)
    late = await house.client.stop("finish", by="ada", turn=1)
    row.came_to(f"turn 1 {turn.state}, turn 2 {second.state} of cause {second.wake.cause}; a stop: {late.posting}")
    assert posted.posting is Posting.DELIVERED
    assert late.posting is Posting.TURN_ENDED
    words = house.control.logged("request", of="finish")[-1]["words"]
    assert "One more thing." in words


async def test_two_people_decide(house: House, row: Record):
    """Eight decisions at once: the first one stands, everybody else is told whose it was, one write at the target."""
    row.covers(52, injected="eight decisions of one draft at once, twice each")
    await house.add("decide", place="shelf.place")
    await house.wake("decide")
    effect = await house.draft("decide")
    approvals = [house.client.approve(effect.id, by=f"a{number}") for number in range(4)]
    declines = [house.client.decline(effect.id, by=f"d{number}") for number in range(4)]
    replies = await asyncio.gather(*approvals, *declines)
    done = [reply for reply in replies if reply.moved is Moved.DONE]
    after = await house.settled(effect)
    row.proven(f"{len(done)} of {len(replies)} decisions taken")
    row.came_to(f"{after.decision} by {after.decided_by}, {after.state}; the others: {replies[-1].moved}")
    assert len(done) == 1
    assert {reply.moved for reply in replies if reply is not done[0]} <= {Moved.ALREADY_DECIDED, Moved.ALREADY_ENDED}
    placed = sum(line["key"] == effect.key for line in targets.placed(house.control))
    assert placed == (1 if after.decision is Decision.APPROVED else 0)


async def test_the_target_changes_after_it_was_shown(house: House, row: Record):
    """Somebody writes to the target between draft and approval: nothing of theirs is overwritten, the effect says so."""
    row.covers(53, injected="the target written by somebody else before the approval")
    await house.add("moved", place="shelf.place")
    await house.wake("moved")
    effect = await house.draft("moved")
    path = house.control.directory / "targets" / "shelf.place-moved.lines"
    with path.open("a") as file:
        file.write(json.dumps({"text": "A person's own words.", "key": ""}) + "\n")
    stale = await house.store.decide(TEAM, effect.id, Decision.APPROVED, by="ada", digest="0" * 64)
    row.proven(f"the target differs; an approval of another digest: {stale.moved}")
    await house.client.approve(effect.id, by="ada")
    after = await house.settled(effect)
    row.came_to(f"{after.state}: {after.reason}")
    assert stale.moved is Moved.DIGEST_DIFFERS
    assert after.state is EffectState.FAILED
    assert "A person's own words." in path.read_text().splitlines()[-1]
    path.write_text("")  # not one of ours: the invariants count what we placed


async def test_approval_after_a_restart(house: House, row: Record):
    """Server and workers restarted between draft and approval: the approval still answers the same draft."""
    row.covers(54, injected="SIGKILL of the server and of all workers between draft and approval")
    await house.add("restart", place="shelf.place")
    await house.wake("restart")
    effect = await house.draft("restart")
    house.world.server.kill()
    for worker in house.world.workers:
        worker.leashed.stop(0)
    house.world.server.restart()
    row.proven("all of it was restarted")
    house.world.staff("turns", "turns", "upkeep")
    after = await house.placed("restart")
    row.came_to(f"{after.state}")
    assert after.id == effect.id
    assert after.state is EffectState.COMPLETED


async def test_a_body_that_expired(house: House, row: Record):
    """The words of a waiting turn expire before its answer: it ends `failed: body_expired`, and its spine reads on."""
    row.covers(55, injected="the turn's body deleted while it waits for an answer")
    await house.add("expired", "asks", place="")
    await house.wake("expired")
    await house.waiting("expired")
    with redis.Redis.from_url(house.world.server.url) as server:
        gone = server.delete(*server.keys(f"hw:{{{TEAM}}}:s:expired:body:*"))
    row.proven(f"{gone} key deleted")
    await house.client.answer("expired", "Too late.", by="ada")
    turn = await house.ended("expired")
    code, said = await asyncio.to_thread(house.world.command, "log", "expired", "--team", TEAM)
    row.came_to(f"{turn.state}: {turn.reason[:60]}; `log` exits {code}")
    assert gone == 1
    assert turn.state is TurnState.FAILED
    assert turn.reason.startswith("body_expired")
    assert code == 0, said


async def test_edited_and_revoked_meanwhile(house: House, row: Record):
    """An edited contract acts from the next turn on; one that is taken away blocks what it had asked for."""
    row.covers(48, injected="the contract edited, then taken away, while its turn runs")
    await house.add("edited", "steps-1", place="shelf.place")
    held = house.control.arm("model.sent", "hold", of="edited")
    await house.wake("edited")
    await house.world.fired(held)
    await house.add("edited", "steps-2", place="shelf.place")
    held.release()
    first = await house.ended("edited")
    await house.wake("edited", "manual/edited/2")
    second = await house.ended("edited", 2)
    assert first.pins
    assert second.pins
    row.proven(f"pinned {first.pins.contract[:15]} and {second.pins.contract[:15]}")
    effect = await house.draft("edited", 2)
    del house.world.texts["edited"]
    await house.load()
    await house.client.approve(effect.id, by="ada")
    after = await house.settled(effect)
    refused = await house.client.wake("edited", key="manual/edited/3")
    row.came_to(
        f"steps {first.ordinal} and {second.ordinal}; the effect {after.state}: {after.reason}; a wake: {refused.reason}"
    )
    assert first.pins.contract != second.pins.contract
    assert (first.ordinal, second.ordinal) == (2, 3)
    assert after.state is EffectState.REFUSED
    assert str(refused.disposition) == "refused"


def _expires(house: House, effect: EffectRecord, at_ms: int) -> None:
    """Let the draft's time end at this instant of the server's clock, as if it had been made so long before."""
    key = f"hw:{{{TEAM}}}:effect:{effect.id}"
    with redis.Redis.from_url(house.world.server.url) as server:
        record = json.loads(server.get(key)) | {"expires_ms": at_ms}
        server.set(key, json.dumps(record), keepttl=True)
        server.zadd(f"hw:{{{TEAM}}}:due", {f"effect:{effect.id}": at_ms})


async def test_decision_against_expiry(house: House, row: Record):
    """Approvals around the instant at which a draft expires: each draft is either placed once or expired, never both."""
    row.covers(52, injected="eight drafts, approved in steps of 40 ms around the end of their time")
    names = [f"edge-{number}" for number in range(8)]
    for name in names:
        house.world.contract(name, place="shelf.place")
    await house.load()
    await asyncio.gather(*(house.wake(name) for name in names))
    effects = [await house.draft(name) for name in names]
    end_ms = await house.store.now_ms() + 400
    for effect in effects:
        _expires(house, effect, end_ms)

    async def approve(place: int, effect: EffectRecord) -> Moved:
        await asyncio.sleep((240 + 40 * place) / 1000)
        return (await house.client.approve(effect.id, by="ada")).moved

    await asyncio.gather(*(approve(place, effect) for place, effect in enumerate(effects)))

    async def all_ended() -> list[EffectRecord]:
        found = [await house.store.effect(TEAM, effect.id) for effect in effects]
        return [one for one in found if one is not None] if all(one and one.state.ended for one in found) else []

    after = await house.world.until(all_ended, "every draft's end")
    placed = [sum(line["key"] == one.key for line in targets.placed(house.control)) for one in after]
    ends = [f"{one.decision}/{one.state}" for one in after]
    row.proven(f"{len(effects)} drafts of which each expired at one instant")
    row.came_to(f"placed {sum(placed)}, expired {sum(one.reason == 'expired' for one in after)}")
    for one, times in zip(after, placed, strict=True):
        assert (one.state, times) in {(EffectState.COMPLETED, 1), (EffectState.REFUSED, 0)}, ends
        assert one.state is EffectState.COMPLETED or one.reason == "expired", ends


async def test_approval_after_a_restart_and_after_its_time(house: House, row: Record):
    """A draft outlives every process and the server: approved then, it is placed. After 30 days it has expired, and says so."""
    row.covers(54, injected="server and all workers killed between draft and approval; a draft 30 days old")
    names = ("kept", "old")
    for name in names:
        house.world.contract(name, place="shelf.place")
    await house.load()
    for name in names:
        await house.wake(name)
    kept, old = [await house.draft(name) for name in names]
    for name in names:
        await house.ended(name)
    workers = [worker for worker in house.world.workers if worker.alive]
    for worker in workers:
        worker.signal(signal.SIGKILL)
    house.world.server.kill()
    house.world.server.restart()
    await house.world.until(lambda: _gone(workers), "the workers' end")
    ttl_ms = (old.expires_ms or 0) - old.created_ms
    _expires(house, old, await house.store.now_ms() - 1)
    late = await house.client.approve(old.id, by="ada")
    house.world.staff("turns", "turns", "upkeep")
    await house.client.approve(kept.id, by="ada")
    done, gone = await house.settled(kept), await house.settled(old)
    row.proven(f"{len(workers)} workers and the server were killed")
    row.came_to(f"the one {done.state}; the other: {late.moved}, then {gone.state}: {gone.reason}")
    assert ttl_ms == 30 * 86_400_000
    assert done.state is EffectState.COMPLETED
    assert late.moved is not Moved.DONE
    assert (gone.state, gone.reason) == (EffectState.REFUSED, "expired")


async def _gone(workers: list[Worker]) -> bool:
    return not any(worker.alive for worker in workers)


async def test_two_contracts_own_one_section(house: House, row: Record):
    """Two contracts that publish to one place: their drafts are kept and not offered, each told about the other."""
    row.covers(64, injected="two contracts publish to one place")
    for name in ("left", "right"):
        house.world.contract(name, place="shelf.place")
        house.world.texts[name] = house.world.texts[name].replace(f"place: {name}", "place: shared")
    await house.load()
    await asyncio.gather(house.wake("left"), house.wake("right"))
    effects = [await house.draft(name) for name in ("left", "right")]
    row.proven(f"both planned for {effects[0].target}")
    row.came_to(f"{effects[0].state}: {effects[0].reason}")
    assert {effect.state for effect in effects} == {EffectState.FAILED}
    assert all("publishes to shelf.place:shared too" in effect.reason for effect in effects)
