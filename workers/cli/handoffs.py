"""`heinzelwerk handoff run`: one handoff by hand, through the very sandbox and adapter that a handoff worker uses."""

from __future__ import annotations

import asyncio
import os
import signal
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heinzelwerk import errors, handoff
from heinzelwerk.handoff import HandoffFile, HandoffRequest, HandoffResult, Limits, Status
from workers.cli import options
from workers.cli.shell import Shell
from workers.show import handed

if TYPE_CHECKING:
    from config.settings import RunnerSettings, Settings

_COMMAND = "command"
_LONGEST_S = 7_200.0


def _seconds(context: click.Context, param: click.Parameter, value: str) -> float:
    """Seconds, written as in the settings: 90, 30s, 10m."""
    from pydantic import TypeAdapter, ValidationError

    from config.settings import Seconds

    try:
        seconds = float(TypeAdapter(Seconds).validate_python(value))
    except ValidationError:
        raise click.BadParameter(f"{value!r} is no duration: write seconds, or 30s, 10m, 1h") from None
    if not 0 < seconds <= _LONGEST_S:
        raise click.BadParameter(f"{value!r} is not between nothing and two hours")
    return seconds


def _dollars(context: click.Context, param: click.Parameter, value: str | None) -> Decimal | None:
    """An amount of US dollars."""
    if value is None:
        return None
    try:
        amount = Decimal(value.removeprefix("$"))
    except InvalidOperation:
        raise click.BadParameter(f"{value!r} is no amount: write dollars, such as 0.50") from None
    if not amount.is_finite() or amount < 0:
        raise click.BadParameter(f"{value!r} is no amount that can be spent")
    return amount


@click.group("handoff")
def handoff_command() -> None:
    """Coding agents, by hand."""


@handoff_command.command("run")
@click.option("--runner", required=True, help="A runner of [handoff.runners], or claude-code, codex, pi, command.")
@click.option("--task", required=True, help="What the coding agent should do.")
@click.option(
    "--files",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A directory whose files it gets, read-only. Links are left out.",
)
@click.option(
    "--timeout", callback=_seconds, metavar="TIME", default="10m", show_default=True, help="Its wall clock: 30s, 10m."
)
@click.option("--max-usd", callback=_dollars, metavar="USD", help="It ends when its model has cost this.")
@click.option("--model", help="This model instead of the runner's.")
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    help="Put the files that it leaves, and its transcript, into this directory.",
)
@click.option("--trust-command", is_flag=True, help="For --runner command: you say that the command only reads.")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
@options.on_shell
@options.as_json
def run_command(
    shell: Shell,
    *,
    runner: str,
    task: str,
    files: Path | None,
    timeout: float,
    max_usd: Decimal | None,
    model: str | None,
    save: Path | None,
    trust_command: bool,
    argv: tuple[str, ...],
    as_json: bool,
) -> int:
    """Run one coding agent once and print what came of it.

    No server, no team, no turn: the sandbox, proxy and adapter of a handoff worker. For `--runner command` its argument
    list comes behind `--`, with the placeholders of docs/runners.md.
    """
    settings = _settings(shell.settings, runner, argv, trust=trust_command)
    given, left_out = _read(files) if files is not None else ((), 0)
    if left_out:
        shell.screen.note(f"{left_out} links or special files of {files} were left out")
    limits = Limits(timeout_s=timeout, max_usd=max_usd)
    result = asyncio.run(_run(shell, settings, runner, task=task, files=given, model=model, limits=limits))
    if save is not None:
        _save(result, save)
    if as_json:
        shell.screen.data(result.as_json())
    else:
        shell.screen.result(*handed.as_text(result, saved=save))
    return 0 if result.status is Status.COMPLETED else 1


def _settings(settings: Settings, runner: str, argv: tuple[str, ...], *, trust: bool) -> Settings:
    """The settings with this runner in them, as the command line changes it."""
    table = _table(settings, runner)
    if table.agent != _COMMAND and (argv or trust):
        raise click.UsageError(f"{runner} is no command: --trust-command and an argument list go with --runner command")
    if table.agent == _COMMAND and not (argv or table.command):
        raise click.UsageError(
            "--runner command needs its argument list: put it behind --, such as -- /usr/bin/wc {prompt_file}"
        )
    changes: dict[str, Any] = {"trust_command": table.trust_command or trust}
    if argv:
        first = str(Path(argv[0]).absolute()) if "/" in argv[0] else argv[0]
        changes["command"] = (first, *argv[1:])
    found = table.model_copy(update=changes)
    section = settings.handoff.model_copy(update={"runners": {**settings.handoff.runners, runner: found}})
    return settings.model_copy(update={"handoff": section})


def _table(settings: Settings, runner: str) -> RunnerSettings:
    from config.settings import RunnerSettings
    from heinzelwerk.runner import registry

    known = settings.handoff.runners
    if runner in known:
        return known[runner]
    if runner not in registry.names():
        there = ", ".join(dict.fromkeys((*known, *registry.names())))
        raise click.BadParameter(f"there is no runner {runner!r}; there are {there}", param_hint="--runner")
    return RunnerSettings(agent=runner)


async def _run(
    shell: Shell,
    settings: Settings,
    runner: str,
    *,
    task: str,
    files: tuple[HandoffFile, ...],
    model: str | None,
    limits: Limits,
) -> HandoffResult:
    from workers import handoffs, log
    from workers.clock import SystemClock, UlidIds

    log.set_up(log_format="text", level="error", secrets=settings.secrets())
    ids = UlidIds()
    found = handoffs.runner(runner, settings, handoffs.house(settings, SystemClock(), ids))
    request = HandoffRequest(run_id=ids.new(), agent=runner, prompt=task, files=files, model=model, limits=limits)
    stopped = asyncio.Event()
    # Ctrl-C stops the agent as a person's stop does, so that what it cost is told; the sandbox dies with us in any case.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stopped.set)
    async with shell.patience(f"running {runner}", fix=f"it may take {limits.timeout_s:g} s (Ctrl-C stops it)"):
        return await found.run(request, stop=stopped.is_set)


def _read(directory: Path) -> tuple[tuple[HandoffFile, ...], int]:
    """The regular files below a directory, by their relative paths, and how many entries are none."""
    found: list[HandoffFile] = []
    left_out = size = 0
    for folder, names, files in os.walk(directory):
        left_out += sum(Path(folder, name).is_symlink() for name in names)
        names.sort()
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_symlink() or not path.is_file():
                left_out += 1
                continue
            size += path.stat().st_size
            if len(found) >= handoff.FILES_MAX or size > handoff.FILES_BYTES:
                raise errors.Refused(
                    f"{directory} holds more than {handoff.FILES_MAX} files or {handoff.FILES_BYTES >> 20} MiB, which is what a "
                    "handoff takes",
                    fix="give a smaller directory",
                )
            try:
                found.append(HandoffFile(path=path.relative_to(directory).as_posix(), data=path.read_bytes()))
            except OSError as error:
                raise errors.Refused(
                    f"{path} cannot be read: {error.strerror}", fix="give files that can be read"
                ) from error
    return tuple(found), left_out


def _save(result: HandoffResult, directory: Path) -> None:
    """The agent's files below `out/`, its transcript beside them."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file in result.files:
            target = directory / "out" / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.data)
        if result.transcript is not None:
            (directory / "transcript.jsonl").write_bytes(result.transcript.data)
    except OSError as error:
        raise errors.Refused(
            f"{error.filename or directory} cannot be written: {error.strerror}",
            fix="name another directory with --save",
        ) from error
