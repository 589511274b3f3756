"""What Prometheus is told: each figure from the store's own facts, no words, and looks that are bounded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

from config.settings import Settings, Store
from heinzelwerk import errors
from heinzelwerk.advance import advance
from heinzelwerk.ids import SessionId
from heinzelwerk.testing import house
from heinzelwerk.testing.house import TEAM, House, ScriptedEngine, finish
from tests.unit.path.test_adversity import ask
from workers import root
from workers.exporter import Exporter

CHECKOUT = Path(__file__).parents[3]
SECRET = "words that are nobody's business"


def scraper(home: House) -> httpx.AsyncClient:
    settings = Settings(store=Store(url="redis://127.0.0.1:1/0"))
    runtime = root.build(settings, profile=root.CLIENT, wrap=lambda works: home.works)
    return httpx.AsyncClient(transport=httpx.ASGITransport(Exporter(runtime).app), base_url="http://exporter")


def of(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """A sample's name and labels."""
    return name, frozenset(labels.items())


async def scraped(client: httpx.AsyncClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples of one scrape by name and labels."""
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert SECRET not in answer.text
    return {
        of(sample.name.removeprefix("heinzelwerk_"), **sample.labels): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def lively() -> House:
    """One that wrote a draft, one that asks, one that waits for its turn, one whose file is broken."""
    home = house.build(engine=ScriptedEngine([finish(SECRET), ask]))
    await home.load(*(house.page(name).replace("wall", name) for name in ("wrote", "asks", "queued")))
    for name in ("wrote", "asks"):
        await home.wake(name, text=SECRET, key=f"manual/{name}")
        await advance(SessionId(TEAM, name), home.works)
    await home.wake("queued")
    await home.wake("queued")
    await home.store.heartbeat("w1", {"profile": "turns", "version": "1"}, ttl_ms=60_000)
    home.clock.pass_(30)
    return home


async def test_every_figure_is_the_stores() -> None:
    """States, queues, what is due, what waits for people and how long, counts, caps, workers."""
    async with scraper(await lively()) as client:
        found = await scraped(client)
    wanted = {
        of("sessions", team=TEAM, state="asleep"): 1,
        of("sessions", team=TEAM, state="waiting"): 1,
        of("sessions", team=TEAM, state="queued"): 1,
        of("sessions", team=TEAM, state="running"): 0,
        of("queued_wakes", team=TEAM): 1,
        of("turns_started_total", team=TEAM): 2,
        of("due", team=TEAM, kind="session"): 1,
        of("due_oldest_seconds", team=TEAM): 30,
        of("waiting_for_people", team=TEAM, heinzel="wrote", kind="draft"): 1,
        of("waiting_for_people", team=TEAM, heinzel="asks", kind="question"): 1,
        of("waiting_for_people_oldest_seconds", team=TEAM, kind="draft"): 30,
        of("counts_total", team=TEAM, what="wakes_duplicate"): 1,
        of("contracts", team=TEAM, state="loaded"): 3,
        of("contracts", team=TEAM, state="broken"): 0,
        of("spent_today_dollars", team=TEAM, kind="spent"): 0,
        of("cap_dollars", team=TEAM, of="team_day"): 50,
        of("workers", profile="turns", version="1"): 1,
        of("drained"): 0,
    }
    assert {name: found.get(name) for name in wanted} == wanted


async def test_scrapes_do_not_ask_the_store_more_often() -> None:
    """One look is kept for its time, then there is a new one."""
    home = await lively()
    async with scraper(home) as client:
        before = await scraped(client)
        await home.wake("asks", key="manual/again")
        assert await scraped(client) == before
        home.clock.pass_(10)
        assert (await scraped(client))[of("queued_wakes", team=TEAM)] == 2


async def test_a_look_that_failed_is_kept_too() -> None:
    """Scrapes of a store that is away do not queue up for one time-out after the other."""
    home = await lively()
    asked: list[int] = []

    async def away() -> tuple[str, ...]:
        asked.append(1)
        raise errors.StoreUnavailable("away", fix="")

    home.store.teams = away  # type: ignore[method-assign]
    async with scraper(home) as client:
        assert [(await client.get("/metrics")).status_code for _ in range(3)] == [503] * 3
        assert len(asked) == 1
        home.clock.pass_(10)
        await client.get("/metrics")
        assert len(asked) == 2


async def test_every_alert_is_about_a_metric_that_exists() -> None:
    """And the documentation lists exactly what is told."""
    async with scraper(await lively()) as client:
        text = (await client.get("/metrics")).text
    told = {family.name for family in text_string_to_metric_families(text)}
    described = set(re.findall(r"`heinzelwerk_(\w+)`", _metrics_table()))
    names = {name.removeprefix("heinzelwerk_") for name in told}
    memory = {"store_memory_bytes", "store_memory_limit_bytes", "store_durable"}  # a memory store has no server
    assert (
        described - memory
        == {f"{name}_total" if name in ("counts", "turns_started") else name for name in names} - memory
    )
    rules: Any = yaml.safe_load((CHECKOUT / "deploy" / "alerts.yml").read_text())
    for rule in rules["groups"][0]["rules"]:
        for name in re.findall(r"heinzelwerk_(\w+)", rule["expr"]):
            assert name in described, rule["alert"]


def _metrics_table() -> str:
    text = (CHECKOUT / "docs" / "operations.md").read_text()
    return text.split("\n## Metrics\n")[1].split("\n## ")[0]
