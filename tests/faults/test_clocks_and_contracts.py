"""Rows 24 to 27, 46 to 48, 56 to 58, 60, 63: clocks and slots, broken and newer records, contracts that do not fit, a flood."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from heinzelwerk import errors, loading
from heinzelwerk.contract.sets import Installed
from heinzelwerk.ids import SessionId
from heinzelwerk.schedule import Schedule
from heinzelwerk.session import QUARANTINE
from heinzelwerk.turn import TurnState
from tests.faults import invariants
from tests.faults.conftest import Record
from tests.faults.world import TEAM, House, World
from tests.faults.wrapped import CLOCK_S, FORMAT

SCHEDULE = '  schedule: "*/5 * * * *"\n'


async def due_since(house: House, name: str, ago: timedelta) -> datetime:
    """Make a contract's schedule due since then, as if nobody had looked; answers the first slot."""
    generation, _ = loading.generation_of(
        TEAM,
        loading.read_repository(house.world.directory / "team"),
        timezone="UTC",
        source="team",
        installed=Installed(),
    )
    entry = generation.entries[name]
    assert entry.schedule is not None
    begin = datetime.fromtimestamp(await house.store.now_ms() / 1000, UTC) - ago
    slot = Schedule.parse(entry.schedule, timezone="UTC").next_slot(begin)
    assert slot is not None
    with redis.Redis.from_url(house.world.server.url) as server:
        server.zadd(f"hw:{{{TEAM}}}:due", {f"slot:{name}": int(slot.timestamp() * 1000)})
    return slot


async def slots_of(house: House, name: str) -> dict[str, list[str]]:
    """The kinds of records that each slot's key has on the spine."""
    found: dict[str, list[str]] = {}
    for event in await house.events(name):
        if event["key"] and event["key"].startswith("scheduled/") and event["kind"] in invariants.ENDS:
            found.setdefault(event["key"], []).append(event["kind"])
    return found


@pytest.mark.parametrize(("policy", "turns"), [("latest", 1), ("skip", None)])
async def test_beat_was_down(house: House, row: Record, policy: str, turns: int | None):
    """36 missed slots: one turn that lists the rest, or each skipped as `catch_up`; every slot has exactly one record."""
    name = f"missed-{policy}"
    row.covers(26, injected=f"36 missed slots, catch_up {policy}, no beat")
    extra = f"{SCHEDULE}  catch_up: {policy}\n"
    await house.add(name, "nothing", place="", extra=extra)
    first = await due_since(house, name, timedelta(hours=3))

    async def all_there() -> bool:
        return len(await slots_of(house, name)) >= 36

    await house.world.until(all_there, "36 slots to be accounted for")
    await invariants.quiet(house, tuple(house.world.parked))
    found = await slots_of(house, name)
    kinds = [kind for each in found.values() for kind in each]
    row.proven(f"{len(found)} slots due since {first:%H:%M}")
    row.came_to(
        f"turns {kinds.count('turn.ended')}, merged {kinds.count('wake.merged')}, skipped {kinds.count('wake.skipped')}"
    )
    assert all(len(each) == 1 for each in found.values()), found
    if turns is not None:
        assert kinds.count("turn.ended") == turns
    else:
        assert kinds.count("wake.skipped") >= 34


async def test_two_beats(house: House, row: Record):
    """Two beats and three sweeping workers: one record for each contract and slot."""
    row.covers(25, injected="two beats beside three workers that sweep too")
    for _ in range(2):
        house.world.start("beat")
    names = [f"twice-{number}" for number in range(3)]
    for name in names:
        house.world.contract(name, "nothing", place="", extra=SCHEDULE)
    await house.load()
    for name in names:
        await due_since(house, name, timedelta(minutes=16))

    async def done() -> bool:
        return all([len(await slots_of(house, name)) >= 3 for name in names])

    await house.world.until(done, "the slots")
    beats = house.world.living("beat")
    row.proven(f"{len(beats)} beats alive")
    found = {name: await slots_of(house, name) for name in names}
    for worker in beats:
        worker.leashed.stop(5)
    row.came_to(f"slots by contract: {[len(slots) for slots in found.values()]}, one record each")
    assert len(beats) == 2
    assert all(len(records) == 1 for slots in found.values() for records in slots.values())


