"""Commands that say something to a Heinzelmännchen: wake, event, chat, answer, steer, stop."""

import difflib
import sys
from pathlib import Path
from typing import TextIO

import click
from pydantic import JsonValue

from heinzelwerk import announcing, errors
from heinzelwerk.client import Client, WakeReply
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Posting, PostReply
from heinzelwerk.turn import TurnRecord, TurnState
from heinzelwerk.wake import Disposition
from workers.cli import options
from workers.cli.shell import Shell
from workers.show import timeline, turns

_MOST_DATA = 256 * 1024

_GOOD = (TurnState.COMPLETED, TurnState.SKIPPED, TurnState.WAITING)


@click.command("wake")
@click.argument("name")
@click.option("--key", help="Accepted once, however often it is given. Default: a fresh one.")
@click.option("--text", help="Words for the turn, such as what to look at.")
@click.option("--wait", is_flag=True, help="Show the turn as it runs and wait for its end.")
@click.option("--dry-run", is_flag=True, help="Show what the model would get and what it may cost; nothing runs.")
@options.by
@options.on_team
@options.as_json
async def wake_command(
    shell: Shell,
    client: Client,
    *,
    name: str,
    key: str | None,
    text: str | None,
    wait: bool,
    dry_run: bool,
    by: str,
    as_json: bool,
) -> int:
    """Wake a Heinzelmännchen by hand."""
    if dry_run:
        from workers.cli import trial

        return await trial.dry_run(shell, client, name, as_json=as_json)
    reply = await client.wake(name, key=key, text=text, by=by)
    if wait and reply.disposition is not Disposition.REFUSED:
        return await _followed(shell, client, reply, as_json=as_json)
    return _said(shell, name, reply, as_json=as_json, meant=await _meant(client, name, reply))


@click.command("event")
@click.argument("name")
@click.option("--id", "delivery", required=True, help="The sender's id of this delivery; the same one wakes once.")
@click.option("--source", default="cli", show_default=True, help="Who sends it; part of the key.")
@click.option("--data", type=click.File("r", encoding="utf-8"), help="A JSON file for the turn, or - for stdin.")
@options.on_team
@options.as_json
async def event_command(
    shell: Shell,
    client: Client,
    *,
    name: str,
    delivery: str,
    source: str,
    data: TextIO | None,
    as_json: bool,
) -> int:
    """Deliver an outside event.

    NAME is an event: every Heinzelmännchen whose contract declares `hz.on: [event.NAME]` is woken. Where nobody does, it
    is a Heinzelmännchen's name.
    """
    payload = _json(data.read(_MOST_DATA + 1), str(data.name)) if data else None
    entries = await client.contracts()
    names = announcing.listeners(name, entries) or ((name,) if name in entries else ())
    if not names:
        raise errors.Refused(
            f"nobody listens to the event {name!r}, and no Heinzelmännchen is called so",
            fix=f"declare hz.on: [event.{name}] in a contract; events that are listened to: "
            + (", ".join(announcing.heard(entries)) or "none"),
        )
    announced = await announcing.announce(client, name, names, source=source, delivery=delivery, data=payload)
    refused = [reply for reply in announced.replies if reply.disposition is Disposition.REFUSED]
    if as_json:
        shell.screen.data(announced.as_data())
        return 1 if refused else 0
    for reply in announced.replies:
        _said(shell, SessionId.parse(reply.session).heinzel, reply, as_json=False)
    return 1 if refused else 0


@click.command("chat")
@click.argument("name")
@click.argument("message", required=False)
@click.option(
    "--conversation", default="cli", show_default=True, help="Turns of one conversation see its earlier ones."
)
@options.by
@options.on_team
@options.as_json
async def chat_command(
    shell: Shell, client: Client, *, name: str, message: str | None, conversation: str, by: str, as_json: bool
) -> int:
    """Write to a Heinzelmännchen and wait for its reply.

    Without a MESSAGE: line by line from stdin.
    """
    if message is not None:
        return await _asked(shell, client, name, message, conversation=conversation, by=by, as_json=as_json)
    code = 0
    interactive = sys.stdin.isatty()
    if interactive:
        shell.screen.note(
            f"You write to {name} as {by}. An empty line or Ctrl-D leaves; what it asks for stays in the inbox."
        )
    while line := _read_line(shell, interactive):
        code = await _asked(shell, client, name, line, conversation=conversation, by=by, as_json=as_json)
    return code


@click.command("answer")
@click.argument("name")
@click.argument("text", required=False)
@click.option("--turn", type=click.IntRange(1), help="Which turn's question. Default: the newest open one.")
@click.option("--raise", "raised", is_flag=True, help="Let a turn that waits at its cap go on, instead of answering.")
@options.by
@options.on_team
@options.as_json
async def answer_command(
    shell: Shell, client: Client, *, name: str, text: str | None, turn: int | None, raised: bool, by: str, as_json: bool
) -> int:
    """Answer the question that a turn waits with."""
    if raised == bool(text):
        raise click.UsageError("Give the answer's TEXT, or --raise for a turn that waits at its cap.")
    if raised:
        reply = await client.raise_budget(name, by=by, turn=turn)
    else:
        reply = await client.answer(name, text or "", by=by, turn=turn)
    return _posted(shell, name, reply, "the turn goes on with it", as_json=as_json)


