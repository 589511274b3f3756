"""The entry: the group of all commands, loaded when they are named, and the one place where errors become exit codes.

Exit codes: 0 done; 1 refused, failed, diagnostics, no server; 2 usage; 78 configuration; 130 interrupted; 141 nobody read on.
"""

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

import click

from heinzelwerk import errors
from workers.cli.shell import Shell
from workers.show.screen import Screen

DONE, FAILED, USAGE, CONFIGURATION, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 78, 130, 141

COMMANDS = {
    "up": "processes",
    "demo": "processes",
    "worker": "processes",
    "beat": "processes",
    "receive": "processes",
    "console": "processes",
    "metrics": "processes",
    "flower": "processes",
    "health": "processes",
    "load": "contracts",
    "check": "contracts",
    "new": "contracts",
    "list": "contracts",
    "show": "contracts",
    "graph": "contracts",
    "try": "trial",
    "wake": "wakes",
    "event": "wakes",
    "chat": "wakes",
    "answer": "wakes",
    "steer": "wakes",
    "stop": "wakes",
    "log": "records",
    "costs": "records",
    "export": "records",
    "inbox": "drafts",
    "drafts": "drafts",
    "approve": "drafts",
    "decline": "drafts",
    "resolve": "drafts",
    "pause": "upkeep",
    "resume": "upkeep",
    "drain": "upkeep",
    "prune": "upkeep",
    "doctor": "upkeep",
    "handoff": "handoffs",
}
"""Every command by the module of this package that has it, there as `<name>_command`."""


class Commands(click.Group):
    """The commands, each imported when it is used, so that `heinzelwerk --help` does not load an agent library."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which a newcomer meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"workers.cli.{COMMANDS[cmd_name]}")
        command = getattr(module, f"{cmd_name}_command")
        assert isinstance(command, click.Command)  # noqa: S101 - a module that breaks this fails every test of it
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with the nearest name for one that does not exist."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else " `heinzelwerk --help` lists them."
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config", type=click.Path(dir_okay=False), help="The settings file (else HEINZELWERK_CONFIG, ./heinzelwerk.toml)."
)
@click.option("--traceback", is_flag=True, help="Show where an unexpected error came from.")
@click.version_option(package_name="heinzelwerk", prog_name="heinzelwerk", message="%(prog)s %(version)s")
@click.pass_obj
def heinzelwerk(shell: Shell, config: str | None, traceback: bool) -> None:
    """Heinzelwerk: durable agent turns for teams, on Celery and Redis.

    First look: `heinzelwerk demo`. A team of your own: `heinzelwerk up`, then `load` and `wake NAME`.
    """
    shell.config = config or shell.config
    shell.traceback = traceback


def main() -> None:
    """Run the command line and end the process with its exit code."""
    code = run(sys.argv[1:], Shell(Screen(sys.stdout, sys.stderr)))
    if code == PIPE_CLOSED:  # `heinzelwerk log NAME | head` ends quietly, and what the command started is ended first
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run(arguments: Sequence[str], shell: Shell) -> int:
    """Run one command; answers its exit code and never raises."""
    try:
        result = heinzelwerk.main(args=list(arguments), prog_name="heinzelwerk", standalone_mode=False, obj=shell)
    except click.UsageError as error:
        error.show(file=shell.screen.err.file)
        return USAGE
    except click.ClickException as error:
        shell.screen.problem(error.format_message())
        return FAILED
    except BrokenPipeError:
        return PIPE_CLOSED
    except (click.Abort, KeyboardInterrupt):
        shell.screen.note("interrupted")
        return INTERRUPTED
    except errors.ConfigurationError as error:
        shell.screen.problem(str(error), fix=error.fix)
        return CONFIGURATION
    except errors.ContractRefused as error:
        shell.screen.problem(str(error), fix=error.fix, details=error.diagnostics)
        return FAILED
    except errors.HeinzelwerkError as error:
        shell.screen.problem(str(error), fix=error.fix)
        return FAILED
    except Exception as error:  # noqa: BLE001 - the last door: a bug becomes a sentence and an exit code
        return _unexpected(error, shell)
    return result if isinstance(result, int) else DONE


def _unexpected(error: Exception, shell: Shell) -> int:
    """A bug of ours: says so, and how to see more."""
    if shell.traceback:
        shell.screen.note("".join(traceback.format_exception(error)))
    shell.screen.problem(
        f"unexpected {type(error).__name__}: {error}",
        fix="this is a bug in heinzelwerk: run `heinzelwerk --traceback ...` and report what it prints",
    )
    return FAILED
