"""What tests of a store need: worlds over each body of it, records to put in, and a holder that keeps the chain."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import redis

from heinzelwerk import ids
from heinzelwerk.commit import After, Commit, CommitReply, NewDraft, TakenWake
from heinzelwerk.effect import EffectRecord, approval_digest, effect_key
from heinzelwerk.event import Chain, Note
from heinzelwerk.generation import ContractEntry, Generation, Publishing
from heinzelwerk.handoff_job import JobRecord
from heinzelwerk.ids import SessionId
from heinzelwerk.ports import Store
from heinzelwerk.session import Snapshot
from heinzelwerk.store import keys
from heinzelwerk.store.client import RedisStore
from heinzelwerk.store.memory import MemoryStore
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.turn import TurnRecord, TurnState, WaitItem, WaitKind
from heinzelwerk.wake import Cause, QueuedWake, Wake

TEAM = "docs"
WEEKLY = SessionId(TEAM, "weekly")
PUBLISHES = Publishing(action="documents.replace-section", output="weekly", args={"doc": "weekly.md"})


@dataclass(slots=True)
class Time:
    """Time of one world: of the memory store it is a number, of a server it passes."""

    ms: int | None = None

    async def passes(self, ms: int) -> None:
        """Let this much time pass, and a little more."""
        if self.ms is not None:
            self.ms += ms + 5
        else:
            await asyncio.sleep((ms + 40) / 1000)


@dataclass(slots=True)
class World:
    """A store with one team that has loaded contracts."""

    store: Store
    time: Time
    options: StoreOptions
    url: str | None = None
    number: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def nonce(self) -> str:
        """A fresh word."""
        return f"n{next(self.number)}"

    async def load(self, *names: str, team: str = TEAM, **entry: Any) -> None:
        """Load contracts that publish `weekly`."""
        entries = {name: contract(name, **entry) for name in names or ("weekly",)}
        await self.store.load(Generation(team, entries), {})

    async def accept(self, key: str = "manual/1", session: SessionId = WEEKLY, **more: Any) -> Wake:
        """Accept a wake."""
        wake = wake_of(key, session, **more)
        await self.store.accept(wake, nonce=self.nonce())
        return wake

    async def claim(self, session: SessionId = WEEKLY) -> Holder:
        """Claim a session that has something due."""
        snapshot = await self.store.claim(session, nonce=self.nonce())
        assert isinstance(snapshot, Snapshot), snapshot
        return Holder(self, snapshot, snapshot.chain)

    async def running(self, key: str = "manual/1", session: SessionId = WEEKLY, **more: Any) -> Holder:
        """A session with a turn that has just started, under its lease."""
        await self.accept(key, session, **more)
        holder = await self.claim(session)
        await holder.start()
        return holder

    def of_format(self, number: int) -> Store:
        """The same data as a worker of another release sees it."""
        options = replace(self.options, format=number)
        if self.url is not None:
            return RedisStore(self.url, options)
        other = MemoryStore(lambda: self.time.ms or 0, options)
        assert isinstance(self.store, MemoryStore)
        other.restore(self.store.snapshot())
        return other

    def audit(self) -> list[str]:
        """What a SCAN of this world's keys finds against the key table."""
        if self.url is None:
            return []
        with redis.Redis.from_url(self.url) as client:
            found = []
            for raw in client.scan_iter(match=self.options.prefix + "*", count=1000):
                kind, ttl = client.type(raw), client.pttl(raw)
                if kind == b"none":
                    continue  # it ended between SCAN and TYPE
                found.append(keys.audit(raw.decode(), kind.decode(), int(ttl), prefix=self.options.prefix))
            return [complaint for complaint in found if complaint]


