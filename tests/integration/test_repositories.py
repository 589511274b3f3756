"""A team's repository on a git branch: what upkeep makes of each commit, over a real server and real git."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from heinzelwerk import advance, errors
from heinzelwerk.client import Client
from heinzelwerk.ending import Finished, Tail
from heinzelwerk.outcome import Outcome
from heinzelwerk.turn import EnginePins, TurnState
from heinzelwerk.wake import Disposition
from tests.support.deployment import CONTRACT, HEINZEL, SESSION, TEAM
from workers import examining, reloading, repositories, root
from workers.doctor import Level
from workers.root import Runtime
from workers.server import EmbeddedServer

SKILL = "---\nname: style\ndescription: How we write.\n---\nShort sentences.\n"


class Origin:
    """A bare repository that somebody pushes to."""

    def __init__(self, directory: Path) -> None:
        self.work = directory / "work"
        self.bare = directory / "origin.git"
        self._git("init", "-q", "--bare", "-b", "main", str(self.bare), where=directory)
        self._git("init", "-q", "-b", "main", str(self.work), where=directory)
        self._git("remote", "add", "origin", str(self.bare))

    @property
    def url(self) -> str:
        return self.bare.as_uri()

    def write(self, name: str, text: str | None) -> None:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.unlink()
        else:
            path.write_text(text)

    def push(self, message: str = "Change") -> str:
        self._git("add", "-A")
        self._git("commit", "-q", "-m", message)
        self._git("push", "-q", "--force", "origin", "HEAD:main")
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *words: str, where: Path | None = None) -> str:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.work.parent),
            **{f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }
        done = subprocess.run(
            ["git", *words], cwd=where or self.work, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout


class Asking:
    """An engine that asks a question at once."""

    def pins(self, contract):
        return EnginePins(model="scripted", engine="scripted:1")

    async def run(self, opening, claim):
        return Finished(Tail(opening.turn), Outcome(report="I ask.", question="Which?"))


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path)
    origin.write(f"workflows/{HEINZEL}.prose.md", CONTRACT)
    origin.push()
    return origin


@pytest.fixture
def config(tmp_path: Path, origin: Origin) -> Iterator[Path]:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "page.md").write_text("# A page\n")
    server = EmbeddedServer.start(tmp_path / "server")
    path = tmp_path / "heinzelwerk.toml"
    path.write_text(
        f'[store]\nurl = "{server.url}"\n[teams.{TEAM}]\nsource = "{origin.url}"\nreload = "20ms"\n'
        '[documents]\ndirectory = "documents"\n[workers]\ndata = "data"\n'
    )
    yield path
    server.stop()


@pytest.fixture
async def runtime(config: Path) -> AsyncIterator[Runtime]:
    from dataclasses import replace

    settings = root.read_settings(config).settings
    runtime = root.build(settings, profile=root.CLIENT, wrap=lambda works: replace(works, engine=Asking()))
    await runtime.works.store.prepare()
    yield runtime
    await runtime.close()


async def look(runtime: Runtime) -> None:
    """One look of upkeep, as soon as it is its turn again."""
    await asyncio.sleep(0.05)
    await reloading.reload_all(runtime)


async def number(runtime: Runtime) -> int:
    found = await runtime.works.store.generation(TEAM)
    assert found is not None
    return found.number


async def doctor(runtime: Runtime) -> list[str]:
    found = await examining._team(TEAM, runtime.works_of(TEAM), await runtime.works.store.now_ms())
    return [finding.what for finding in found if finding.level is not Level.OK]


async def test_each_commit_becomes_one_generation_and_nothing_else_does(origin, runtime):
    """A look finds a commit, checks it and stores texts by hash; a look that finds the same contracts writes nothing."""
    await look(runtime)
    generation = await runtime.works.store.generation(TEAM)
    assert generation.source.startswith(f"{origin.url}@")
    await look(runtime)
    origin.write("README.md", "Nothing of ours.")
    origin.push()
    await look(runtime)
    assert await number(runtime) == 1
    origin.write(f"workflows/{HEINZEL}.prose.md", CONTRACT.replace("One page", "The page"))
    origin.write("skills/style/SKILL.md", SKILL)
    commit = origin.push()
    await look(runtime)
    generation = await runtime.works.store.generation(TEAM)
    assert (generation.number, generation.source) == (2, f"{origin.url}@{commit[:12]}")
    entry = generation.entries[HEINZEL]
    assert entry.title == "The page"
    assert (
        await runtime.works.store.text(TEAM, entry.sha256)
        == (origin.work / f"workflows/{HEINZEL}.prose.md").read_bytes()
    )
    assert list(generation.skills) == ["style"]


async def test_a_broken_contract_blocks_itself_only_and_shows_with_file_and_line(origin, runtime):
    """The other one runs; the doctor names file and line until a later commit corrects it."""
    origin.write(f"workflows/{HEINZEL}.prose.md", CONTRACT.replace("kind: responsibility", "kind: nonsense"))
    origin.write("workflows/other.prose.md", CONTRACT.replace("name: page", "name: other"))
    origin.push()
    await look(runtime)
    client = Client(runtime.works, TEAM)
    assert (await client.wake(HEINZEL)).disposition is Disposition.REFUSED
    assert (await client.wake("other")).disposition is Disposition.ACCEPTED
    assert any("crew/page sleeps: workflows/page.prose.md:3 " in what for what in await doctor(runtime))
    origin.write(f"workflows/{HEINZEL}.prose.md", CONTRACT)
    origin.push()
    await look(runtime)
    assert not any("sleeps" in what for what in await doctor(runtime))
    assert (await client.wake(HEINZEL)).disposition is Disposition.ACCEPTED


async def test_a_contract_that_is_gone_sleeps_its_waits_end_and_its_spine_stays(origin, runtime):
    """Over the real store: the waiting turn ends `cancelled: revoked`, the queued wake `skipped: revoked`."""
    origin.write("workflows/other.prose.md", CONTRACT.replace("name: page", "name: other"))
    origin.push()
    await look(runtime)
    works, client = runtime.works, Client(runtime.works, TEAM, rings=False)
    await client.wake(HEINZEL, key="manual/1")
    assert (await advance.advance(SESSION, works)).did == "waiting"
    await client.wake(HEINZEL, key="manual/2")
    origin.write(f"workflows/{HEINZEL}.prose.md", None)
    origin.push()
    await look(runtime)
    assert HEINZEL in [due.name for due in await works.store.due(TEAM)]
    await advance.advance(SESSION, works)
    turn = await works.store.turn(SESSION, 1)
    assert (turn.state, turn.reason) == (TurnState.CANCELLED, "revoked")
    spine = [json.loads(line) for line in await works.store.spine(SESSION)]
    assert [event["data"]["reason"] for event in spine if event["kind"] == "wake.skipped"] == ["revoked"]
    assert HEINZEL not in [due.name for due in await works.store.due(TEAM)]


async def test_what_a_repository_may_not_do(origin, runtime, tmp_path):
    """Its settings file sets nothing, its links are not followed, and neither hides the contracts beside them."""
    secret = tmp_path / "secret.prose.md"
    secret.write_text(CONTRACT.replace("name: page", "name: secret"))
    (origin.work / "workflows" / "secret.prose.md").symlink_to(secret)
    (origin.work / "skills").symlink_to(tmp_path)
    origin.write("heinzelwerk.toml", '[heinzel]\nmodel = "openai:gpt-5"\nmax_usd = 9999\n')
    origin.push()
    await look(runtime)
    entries = await runtime.works.store.entries(TEAM)
    assert entries[HEINZEL].acts
    assert not any(entry.acts for name, entry in entries.items() if name != HEINZEL)
    assert runtime.works_of(TEAM).policy.caps.turn == 2_000_000
    generation = await runtime.works.store.generation(TEAM)
    assert generation.skills == {}


async def test_a_remote_that_is_gone_changes_nothing_and_shows_until_it_is_back(origin, runtime):
    """The team goes on with the contracts that it has; log and doctor say why, and no longer once it can be read."""
    await look(runtime)
    origin.bare.rename(origin.bare.with_suffix(".away"))
    await look(runtime)
    assert await number(runtime) == 1
    assert any("could not be read, the team goes on" in what for what in await doctor(runtime))
    origin.bare.with_suffix(".away").rename(origin.bare)
    await look(runtime)
    assert not any("could not be read" in what for what in await doctor(runtime))


async def test_a_branch_without_contracts_does_not_put_the_team_to_sleep(origin, runtime):
    """A wrong branch or a moved directory is a mistake, not the wish to revoke everything."""
    await look(runtime)
    origin.write(f"workflows/{HEINZEL}.prose.md", None)
    origin.write("README.md", "Moved.")
    origin.push()
    await look(runtime)
    assert list(await runtime.works.store.entries(TEAM)) == [HEINZEL]
    assert any("no directory workflows/" in what for what in await doctor(runtime))


async def test_two_processes_of_a_host_read_one_checkout_one_after_the_other(origin, tmp_path):
    """`load` and upkeep share the directory: while one reads, the other's fetch waits; a crash leaves no lock behind."""
    place = repositories.Branch(origin.url, "main", tmp_path / "kept" / TEAM)
    order: list[str] = []

    async def read(name: str, pause_s: float) -> None:
        async with repositories.checked_out(place) as checkout:
            order.append(f"{name} in")
            await asyncio.sleep(pause_s)
            assert (checkout.root / "workflows").is_dir()
            order.append(f"{name} out")

    await asyncio.gather(read("a", 0.3), read("b", 0.3), read("c", 0))
    assert [order[at].split()[0] for at in (0, 2, 4)] == [order[at].split()[0] for at in (1, 3, 5)]
    with pytest.raises(errors.Refused):
        await failing(place)
    await read("e", 0)


async def failing(place: repositories.Branch) -> None:
    async with repositories.checked_out(place):
        raise errors.Refused("whatever went wrong in here")
