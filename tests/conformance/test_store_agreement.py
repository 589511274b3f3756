"""Claim: whatever callers do, in whatever order, plain dicts and a real server give the same answers."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import re
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel

from heinzelwerk.budget import Caps, Reservation, Settlement
from heinzelwerk.commit import After, Body, Commit, TakenWake
from heinzelwerk.effect import Decision, EffectState
from heinzelwerk.event import Note
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail, MailKind
from heinzelwerk.session import Snapshot
from heinzelwerk.store import link
from heinzelwerk.store.client import RedisStore
from heinzelwerk.store.memory import MemoryStore
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.turn import TurnRecord, TurnState, WaitKind
from heinzelwerk.wake import WhenBusy
from tests.conformance.conftest import Servers
from tests.support.store_world import TEAM, Holder, Time, World, draft_of, effect_of, item_of, job_of, wake_of

READ = link.script
NAMES = ("a", "b", "c")
FAR = 10**15
_STAMP = re.compile(r"\b1[78]\d{11}\b")


def plain(value: Any) -> Any:
    """A reply without what may differ: server times, and the order of a stored document's fields."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json"))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value) if field.name != "raw"
        }
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return _STAMP.sub("T", str(value)) if isinstance(value, int | str) else value


class Twin:
    """One world of the two, with the leases that its callers hold."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.holders: dict[str, Holder] = {}

    async def claim(self, name: str, nonce: str) -> Any:
        """Claim, and remember the lease."""
        reply = await self.world.store.claim(SessionId(TEAM, name), nonce=nonce)
        if isinstance(reply, Snapshot):
            self.holders[name] = Holder(self.world, reply, reply.chain, next((turn for turn in reply.turns), None))
        return reply

    async def commit(self, name: str, op: str, build: Callable[[Holder], dict[str, Any] | None], after: After) -> Any:
        """Commit what `build` makes of this world's own snapshot."""
        holder = self.holders.get(name)
        parts = build(holder) if holder else None
        if holder is None or parts is None:
            return "not now"
        lines, chain = holder.chain.extend([Note("step")], at=TIME_OF_LINES)
        change = Commit(op=op, expected_seq=holder.chain.seq, lines=lines, head=chain.head, after=after, **parts)
        reply = await self.world.store.commit(holder.session, holder.token, change)
        again = await self.world.store.commit(holder.session, holder.token, change)
        if reply.state.value == "done":
            holder.chain = chain
            holder.turn = next((turn for turn in change.turns if not turn.state.ended), holder.turn)
            holder.snapshot = dataclasses.replace(
                holder.snapshot, inbox=holder.snapshot.inbox[len(change.taken_wakes) :]
            )
        if after is not After.KEEP and reply.state.value == "done":
            del self.holders[name]
        return reply, again


TIME_OF_LINES = datetime(2026, 1, 1, tzinfo=UTC)


def started(holder: Holder) -> dict[str, Any] | None:
    """Take the first wake and start a turn."""
    if not holder.snapshot.inbox:
        return None
    queued, number = holder.snapshot.inbox[0], holder.snapshot.last_turn + 1
    holder.snapshot = dataclasses.replace(holder.snapshot, last_turn=number)
    turn = TurnRecord(number=number, state=TurnState.RUNNING, wake=queued.wake, accepted_ms=1, as_of_ms=1, started_ms=1)
    return {"turns": (turn,), "new_turns": number, "taken_wakes": (TakenWake(queued.raw, queued.wake.id, turn=number),)}