@dataclass(slots=True)
class Holder:
    """Who holds a session's lease, with the end of its chain."""

    world: World
    snapshot: Snapshot
    chain: Chain
    turn: TurnRecord | None = None

    @property
    def session(self) -> SessionId:
        return self.snapshot.session

    @property
    def token(self) -> str:
        return self.snapshot.token

    def change(self, *kinds: str, op: str | None = None, **more: Any) -> tuple[Commit, Chain]:
        """A commit with these events, and the chain after it."""
        turn = self.turn.id() if self.turn else None
        lines, chain = self.chain.extend([Note(kind, turn=turn) for kind in kinds], at=datetime.now(UTC))
        head = chain.head if lines else None
        name = op or f"{self.token}/{self.world.nonce()}"
        return Commit(op=name, expected_seq=self.chain.seq, lines=lines, head=head, **more), chain

    async def commit(self, *kinds: str, **more: Any) -> CommitReply:
        """Commit and go on from there."""
        change, chain = self.change(*kinds, **more)
        reply = await self.world.store.commit(self.session, self.token, change)
        if reply.state.value == "done":
            self.chain = chain
        return reply

    async def start(self, **more: Any) -> TurnRecord:
        """Start a turn with the inbox's first wake."""
        queued = self.snapshot.inbox[0]
        self.turn = turn_of(queued, self.snapshot.last_turn + 1, now=self.snapshot.now_ms)
        taken = TakenWake(queued.raw, queued.wake.id, turn=self.turn.number)
        await self.commit("turn.started", turns=(self.turn,), new_turns=self.turn.number, taken_wakes=(taken,), **more)
        return self.turn

    async def waits(self, *items: WaitItem, **more: Any) -> CommitReply:
        """Let the turn wait, and give the lease up."""
        assert self.turn is not None
        self.turn = self.turn.model_copy(update={"state": TurnState.WAITING, "waits": items})
        more.setdefault("after", After.RELEASE)
        more.setdefault("due_ms", min(item.deadline_ms for item in items))
        return await self.commit("turn.waits", turns=(self.turn,), **more)

    async def end(self, state: TurnState = TurnState.COMPLETED, **more: Any) -> CommitReply:
        """End the turn, and give the lease up."""
        assert self.turn is not None
        self.turn = self.turn.model_copy(update={"state": state, "ended_ms": await self.world.store.now_ms()})
        more.setdefault("after", After.RELEASE)
        more.setdefault("ended_wakes", ((self.turn.wake.id, state.value),))
        return await self.commit("turn.ended", turns=(self.turn,), **more)


def contract(name: str, **more: Any) -> ContractEntry:
    """A contract that publishes its weekly text."""
    return ContractEntry(name=name, sha256=f"sha256:{ids.digest(name)}", **{"publishes": (PUBLISHES,), **more})


def wake_of(key: str, session: SessionId = WEEKLY, **more: Any) -> Wake:
    """A wake; its cause is the key's first word."""
    return Wake(team=session.team, heinzel=session.heinzel, key=key, cause=Cause(key.partition("/")[0]), **more)


def turn_of(queued: QueuedWake, number: int, *, now: int) -> TurnRecord:
    """A turn that works this wake off."""
    return TurnRecord(
        number=number,
        state=TurnState.RUNNING,
        wake=queued.wake,
        accepted_ms=queued.accepted_ms,
        as_of_ms=queued.accepted_ms,
        started_ms=now,
    )


def item_of(name: str, kind: WaitKind, deadline_ms: int, call: str | None = None) -> WaitItem:
    """Something to wait for."""
    return WaitItem(id=name, kind=kind, deadline_ms=deadline_ms, call=call)


def draft_of(turn: int, text: str) -> NewDraft:
    """The newest weekly text."""
    return NewDraft("weekly", turn, text, ids.digest(text))


def effect_of(turn: TurnRecord, text: str, *, ask: int = 1, **more: Any) -> EffectRecord:
    """An effect that places the text."""
    session = turn.wake.session
    key = more.pop("key", None) or effect_key(session, turn.wake.key, "weekly", 0, ask=ask)
    target = more.pop("target", "documents:weekly.md#weekly")
    values = {
        "id": ids.effect_id(key),
        "key": key,
        "team": session.team,
        "heinzel": session.heinzel,
        "turn": turn.number,
        "output": "weekly",
        "action": PUBLISHES.action,
        "arguments": PUBLISHES.args,
        "target": target,
        "text_sha256": ids.digest(text),
        "digest": approval_digest(text, target, ""),
    }
    return EffectRecord(**{**values, **more})


def job_of(turn: TurnRecord, name: str = "job-1", **more: Any) -> JobRecord:
    """A handoff whose end fills the wait item `job`."""
    session = turn.wake.session
    values = {
        "id": name,
        "team": session.team,
        "heinzel": session.heinzel,
        "turn": turn.number,
        "call": "1:c1",
        "wait": "job",
        "runner": "command",
        "timeout_s": 60.0,
        "deadline_ms": 60_000,
    }
    return JobRecord(**{**values, **more})