async def test_wrong_clocks(tmp_path: Path, row: Record):
    """Workers five minutes ahead and behind: leases and slots go by the server's clock, turns run on both."""
    row.covers(24, injected="worker clocks +300 s and -300 s")
    world = World(tmp_path / "w")
    try:
        async with world.open() as house:
            await house.store.prepare()
            world.contract("clock", "steps-2", place="", extra=SCHEDULE)
            await house.load()
            world.start("turns", **{CLOCK_S: "300"})
            world.start("turns", **{CLOCK_S: "-300"})
            world.start("upkeep")
            await house.working(3)
            first = await due_since(house, "clock", timedelta(minutes=6))
            for number in range(6):
                await house.wake("clock", f"manual/clock/{number}")
            await invariants.quiet(house)
            found = await slots_of(house, "clock")
            beats = await house.store.workers()
            skews = sorted(datetime.fromisoformat(facts["clock"]).timestamp() for facts in beats.values())
            row.proven(f"heartbeats {skews[-1] - skews[0]:.0f} s apart")
            row.came_to(f"slots {sorted(found)[0][-9:]}..., each once; 6 manual turns ended")
            assert skews[-1] - skews[0] > 500
            assert f"scheduled/clock/{first:%Y%m%dT%H%M%SZ}" in found
            assert all(len(records) == 1 for records in found.values())
            await invariants.check(house)
    finally:
        world.close()


def test_clock_changes(row: Record):
    """02:30 in Berlin over both changes of a year: once each day, on the day without 02:30 at 03:00, keys in UTC."""
    row.covers(27, injected="the nights of 2027-03-28 and 2027-10-31 in Europe/Berlin")
    schedule = Schedule.parse("30 2 * * *", timezone="Europe/Berlin")
    days = {}
    for begin, count in ((datetime(2027, 3, 26, 12, tzinfo=UTC), 4), (datetime(2027, 10, 29, 12, tzinfo=UTC), 4)):
        at = begin
        for _ in range(count):
            found = schedule.next_slot(at)
            assert found is not None
            assert found > at
            at = found
            days.setdefault(found.date(), []).append(found.astimezone(UTC))
    row.proven("the gap on 03-28 and the fold on 10-31 are among them")
    row.came_to(f"{len(days)} days, one slot each")
    assert len(days) == 8
    assert all(len(slots) == 1 for slots in days.values())


async def test_broken_contracts(house: House, row: Record):
    """Bad YAML, an unknown tool, a cron typo: each refused at load with file and line; the others keep running."""
    row.covers(47, injected="bad YAML, an unknown capability, a cron typo, a missing field in a set")
    await house.add("sound", "nothing", place="")
    bad = {
        "yaml": "---\nname: yaml\n  kind: [\n---\n### Goal\nx\n",
        "tool": house.world.texts["sound"]
        .replace("name: sound", "name: tool")
        .replace("code-host:read", "teapot:brew"),
        "cron": house.world.texts["sound"]
        .replace("name: sound", "name: cron")
        .replace("  timeout", '  schedule: "99 * * * *"\n  timeout'),
        "empty": "---\nname: empty\n---\n",
    }
    house.world.texts.update(bad)
    loaded = await house.load()
    broken = {one.name: one.broken for one in (await house.store.entries(TEAM)).values() if one.broken}
    await house.wake("sound")
    turn = await house.ended("sound")
    refused = await house.client.wake("cron", key="manual/cron")
    row.proven(f"{loaded.report.errors} errors in {len(bad)} files")
    row.came_to(f"{sorted(broken)} sleep with file:line; the sound one {turn.state}")
    for name in bad:
        del house.world.texts[name]
    assert {"tool", "cron", "empty"} <= set(broken)
    assert all(":" in lines[0] for lines in broken.values())
    assert turn.state is TurnState.COMPLETED
    assert str(refused.disposition) == "refused"


