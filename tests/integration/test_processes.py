"""Real worker processes over a real server: a wake becomes one turn whatever happens to messages, workers and server."""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
import redis

from heinzelwerk import errors
from heinzelwerk.turn import TurnState
from tests.support.deployment import CHECKOUT, SESSION, Deployment
from workers.root import Runtime


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path)
    yield deployment
    deployment.close()


@pytest.fixture
async def team(deployment: Deployment) -> AsyncIterator[tuple]:
    async with deployment.client() as (client, runtime):
        yield client, runtime


@pytest.fixture
def short_leases(deployment: Deployment) -> None:
    """For tests that wait for a lease to run out; elsewhere leases outlast a busy machine's pauses."""
    deployment.variables["HEINZELWERK_STORE__LEASE"] = "3s"


async def kinds(runtime: Runtime) -> list[str]:
    return [json.loads(line)["kind"] for line in await runtime.works.store.spine(SESSION)]


async def at_the_model(deployment, team):
    """A worker and the id of its process, whose turn has its request at the model and waits there for the gate."""
    client, runtime = team
    deployment.gate.close()
    worker = deployment.start("turns")
    await deployment.working(runtime, 1)
    await client.wake("page", key="k")
    (pid,) = await deployment.asked(1)
    return worker, pid


async def test_two_workers_and_ten_wakes_with_one_key_make_one_turn(deployment, team):
    """However often a wake is given and rung, one turn runs, once."""
    client, runtime = team
    deployment.start("turns")
    deployment.start("turns")
    await deployment.working(runtime, 2)
    replies = await asyncio.gather(*(client.wake("page", key="once") for _ in range(10)))
    for _ in range(5):
        runtime.bell.ring_now(await runtime.works.store.due("crew"))
    (turn,) = await deployment.ended(runtime, [1])
    assert sorted(str(reply.disposition) for reply in replies) == ["accepted"] + ["duplicate"] * 9
    assert turn.state is TurnState.COMPLETED
    assert len(deployment.gate.requests()) == 2
    assert (await kinds(runtime)).count("turn.ended") == 1


async def test_a_lost_doorbell_is_rung_again(deployment, team):
    """A wake whose message went nowhere is found by the workers' own sweep, without beat."""
    client, runtime = team
    deployment.start("turns")
    await deployment.working(runtime, 1)
    runtime.bell._publish = lambda bells: None
    await client.wake("page", key="lost")
    (turn,) = await deployment.ended(runtime, [1])
    assert turn.state is TurnState.COMPLETED


async def test_a_starting_worker_finds_what_is_due(deployment, team):
    """What was accepted while nobody worked runs as soon as somebody does."""
    client, runtime = team
    await client.wake("page", key="early")
    deployment.start("turns")
    (turn,) = await deployment.ended(runtime, [1])
    assert turn.state is TurnState.COMPLETED


async def test_a_doorbell_while_the_lease_is_held_loses_nothing(deployment, team):
    """Wakes that arrive during a turn are worked off after it, one turn each."""
    client, runtime = team
    deployment.gate.close()
    deployment.start("turns")
    deployment.start("turns")
    await deployment.working(runtime, 2)
    await client.wake("page", key="first")
    await deployment.asked(1)
    await client.wake("page", key="second")
    await client.wake("page", key="third")
    deployment.gate.open()
    turns = await deployment.ended(runtime, [1, 2, 3])
    assert [turn.wake.key for turn in turns] == ["first", "second", "third"]
    assert {turn.state for turn in turns} == {TurnState.COMPLETED}
    assert len(deployment.gate.requests()) == 6


async def test_another_worker_completes_what_a_killed_one_began(deployment, team, short_leases):
    """SIGKILL with a request in flight: the lease runs out, another process goes on, one outcome."""
    _, runtime = team
    first, died = await at_the_model(deployment, team)
    os.kill(died, signal.SIGKILL)
    first.stop(0)
    deployment.start("turns")
    await deployment.asked(2)
    deployment.gate.open()
    (turn,) = await deployment.ended(runtime, [1])
    assert turn.state is TurnState.COMPLETED
    assert died not in deployment.gate.requests()[1:]
    assert (await kinds(runtime)).count("turn.ended") == 1


