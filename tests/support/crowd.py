"""A crowd around the real path: workers, a handoff worker, people and an operator, interleaved at every call to the store.

Nothing runs in parallel: each call to the store or the target waits at a gate, and a seed says who goes next, who dies
there, and how much time passes. Leases are never renewed, so slow workers lose theirs. Afterwards `assert_nothing_lost`
reads the truth back.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heinzelwerk import apply, errors, mailroom, sweep, unanswered
from heinzelwerk.advance import advance
from heinzelwerk.budget import Caps, Reservation, Settlement
from heinzelwerk.claim import Claim
from heinzelwerk.commit import CommitState, History
from heinzelwerk.effect import Decision, Which
from heinzelwerk.ending import Ending, Failed, Finished, HandedBack, OverBudget, Parked, Stopped, Tail
from heinzelwerk.event import Note, line_digest
from heinzelwerk.handoff_job import JobRecord
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail, MailKind, Posting
from heinzelwerk.opening import Opening
from heinzelwerk.ports import Interrupt, Placement, TargetView
from heinzelwerk.session import Due, NotClaimed
from heinzelwerk.store.memory import MemoryStore
from heinzelwerk.testing import house
from heinzelwerk.testing.house import House
from heinzelwerk.turn import EnginePins, TurnRecord, TurnState, Usage, WaitItem, WaitKind
from heinzelwerk.unanswered import RESERVED
from heinzelwerk.wake import Cause, Disposition, Wake, WhenBusy
from tests.support.simulator import Crash

PAGE = SessionId(house.TEAM, "page")
PRICE, JOB_PRICE = 1_000, 7_000
MOST_SEGMENTS = 5
CONTRACT = house.page(extra="  retries: 1\n  on_budget: ask\n")


@dataclass
class Gate:
    """Where everybody waits for the seed's word."""

    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    async def wait(self) -> None:
        """Wait to be let through, or to die here."""
        ticket = asyncio.get_running_loop().create_future()
        self.waiting.append(ticket)
        await ticket


@dataclass
class GatedStore:
    """The memory store behind the gate: before each call, and once more before its answer arrives."""

    inner: MemoryStore
    gate: Gate

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            await self.gate.wait()
            answer = await method(*arguments, **named)
            if name in ("commit", "claim", "close_effect", "start_effect", "close_job"):
                await self.gate.wait()  # dying here is a lost reply
            return answer

        return call


@dataclass
class SlowWall:
    """A target that takes its time and refuses what no longer fits: the section moved on, or holds this very text."""

    gate: Gate
    action: str = "notes.place"
    refuses_late: bool = True
    held: dict[str, tuple[str, str]] = field(default_factory=dict)
    placed: list[str] = field(default_factory=list)

    def target(self, arguments: Mapping[str, str]) -> str:
        return f"notes:{arguments['place']}"

    async def view(self, arguments: Mapping[str, str]) -> TargetView:
        await self.gate.wait()
        words, key = self.held.get(arguments["place"], ("", ""))
        return TargetView(self.target(arguments), shown=words, before=words, key=key)

    async def place(self, placement: Placement, *, deadline_s: float) -> str:
        await self.gate.wait()
        words, key = self.held.get(placement.arguments["place"], ("", ""))
        if key != placement.key:
            if words != placement.shown:
                raise errors.TargetConflict("the section has moved on")
            self.placed.append(placement.key)
            self.held[placement.arguments["place"]] = (placement.text, placement.key)
        await self.gate.wait()
        return f"r{len(self.placed)}"