def moved(state: TurnState, **more: Any) -> Callable[[Holder], dict[str, Any] | None]:
    """Let the current turn wait or end, with what the caller adds."""

    def build(holder: Holder) -> dict[str, Any] | None:
        if holder.turn is None:
            return None
        number = holder.turn.number
        items = (
            (item_of("q", WaitKind.QUESTION, FAR), item_of("job", WaitKind.JOB, FAR))
            if state is TurnState.WAITING
            else ()
        )
        turn = holder.turn.model_copy(update={"state": state, "waits": items, "ended_ms": 1 if state.ended else None})
        parts: dict[str, Any] = {"turns": (turn,), "mail_taken": min(1, len(holder.snapshot.mail))}
        text = f"text {number}"
        if state.ended:
            parts |= {"ended_wakes": ((turn.wake.id, state.value),), "expire_bodies": (number,)}
            parts |= {
                "effects": (effect_of(turn, text, target=more.get("target", "t")),),
                "drafts": (draft_of(number, text),),
            }
        else:
            parts |= {"jobs": (job_of(turn, f"job-{turn.wake.heinzel}-{number}"),), "holds_session": True}
        return parts | {"bodies": (Body(number, "outcome", text.encode()),)}

    return build


def paid(amount: int, serial: int) -> Callable[[Holder], dict[str, Any] | None]:
    """Settle the attempt before, reserve the next."""

    def build(holder: Holder) -> dict[str, Any] | None:
        ask = Reservation(f"1/{serial}/1", amount, Caps(session_day=900, team_day=1_500), 600_000)
        return {"reserve": ask, "settle": (Settlement(f"1/{serial - 1}/1", amount // 2, possible=serial % 5 == 0),)}

    return build


class Script:
    """A random course of calls; each is the same for both worlds."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.serial = 0

    def step(self) -> Callable[[Twin], Awaitable[Any]]:
        """The next call."""
        self.serial += 1
        dice, serial, name = self.dice, self.serial, self.dice.choice(NAMES)
        session = SessionId(TEAM, name)
        steer = WhenBusy.STEER if dice.random() < 0.4 else WhenBusy.FOLLOW_UP
        wake = wake_of(f"asked/web/{dice.randrange(40)}", session, when_busy=steer, text="Wörter")
        kind, number, fills = dice.choice(list(MailKind)), dice.randrange(1, 4), dice.choice([None, "q", "job", "none"])
        mail = Mail(id=f"m{dice.randrange(60)}", kind=kind, turn=number, fills=fills, value="v", text="x")
        state = dice.choice([TurnState.WAITING, TurnState.COMPLETED, TurnState.COMPLETED, TurnState.CANCELLED])
        after = dice.choice([After.KEEP, After.RELEASE, After.HAND_BACK])
        target, which, choice = (
            dice.choice(["t", "u"]),
            dice.randrange(6),
            dice.choice([Decision.APPROVED, Decision.DECLINED]),
        )
        to = dice.choice([EffectState.COMPLETED, EffectState.FAILED, EffectState.UNKNOWN, EffectState.PLANNED])
        unattended = dice.random() < 0.3
        end = moved(state, target=target)
        leave = After.RELEASE if state is not TurnState.RUNNING else after

        async def decide(twin: Twin) -> Any:
            effect = await nth_effect(twin, which)
            return effect and await twin.world.store.decide(
                TEAM, effect.id, choice, by="kim", digest=effect.digest, wakes=[wake]
            )

        async def begin(twin: Twin) -> Any:
            effect = await nth_effect(twin, which)
            times = {"timeout_ms": 600_000, "margin_ms": 1_000, "unattended": unattended}
            return effect and await twin.world.store.start_effect(TEAM, effect.id, version=effect.version, **times)

        async def close(twin: Twin) -> Any:
            effect = await nth_effect(twin, which)
            return effect and await twin.world.store.close_effect(
                TEAM, effect.id, version=effect.version, to=to, reason="r"
            )

        async def job(twin: Twin) -> Any:
            store, job_id = twin.world.store, f"job-{name}-{number}"
            reply = await store.claim_job(TEAM, job_id, nonce="j", worker="w")
            token = reply[1] if isinstance(reply, tuple) else None
            return reply, await store.close_job(
                TEAM, job_id, token=token, status="completed", cost_micros=3, bodies={"r": b"x"}
            )

        async def release(twin: Twin) -> Any:
            holder = twin.holders.pop(name, None)
            if holder is None:
                return "not now"
            return await twin.world.store.release(
                session, holder.token, handed_back=unattended, due_ms=None, holds_session=unattended
            )

        async def ring(twin: Twin) -> Any:
            return sorted(
                (entry.kind, entry.name, entry.solo) for entry in await twin.world.store.ring(TEAM, limit=1_000)
            )

        async def set_aside(twin: Twin) -> Any:
            holder = twin.holders.get(name)
            return await twin.world.store.quarantine(session, "why", token=holder.token if holder else None)

        calls: list[tuple[int, Callable[[Twin], Awaitable[Any]]]] = [
            (5, lambda twin: twin.world.store.accept(wake, nonce=f"n{serial}")),
            (8, lambda twin: twin.claim(name, f"c{serial}")),
            (8, lambda twin: twin.commit(name, f"op{serial}", started, After.KEEP)),
            (8, lambda twin: twin.commit(name, f"op{serial}", end, leave)),
            (3, lambda twin: twin.commit(name, f"op{serial}", paid(dice_amount, serial), after)),
            (5, lambda twin: twin.world.store.post(session, mail)),
            (3, decide),
            (3, begin),
            (3, close),
            (3, job),
            (1, release),
            (2, ring),
            (1, set_aside),
            (1, lambda twin: twin.world.store.quarantine(session, None)),
        ]
        dice_amount = dice.randrange(10, 300)
        return dice.choices([call for _, call in calls], weights=[weight for weight, _ in calls])[0]


async def nth_effect(twin: Twin, which: int) -> Any:
    """An effect by its place among all, sorted by id."""
    effects = sorted(await twin.world.store.effects(TEAM), key=lambda effect: effect.id)
    return effects[which % len(effects)] if effects else None


async def everything(world: World) -> Any:
    """All that readers can see of a world."""
    store = world.store
    seen: list[Any] = [
        sorted((plain(effect) for effect in await store.effects(TEAM)), key=lambda effect: effect["id"]),
        await store.counters(TEAM),
        await store.spent(TEAM),
        sorted((entry.kind, entry.name) for entry in await store.due(TEAM, limit=1_000)),
    ]
    for name in NAMES:
        session = SessionId(TEAM, name)
        seen.append((await store.overview(session), await store.unread_mail(session), await store.spine(session)))
        seen.append([await store.draft(session, "weekly", approved=approved) for approved in (True, False)])
        seen.append(
            [(turn, await store.body_names(session, turn.number)) for turn in await store.turns(session, before=50)]
        )
    return plain(seen)


@cache
def one_slot(name: str) -> link.Script:
    """A script that a cluster's node refuses as soon as it touches a second hash slot: only with a shebang does it look."""
    source = "#!lua\n" + READ(name).source
    return link.Script(name, source, hashlib.sha1(source.encode()).hexdigest())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("body", ["valkey", "fakeredis", "cluster"])
async def test_dicts_and_server_agree(servers: Servers, monkeypatch: pytest.MonkeyPatch, body: str, seed: int) -> None:
    """Two hundred random calls, each answered alike; then everything that can be read is alike, and no key is astray."""
    if body == "cluster":
        monkeypatch.setattr(link, "script", one_slot)
    options = StoreOptions(prefix=f"{uuid4().hex}:", inbox_cap=6)
    url = servers.url(body)
    memory = World(MemoryStore(lambda: int(time.time() * 1000), options), Time(), options)
    real = World(RedisStore(url, options), Time(), options, url)
    twins = (Twin(memory), Twin(real))
    script = Script(seed)
    for twin in twins:
        await twin.world.load(*NAMES)
    for _ in range(200):
        call = script.step()
        left, right = [plain(await call(twin)) for twin in twins]
        assert left == right, f"call {script.serial}"
    assert await everything(memory) == await everything(real)
    assert real.audit() == []
    await real.store.close()