async def test_sigterm_hands_back_a_run_that_reaches_no_checkpoint(deployment, team):
    """A worker that is told to leave during a long request ends in peace, within its grace, and its turn is due at once."""
    _, runtime = team
    first, left = await at_the_model(deployment, team)
    first.signal(signal.SIGTERM)
    assert await asyncio.to_thread(first.wait, 60.0) == 0, deployment.logs()
    overview = await runtime.works.store.overview(SESSION)
    assert not overview.held
    assert overview.dead_claims == 0
    deployment.gate.open()
    deployment.start("turns")
    (turn,) = await deployment.ended(runtime, [1])
    assert turn.state is TurnState.COMPLETED
    assert deployment.gate.requests()[0] == left


async def test_sigterm_hands_back_at_the_next_checkpoint(deployment, team):
    """A worker that is told to leave stops after the step it is in; the step is not paid for again."""
    _, runtime = team
    first, left = await at_the_model(deployment, team)
    first.signal(signal.SIGTERM)

    async def leaves() -> bool:
        return "worker leaves" in deployment.logs()

    await deployment.eventually(leaves)
    deployment.gate.open()
    assert await asyncio.to_thread(first.wait, 60.0) == 0, deployment.logs()
    deployment.start("turns")
    (turn,) = await deployment.ended(runtime, [1])
    assert turn.state is TurnState.COMPLETED
    assert len(deployment.gate.requests()) == 2
    assert deployment.gate.requests()[1] != left
    assert "turn.handed_back" in await kinds(runtime)


async def test_a_worker_that_slept_through_its_lease_writes_nothing(deployment, team, short_leases):
    """SIGSTOP for longer than the lease, then SIGCONT: another has taken over, the sleeper's run stops, one outcome."""
    client, runtime = team
    _, sleeper = await at_the_model(deployment, team)
    os.kill(sleeper, signal.SIGSTOP)
    deployment.start("turns")
    await deployment.asked(2)
    deployment.gate.open()
    (turn,) = await deployment.ended(runtime, [1])
    os.kill(sleeper, signal.SIGCONT)

    async def noticed() -> bool:
        return "lease lost" in deployment.logs()

    await deployment.eventually(noticed)
    await client.wake("page", key="after")
    await deployment.ended(runtime, [2])
    assert turn.state is TurnState.COMPLETED
    assert (await kinds(runtime)).count("turn.ended") == 2
    assert psutil.pid_exists(sleeper)


async def test_workers_survive_the_servers_death(deployment, team, short_leases):
    """SIGKILL of the server under running turns: the same processes go on when it is back, nothing is lost."""
    client, runtime = team
    deployment.gate.close()
    deployment.start("turns")
    deployment.start("upkeep")
    before = await deployment.working(runtime, 2)
    await client.wake("page", key="k")
    await deployment.asked(1)
    deployment.server.kill()
    await asyncio.sleep(1.0)
    deployment.server.restart()
    deployment.gate.open()
    (turn,) = await deployment.ended(runtime, [1])
    await client.wake("page", key="after")
    await deployment.ended(runtime, [2])
    after = await deployment.working(runtime, 2)
    assert turn.state is TurnState.COMPLETED
    assert {facts["pid"] for facts in before.values()} == {facts["pid"] for facts in after.values()}
    assert [worker.poll() for worker in deployment.workers] == [None, None]


