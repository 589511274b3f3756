"""Commands that show a turn without a team: `try FILE`, and what `wake --dry-run` prints."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heinzelwerk import contract, errors
from heinzelwerk.client import Client
from heinzelwerk.effect import EffectState
from heinzelwerk.opening import Opening
from heinzelwerk.turn import TurnState
from workers.cli import options
from workers.cli.shell import Shell
from workers.show import decisions, previews, timeline, turns
from workers.show.screen import ink

if TYPE_CHECKING:
    from heinzelwerk.engine.preview import Preview
    from heinzelwerk.ports import Works

_GOOD = (TurnState.COMPLETED, TurnState.SKIPPED, TurnState.WAITING)


@click.command("try")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--model", help="This model instead of [heinzel] model, such as offline or anthropic:...")
@click.option("--text", help="Words for the turn.")
@options.by
@options.on_shell
@options.as_json
def try_command(shell: Shell, *, file: Path, model: str | None, text: str | None, by: str, as_json: bool) -> int:
    """Run one whole turn of a contract file here.

    No server, no team; real inputs, the real model; nothing is placed or kept. FILE may be a contract's name in workflows/.
    """
    return asyncio.run(_try(shell, _found(file).resolve(), model, text, by, as_json=as_json))


async def _try(shell: Shell, file: Path, model: str | None, text: str | None, by: str, *, as_json: bool) -> int:
    from workers import log
    from workers.cli import rehearsal

    log.set_up(log_format="text", level="error", secrets=shell.settings.secrets())
    works = rehearsal.assemble(shell.settings, model=model)
    trial = await rehearsal.prepare(file, works)
    async with shell.patience(f"running {trial.name}", fix="a model's answer can take minutes (Ctrl-C ends the trial)"):
        turn = await trial.run(by=by, text=text)
    client = trial.client()
    entries = timeline.read((await client.log(trial.name)).lines)
    drafts = [(draft, await client.text(draft), await client.before(draft)) for draft in await client.drafts()]
    words = await client.words(trial.name, turn.number)
    if as_json:
        shell.screen.data(
            {
                "turn": turn.model_dump(mode="json", exclude={"wake"}),
                "events": timeline.as_data(entries),
                "drafts": [{"draft": draft, "text": said, "before": before} for draft, said, before in drafts],
                "words": words,
            }
        )
        return 0 if turn.state in _GOOD else 1
    shell.screen.result(timeline.as_table(entries, zone=shell.zone), "", turns.ended(turn))
    for draft, said, before in drafts:
        shell.screen.result("", ink(f"draft for {draft.target}", "bold"), said or "")
        if before is not None and said is not None:
            shell.screen.result("", decisions.change(draft, before, said))
        if draft.state is EffectState.FAILED:
            shell.screen.result("", ink(f"this draft could not be placed: {draft.reason}", "red"))
    if not drafts:
        for title, said in words.items():
            shell.screen.result("", ink(title, "bold"), said)
    good = turn.state in _GOOD and all(draft.state is not EffectState.FAILED for draft, _, _ in drafts)
    then = (
        f"heinzelwerk load, then heinzelwerk wake {trial.name}"
        if good
        else "correct what is named above, and try again"
    )
    shell.screen.note(f"Nothing was placed and nothing is kept.\nNext: {then}")
    return 0 if turn.state in _GOOD else 1


def _found(file: Path) -> Path:
    """The file, or the contract of that name in ./workflows, which is what every other command takes."""
    named = Path("workflows") / f"{file.name}{contract.SUFFIX}"
    if file.is_file():
        return file
    if file == Path(file.name) and named.is_file():
        return named
    raise click.BadParameter(f"there is no file {str(file)!r}, and no {named}", param_hint="FILE")


async def dry_run(shell: Shell, client: Client, name: str, *, as_json: bool) -> int:
    """Show what a turn woken now would get, and what it may cost; nothing is stored, sent or spent."""
    from workers.cli import rehearsal

    entry, text = await client.contract(name)
    reading = contract.read(text, file_name=f"{entry.name}{contract.SUFFIX}", file=entry.file)
    if reading.contract is None:
        raise errors.ContractRefused(
            f"{name} has errors and sleeps", diagnostics=entry.broken, fix="`heinzelwerk check`"
        )
    model = _model(shell, reading.contract)
    opening = await rehearsal.opening(reading.contract, client.team, client.works, model=model)
    found = _preview(shell, opening, client.works)
    cap = _cap(reading.contract, client.works)
    if as_json:
        shell.screen.data(previews.as_data(opening, found, cap))
    else:
        shell.screen.result(previews.as_text(opening, found, cap))
    return 0


def _model(shell: Shell, text: contract.Contract) -> str:
    from workers import engine

    return engine.model_settings(shell.settings).for_class(text.agent.model_class)


def _preview(shell: Shell, opening: Opening, works: Works) -> Preview:
    from heinzelwerk.engine import Models
    from heinzelwerk.engine.preview import preview
    from workers import engine

    models = Models(engine.model_settings(shell.settings))
    bound = bool(engine.offered(shell.settings))
    return preview(opening, models, history_tokens=works.policy.history_tokens, handoff=bound)


def _cap(text: contract.Contract, works: Works) -> int | None:
    """Micro-dollars that the turn may cost at most: the contract's own cap, bounded by the deployment's."""
    own = round(text.agent.max_usd * 1_000_000) if text.agent.max_usd is not None else None
    return min((cap for cap in (own, works.policy.caps.turn) if cap is not None), default=None)
