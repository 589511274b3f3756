"""The exporter as its own process over a real server, scraped over a real socket."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.deployment import SETTINGS, TEAM, Deployment
from workers import supervisor


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path, f"{SETTINGS}[metrics]\nport = 0\nevery = 1\n")
    yield deployment
    deployment.close()


async def test_a_deployment_is_scraped(deployment: Deployment) -> None:
    """Workers, a wake that waits for nobody to run it, the server's memory; 503 while the store is away; a peaceful end."""
    async with deployment.client() as (client, _):
        await client.wake("page", key="manual/1")
    log = deployment.directory / "metrics.log"
    process = supervisor.start(
        [sys.executable, "-P", "-m", "workers", "metrics"], environment=deployment.environment, log=log
    )
    deployment.workers.append(process)

    async def address() -> str:
        found = re.search(r"metrics at (http://\S+)", log.read_text())
        return found[1] if found else ""

    async with httpx.AsyncClient(timeout=60) as scraper:
        url = await deployment.eventually(address)
        answer = await scraper.get(url)
        assert answer.status_code == 200
        samples = {
            (one.name, one.labels.get("team"), one.labels.get("state")): one.value
            for family in text_string_to_metric_families(answer.text)
            for one in family.samples
        }
        assert samples["heinzelwerk_queued_wakes", TEAM, None] == 1
        assert samples["heinzelwerk_sessions", TEAM, "queued"] == 1
        assert samples["heinzelwerk_store_memory_bytes", None, None] > 0
        assert samples["heinzelwerk_store_durable", None, None] == 1
        deployment.server.stop()

        async def away() -> bool:
            return (await scraper.get(url)).status_code == 503

        await deployment.eventually(away)
    process.signal(signal.SIGTERM)
    assert process.wait(60) == 0