@dataclass
class MoodyEngine:
    """Each segment pays for a request, hears its mail, and then does what the seed says; the last ones finish."""

    chance: random.Random
    heard: set[str] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)
    told: list[str] = field(default_factory=list)
    asked: int = 0

    def pins(self, contract: object) -> EnginePins:
        return EnginePins(model="moody", engine="moody:1")

    async def run(self, opening: Opening, claim: Claim) -> Ending:
        turn = opening.turn
        self.heard |= {mail.id for mail in opening.steers}
        if opening.message:
            self.told.append(opening.message)
        if opening.question_answer is not None:
            self.answered.add(turn.number)
        turn = await self._request(replace(opening, turn=turn.model_copy(update={"steers": ()})), claim)
        if claim.interrupted is Interrupt.STOPPED:
            return Stopped(Tail(turn), "ada")
        turn = await self._hear(turn, claim)
        if claim.interrupted is Interrupt.HAND_BACK:
            return HandedBack(Tail(turn))
        return self._end(replace(opening, turn=turn), claim)

    async def _request(self, opening: Opening, claim: Claim) -> TurnRecord:
        booked = unanswered.book(opening.turn)
        turn = booked.turn
        attempt = turn.attempt + 1
        name = f"{turn.number}/{turn.steps + 1}/{attempt}"
        reserved = turn.model_copy(update={"attempt": attempt, "counters": {**turn.counters, RESERVED: PRICE}})
        reply = await claim.commit(
            booked.notes,
            progress=False,
            turns=(reserved,),
            settle=booked.settle,
            reserve=Reservation(name, PRICE, Caps(team_day=PRICE * 100_000), ttl_ms=60_000),
        )
        assert reply.state is CommitState.DONE
        self.asked += 1
        steps = turn.steps + 1
        usage = turn.usage.plus(Usage(requests=1, cost_micros=PRICE))
        turn = turn.model_copy(update={"usage": usage, "steps": steps, "ordinal": turn.ordinal + 1, "attempt": 0})
        await claim.commit(
            [Note("step.model", {"step": steps}, turn=turn.id())],
            turns=(turn,),
            histories=(History(turn.number, turn.messages, (b"{}",)),),
            settle=(Settlement(name, PRICE),),
        )
        return turn

    async def _hear(self, turn: TurnRecord, claim: Claim) -> TurnRecord:
        taken = []
        for mail in await claim.fetch_mail():
            foreign = mail.kind is MailKind.STEER and mail.turn != turn.number
            if foreign or mail.kind in (MailKind.STOP, MailKind.JOB_ENDED, MailKind.EFFECT_MOVED):
                break
            taken.append(mail)
        if taken:
            bodies = [body for mail in taken if (body := mailroom.body(mail)) is not None]
            notes = [mailroom.note(mail, claim.session) for mail in taken]
            unheard = tuple(mailroom.steer(mail) for mail in taken if mail.kind is MailKind.STEER)
            turn = turn.model_copy(update={"steers": (*turn.steers, *unheard)})
            await claim.commit(notes, turns=(turn,), mail_taken=len(taken), bodies=bodies)
        return turn

    def _end(self, opening: Opening, claim: Claim) -> Ending:
        turn = opening.turn
        mood = self.chance.choice(("finish", "finish", "ask", "budget", "job", "retry", "fail", "hand back"))
        now, name = claim.now_ms(), f"{turn.number}-{turn.segment}-{turn.steps}"
        if turn.segment >= MOST_SEGMENTS:
            mood = "finish"
        if mood == "budget":
            return OverBudget(Tail(turn), "turn", 5)
        if mood == "fail":
            return Failed(Tail(turn), "no luck")
        if mood == "hand back":
            return HandedBack(Tail(turn))
        if mood == "retry":
            return Parked(Tail(turn), (WaitItem(id=f"retry/{name}", kind=WaitKind.RETRY, deadline_ms=now + 20_000),))
        if mood == "job":
            job = JobRecord(
                id=f"job-{name}",
                team=PAGE.team,
                heinzel=PAGE.heinzel,
                turn=turn.number,
                call=f"{turn.ordinal}:c",
                wait=f"job-{name}",
                runner="r",
                timeout_s=60.0,
                deadline_ms=90_000,
                max_micros=JOB_PRICE,
            )
            return Parked(
                Tail(turn),
                (WaitItem(id=job.id, kind=WaitKind.JOB, deadline_ms=now + 90_000, call=job.call),),
                jobs=(job,),
            )
        done = house.finish(f"Words of turn {turn.number}.")(opening, claim)
        assert isinstance(done, Finished)
        if mood == "ask":
            asked = done.outcome.model_copy(update={"question": "Which?", "draft": None})
            return Finished(Tail(turn), asked)
        return Finished(Tail(turn), done.outcome)