async def test_messages_that_make_no_sense_stop_nobody(deployment, team):
    """Unknown tasks, ids that are none, missing ids, bodies that are no JSON: the worker drops them and goes on."""
    client, runtime = team
    deployment.start("turns")
    await deployment.working(runtime, 1)
    app = runtime.app
    app.send_task("heinzelwerk.turn", args=("no session",), queue="turns")
    app.send_task("heinzelwerk.turn", args=(), queue="turns")
    app.send_task("heinzelwerk.unheard_of", args=("x",), queue="turns")
    with app.connection_for_write() as connection:
        app.amqp.Producer(connection).publish(
            b"\x00 no JSON", routing_key="turns", content_type="application/json", content_encoding="utf-8"
        )
    await client.wake("page", key="k")
    (turn,) = await deployment.ended(runtime, [1])
    assert turn.state is TurnState.COMPLETED
    assert deployment.workers[0].poll() is None


async def test_bytes_that_are_no_message_stop_nobody(deployment, team):
    """What no Celery wrote into a queue is dropped; running turns and the worker go on."""
    client, runtime = team
    worker, _ = await at_the_model(deployment, team)
    with runtime.app.connection_for_write() as connection:
        connection.default_channel.client.lpush("turns", b"\x00 no message")

    async def noticed() -> bool:
        return "dropped what is no message, reconnecting" in deployment.logs()

    await deployment.eventually(noticed)
    deployment.gate.open()
    await client.wake("page", key="after")
    turns = await deployment.ended(runtime, [1, 2])
    assert {turn.state for turn in turns} == {TurnState.COMPLETED}
    assert len(deployment.gate.requests()) == 4
    assert worker.poll() is None


async def test_a_full_server_ends_no_worker(deployment, team, short_leases):
    """Out of memory: the caller is refused with the reason, workers live on and finish when there is room again."""
    client, runtime = team
    deployment.variables["HEINZELWERK_WORKERS__TURN_THREADS"] = "1"
    worker, _ = await at_the_model(deployment, team)
    for _ in range(3):
        runtime.app.send_task("heinzelwerk.turn", args=("crew/page",), queue="turns")
    with redis.Redis.from_url(deployment.server.url) as server:
        server.config_set("maxmemory", "1")
        with pytest.raises(errors.StoreUnavailable, match="out of memory"):
            await client.wake("page", key="refused")
        deployment.gate.open()

        async def noticed() -> bool:
            return "OutOfMemory" in deployment.logs()

        await deployment.eventually(noticed)
        server.config_set("maxmemory", "0")
    await client.wake("page", key="after")
    turns = await deployment.ended(runtime, [1, 2])
    assert {turn.state for turn in turns} == {TurnState.COMPLETED}
    assert worker.poll() is None


async def test_a_drained_deployment_claims_nothing(deployment, team):
    """`drain` lets workers live and take nothing; when it is over, what was due is found."""
    client, runtime = team
    deployment.start("turns")
    await deployment.working(runtime, 1)
    await runtime.works.store.flag("drain", "by a test")

    async def drained() -> bool:
        return {facts["state"] for facts in (await runtime.works.store.workers()).values()} == {"draining"}

    await deployment.eventually(drained)
    await client.wake("page", key="k")
    await asyncio.sleep(1.0)
    assert deployment.gate.requests() == []
    await runtime.works.store.flag("drain", clear=True)
    (turn,) = await deployment.ended(runtime, [1])
    assert turn.state is TurnState.COMPLETED


async def test_a_stop_ends_a_run_in_another_process(deployment, team):
    """A stop that is posted while a request hangs is seen by the worker that runs the turn."""
    client, runtime = team
    await at_the_model(deployment, team)
    await client.stop("page", by="test")
    (turn,) = await deployment.ended(runtime, [1])
    assert turn.state is TurnState.CANCELLED


async def test_an_idle_worker_ends_at_once(deployment, team):
    """Warm shutdown of a worker that holds nothing: exit code 0, long before its grace."""
    _, runtime = team
    worker = deployment.start("all")
    await deployment.working(runtime, 1)
    worker.signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.wait, 60.0) == 0
    assert "handed back as they are" not in deployment.logs()


