"""Commands that start processes: up, worker, beat, receive, console, metrics, flower, demo."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from heinzelwerk import errors
from workers.cli import options
from workers.cli.shell import Shell

if TYPE_CHECKING:
    from workers.root import Runtime


@click.command("worker")
@click.argument("profile", default="all")
@options.on_shell
def worker_command(shell: Shell, *, profile: str) -> int:
    """Run one worker process.

    PROFILE is turns, upkeep, solo, handoffs, or (default) all of them in one process.
    """
    from workers import root, running

    return running.run_worker(root.build(shell.connected(), profile=profile))


@click.command("beat")
@options.on_shell
def beat_command(shell: Shell) -> int:
    """Run beat, which asks for a sweep every few seconds.

    Two of them, or none, lose and double nothing.
    """
    from workers import root, running

    return running.run_beat(root.build(shell.connected(), profile=root.CLIENT), shell.settings.workers.data)


@click.command("receive")
@options.on_shell
def receive_command(shell: Shell) -> None:
    """Run the receiver of webhooks.

    POST /events/NAME wakes every Heinzelmännchen whose contract declares hz.on: [event.NAME]. See [events] in the settings.
    """
    from workers import receiver, running, serving

    listener = receiver.listening(shell.settings.events)

    async def serve(runtime: Runtime) -> None:
        running.set_up_logs(runtime)
        shell.screen.note(f"receives at http://{serving.address_of(listener)}/events/NAME")
        await receiver.serve(runtime, listener)

    shell.on_runtime(serve)


@click.command("console")
@click.option("--password", is_flag=True, help="Make the hash of a password for [console.people.NAME], and end.")
@options.on_shell
def console_command(shell: Shell, *, password: bool) -> int:
    """Run the console: inbox, drafts, turns and costs in a browser.

    For people who do not sit at a shell: they read a draft and what it would change, approve, edit, decline, answer. Without
    [console.people.NAME] in the settings it answers this machine only, and whoever started it is who decides.
    """
    from workers.console import passwords

    if password:
        words = click.prompt("Password", hide_input=True, confirmation_prompt="Once more", err=True)
        if len(words) < passwords.SHORTEST:
            raise errors.Refused(
                f"a password has at least {passwords.SHORTEST} characters",
                fix="take a few words that others do not guess",
            )
        shell.screen.result(passwords.made(words))
        return 0
    from workers import running, serving
    from workers.console import app

    listener = app.listening(shell.settings.console)

    async def serve(runtime: Runtime) -> None:
        running.set_up_logs(runtime)
        shell.screen.note(f"console at {app.address(shell.settings.console, listener)}")
        await serving.serve(app.made(runtime, here=options.login()), listener)

    shell.on_runtime(serve)
    return 0


@click.command("metrics")
@options.on_shell
def metrics_command(shell: Shell) -> None:
    """Run the exporter that Prometheus scrapes.

    GET /metrics: workers, sessions by state, what is due, what waits for people, money and caps. See [metrics] in the
    settings.
    """
    from workers import exporter, running, serving

    listener = serving.listening("metrics", shell.settings.metrics.address, shell.settings.metrics.port)

    async def serve(runtime: Runtime) -> None:
        running.set_up_logs(runtime)
        shell.screen.note(f"metrics at http://{serving.address_of(listener)}/metrics")
        await serving.serve(exporter.Exporter(runtime).app, listener)

    shell.on_runtime(serve)


@click.command("flower", context_settings={"ignore_unknown_options": True})
@click.option(
    "--address", default="127.0.0.1", show_default=True, help="Where it listens; beyond loopback it needs a login."
)
@click.option("--port", default=5555, show_default=True, type=click.IntRange(0, 65535))
@click.option("--login", help="USER:PASSWORD that browsers must give. Better in a file: --login-file.")
@click.option(
    "--login-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file that holds USER:PASSWORD.",
)
@options.on_shell
def flower_command(shell: Shell, *, address: str, port: int, login: str | None, login_file: Path | None) -> int:
    """Run Flower: workers and queues in a browser.

    It sees names and ids, never a turn's words.
    """
    from workers import flowering, root
    from workers.serving import LOOPBACK

    secret = login_file.read_text("utf-8").strip() if login_file else login
    if secret is None and address not in LOOPBACK:
        raise errors.ConfigurationError(
            f"flower would listen on {address} without a login",
            fix="give --login-file FILE with USER:PASSWORD in it, or leave --address at 127.0.0.1",
        )
    runtime = root.build(shell.connected(), profile=root.CLIENT)
    return flowering.run(runtime.app, address=address, port=port, login=secret)


@click.command("health")
@click.argument("kind")
@click.option("--port", default=5555, show_default=True, type=click.IntRange(1, 65535), help="Where Flower listens.")
@options.on_shell
def health_command(shell: Shell, *, kind: str, port: int) -> int:
    """Say whether this machine's process makes progress; for health checks.

    KIND is a worker's profile, beat, flower, receive, console or metrics. Exit 0: it does; 1: it does not, with the
    reason on stderr.
    """
    from workers import health, profiles, translation

    known = (*profiles.profiles(shell.settings), "beat", "flower", "receive", "console", "metrics")
    if kind not in known:
        raise click.UsageError(f"There is no process {kind!r}; there are {', '.join(known)}.")
    if kind == "beat":
        wrong = health.beat(shell.settings.workers.data)
    elif kind == "flower":
        wrong = health.answers("flower", port, "/healthcheck")
    elif kind == "receive":
        wrong = health.answers("the receiver", shell.settings.events.port, "/health")
    elif kind == "metrics":
        wrong = health.answers("the exporter", shell.settings.metrics.port, "/healthz")
    elif kind == "console":
        wrong = health.answers("the console", shell.settings.console.port, "/healthz")
    else:
        options = translation.store_options(shell.settings)
        wrong = asyncio.run(health.worker(kind, shell.server_url(), options))
    if wrong is not None:
        shell.screen.problem(wrong, fix="read its log; it restarts by itself where a supervisor watches it")
        return 1
    return 0


@click.command("up")
@click.option("--flower", "with_flower", is_flag=True, help="Also run Flower on http://127.0.0.1:5555.")
@options.on_shell
def up_command(shell: Shell, *, with_flower: bool) -> int:
    """Run everything on this machine.

    An embedded server in ./.heinzelwerk, workers, beat; Ctrl-C ends them in peace. Contracts of the settings' teams
    are loaded at the start. It never uses REDIS_URL.
    """
    from workers import log
    from workers.cli.everything import Everything

    settings = shell.settings
    log.set_up(log_format=settings.workers.log_format, level="warning", secrets=settings.secrets())
    with Everything(
        settings,
        config=shell.config_file,
        environment=inherited(),
        note=lambda name, what: shell.screen.note(f"{name}: {what}"),
        with_flower=with_flower,
    ) as everything:
        everything.start()
        _leave_on_signals(everything.leave)
        shell.screen.result(
            f"Heinzelwerk is up: server {everything.url}, data in {settings.workers.data.absolute()}\n"
            "Next, in another terminal and this directory: heinzelwerk list\n"
            "      shows the Heinzelmännchen; wake NAME --wait starts one. Ctrl-C here ends everything."
        )
        everything.wait()
    return 0


@click.command("demo")
@click.option("--repo", type=click.Path(path_type=Path), help="Tell another repository's history.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep everything in this new directory.")
@options.on_shell
def demo_command(shell: Shell, *, repo: Path | None, keep: Path | None) -> int:
    """See one wake from start to changed document.

    Own server, real worker processes, a real git history, no key; nothing is left behind.
    """
    from workers import supervisor
    from workers.cli import demonstration

    supervisor.end_with_parent()  # `make demo` may be killed: nobody waits for the rest then
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: everything is ended and put away first
    named = repo.resolve() if repo else None
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="heinzelwerk-demo-", ignore_cleanup_errors=True) as directory:
            return demonstration.run(shell.screen, Path(directory).resolve(), named, environment=_own())
    if keep.exists():
        raise errors.Refused(
            f"{keep} exists; the demo would write into it", fix="name a directory that does not exist yet"
        )
    keep.mkdir(parents=True)
    return demonstration.run(shell.screen, keep.resolve(), named, environment=_own(), kept=True)


def inherited() -> Mapping[str, str]:
    """What our own processes get of this environment: everything but the settings that this command decides itself."""
    ours = ("REDIS_URL", "HEINZELWERK_STORE__URL", "HEINZELWERK_STORE__BROKER_URL")
    return {name: value for name, value in os.environ.items() if name not in ours}  # noqa: TID251 - passed on, not read


def _own() -> Mapping[str, str]:
    """The demo's processes take no settings from this environment: it shows the same thing everywhere."""
    return {name: value for name, value in inherited().items() if not name.startswith("HEINZELWERK_")}


def _leave_on_signals(leave: Callable[[], None]) -> None:
    """Ctrl-C and SIGTERM end the wait; what runs is then stopped in order."""

    def react(number: int, frame: FrameType | None) -> None:
        leave()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, react)
