"""Options that many commands share, each written once."""

import functools
import getpass
from collections.abc import Awaitable, Callable
from typing import Any

import click

from heinzelwerk.client import Client
from workers.cli.shell import Shell

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs; nothing else on stdout.")


def login() -> str:
    """Who is at the shell."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user without a name
        return "unknown"


by = click.option("--as", "by", default=login, show_default="the login name", help="Who says so; stands on the spine.")


def config(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--config` behind the command's own name too, not only in front of it."""

    def keep(context: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            context.ensure_object(Shell).config = value

    return click.option(
        "--config",
        type=click.Path(dir_okay=False),
        expose_value=False,
        callback=keep,
        help="The settings file. Default: HEINZELWERK_CONFIG, else ./heinzelwerk.toml.",
    )(command)


def on_team(command: Callable[..., Awaitable[int | None]]) -> Callable[..., int | None]:
    """Make an async command of a sync one: adds `--team` and `--config`, calls it with the shell and the team's client."""

    @config
    @click.option("--team", help="Whose Heinzelmännchen. Default: the only team there is.")
    @click.pass_obj
    @functools.wraps(command)
    def call(shell: Shell, /, *, team: str | None, **given: Any) -> int | None:
        async def ask(client: Client) -> int | None:
            return await command(shell, client, **given)

        return shell.on_team(team, ask, draft=given.get("draft"))

    return call


def on_shell(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """A command that needs settings and screen but no server: adds `--config`, calls it with the shell."""

    @config
    @click.pass_obj
    @functools.wraps(command)
    def call(shell: Shell, /, **given: Any) -> int | None:
        return command(shell, **given)

    return call
