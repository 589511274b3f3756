"""Commands that read what happened: log, costs, export."""

from pathlib import Path

import click

from heinzelwerk import errors
from heinzelwerk.client import Client
from workers.cli import options
from workers.cli.shell import Shell
from workers.show import costs, spines, timeline, turns
from workers.show.screen import ink


@click.command("log")
@click.argument("name")
@click.option("--turn", type=click.IntRange(1), help="Only this turn, with its words.")
@click.option(
    "--limit", default=200, show_default=True, type=click.IntRange(1), help="At most so many of the newest events."
)
@options.on_team
@options.as_json
async def log_command(shell: Shell, client: Client, *, name: str, turn: int | None, limit: int, as_json: bool) -> int:
    """Show what happened, event by event.

    Turns, steps, durations, tokens, cost, decisions, and mail on its way.
    """
    log = await client.log(name)
    entries = (*timeline.read(log.lines), *timeline.unread(log.unread))
    if turn is not None:
        entries = timeline.of_turn(entries, turn)
    record = await client.turn(name, turn)
    if turn is not None and not entries and record is None:
        raise errors.Refused(f"{log.session} has no turn {turn}", fix=f"`heinzelwerk log {name}` shows its turns")
    hidden, entries = max(0, len(entries) - limit), entries[-limit:]
    if as_json:
        shell.screen.data({"session": str(log.session), "events": timeline.as_data(entries), "left_out": hidden})
        return 0
    if not entries:
        shell.screen.result(f"{log.session} has not woken yet.\nNext: heinzelwerk wake {name} --wait")
        return 0
    if hidden:
        shell.screen.note(f"{hidden:,} older events are left out: --limit shows more, --turn one turn")
    shell.screen.result(timeline.as_table(entries, zone=shell.zone))
    if record is not None:
        shell.screen.result("", turns.ended(record))
    if turn is not None:
        for title, words in (await client.words(name, turn)).items():
            shell.screen.result("", ink(title, "bold"), words)
    return 0


@click.command("costs")
@click.option("--day", help="A UTC day as YYYY-MM-DD. Default: today by the server's clock.")
@options.on_team
@options.as_json
async def costs_command(shell: Shell, client: Client, *, day: str | None, as_json: bool) -> None:
    """Show what a day cost by Heinzelmännchen and by model, and the caps."""
    if day is not None and not costs.is_day(day):
        raise click.UsageError(f"{day!r} is no day: write YYYY-MM-DD.")
    whole, each = await client.costs(day=day)
    caps, models = shell.caps(client.team), await client.models(day=day)
    if as_json:
        found = {"team": client.team, "day": day or "today", "whole": whole, "each": each, "models": models}
        shell.screen.data({**found, "caps": caps})
        return
    shell.screen.result(costs.as_table(client.team, day or "today (UTC)", whole, each, caps))
    if any(models.values()):
        shell.screen.result("", costs.by_model(models))


@click.command("export")
@click.argument("name", required=False)
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout."
)
@click.option(
    "--verify", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Check an exported file instead."
)
@click.option("--team", help="Whose. Default: the only team there is.")
@options.config
@options.as_json
@click.pass_obj
def export_command(
    shell: Shell, *, name: str | None, output: Path | None, verify: Path | None, team: str | None, as_json: bool
) -> int:
    """Write a session's spine as verifiable lines.

    JSON Lines in a SHA-256 chain; `--verify FILE` checks such a file.
    A spine that is damaged in the store sets its session aside.
    """
    if (name is None) == (verify is None):
        raise click.UsageError("Give a NAME to export, or --verify FILE to check an export.")
    if verify is not None:
        report = spines.verify(verify.read_bytes())
        if as_json:
            shell.screen.data({"file": str(verify), **spines.as_data(report)})
        else:
            shell.screen.result(spines.verdict(report, str(verify)))
        return 0 if report.ok else 1
    assert name is not None  # noqa: S101 - checked above

    async def write(client: Client) -> int:
        log = await client.log(name)
        content = b"".join(log.lines)
        if output is None:
            shell.screen.raw(content.decode("utf-8", "surrogateescape"))
        else:
            _save(output, content)
        where = str(output) if output else "stdout"
        shell.screen.note(
            f"{log.session}: {len(log.lines):,} events written to {where}; `export --verify FILE` checks them"
        )
        damage = await client.inspect(name)
        if damage is not None:
            fix = f"restore the store from a backup, or `heinzelwerk resume {name}` to go on with the record as it is"
            raise errors.SpineDamaged(f"{log.session} is set aside, {damage}", fix=fix)
        return 0

    return shell.on_team(team, write) or 0


def _save(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise errors.Refused(f"{path} cannot be written: {error.strerror}", fix="name another file") from error
