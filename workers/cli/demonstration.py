"""The demo, told step by step: a wake, its turn, the draft, the approval, the changed document, and where to go next.

Everything is real: the server, the worker processes, the git history. Only the model is a rule instead of a language model.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from config import sources
from heinzelwerk import errors, wake
from heinzelwerk.client import Client, WakeReply
from heinzelwerk.effect import EffectRecord, EffectState
from heinzelwerk.turn import TurnRecord, TurnState
from heinzelwerk.wake import Cause
from workers import demo, log, root
from workers.cli import options
from workers.cli.everything import Everything
from workers.show import decisions, diffs, timeline, turns
from workers.show.screen import Screen, both_ends, ink

if TYPE_CHECKING:
    from config.settings import Settings

_CHECKOUT = Path(__file__).resolve().parents[2]
_DIGEST = "weekly-digest"
_PATIENCE_S = 120.0
_DIGEST_PATIENCE_S = 20.0
_SHOWN_LINES = 40
"""Of the draft and of the change each, so that the steps of the turn are still on the screen at the end."""


def run(
    screen: Screen, directory: Path, named: Path | None, *, environment: Mapping[str, str], kept: bool = False
) -> int:
    """Show one wake from its acceptance to the changed document, in `directory`; answers the exit code."""
    began = time.monotonic()
    screen.note("preparing: the example team, a git history to read")
    source, span = asyncio.run(_prepare(directory, named))
    config = demo.lay_out(directory, source, span)
    settings = sources.load(config, environment={}).settings
    log.set_up(log_format="text", level="error")
    screen.result(
        ink("Heinzelwerk demo", "bold"),
        f"reads      {source.why}",
        f"window     {span.words} (the longest of 7d, 30d, 90d, 366d that has entries and fits)",
        "model      offline: a rule, no language model, no key, no cost",
    )
    everything = Everything(
        settings,
        config=config,
        environment=environment,
        note=lambda name, what: screen.note(f"  {name}: {what}"),
        leave_with_parent=True,
    )
    with everything:
        screen.note("starting: an embedded server and real worker processes")
        everything.start()
        code = asyncio.run(_tell(screen, everything.settings, span, everything.logs))
    if code == 0:
        screen.result("", *_next(directory if kept else None))
    screen.note(f"done in {time.monotonic() - began:.0f} s" + ("" if kept else "; nothing was left behind"))
    return code


async def _prepare(directory: Path, named: Path | None) -> tuple[demo.Source, demo.Span]:
    source = await demo.repository(named, _CHECKOUT, directory)
    now = datetime.now(UTC)  # noqa: TID251 - a root of its own: what a person at this machine calls now
    return source, await demo.longest_window(source.path, now)


async def _tell(screen: Screen, settings: Settings, span: demo.Span, logs: Path) -> int:
    runtime = root.build(settings, profile=root.CLIENT)
    try:
        client = Client(runtime.works_of(demo.TEAM), demo.TEAM)
        turn = await _woken(screen, client, span)
        if isinstance(turn, str) or turn.state is not TurnState.COMPLETED:
            said = turn if isinstance(turn, str) else f"{turn.state}: {turn.reason}"
            return _failed(screen, f"the turn did not complete: {said}", logs)
        waiting = await client.undecided(turn)
        if not waiting:
            return _failed(screen, "the turn completed without a draft", logs)
        placed = await _decided(screen, client, settings, waiting[0])
        if placed.state is not EffectState.COMPLETED:
            return _failed(screen, decisions.ended(placed).plain, logs)
        await _read_on(screen, client)
        return 0
    finally:
        await runtime.close()


async def _woken(screen: Screen, client: Client, span: demo.Span) -> TurnRecord | str:
    """Wake the contract and follow its turn to the end."""
    by = options.login()
    if span.as_of is None:
        reply = await client.wake(demo.CONTRACT, by=by)
    else:
        key = wake.scheduled_key(demo.CONTRACT, span.as_of)
        reply = await client.wake(demo.CONTRACT, cause=Cause.SCHEDULED, key=key, slot=span.as_of, by=by)
    screen.result("", ink("1. The wake", "bold"), turns.accepted(reply))
    screen.note("working: a worker claims the session and runs the turn")
    lines = await _followed(screen, client, reply)
    turn = await client.settled(reply)
    if turn is None:
        return "it did not end in time"
    screen.result("", ink("2. The turn, step by step", "bold"), timeline.as_table(timeline.read(lines)))
    if not isinstance(turn, str):
        screen.result(turns.ended(turn))
    return turn


async def _followed(screen: Screen, client: Client, reply: WakeReply) -> list[bytes]:
    lines: list[bytes] = []
    try:
        async with asyncio.timeout(_PATIENCE_S):
            async for piece in client.watch(reply):
                lines += piece
                for entry in timeline.read(piece):
                    screen.note(f"  {entry.kind}")
    except TimeoutError:
        screen.note(f"  no end after {_PATIENCE_S:.0f} s")
    return lines


async def _decided(screen: Screen, client: Client, settings: Settings, draft: EffectRecord) -> EffectRecord:
    """Show the draft, approve it as the person at the shell, and show the document that changed."""
    text = await client.text(draft) or ""
    shown = both_ends(ink(text), most=_SHOWN_LINES)
    screen.result("", ink("3. The draft", "bold"), decisions.facts(draft, zone=UTC), "", shown)
    document = (settings.documents.directory or Path()) / draft.arguments.get("ref", "")
    before = await asyncio.to_thread(document.read_text, "utf-8")
    by = options.login()
    reply = await client.approve(draft.id, by=by)
    screen.result("", ink("4. The approval", "bold"))
    if reply.record is None:
        raise errors.Refused(decisions.refusal(reply))
    screen.result(f"the demo approves in your name ({by}), as `heinzelwerk approve {draft.id}` would")
    screen.note("placing: a worker changes the document, once")
    async with asyncio.timeout(_PATIENCE_S):
        placed = await client.placed(draft.id)
    after = await asyncio.to_thread(document.read_text, "utf-8")
    change = both_ends(diffs.unified(before, after, name=document.name), most=_SHOWN_LINES)
    screen.result(decisions.ended(placed), "", ink("5. The document", "bold"), change)
    return placed


async def _read_on(screen: Screen, client: Client) -> None:
    """The contract that reads the approved text has been woken by the approval: show how it ended."""
    entry = (await client.contracts()).get(_DIGEST)
    if entry is None or "inputs" not in entry.on:
        return
    screen.note(f"reading on: the approval wakes {_DIGEST}")
    try:
        async with asyncio.timeout(_DIGEST_PATIENCE_S):
            turn = await client.ended_turn(_DIGEST)
    except TimeoutError:
        return
    screen.result("", ink(f"6. Who reads it: {_DIGEST} was woken by the approval", "bold"), turns.ended(turn))


def _failed(screen: Screen, what: str, logs: Path) -> int:
    screen.problem(what, fix=f"the workers' logs are in {logs}; `heinzelwerk demo --keep DIRECTORY` keeps them")
    return 1


def _next(directory: Path | None) -> list[str]:
    lines = ["Where to look next"]
    if directory is not None:
        lines.append(f"  cd {directory} && heinzelwerk up       the same team, kept running; then list, log, inbox")
    return [
        "\n".join(
            [
                *lines,
                "  examples/team/                the contracts, documents and skills that you just saw at work",
                "  heinzelwerk up                a server and workers of your own; then new, check, load, wake",
                "  docs/data-path.md             one wake, file by file",
                "  heinzelwerk --help            every command",
            ]
        )
    ]
