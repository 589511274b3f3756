"""Handoffs end to end: a turn on a real server hands work to a real process in the real sandbox, by way of a handoff worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from heinzelwerk import handoff_job, ids
from heinzelwerk.sandbox.spec import Refusal
from heinzelwerk.turn import TurnState
from tests.support import handing, sandbox
from tests.support.deployment import SESSION, Deployment
from tests.support.handing import OTHER, PYTHON

REPORTS = """
import pathlib, sys
task = sys.stdin.read()
pathlib.Path("out/found.md").write_text("| merges | 4 |")
pathlib.Path("out/raw").write_bytes(bytes([255, 0, 255]))
print("I was asked:", task, "and read:", pathlib.Path("notes/week.md").read_text())
"""
SLEEPS = "import sys, time; print('begun', flush=True); time.sleep(600)"
TASK = {"task": "Count the merges.", "files": {"notes/week.md": "Four merges."}, "budget_share": 0.5}


@pytest.fixture(autouse=True)
def _confined() -> None:
    if all(isinstance(sandbox.backend_here(name), Refusal) for name in sandbox.CONFINING):
        pytest.skip("no sandbox works on this machine: `heinzelwerk doctor` says why")


async def test_a_report_comes_back_and_the_spine_keeps_what_the_record_names(tmp_path: Path) -> None:
    """The runner ran once; the model reads report and files; the spine has figures and hashes, the body the words."""
    found = handing.deployment(tmp_path, handing.command(PYTHON, "-I", "-S", "-c", REPORTS))
    read = [("read_handoff_file", {"handoff": "$handoff", "path": name}) for name in ("found.md", "raw")]
    text = handing.script([("handoff", TASK)], read, [("read_handoff_file", {"handoff": "$handoff", "path": "no.md"})])
    try:
        async with found.client() as (client, runtime):
            handing.start(found, "turns", "handoffs")
            await client.wake("page", text=text)
            turn = await handing.ended(found, runtime, SESSION)
            assert turn.state is TurnState.COMPLETED, found.logs()
            (answer,) = await handing.told(runtime, SESSION, "handoff")
            assert "I was asked: Count the merges. and read: Four merges." in answer["content"]
            assert '"found.md"' in answer["content"]
            words = [part["content"] for part in await handing.told(runtime, SESSION, "read_handoff_file")]
            assert "| merges | 4 |" in words[0]
            assert "is no text: 3 bytes" in words[1]
            assert "it left found.md, raw" in json.dumps(words[2])
            (event,) = await handing.events(runtime, SESSION, "step.handoff")
            job = await runtime.works.store.job("crew", event["job"])
            assert job is not None
            raw = await runtime.works.store.body(SESSION, 1, handoff_job.result_body(job.id))
            assert raw is not None
            result = json.loads(raw)
            assert (event["runner"], event["agent"], event["status"]) == ("agent", "command", "completed")
            assert (event["model"], event["tool_calls"], event["cost_micros"]) == (None, {}, 0)
            assert event["ms"] > 0
            assert event["task_sha256"] == ids.digest(TASK["task"])
            assert event["report_sha256"] == ids.digest(result["report"])
            assert event["transcript_sha256"] == ids.digest(
                await runtime.works.store.body(SESSION, 1, handoff_job.transcript_body(job.id)) or b""
            )
            assert {file["path"]: file["sha256"] for file in result["files"]}["found.md"] == ids.digest(
                "| merges | 4 |"
            )
            spine = b"".join(await runtime.works.store.spine(SESSION))
            assert b"Count the merges" not in spine
            assert b"Four merges" not in spine
            assert found.logs().count('"handoff started"') == 1
    finally:
        found.close()


async def test_a_turn_that_waits_for_a_handoff_holds_no_worker(tmp_path: Path) -> None:
    """With one turn worker of one thread another turn runs while the agent works; a stop then ends agent and turn."""
    mark = f"agent-{os.getpid()}-{tmp_path.name}"
    found = handing.deployment(tmp_path, handing.command(PYTHON, "-I", "-S", "-c", SLEEPS, mark), threads=1)
    try:
        async with found.client() as (client, runtime):
            handing.start(found, "turns", "handoffs")
            await client.wake("page", text=handing.script([("handoff", TASK)]))
            await found.eventually(lambda: _alive(mark), seconds=120)
            await client.wake("other")
            other = await handing.ended(found, runtime, OTHER)
            assert other.state is TurnState.COMPLETED
            assert await _alive(mark)
            waiting = await runtime.works.store.turn(SESSION, 1)
            assert waiting is not None
            assert waiting.state is TurnState.WAITING
            await client.stop("page", by="ada")
            turn = await handing.ended(found, runtime, SESSION)
            assert (turn.state, turn.reason) == (TurnState.CANCELLED, "stopped by ada")
            await found.eventually(lambda: _gone(mark), seconds=120)

            async def noted() -> list[dict[str, Any]]:
                return await handing.events(runtime, SESSION, "step.handoff")

            (event,) = await found.eventually(noted, seconds=120)
            assert (event["status"], event["cost_micros"]) == ("cancelled", 0)
    finally:
        found.close()


async def test_a_killed_handoff_worker_takes_its_agent_with_it_and_the_turn_goes_on(tmp_path: Path) -> None:
    """SIGKILL in the middle: the agent is gone within a second, the model hears `interrupted`, nothing runs twice."""
    mark = f"agent-{os.getpid()}-{tmp_path.name}"
    found = handing.deployment(tmp_path, handing.command(PYTHON, "-I", "-S", "-c", SLEEPS, mark))
    try:
        async with found.client() as (client, runtime):
            handing.start(found, "turns", "handoffs")
            await client.wake("page", text=handing.script([("handoff", TASK)]))
            await found.eventually(lambda: _alive(mark), seconds=120)
            await found.eventually(lambda: _begun(found), seconds=120)
            workers = await runtime.works.store.workers()
            (pid,) = [int(facts["pid"]) for facts in workers.values() if facts["profile"] == "handoffs"]
            os.kill(pid, signal.SIGKILL)
            killed = time.monotonic()
            await asyncio.to_thread(sandbox.wait_until, lambda: not sandbox.alive_with(mark))
            took = time.monotonic() - killed
            assert took < max(1.0, 20 * _start_of_python()), f"{took:.2f} s"
            handing.start(found, "handoffs")
            turn = await handing.ended(found, runtime, SESSION)
            assert turn.state is TurnState.COMPLETED, found.logs()
            (answer,) = await handing.told(runtime, SESSION, "handoff")
            assert answer["outcome"] == "interrupted"
            (event,) = await handing.events(runtime, SESSION, "step.handoff")
            assert event["status"] == "interrupted"
            kept = await runtime.works.store.body(SESSION, 1, handoff_job.transcript_body(event["job"]))
            assert kept == b"begun\n"
            assert found.logs().count('"handoff started"') == 1
            assert sandbox.alive_with(mark) == []
            assert list((tmp_path / "data" / "handoffs" / "runs").glob("*")) == []
    finally:
        found.close()


async def test_a_worker_that_leaves_hands_its_agent_back_as_interrupted(tmp_path: Path) -> None:
    """SIGTERM: the run is cut, told and not repeated."""
    mark = f"agent-{os.getpid()}-{tmp_path.name}"
    found = handing.deployment(tmp_path, handing.command(PYTHON, "-I", "-S", "-c", SLEEPS, mark))
    found.variables["HEINZELWERK_WORKERS__GRACE"] = "60s"
    try:
        async with found.client() as (client, runtime):
            handing.start(found, "turns", "handoffs")
            await client.wake("page", text=handing.script([("handoff", TASK)]))
            await found.eventually(lambda: _alive(mark), seconds=120)
            found.workers[1].signal(signal.SIGTERM)
            turn = await handing.ended(found, runtime, SESSION)
            assert turn.state is TurnState.COMPLETED
            (event,) = await handing.events(runtime, SESSION, "step.handoff")
            assert event["status"] == "interrupted"
            assert sandbox.alive_with(mark) == []
    finally:
        found.close()


async def _alive(mark: str) -> list[int]:
    return await asyncio.to_thread(sandbox.alive_with, mark)


async def _gone(mark: str) -> bool:
    return not await _alive(mark)


async def _begun(found: Deployment) -> bool:
    """Whether the agent's first line is in its growing transcript."""
    return any(path.read_bytes() for path in (found.directory / "data" / "handoffs" / "transcripts").glob("*/head"))


def _start_of_python() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
    return time.monotonic() - began