@click.command("steer")
@click.argument("name")
@click.argument("text")
@click.option("--turn", type=click.IntRange(1), help="Which turn. Default: the newest open one.")
@options.by
@options.on_team
@options.as_json
async def steer_command(
    shell: Shell, client: Client, *, name: str, text: str, turn: int | None, by: str, as_json: bool
) -> int:
    """Tell a running turn something."""
    reply = await client.steer(name, text, by=by, turn=turn)
    return _posted(shell, name, reply, "it reaches the turn's next model request", as_json=as_json)


@click.command("stop")
@click.argument("name")
@click.option("--turn", type=click.IntRange(1), help="Which turn. Default: the newest open one.")
@options.by
@options.on_team
@options.as_json
async def stop_command(shell: Shell, client: Client, *, name: str, turn: int | None, by: str, as_json: bool) -> int:
    """Stop a turn; what it completed is kept."""
    return _posted(shell, name, await client.stop(name, by=by, turn=turn), "the turn ends `cancelled`", as_json=as_json)


async def _asked(
    shell: Shell, client: Client, name: str, message: str, *, conversation: str, by: str, as_json: bool
) -> int:
    reply = await client.ask(name, message, by=by, conversation=conversation)
    if reply.disposition is Disposition.REFUSED:
        return _said(shell, name, reply, as_json=as_json, meant=await _meant(client, name, reply))
    ended = await _watched(shell, client, reply, show=False)
    if isinstance(ended, str):
        shell.screen.problem(f"{name} gave no turn to this message: {ended}", fix=f"`heinzelwerk log {name}`")
        return 1
    words = (await client.words(name, ended.number)).get("reply")
    if as_json:
        shell.screen.data({**_as_data(reply, ended), "reply": words})
    else:
        shell.screen.result(words or turns.ended(ended))
    return 0 if ended.state in _GOOD else 1


async def _followed(shell: Shell, client: Client, reply: WakeReply, *, as_json: bool) -> int:
    if not as_json:
        shell.screen.note(turns.accepted(reply))
    ended = await _watched(shell, client, reply, show=not as_json)
    if as_json:
        shell.screen.data(_as_data(reply, ended))
    elif isinstance(ended, str):
        shell.screen.result(f"{reply.session}: {ended}")
    else:
        shell.screen.result(turns.ended(ended), turns.next_steps(ended, await client.undecided(ended)))
    return 0 if isinstance(ended, str) or ended.state in _GOOD else 1


async def _watched(shell: Shell, client: Client, reply: WakeReply, *, show: bool) -> TurnRecord | str:
    """Follow the spine to the wake's end; each event goes to stderr as it comes."""
    async with shell.patience(f"waiting for {reply.session}"):
        async for lines in client.watch(reply):
            if show:
                shell.screen.note(timeline.as_table(timeline.read(lines), zone=shell.zone, headings=False))
    ended = await client.settled(reply)
    if ended is None:
        raise errors.StoreUnavailable(f"{reply.session} went away while it ran", fix="`heinzelwerk doctor`")
    return ended


async def _meant(client: Client, name: str, reply: WakeReply) -> str:
    """The loaded name that somebody mistyped who was refused; "" where none is near."""
    if reply.disposition is not Disposition.REFUSED:
        return ""
    near = difflib.get_close_matches(name, await client.contracts(), n=1)
    return near[0] if near and near[0] != name else ""


def _said(shell: Shell, name: str, reply: WakeReply, *, as_json: bool, meant: str = "") -> int:
    refused = reply.disposition is Disposition.REFUSED
    if as_json:
        shell.screen.data(_as_data(reply))
    elif refused:
        fix = f"did you mean {meant}? " if meant else ""
        shell.screen.problem(
            f"{name} was not woken: {reply.reason}", fix=f"{fix}`heinzelwerk list` names what is loaded"
        )
    else:
        shell.screen.result(turns.accepted(reply), turns.after_wake(reply))
    return 1 if refused else 0


def _as_data(reply: WakeReply, ended: TurnRecord | str | None = None) -> dict[str, JsonValue]:
    data: dict[str, JsonValue] = {
        "wake": reply.wake,
        "key": reply.key,
        "disposition": reply.disposition.value,
        "session": reply.session,
    }
    if reply.turn is not None:
        data["turn"] = reply.turn
    if reply.reason:
        data["reason"] = reply.reason
    if isinstance(ended, str):
        data["ended"] = ended
    elif ended is not None:
        data |= {
            "turn": ended.number,
            "state": ended.state.value,
            "report": ended.report,
            "usage": ended.usage.model_dump(),
        }
        if ended.reason:
            data["reason"] = ended.reason
    return data


def _posted(shell: Shell, name: str, reply: PostReply, then: str, *, as_json: bool) -> int:
    delivered = reply.posting is Posting.DELIVERED
    if as_json:
        shell.screen.data({"result": reply.posting.value, "detail": reply.detail})
    elif delivered:
        shell.screen.result(f"delivered to {name}: {then}")
    else:
        said = turns.undelivered(reply)
        shell.screen.problem(f"not delivered to {name}: {said}", fix=f"`heinzelwerk log {name}` shows its turns")
    return 0 if delivered else 1


def _json(text: str, name: str) -> JsonValue:
    if len(text) > _MOST_DATA:
        raise errors.Refused(
            f"{Path(name).name} is over {_MOST_DATA:,} characters", fix="send a link or a digest instead"
        )
    try:
        return announcing.payload(text)
    except errors.Refused as refused:
        raise errors.Refused(f"{name}: {refused}", fix=refused.fix) from refused


def _read_line(shell: Shell, interactive: bool) -> str:
    if interactive:
        shell.screen.err.print("> ", end="")
    return sys.stdin.readline().strip()