async def test_upkeep_loads_a_changed_repository(deployment, team):
    """A contract that changed on disk becomes the newest generation without anybody's command; the same one does not."""
    _, runtime = team
    deployment.variables["HEINZELWERK_TEAMS__CREW__RELOAD"] = "100ms"
    deployment.start("upkeep")
    await deployment.working(runtime, 1)

    async def loaded() -> bool:
        return "contracts loaded" in deployment.logs()

    path = deployment.directory / "team" / "workflows" / "page.prose.md"
    path.write_text(path.read_text().replace("One page", "The page"))
    await deployment.eventually(loaded)
    assert (await runtime.works.store.entries("crew"))["page"].title == "The page"
    await asyncio.sleep(2.5)
    assert (await runtime.works.store.generation("crew")).number == 2


async def test_a_doorbell_carries_ids_and_nothing_else(deployment, team):
    """What lies on the broker, and what Flower shows of it, names the session; no word of the wake is in it."""
    client, runtime = team
    await client.wake("page", key="secret-key", text="the customer's words", by="somebody")
    assert await asyncio.to_thread(runtime.bell.flush, 30.0)
    with redis.Redis.from_url(deployment.server.url) as server:
        (message,) = server.lrange("mq:turns", 0, -1)
    read = json.loads(message)
    assert json.loads(base64.b64decode(read["body"]))[:2] == [["crew/page"], {}]
    assert (read["headers"]["argsrepr"], read["headers"]["kwargsrepr"]) == ("(session=crew/page)", "{}")
    assert read["headers"]["expires"]
    assert not [word for word in (b"secret-key", b"customer", b"somebody") if word in message]


async def test_beat_asks_for_a_sweep_and_nothing_else(deployment, team):
    """Its one static entry puts messages without content on `upkeep`, and each of them expires."""
    _, runtime = team
    deployment.start("beat")
    with runtime.app.connection_for_write() as connection:
        client = connection.default_channel.client

        async def rung() -> list[bytes]:
            return client.lrange("mq:upkeep", 0, -1)

        found = await deployment.eventually(rung)
    headers = json.loads(found[0])["headers"]
    assert headers["task"] == "heinzelwerk.sweep"
    assert headers["argsrepr"] == "()"
    assert headers["expires"]
    assert json.loads(found[0])["properties"]["delivery_info"]["routing_key"] == "upkeep"


STARTER = """
import os, sys, time
from pathlib import Path
from workers import profiles, root
from workers.server import EmbeddedServer
from workers.supervisor import Fleet, Program
config, directory = Path(sys.argv[1]), Path(sys.argv[2])
server = EmbeddedServer.start(directory / "own")
environment = {**os.environ, "HEINZELWERK_STORE__URL": server.url}
fleet = Fleet([
    Program(
        name, (sys.executable, "-P", "-m", "tests.support.worker", name, "tests.support.gated:change"), environment,
        log=directory / f"fleet-{name}.log",
    )
    for name in ("turns", "upkeep", "beat")
])
fleet.start()
print(server.pid, flush=True)
fleet.wait(600)
"""


async def test_a_killed_starter_leaves_nothing_alive(deployment):
    """SIGKILL of what `up` is made of: server, workers and beat are gone soon after."""
    with (deployment.directory / "starter.log").open("w") as log:  # shown with the others where this fails
        starter = subprocess.Popen(
            [sys.executable, "-P", "-c", STARTER, str(deployment.config), str(deployment.directory)],
            env=deployment.environment,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=CHECKOUT,
        )
    family: list[psutil.Process] = []
    try:
        assert starter.stdout.readline(), deployment.logs()

        async def grown() -> list[psutil.Process]:
            found = psutil.Process(starter.pid).children(recursive=True)
            return found if len(found) >= 8 else []

        family = await deployment.eventually(grown)
    finally:
        starter.kill()
        starter.wait()
        starter.stdout.close()

    async def gone() -> bool:
        return not [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]

    await deployment.eventually(gone)