async def test_contracts_in_a_circle(house: House, row: Record):
    """A reads what B writes, B reads what A writes: refused at load as HZC030, nobody wakes anybody."""
    row.covers(63, injected="two contracts that read each other's output")
    for name, other in (("one", "two"), ("two", "one")):
        house.world.contract(name, "nothing", place="", extra="  on: [inputs]\n")
        house.world.texts[name] = (
            house.world.texts[name]
            .replace(
                "  outputs:", f"    theirs:\n      read: contract:team/{other}#page\n      stage: draft\n  outputs:"
            )
            .replace("### Requires\n- `page`", "### Requires\n- `page`\n- `theirs`")
        )
    loaded = await house.load()
    codes = {found.code for found in loaded.report.diagnostics}
    row.proven("both were loaded as one set")
    row.came_to(f"diagnostics {sorted(codes)}")
    for name in ("one", "two"):
        del house.world.texts[name]
    assert "HZC030" in codes


async def test_one_team_floods(tmp_path: Path, row: Record):
    """Ten thousand wakes of one team, which may run four at once: another team's turns start as if they were alone."""
    row.covers(60, injected="10,000 wakes of one team with 4 slots")
    world = World(tmp_path / "w", limits='slots = 4\n[teams.calm]\nsource = "team"', heinzel="turns_an_hour = 1000000")
    try:
        async with world.open() as house:
            for number in range(20):
                world.contract(f"flood-{number}", "nothing", place="")
            world.contract("calm", "nothing", place="")
            await house.begin("turns", "turns", "upkeep")
            repository = loading.read_repository(world.directory / "team")
            await loading.load(
                "calm", repository, timezone="UTC", source="team", installed=Installed(), store=house.store
            )
            alone = [await start_delay(house, f"alone-{number}") for number in range(12)]
            gate = asyncio.Semaphore(32)

            async def flood(number: int) -> None:
                async with gate:
                    name = f"flood-{number % 20}"
                    await house.store.accept(_wake(name, f"manual/{name}/{number}"), nonce=f"n{number}")

            await asyncio.gather(*(flood(number) for number in range(10_000)))
            queued = [await house.store.overview(SessionId(TEAM, f"flood-{number}")) for number in range(20)]
            waiting = sum(len(seen.inbox) for seen in queued if seen is not None)
            begun = time.monotonic()
            flooded = [await start_delay(house, f"flooded-{number}") for number in range(12)]
            took = time.monotonic() - begun
            still = [await house.store.overview(SessionId(TEAM, f"flood-{number}")) for number in range(20)]
            left = sum(len(seen.inbox) for seen in still if seen is not None)
            row.proven(f"{waiting} wakes waited, {left} still at the end of the measurement")
            medians = f"{statistics.median(alone):.2f} s alone, {statistics.median(flooded):.2f} s beside the flood"
            # In one line with the flood a turn would have waited for all of it, at the pace that this machine had.
            in_line = left * took / max(1, waiting - left)
            row.came_to(f"the other team's turns, median: {medians}; in one line with the flood: {in_line:.0f} s")
            assert left > 1000
            assert max(flooded) < in_line / 4
            await house.client.pause(None, paused=True)
    finally:
        world.close()


def _wake(name: str, key: str, team: str = TEAM):
    from heinzelwerk.wake import Cause, Wake

    return Wake(team=team, heinzel=name, key=key, cause=Cause.MANUAL)


async def start_delay(house: House, key: str) -> float:
    """Seconds from an accepted wake of the calm team to its turn's end."""
    from heinzelwerk import advance

    begun = time.monotonic()
    await house.store.accept(_wake("calm", f"manual/{key}", "calm"), nonce=key)
    await advance.ring("calm", house.runtime.works_of("calm"))
    session = SessionId("calm", "calm")

    async def ended() -> bool:
        return any(json.loads(line)["key"] == f"manual/{key}" for line in (await house.store.spine(session))[-3:])

    await house.world.until(ended, "the calm team's turn")
    return time.monotonic() - begun