@dataclass
class Crowd:
    """One deployment with everybody in it."""

    seed: int
    deaths: float = 0.01
    chance: random.Random = field(init=False)
    gate: Gate = field(default_factory=Gate)
    home: House = field(init=False)
    store: GatedStore = field(init=False)
    engine: MoodyEngine = field(init=False)
    wall: SlowWall = field(init=False)
    broker: list[Due] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    steers: dict[str, str] = field(default_factory=dict)
    answers: list[int] = field(default_factory=list)
    brought: int = 0
    died: int = 0
    actions: int = 60

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        clock = house.HandClock()
        self.store = GatedStore(MemoryStore(clock.ms), self.gate)
        self.engine = MoodyEngine(self.chance)
        self.home = house.build(engine=self.engine, store=self.store, clock=clock)  # type: ignore[arg-type]
        self.wall = SlowWall(self.gate)
        publishers = {**self.home.works.publishers, self.wall.action: self.wall}
        self.home.works = replace(self.home.works, publishers=publishers)

    @property
    def inner(self) -> MemoryStore:
        """The store without the gate, for looking."""
        return self.store.inner

    async def play(self) -> None:
        """Let the crowd loose, then bring everything to rest."""
        await self._let_all(self.home.load(CONTRACT))
        for _ in range(20_000):
            await asyncio.sleep(0)
            if self.actions > 0 and self.chance.random() < 0.25:
                self.actions -= 1
                self._start(self._somebody())
            elif len(self.tasks) < 3 and self.chance.random() < 0.4:
                self._start(self._worker())
            elif self.gate.waiting and self.chance.random() < 0.95:
                await self._go_on()
            else:
                self.home.clock.pass_(self.chance.choice((0.1, 0.5, 2.0, 6.0)))
            if self.actions <= 0 and not self.tasks and await self._quiet():
                return
            if self.actions <= 0 and not self.tasks:
                self.deaths = 0.0
                self._start(self._kind_person())
                self.home.clock.pass_(3.0)
        raise AssertionError(f"never at rest: {await self.why()}")

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(self._as_somebody(work))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _as_somebody(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except (Crash, errors.LeaseLost):
            self.died += 1

    async def _go_on(self) -> None:
        ticket = self.gate.waiting.pop(self.chance.randrange(len(self.gate.waiting)))
        if self.chance.random() < self.deaths:
            ticket.set_exception(Crash())
        else:
            ticket.set_result(None)
        for _ in range(6):
            await asyncio.sleep(0)

    async def _let_all(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        while not task.done():
            await asyncio.sleep(0)
            while self.gate.waiting:
                self.gate.waiting.pop().set_result(None)
        task.result()

    # -- who does what -------------------------------------------------------------------------------------------

    async def _worker(self) -> None:
        self.broker.extend(self.home.bell.rung)
        self.home.bell.rung.clear()
        if not self.broker or self.chance.random() < 0.2:
            await sweep.sweep(self.home.works)
            return
        due = self.broker.pop(self.chance.randrange(len(self.broker)))
        if self.chance.random() < 0.1:
            self.broker.append(due)  # the broker delivers it once more
        if due.kind == "session":
            await advance(SessionId(due.team, due.name), self.home.works)
        elif due.kind == "effect":
            await apply.apply(due.team, due.name, self.home.works)
        elif due.kind == "job":
            await self._hand_over(due)

    async def _hand_over(self, due: Due) -> None:
        claimed = await self.store.claim_job(due.team, due.name, nonce=self.home.works.ids.new(), worker="w")
        if isinstance(claimed, NotClaimed):
            return
        await self.gate.wait()
        job, token = claimed
        await self.store.close_job(
            due.team, job.id, token=token, status="completed", cost_micros=JOB_PRICE - 1, bodies={}
        )

    def _somebody(self) -> Coroutine[Any, Any, Any]:
        deeds: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            self._wake,
            self._wake,
            self._chat,
            self._steer,
            self._stop,
            self._kind_person,
            self._decline,
            self._notice,
            self._reload,
        ]
        return self.chance.choice(deeds)()

    async def _wake(self) -> None:
        self.brought += 1
        await self.home.wake(key=f"manual/{self.brought}")

    async def _chat(self) -> None:
        self.brought += 1
        words = f"Chat {self.brought}"
        wake = Wake(
            team=PAGE.team,
            heinzel=PAGE.heinzel,
            key=f"asked/web/{self.brought}",
            cause=Cause.ASKED,
            when_busy=WhenBusy.STEER,
            text=words,
            conversation="c",
        )
        reply = await self.store.accept(wake, nonce=self.home.works.ids.new())
        if reply.disposition is Disposition.ACCEPTED:
            self.steers[wake.id] = words

    async def _open_turns(self) -> list[TurnRecord]:
        overview = await self.inner.overview(PAGE)
        return list(overview.turns) if overview else []

    async def _steer(self) -> None:
        for turn in await self._open_turns():
            name = self.home.works.ids.new()
            mail = Mail(id=name, kind=MailKind.STEER, turn=turn.number, text=f"Steer {name}", by="ada")
            if (await self.store.post(PAGE, mail)).posting is Posting.DELIVERED:
                self.steers[name] = mail.text or ""

    async def _stop(self) -> None:
        turns = await self._open_turns()
        if turns and self.chance.random() < 0.5:
            turn = self.chance.choice(turns)
            name = self.home.works.ids.new()
            await self.store.post(PAGE, Mail(id=name, kind=MailKind.STOP, turn=turn.number, by="ada"))

    async def _notice(self) -> None:
        """What the keeper does: tells holders of stops, or to hand back."""
        for held in list(self.home.keeper.held):
            running = getattr(held, "running", None)
            box = await self.store.unread_mail(PAGE)
            if any(mail.kind is MailKind.STOP and mail.turn == running for mail in box):
                held.interrupt(Interrupt.STOPPED)
            elif self.chance.random() < 0.2:
                held.interrupt(Interrupt.HAND_BACK)

    async def _reload(self) -> None:
        if self.chance.random() < 0.3:
            await self.home.load()
            await self.home.load(CONTRACT)

    async def _decline(self) -> None:
        for effect in await self.store.effects(house.TEAM, Which.UNDECIDED):
            await apply.decide(house.TEAM, effect.id, Decision.DECLINED, by="bob", works=self.home.works)

    async def _kind_person(self) -> None:
        """Answers what is asked and approves what is shown."""
        for turn in await self._open_turns():
            for item in turn.waits:
                if item.open and item.kind in (WaitKind.QUESTION, WaitKind.BUDGET):
                    await self._fill(turn, item)
        for effect in await self.store.effects(house.TEAM, Which.UNDECIDED):
            await apply.decide(house.TEAM, effect.id, Decision.APPROVED, by="ada", works=self.home.works)

    async def _fill(self, turn: TurnRecord, item: WaitItem) -> None:
        asks = item.kind is WaitKind.QUESTION
        kind, value = (MailKind.ANSWER, "answered") if asks else (MailKind.BUDGET_RAISED, "raised")
        name = self.home.works.ids.new()
        mail = Mail(id=name, kind=kind, turn=turn.number, fills=item.id, value=value, text="This." if asks else None)
        if (await self.store.post(PAGE, mail)).posting is Posting.DELIVERED and asks:
            self.answers.append(turn.number)

    async def _quiet(self) -> bool:
        return not await self.why()

    async def why(self) -> list[str]:
        """What is still to be done."""
        overview = await self.inner.overview(PAGE)
        effects = [effect.id for effect in await self.inner.effects(house.TEAM) if not effect.state.ended]
        found = [f"effect {name}" for name in effects]
        if overview is None:
            return found
        found += [f"turn {turn.number} {turn.state} {turn.waits}" for turn in overview.turns]
        found += [f"wake {queued.wake.id}" for queued in overview.inbox] + ["mail"] * overview.mail
        return found + ["held"] * overview.held


async def assert_nothing_lost(crowd: Crowd) -> None:
    """Every turn ended once, every wake once, every message was heard, every text placed once, the money adds up."""
    inner = crowd.inner
    lines = await inner.spine(PAGE)
    events = [json.loads(line) for line in lines]
    head = None
    for number, (line, event) in enumerate(zip(lines, events, strict=True), 1):
        assert (event["seq"], event["prev"]) == (number, head)
        head = line_digest(line)
    started = Counter(event["turn"] for event in events if event["kind"] == "turn.started")
    ended = Counter(event["turn"] for event in events if event["kind"] == "turn.ended")
    assert set(ended.values()) <= {1}, ended
    assert set(started) <= set(ended), (started, ended)
    team = inner._state.teams[house.TEAM]
    assert [key for key, seen in team.seen.items() if not seen.verdict] == []
    await _assert_heard(crowd, events)
    await _assert_placed(crowd)
    await _assert_money(crowd, events)
    crowd.home.clock.pass_(400)
    left = {member: at for member, at in team.due.items() if not member.startswith("slot:")}
    for member in left:
        kind, _, name = member.partition(":")
        assert kind == "session", left
        assert isinstance(await inner.claim(SessionId(house.TEAM, name), nonce="late"), NotClaimed)


async def _assert_heard(crowd: Crowd, events: list[dict[str, Any]]) -> None:
    """A message is heard by a model, or starts a turn, or is a wake that was skipped with a reason."""
    known = {"wake.skipped": "wake", "turn.started": "wake"}
    on_spine = {event["data"][known[event["kind"]]] for event in events if event["kind"] in known}
    # A message to a turn that had ended by then is a wake from the start, under the message's name.
    on_spine |= {event["key"].removeprefix("asked/steer/") for event in events if event["kind"] in known}
    back = {event["data"]["mail"]: event["data"]["wake"] for event in events if event["kind"] == "steer.returned"}
    on_spine |= {mail for mail, wake in back.items() if wake in on_spine}
    for name, words in crowd.steers.items():
        assert name in crowd.engine.heard | on_spine or words in crowd.engine.told, (name, words)
    for number in crowd.answers:
        turn = await crowd.inner.turn(PAGE, number)
        assert turn is not None
        cut = turn.state in (TurnState.CANCELLED, TurnState.FAILED)
        assert number in crowd.engine.answered or cut, turn


async def _assert_placed(crowd: Crowd) -> None:
    placed = Counter(crowd.wall.placed)
    for effect in await crowd.inner.effects(house.TEAM, limit=1_000):
        if effect.action == crowd.wall.action:
            assert placed[effect.key] <= 1
            assert effect.state.value != "completed" or placed[effect.key] == 1, effect
    last = [effect for effect in await crowd.inner.effects(house.TEAM) if effect.state.value == "completed"]
    if last:
        newest = max(last, key=lambda effect: effect.turn)
        assert crowd.wall.held["wall"][0] == await crowd.inner.effect_text(house.TEAM, newest.id)


async def _assert_money(crowd: Crowd, events: list[dict[str, Any]]) -> None:
    """The day's money is that of its turns, and of handoffs that ended after their turn was stopped."""
    crowd.home.clock.pass_(120)
    records = await crowd.inner.turns(PAGE, before=10_000, limit=10_000)
    money = await crowd.inner.spent(house.TEAM)
    spent = sum(turn.usage.cost_micros for turn in records)
    possible = sum(turn.usage.possible_micros for turn in records)
    ended: set[str] = set()
    for event in events:
        if event["kind"] == "turn.ended":
            ended.add(event["turn"])
        elif event["kind"] == "step.handoff" and event["turn"] in ended:
            spent += event["data"].get("cost_micros") or 0
            possible += event["data"].get("possible_micros") or 0
    assert (money.spent, money.possible, money.reserved) == (spent, possible, 0)
    assert spent + possible >= crowd.engine.asked * PRICE
