"""Commands of the operator: doctor, pause, resume, drain, prune."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from heinzelwerk import sweep
from heinzelwerk.client import Client
from workers import archive, doctor, examining
from workers.cli import options
from workers.cli.shell import Shell
from workers.show import figures, findings

if TYPE_CHECKING:
    from heinzelwerk.ports import Store
    from workers.root import Runtime

DRAIN = "drain"
"""The deployment-wide flag that workers look at before they claim."""
_LOOK_EVERY_S = 0.5
_DAY_S = 86_400.0


@click.command("doctor")
@options.on_shell
@options.as_json
def doctor_command(shell: Shell, *, as_json: bool) -> int:
    """Look at everything a deployment needs.

    Every finding comes with its fix. Exit 1 only when something is down.
    """
    found = asyncio.run(examining.examine(shell.settings, shell.runtime))
    if as_json:
        shell.screen.data({"findings": found, "down": doctor.is_down(found)})
    else:
        shell.screen.result(findings.as_text(found))
    return 1 if doctor.is_down(found) else 0


def _names_or_all(name: str | None, everyone: bool) -> None:
    if (name is None) != everyone:
        raise click.UsageError("Give a NAME, or --all for the whole team.")


@click.command("pause")
@click.argument("name", required=False)
@click.option("--all", "everyone", is_flag=True, help="All Heinzelmännchen of the team.")
@options.on_team
@options.as_json
async def pause_command(shell: Shell, client: Client, *, name: str | None, everyone: bool, as_json: bool) -> None:
    """Pause scheduled wakes.

    Each is skipped with a record; what people ask for still runs.
    """
    _names_or_all(name, everyone)
    await client.pause(name, paused=True)
    _say(shell, client, name, "paused", as_json=as_json)


@click.command("resume")
@click.argument("name", required=False)
@click.option("--all", "everyone", is_flag=True, help="All Heinzelmännchen of the team.")
@options.on_team
@options.as_json
async def resume_command(shell: Shell, client: Client, *, name: str | None, everyone: bool, as_json: bool) -> None:
    """Let scheduled wakes run again.

    What was skipped meanwhile stays skipped. With a NAME it also lets one go on that was set aside because its
    record is damaged: the record is accepted as it stands.
    """
    _names_or_all(name, everyone)
    await client.pause(name, paused=False)
    _say(shell, client, name, "resumed", as_json=as_json)


def _say(shell: Shell, client: Client, name: str | None, what: str, *, as_json: bool) -> None:
    if as_json:
        shell.screen.data({"team": client.team, "heinzel": name, "result": what})
    else:
        back = f"resume {name or '--all'}" if what == "paused" else "list"
        shell.screen.result(f"{name or f'all of {client.team}'}: {what}\nNext: heinzelwerk {back}")


@click.command("drain")
@click.option("--off", is_flag=True, help="Let workers claim again.")
@click.option("--wait", is_flag=True, help="Wait until every worker has finished what it holds.")
@options.on_shell
@options.as_json
def drain_command(shell: Shell, *, off: bool, wait: bool, as_json: bool) -> None:
    """Let workers finish and claim nothing, for a deploy.

    Wakes queue up and nothing is lost; `--off` lets workers claim again.
    """

    async def ask(runtime: Runtime) -> int:
        store = runtime.works.store
        await store.flag(DRAIN, None if off else "on", clear=off)
        if off:
            await sweep.sweep(runtime.works)
        busy = await _busy(store)
        while wait and not off and busy:
            await asyncio.sleep(_LOOK_EVERY_S)
            busy = await _busy(store)
        return busy

    busy = shell.on_runtime(ask)
    if as_json:
        shell.screen.data({"drain": not off, "busy": busy})
    elif off:
        shell.screen.result("Workers claim again.")
    elif busy:
        still = (
            f"{figures.counted(busy, 'worker')} did not say yet that nothing is held there and nothing more is claimed"
        )
        shell.screen.result(
            f"The drain is on; {still}.\nNext: heinzelwerk drain --wait, deploy, then heinzelwerk drain --off"
        )
    else:
        shell.screen.result(
            "Workers claim nothing more; nothing is at work.\nNext: deploy, then heinzelwerk drain --off"
        )


async def _busy(store: Store) -> int:
    """Workers that hold something, or have not yet said that they know of the drain (they beat every few seconds)."""
    beats = await store.workers()
    return sum(facts.get("state") == "working" or facts.get("holds", "0") != "0" for facts in beats.values())


@click.command("prune")
@click.option("--older-than", type=click.IntRange(1), help="Days. Default: [retention] spine.")
@click.option("--team", help="Whose. Default: the only team there is.")
@options.on_shell
@options.as_json
def prune_command(shell: Shell, *, older_than: int | None, team: str | None, as_json: bool) -> None:
    """Apply the retention now.

    Whole old turns go to the archive, a seal takes their place on the spine.
    """
    kept = shell.settings.retention
    retention = archive.Retention(older_than * _DAY_S if older_than else kept.spine, kept.archive)

    async def ask(runtime: Runtime) -> tuple[str, int]:
        name = await shell.team_name(team, runtime)
        return name, await archive.prune(name, retention, runtime.works.store)

    name, lines = shell.on_runtime(ask)
    if as_json:
        shell.screen.data({"team": name, "sealed": lines})
    else:
        note = f"archived in {kept.archive}" if kept.archive else "counted and dropped ([retention] archive is not set)"
        shell.screen.result(f"{name}: {figures.counted(lines, 'event')} sealed, {note}")
