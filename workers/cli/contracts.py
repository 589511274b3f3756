"""Commands about contracts: check, new, graph on files; load, list, show on a team's loaded set."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heinzelwerk import contract as contracts
from heinzelwerk import errors
from heinzelwerk.client import Client
from heinzelwerk.contract import directory, graph
from heinzelwerk.contract.methods import Mode
from heinzelwerk.contract.reader import Reading
from workers import repositories
from workers.cli import loads, options
from workers.cli.shell import Shell
from workers.repositories import TeamLoad
from workers.show import roster

if TYPE_CHECKING:
    from workers.root import Runtime

_WORKFLOWS = "workflows"


@click.command("check")
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@options.on_shell
@options.as_json
def check_command(shell: Shell, *, paths: tuple[Path, ...], as_json: bool) -> int:
    """Check contract files.

    PATH is a file or a directory with all below it; default: the sources of the settings' teams, else this directory.
    """
    report, searched = _checked(shell, paths)
    if as_json:
        shell.screen.data({**report.as_dict(), "searched": searched})
    else:
        shell.screen.result(roster.diagnostics(report))
        if not report.readings:
            shell.screen.note(
                f"no *.prose.md below {', '.join(str(place['path']) for place in searched) or ', '.join(map(str, paths))}"
            )
            shell.screen.note("Next: heinzelwerk new NAME\n      writes a first contract to start from.")
    return 1 if report.errors else 0


@click.command("new")
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"Where. Default: ./{_WORKFLOWS}, or here where contracts are kept here.",
)
@options.on_shell
@options.as_json
def new_command(shell: Shell, *, name: str, directory: Path | None, as_json: bool) -> None:
    """Write a first contract, NAME.prose.md.

    It is valid as it is, and never overwrites one.
    """
    try:
        text = contracts.template(name)
    except ValueError as error:
        raise errors.Refused(str(error), fix="choose a name like weekly-report") from error
    place = directory or _place_of_contracts()
    path = place / f"{name}{contracts.SUFFIX}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise errors.Refused(
            f"{path} exists; nothing was changed", fix="choose another name, or edit that file"
        ) from error
    except OSError as error:
        raise errors.Refused(
            f"{path} cannot be written: {error.strerror}", fix="check the directory's rights"
        ) from error
    if as_json:
        shell.screen.data({"name": name, "path": str(path)})
    else:
        shell.screen.result(f"wrote {path}\nNext: edit it, then heinzelwerk check {path}")


@click.command("graph")
@click.argument("path", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--mermaid", is_flag=True, help="A Mermaid flowchart instead of text.")
@options.on_shell
@options.as_json
def graph_command(shell: Shell, *, path: Path | None, mermaid: bool, as_json: bool) -> None:
    """Show which contract reads what."""
    report, _ = _checked(shell, () if path is None else (path,))
    if as_json:
        shell.screen.data(report.graph.as_dict())
    elif mermaid:
        shell.screen.result(graph.mermaid(report.graph).rstrip("\n"))
    else:
        shell.screen.result(graph.text(report.graph).rstrip("\n"))


@click.command("load")
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@click.option("--team", help="Which team gets it. Default: every team of the settings with a source.")
@options.on_shell
@options.as_json
def load_command(shell: Shell, *, directory: Path | None, team: str | None, as_json: bool) -> int:
    """Make contracts a team's newest set.

    They are read from DIRECTORY, or from where the settings say. A broken contract blocks itself only; one that is
    missing in the new set is put to sleep and keeps its spine.
    """
    settings = shell.settings
    teams = loads.chosen(settings.teams, named=team, directory=directory)

    async def ask(runtime: Runtime) -> dict[str, TeamLoad]:
        return await loads.load(settings, runtime, teams, directory=directory)

    results = shell.on_runtime(ask)
    if as_json:
        shell.screen.data({"teams": [roster.load_data(name, done) for name, done in results.items()]})
    else:
        for name, done in results.items():
            shell.screen.result(roster.loaded(name, done))
    return 1 if any(done.loaded.report.errors or done.refused for done in results.values()) else 0


@click.command("list")
@options.on_team
@options.as_json
async def list_command(shell: Shell, client: Client, *, as_json: bool) -> None:
    """List every Heinzelmännchen.

    How it is woken, its next wake, what it does now, how its last turn ended.
    """
    entries, sessions, now = await asyncio.gather(client.contracts(), client.overviews(), client.now_ms())
    last = await client.last_turns(sessions.values())
    rows = roster.rows(entries, sessions, last, now=now)
    if as_json:
        shell.screen.data({"team": client.team, "heinzel": rows})
    else:
        shell.screen.result(roster.as_table(rows, now=now, zone=shell.zone, team=client.team))


@click.command("show")
@click.argument("name")
@click.option("--text", "as_text", is_flag=True, help="The contract's text as loaded.")
@options.on_team
@options.as_json
async def show_command(shell: Shell, client: Client, *, name: str, as_text: bool, as_json: bool) -> None:
    """Show one Heinzelmännchen at length.

    Its contract as loaded, its schedule, what it does now, its last turn.
    """
    entry, text = await client.contract(name)
    if as_text:
        shell.screen.raw(text.decode("utf-8", "replace"))
        return
    reading = contracts.read(text, file_name=entry.file or f"{name}{contracts.SUFFIX}")
    sessions = await client.overviews()
    seen = sessions.get(name)
    last = (await client.last_turns([seen])).get(name) if seen else None
    row = roster.row(name, entry, seen, last, now=await client.now_ms())
    if as_json:
        frontmatter = reading.contract.frontmatter if reading.contract else None
        shell.screen.data({**row, "contract": frontmatter, "sha256": entry.sha256})
        return
    shell.screen.result(roster.one(row, entry, reading, zone=shell.zone))


def _place_of_contracts() -> Path:
    """Where `check` and `load` look: ./workflows, but for somebody who stands among contracts."""
    here, below = Path(), Path(_WORKFLOWS)
    among = Path.cwd().name == _WORKFLOWS or any(here.glob(f"*{contracts.SUFFIX}"))
    return here if among and not below.is_dir() else below


def _checked(shell: Shell, paths: Sequence[Path]) -> tuple[contracts.SetReport, list[dict[str, object]]]:
    """Read and check what paths mean: a team's checkout as one whole set, everything else file by file."""
    if paths:
        if len(paths) == 1 and (paths[0] / _WORKFLOWS).is_dir():
            return _team_set(shell, paths[0]), []
        readings = [reading for path in paths for reading in directory.read_path(path, namespace="path")]
        return contracts.check_set(readings, installed=contracts.Installed(actions=_actions(shell)), whole=False), []
    sources = [Path(team.source) for team in shell.settings.teams.values() if team.source and not team.source_is_remote]
    if not sources and _place_of_contracts() == Path():
        return _checked(shell, (Path(),))
    places = sources or [Path()]
    searched: list[dict[str, object]] = [
        {"namespace": "team", "path": str(place / _WORKFLOWS), "exists": (place / _WORKFLOWS).is_dir()}
        for place in places
    ]
    reports = [_team_set(shell, place) for place in places]
    if len(reports) == 1:
        return reports[0], searched
    together: tuple[Reading, ...] = tuple(reading for report in reports for reading in report.readings)
    return contracts.SetReport(together, contracts.check_set(together).graph), searched


def _team_set(shell: Shell, checkout: Path) -> contracts.SetReport:
    advice = asyncio.run(repositories.skills(checkout, loads.shelves(shell.settings)))
    for refusal in advice.refused:
        shell.screen.note(str(refusal))
    skills = frozenset(entry.name for entry in advice.counting)
    installed = contracts.Installed(actions=_actions(shell), skills=skills)
    return contracts.check_set(directory.read_directory(checkout / _WORKFLOWS), installed=installed)


def _actions(shell: Shell) -> Mapping[str, Mode] | None:
    """The actions that this deployment's publishers have; None where no settings file says which there are."""
    from heinzelwerk.publisher import registry

    settings = shell.settings
    if shell.config_file is None:
        return None
    built = registry.build(documents=settings.documents.directory, plugins=settings.adapters.publishers)
    return dict.fromkeys(built, "write")
