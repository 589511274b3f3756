"""The receiver as its own process over a real server, spoken to over a real socket."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import redis

from tests.support.deployment import SESSION, SETTINGS, Deployment
from workers import supervisor
from workers.supervisor import Leashed

SECRET = "a secret of sixteen characters"
BODY = json.dumps({"action": "opened", "number": 7}).encode()


def signed(body: bytes, *, delivery: str = "d-1", secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"x-hub-signature-256": f"sha256={digest}", "x-github-delivery": delivery}


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path, f'{SETTINGS}[events]\nport = 0\n[events.sources.github]\nscheme = "github"\n')
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "heinzelwerk_events__sources__github__secret").write_text(SECRET)
    deployment.variables["HEINZELWERK_SECRETS"] = str(secrets)
    monkeypatch.setenv("HEINZELWERK_SECRETS", str(secrets))
    contract = tmp_path / "team" / "workflows" / "page.prose.md"
    contract.write_text(contract.read_text().replace("  timeout: 10m", "  timeout: 10m\n  on: [event.pull-request]"))
    yield deployment
    deployment.close()


@pytest.fixture
async def post(deployment: Deployment) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the running receiver; its process is the deployment's last worker."""
    log = deployment.directory / "receive.log"
    process = command(deployment, "receive", log=log)
    deployment.workers.append(process)

    async def address() -> str:
        found = re.search(r"receives at (http://\S+)/events/NAME", log.read_text())
        return found[1] if found else ""

    async with httpx.AsyncClient(base_url=await deployment.eventually(address), timeout=60) as client:
        yield client


def command(deployment: Deployment, *words: str, log: Path) -> Leashed:
    return supervisor.start(
        [sys.executable, "-P", "-m", "workers", *words], environment=deployment.environment, log=log
    )


def keys(deployment: Deployment) -> set[bytes]:
    with redis.Redis.from_url(deployment.server.url) as server:
        return set(server.keys("hw:*"))


async def test_from_a_post_to_a_turn(deployment, post):
    """202 means stored: the same delivery again is a duplicate, and one turn comes of it."""
    async with deployment.client() as (_, runtime):
        first = await post.post("/events/pull-request", content=BODY, headers=signed(BODY))
        again = await post.post("/events/pull-request", content=BODY, headers=signed(BODY))
        assert (first.status_code, again.status_code) == (202, 202)
        assert [answer.json()["disposition"] for answer in (first, again)] == ["accepted", "duplicate"]
        deployment.start("all")
        (turn,) = await deployment.ended(runtime, [1])
        assert (turn.wake.key, turn.wake.cause) == ("event/github/d-1", "event")
        late = await post.post("/events/pull-request", content=BODY, headers=signed(BODY))
        assert late.json()["wakes"][0] | {"wake": ""} == {
            "session": str(SESSION), "disposition": "duplicate", "turn": 1, "wake": ""
        }  # fmt: skip
        assert await runtime.works.store.turn(SESSION, 2) is None


async def test_what_is_refused_leaves_no_key_behind(deployment, post):
    """A wrong signature is 401, ten megabytes are 413, an event of nobody is 404; the server holds the same keys as before."""
    async with deployment.client():
        before = keys(deployment)
        wrong = await post.post("/events/pull-request", content=BODY, headers=signed(BODY, secret="x" * 20))
        large = b'"' + b"x" * 10_000_000 + b'"'
        long = await post.post("/events/pull-request", content=large, headers=signed(large))
        lost = await post.post("/events/nothing", content=BODY, headers=signed(BODY))
        assert [answer.status_code for answer in (wrong, long, lost)] == [401, 413, 404]
        assert keys(deployment) == before
        assert (await post.post("/events/pull-request", content=BODY, headers=signed(BODY))).status_code == 202


async def test_the_receiver_leaves_in_peace(deployment, post):
    """SIGTERM ends it with 0, whatever connection is open; its log names no secret."""
    assert (await post.get("/health")).json() == {"state": "up"}
    process = deployment.workers[-1]
    process.signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 60.0) == 0
    assert SECRET not in (deployment.directory / "receive.log").read_text()


async def test_the_command_event_wakes_the_same_listeners(deployment):
    """An event by its name, else a Heinzelmännchen by its own; exit 1 and a fix where there is neither."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "workers", "event", *words, "--json"]
        return subprocess.run(command, env=deployment.environment, capture_output=True, text=True, timeout=120)

    async with deployment.client():
        data = deployment.directory / "event.json"
        data.write_bytes(BODY)
        replies = []
        for words in (("pull-request", "--id", "1"), ("pull-request", "--id", "1"), ("page", "--id", "2")):
            done = await asyncio.to_thread(run, *words, "--data", str(data))
            assert done.returncode == 0, done.stderr
            replies.append(json.loads(done.stdout))
        assert [(reply["disposition"], reply["key"]) for reply in replies] == [
            ("accepted", "event/cli/1"),
            ("duplicate", "event/cli/1"),
            ("accepted", "event/cli/2"),
        ]
        lost = await asyncio.to_thread(run, "nothing", "--id", "1")
        assert lost.returncode == 1
        assert "hz.on: [event.nothing]" in lost.stderr
        assert "pull-request" in lost.stderr
        data.write_text("{")
        bad = await asyncio.to_thread(run, "pull-request", "--id", "3", "--data", str(data))
        assert bad.returncode == 1
        assert "is no JSON" in bad.stderr


async def test_beyond_this_machine_nobody_listens_without_a_source(deployment, tmp_path):
    """Exit 78, before anything is opened."""
    config = tmp_path / "bare.toml"
    config.write_text('[events]\naddress = "0.0.0.0"\n')
    variables = deployment.environment | {
        "HEINZELWERK_CONFIG": str(config),
        "HEINZELWERK_SECRETS": str(tmp_path / "no"),
    }
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-P", "-m", "workers", "receive"],
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 78
    assert "nobody would have to sign" in done.stderr
