"""Commands about drafts: what waits, what was decided, deciding, and closing what nobody knows the end of."""

from pathlib import Path
from typing import Literal

import click

from heinzelwerk import amending, errors
from heinzelwerk.client import Client
from heinzelwerk.effect import Decision, EffectRecord, EffectState, Moved, MoveReply
from workers.cli import options
from workers.cli.shell import Shell
from workers.show import decisions
from workers.show.screen import ink


@click.command("inbox")
@options.on_team
@options.as_json
async def inbox_command(shell: Shell, client: Client, *, as_json: bool) -> None:
    """List what waits for a person.

    Drafts, questions, caps, effects of unknown end, failures; each with the command that ends the wait.
    """
    items = await client.inbox()
    if as_json:
        shell.screen.data({"team": client.team, "items": items})
        return
    shell.screen.result(decisions.inbox(items, now=await client.now_ms(), zone=shell.zone))


@click.command("drafts")
@click.argument("draft", required=False)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="How many, newest first.")
@options.on_team
@options.as_json
async def drafts_command(shell: Shell, client: Client, *, draft: str | None, limit: int, as_json: bool) -> None:
    """List drafts, or show one and what it would change."""
    if draft is None:
        effects = await client.drafts(limit=limit)
        if as_json:
            shell.screen.data({"team": client.team, "drafts": effects})
        else:
            shell.screen.result(decisions.drafts(effects, now=await client.now_ms()))
        return
    effect = await client.effect(draft)
    text, before = await client.text(effect), await client.before(effect)
    if as_json:
        shell.screen.data({"draft": effect, "text": text, "before": before})
        return
    shell.screen.result(decisions.facts(effect, zone=shell.zone))
    if text is None:
        shell.screen.result(ink("its text has expired; the spine still says what happened", "yellow"))
    else:
        if effect.action != amending.ACTION or before is None or not effect.undecided:
            shell.screen.result("", text)
        if before is not None and effect.undecided:
            shell.screen.result("", decisions.change(effect, before, text))
            shell.screen.note(decisions.next_steps(effect))


@click.command("approve")
@click.argument("draft")
@click.option(
    "--edit", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Approve this file's text instead."
)
@click.option("--wait", is_flag=True, help="Wait until the text is placed, or could not be.")
@options.by
@options.on_team
@options.as_json
async def approve_command(
    shell: Shell, client: Client, *, draft: str, edit: Path | None, wait: bool, by: str, as_json: bool
) -> int:
    """Approve a draft; code then places it, once."""
    text = _edited(edit) if edit else None
    record = await client.effect(draft)
    before = await client.before(record) if record.action == amending.ACTION else None
    reply = await client.approve(draft, by=by, text=text)
    patch = ""
    if before is not None:
        patch = amending.patch(before, text or await client.text(record) or "", name=record.heinzel)
        if not wait and reply.moved is Moved.DONE:
            return _amended(shell, reply, patch, as_json=as_json)
    if not wait or reply.moved is not Moved.DONE or reply.record is None:
        return _decided(shell, reply, Decision.APPROVED, as_json=as_json)
    shell.screen.note(decisions.decided(reply.record, Decision.APPROVED))
    async with shell.patience(f"waiting for {reply.record.id} to be placed"):
        placed = await client.placed(reply.record.id)
    if patch and placed.state is EffectState.COMPLETED:
        return _amended(shell, MoveReply(Moved.DONE, placed), patch, as_json=as_json)
    if as_json:
        shell.screen.data(_as_data(MoveReply(Moved.DONE, placed)))
    else:
        shell.screen.result(decisions.ended(placed))
    return 0 if placed.state is EffectState.COMPLETED else 1


@click.command("decline")
@click.argument("draft")
@click.option("--reason", default="", help="Why; stands on the spine, one sentence.")
@options.by
@options.on_team
@options.as_json
async def decline_command(shell: Shell, client: Client, *, draft: str, reason: str, by: str, as_json: bool) -> int:
    """Decline a draft: nothing is placed."""
    return _decided(shell, await client.decline(draft, by=by, reason=reason), Decision.DECLINED, as_json=as_json)


@click.command("resolve")
@click.argument("draft")
@click.option(
    "--as",
    "to",
    required=True,
    type=click.Choice(["completed", "failed", "retry"]),
    help="What you found at the target: it is there, it is not and shall not be, or place it again.",
)
@click.option(
    "--by", "by", default=options.login, show_default="the login name", help="Who says so; stands on the spine."
)
@options.on_team
@options.as_json
async def resolve_command(
    shell: Shell, client: Client, *, draft: str, to: Literal["completed", "failed", "retry"], by: str, as_json: bool
) -> int:
    """Close an effect whose end nobody knows."""
    reply = await client.resolve(draft, to, by=by)
    if as_json:
        shell.screen.data(_as_data(reply))
    elif reply.moved is Moved.DONE and reply.record:
        shell.screen.result(f"{reply.record.id} is {reply.record.state} now: {reply.record.reason}")
    if reply.moved is Moved.DONE:
        return 0
    if not as_json:
        shell.screen.problem(decisions.refusal(reply), fix="`heinzelwerk inbox` lists effects of unknown end")
    return 1


def _edited(path: Path) -> str:
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise errors.Refused(f"{path} is not UTF-8 at byte {error.start}", fix="save the file as UTF-8") from error
    if not text.strip():
        raise errors.Refused(f"{path} is empty: nothing was approved", fix="`heinzelwerk decline ID` places nothing")
    return text


def _decided(shell: Shell, reply: MoveReply, decision: Decision, *, as_json: bool) -> int:
    done = reply.moved is Moved.DONE
    if as_json:
        shell.screen.data(_as_data(reply))
    elif done and reply.record:
        shell.screen.result(decisions.decided(reply.record, decision))
    else:
        shell.screen.problem(decisions.refusal(reply), fix="`heinzelwerk inbox` lists what still waits")
    return 0 if done else 1


def _amended(shell: Shell, reply: MoveReply, patch: str, *, as_json: bool) -> int:
    """An approved change of a contract: a worker writes its file, or the patch is all that stdout gets."""
    record = reply.record
    assert record is not None  # noqa: S101 - what was done has a record
    from heinzelwerk.publisher import contracts
    from workers import translation  # settings are read by those alone who need them

    written = not contracts.by_hand(translation.directories(shell.settings).get(record.team))
    if as_json:
        shell.screen.data({**_as_data(reply), "patch": patch})
    elif written:
        shell.screen.result(decisions.amended(record, written=True))
    else:
        shell.screen.note(decisions.amended(record, written=False))
        shell.screen.raw(patch)
    return 0


def _as_data(reply: MoveReply) -> dict[str, str | EffectRecord | None]:
    return {"result": reply.moved.value, "detail": reply.detail, "draft": reply.record}