async def test_newer_records(house: House, row: Record):
    """A session that a newer release wrote is left alone, uncounted; a store of a newer format is refused at the start."""
    row.covers(56, injected="a session and then the store marked with format 99")
    await house.add("newer", "nothing", place="")
    key = f"hw:{{{TEAM}}}:s:newer"
    with redis.Redis.from_url(house.world.server.url) as server:
        server.hset(key, "format", 99)
        await house.wake("newer")
        await asyncio.sleep(2.0)
        assert await house.turn("newer") is None
        assert not int(server.hget(key, "dead") or 0)
        server.hset(key, "format", 1)
        turn = await house.ended("newer")
        server.hset("hw:meta", "format", 99)
        with pytest.raises(errors.FormatTooNew):
            await house.store.prepare()
        server.hset("hw:meta", "format", 1)
    row.proven("both marks were set")
    row.came_to(f"left alone for 2 s, then {turn.state}; `prepare`: FormatTooNew")


async def test_two_formats_side_by_side(tmp_path: Path, row: Record):
    """Old and new workers mixed: what the new one wrote the old one leaves alone; nothing is lost, nobody is poisoned."""
    row.covers(57, injected="workers of format 1 and 2 over the same sessions, the new one killed twice")
    world = World(tmp_path / "w")
    try:
        async with world.open() as house:
            names = [f"mixed-{number}" for number in range(6)]
            for name in names:
                world.contract(name, "steps-3", place="")
            await house.begin("turns", "upkeep")
            for profile in ("turns", "solo"):  # who is killed beside others may be sent to `solo` with them
                world.start(profile, **{FORMAT: "2"})
            await house.working(4)
            points = [house.control.arm("commit:step.model.after", "kill", of=name) for name in names[:2]]
            for name in names:
                for number in range(2):
                    await house.wake(name, f"manual/{name}/{number}")
            for point in points:
                await world.death(point)
                world.staff("turns", "upkeep")
                world.start("turns", **{FORMAT: "2"})
            turns = [await house.ended(name, number) for name in names for number in (1, 2)]
            with redis.Redis.from_url(world.server.url) as server:
                formats = {server.hget(f"hw:{{{TEAM}}}:s:{name}", "format") for name in names}
            row.shot(points[0])
            row.came_to(f"{len(turns)} turns {turns[0].state}; sessions are of formats {sorted(formats)}")
            assert {turn.state for turn in turns} == {TurnState.COMPLETED}
            await invariants.check(house)
    finally:
        world.close()


async def test_an_altered_line(house: House, row: Record):
    """A changed last line: nothing runs on it, people see line and reason, and may resume. An earlier one: doctor finds it."""
    row.covers(58, injected="one byte of the last, then of an earlier stored spine line")
    await house.add("altered", "nothing", place="")
    await house.wake("altered")
    await house.ended("altered")
    session, key = SessionId(TEAM, "altered"), f"hw:{{{TEAM}}}:s:altered:spine"

    async def why() -> str:
        seen = await house.store.overview(session)
        return seen.memo.get(QUARANTINE, "") if seen is not None else ""

    with redis.Redis.from_url(house.world.server.url) as server:
        last, length = server.lindex(key, -1), server.llen(key)
        server.lset(key, -1, last.replace(b'"v":1', b'"v":1 '))
        await house.wake("altered", "manual/altered/2")
        found = await house.world.until(why, "the quarantine")
        assert (server.llen(key), await house.turn("altered", 2)) == (length, None)
        code, said = await asyncio.to_thread(house.world.command, "doctor")
        exported, _ = await asyncio.to_thread(house.world.command, "export", "altered", "--team", TEAM)
        server.lset(key, -1, last)
        await asyncio.to_thread(house.world.command, "resume", "altered", "--team", TEAM)
        turn = await house.ended("altered", 2)
        # The damage up to the lifting is accepted: what is found now lies behind it.
        kept = server.lindex(key, length)
        server.lset(key, length, kept.replace(b'"v":1', b'"v":1 '))
        later, _ = await asyncio.to_thread(house.world.command, "doctor")
        earlier = await why()
        server.lset(key, length, kept)
        await asyncio.to_thread(house.world.command, "resume", "altered", "--team", TEAM)
    row.proven("the stored line differs")
    row.came_to(f"{found}; after resume: {turn.state}; an earlier one: {earlier}")
    assert (code, exported, later) == (1, 1, 1)
    assert f"spine line {length}" in found
    assert found in " ".join(said.split())
    assert f"spine line {length + 2}" in earlier
