"""One run from start to end: what goes in, what comes out, and every way in which it can be over."""

import asyncio
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from heinzelwerk import errors
from heinzelwerk.sandbox import choose, place
from heinzelwerk.sandbox.spec import Backend, Ended, Limits, Refusal
from tests.support import sandbox


@pytest.fixture(params=(*sandbox.CONFINING, "unsafe"))
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """Every way to run: whatever holds for a run holds without confinement too."""
    if request.param == "unsafe":
        found = asyncio.run(choose.choose_backend(root=tmp_path, unsafe=True))
        assert isinstance(found, Backend)
        return found
    found = sandbox.backend_here(request.param)
    if isinstance(found, Refusal):
        pytest.skip(f"{request.param} cannot be tested on this machine: {found.detail}")
    return found


@asynccontextmanager
async def service(path: Path, *, reply: bytes = b"") -> AsyncIterator[list[bytes]]:
    """A unix socket that reads to the end, remembers, and answers `reply` or what it read."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read())
        writer.write(reply or seen[-1])
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    async with server:
        yield seen


async def test_a_run_gets_its_input_and_gives_its_results(backend: Backend, tmp_path: Path) -> None:
    """Files, instructions, HOME, environment and stdin arrive; lines, exit code and files come back with hashes."""
    script = """
    import os, sys
    print(open("notes/a.txt").read(), open(os.environ["CONTRACT"]).read(), os.environ["COLOUR"], sys.stdin.read())
    print(open(os.path.expanduser("~/.agent/settings")).read())
    print("a complaint", file=sys.stderr)
    open(os.path.expanduser("~/.agent/cache"), "w").write("x")
    open(os.environ["TMPDIR"] + "/t", "w").write("x")
    os.mkdir("out/deep")
    open("out/deep/report.md", "w").write("the report")
    sys.exit(3)
    """
    seen = await sandbox.run_agent(
        backend,
        script,
        root=tmp_path,
        make=lambda layout: {
            "files": {"notes/a.txt": b"given"},
            "run_files": {"contract.md": b"instructions"},
            "home_files": {".agent/settings": b"private"},
            "environment": {"COLOUR": "blue", "CONTRACT": layout.contract},
            "stdin": b"the task",
        },
    )
    assert seen.out == "given instructions blue the task\nprivate"
    assert seen.err == "a complaint"
    assert (seen.result.ended, seen.result.exit_code, seen.result.signal) == (Ended.EXITED, 3, None)
    (file,) = seen.result.files
    assert (file.path, file.data) == ("deep/report.md", b"the report")
    assert file.sha256 == hashlib.sha256(b"the report").hexdigest()
    assert seen.result.skipped == ()
    assert abs(seen.result.started_at - time.time()) < 3600
    assert not list(tmp_path.iterdir()), "something was left behind"


async def test_the_result_says_what_confined_it(backend: Backend, tmp_path: Path) -> None:
    """Backend, network and its warnings stand in every result; `unsafe` never hides."""
    result = (await sandbox.run_agent(backend, "", root=tmp_path)).result
    assert result.backend == backend.name
    assert result.network == ("host" if backend.name == "unsafe" else "none")
    assert any("without any confinement" in line for line in result.warnings) == (backend.name == "unsafe")
    assert any("weaker" in line for line in result.warnings) == (backend.name == "landlock")
    assert any("started as root" in line for line in result.warnings) == (os.geteuid() == 0)


async def test_an_agent_runs_in_an_unprivileged_account(backend: Backend, tmp_path: Path) -> None:
    """Never as root, whatever the worker is."""
    seen = await sandbox.run_agent(backend, "import os; print(os.getuid(), os.getgroups())", root=tmp_path)
    assert seen.out.split()[0] not in ("0", "")


async def test_the_environment_is_the_given_one(backend: Backend, tmp_path: Path) -> None:
    """Nothing but the request's variables and the fixed few, whose HOME and TMPDIR cannot be moved."""
    seen = await sandbox.run_agent(
        backend,
        "import os; print(sorted(os.environ)); print(os.environ['HOME'])",
        root=tmp_path,
        make=lambda layout: {"environment": {"HOME": "/root", "X": "1"}},
    )
    names, home = seen.out.splitlines()
    assert set(eval(names)) - {"PWD", "LC_CTYPE"} == {"HOME", "LANG", "PATH", "TMPDIR", "USER", "X"}
    assert home != "/root"


async def test_the_model_is_reached_through_its_port(backend: Backend, tmp_path: Path) -> None:
    """Megabytes go both ways through the forwarder, several connections at once, each end passed on."""
    script = """
    import socket, sys, threading
    def ask(port, data, got):
        with socket.create_connection(("127.0.0.1", port)) as s:
            threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR))).start()
            while chunk := s.recv(65536): got.extend(chunk)
    data = bytes(range(256)) * 12000
    gots = [bytearray() for _ in range(4)]
    threads = [threading.Thread(target=ask, args=(int(sys.argv[1]), data, got)) for got in gots]
    for t in threads: t.start()
    for t in threads: t.join()
    print([bytes(got) == data for got in gots])
    """
    async with service(tmp_path / "model.sock") as asked:
        seen = await sandbox.run_agent(
            backend,
            "import sys; sys.argv[1:] = [open('port').read()]\n" + textwrap.dedent(script),
            root=tmp_path / "runs",
            make=lambda layout: {
                "model_socket": tmp_path / "model.sock",
                "files": {"port": str(layout.model_port).encode()},
            },
        )
    assert seen.out == "[True, True, True, True]", seen.err
    assert len(asked) == 4
    assert seen.result.network == ("host" if backend.name == "unsafe" else "model")


async def test_a_port_without_a_service_is_closed(backend: Backend, tmp_path: Path) -> None:
    """Where the service went away the connection ends at once, and the agent does not hang."""
    script = """
    import socket
    print(socket.create_connection(('127.0.0.1', int(open('port').read())), timeout=60).recv(1))
    """
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "model.sock"))  # it exists, and nobody listens
        seen = await sandbox.run_agent(
            backend,
            script,
            root=tmp_path / "runs",
            make=lambda layout: {
                "model_socket": tmp_path / "model.sock",
                "files": {"port": str(layout.model_port).encode()},
            },
        )
    assert seen.out == "b''"


async def test_tools_are_served_over_stdio(backend: Backend, tmp_path: Path) -> None:
    """The command of `tools_argv` joins an agent's pipe to the tools socket."""
    script = (
        "import json, subprocess; print(subprocess.run(json.load(open('argv')), input=b'question', stdout=-1).stdout)"
    )
    async with service(tmp_path / "tools.sock", reply=b"answer") as asked:
        seen = await sandbox.run_agent(
            backend,
            script,
            root=tmp_path / "runs",
            make=lambda layout: {
                "tools_socket": tmp_path / "tools.sock",
                "files": {"argv": json.dumps(layout.tools_argv).encode()},
            },
        )
    assert (seen.out, asked) == ("b'answer'", [b"question"])


async def test_an_installation_is_readable_at_its_own_path(backend: Backend, tmp_path: Path) -> None:
    """A bound directory can be read and executed below its own name, and not written."""
    tool = tmp_path / "agent" / "bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho ran from $0\necho x >> $0 || echo kept\n")
    for path in (tool, tool.parent, tool.parent.parent):
        path.chmod(0o755)
    seen = await sandbox.run_agent(
        backend, "", root=tmp_path / "runs", make=lambda _: {"argv": (str(tool),), "read_only": (tmp_path / "agent",)}
    )
    assert seen.out.splitlines()[:1] == [f"ran from {tool}"]
    if backend.name != "unsafe":
        assert len(tool.read_text().splitlines()) == 3, "it wrote into the installation"


async def test_a_missing_program_is_a_failed_setup(backend: Backend, tmp_path: Path) -> None:
    """The detail names the program; nothing ran."""
    seen = await sandbox.run_agent(backend, "", root=tmp_path, make=lambda _: {"argv": ("no-such-agent",)})
    assert (seen.result.ended, seen.result.exit_code) == (Ended.SETUP_FAILED, None)
    assert "no-such-agent" in seen.result.detail


async def test_a_bwrap_that_may_not_start_is_refused(tmp_path: Path) -> None:
    """An installed bwrap that is forbidden namespaces is no sandbox; the refusal says what to allow."""
    fake = _fake_bwrap(tmp_path, "sys.exit('bwrap: setting up uid map: Permission denied')\n")
    chosen = await choose.choose_backend(root=tmp_path / "runs", order=("bubblewrap",), bwrap=fake)
    assert isinstance(chosen, Refusal)
    assert "Permission denied" in chosen.detail
    assert "AppArmor" in chosen.fix


async def test_a_bwrap_that_confines_nothing_is_refused(tmp_path: Path) -> None:
    """Installed and starting is not enough: one that only runs the command is found out by the canaries."""
    fake = _fake_bwrap(
        tmp_path,
        "bound = dict(zip(sys.argv[2:], sys.argv[1:]))\n"
        "plan = marshal.load(open(bound['/handoff/run'] + '/plan', 'rb'))\n"
        "os.write(plan['status_fd'], b'started 1\\nexit 0\\n')\n"
        "os.environ['HOME'] = bound['/handoff/seed']\n"
        "os.chdir(bound['/handoff/seed'])\n"
        "os.execv(plan['argv'][0], plan['argv'])\n",
    )
    with sandbox.public_directory() as root:
        chosen = await choose.choose_backend(root=root / "runs", order=("bubblewrap",), bwrap=fake)
    assert isinstance(chosen, Refusal)
    assert "could read a file outside" in chosen.detail
    assert "could connect to a port" in chosen.detail


def _fake_bwrap(directory: Path, rest: str) -> Path:
    fake = directory / "bwrap"
    version = "if sys.argv[1] == '--version': print('bubblewrap 9'); sys.exit()\n"
    fake.write_text(f"#!{sandbox.PYTHON} -I\nimport marshal, os, sys\n{version}{rest}")
    for path in (directory, fake):
        path.chmod(0o755)
    return fake


async def test_a_missing_bwrap_is_refused_with_its_fix(tmp_path: Path) -> None:
    """The refusal says what to install, and names every backend that was tried."""
    chosen = await choose.choose_backend(root=tmp_path, order=("bubblewrap",), bwrap=tmp_path / "none")
    assert isinstance(chosen, Refusal)
    assert chosen.tried[0][0] == "bubblewrap"
    assert "apt install bubblewrap" in chosen.fix


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to an account")
async def test_an_unknown_account_is_refused(tmp_path: Path) -> None:
    """Root that cannot become the configured account does not fall back to another one."""
    chosen = await choose.choose_backend(root=tmp_path, account="no-such-account")
    assert isinstance(chosen, Refusal)
    assert "no-such-account" in chosen.detail
    assert isinstance(await choose.choose_backend(root=tmp_path, account="root"), Refusal)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to an account")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv of util-linux takes rights away for this test")
@pytest.mark.parametrize(("missing", "fix"), [("setuid", "CAP_SETUID"), ("setgid", "CAP_SETGID")])
def test_root_that_cannot_become_somebody_else_is_refused(tmp_path: Path, missing: str, fix: str) -> None:
    """A root without the right to change its account runs no agent at all, and says what it lacks."""
    script = """
    import asyncio, sys
    from pathlib import Path
    from heinzelwerk.sandbox import choose
    chosen = asyncio.run(choose.choose_backend(root=Path(sys.argv[1])))
    print(type(chosen).__name__, chosen.fix)
    """
    argv = ["setpriv", "--bounding-set", f"-{missing}", sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True)
    assert done.stdout.startswith("Refusal ")
    assert fix in done.stdout


async def test_a_stop_is_graceful(backend: Backend, tmp_path: Path) -> None:
    """The agent is interrupted, says its last words, and its own exit code is kept."""
    script = """
    import signal, sys, time
    def last(*_): print("it cost 3 cents"); sys.exit(0)
    signal.signal(signal.SIGINT, last)
    print("working")
    time.sleep(600)
    """
    stop = asyncio.Event()
    seen = await sandbox.run_agent(
        backend, script, root=tmp_path, stop=stop, on_line=lambda _, line: stop.set() if line == b"working" else None
    )
    assert (seen.result.ended, seen.result.exit_code) == (Ended.STOPPED, 0)
    assert seen.out == "working\nit cost 3 cents"


async def test_a_stop_ends_a_deaf_agent_too(backend: Backend, tmp_path: Path) -> None:
    """After the grace it is killed."""
    script = "import signal, time; signal.signal(2, signal.SIG_IGN); print('deaf'); time.sleep(600)"
    stop = asyncio.Event()
    seen = await sandbox.run_agent(
        backend,
        script,
        root=tmp_path,
        stop=stop,
        limits=Limits(timeout_s=60, stop_grace_s=0.2),
        on_line=lambda *_: stop.set(),
    )
    assert (seen.result.ended, seen.result.signal) == (Ended.STOPPED, signal.SIGKILL)


async def test_silence_ends_a_run_unless_the_model_is_busy(backend: Backend, tmp_path: Path) -> None:
    """No output for `idle_s` is the end; activity that the caller reports keeps it alive until the timeout."""
    script = "import time; print('once'); time.sleep(600)"
    limits = Limits(timeout_s=60, idle_s=0.3, stop_grace_s=0.1)
    seen = await sandbox.run_agent(backend, script, root=tmp_path, limits=limits)
    assert seen.result.ended is Ended.IDLE
    limits = Limits(timeout_s=1.2, idle_s=0.3, stop_grace_s=0.1)
    seen = await sandbox.run_agent(backend, script, root=tmp_path, limits=limits, activity=time.monotonic)
    assert seen.result.ended is Ended.TIMEOUT


async def test_a_line_of_any_length_comes_whole(backend: Backend, tmp_path: Path) -> None:
    """Megabytes without a line end, then one without any at the very end: both are delivered."""
    script = "import sys; sys.stdout.write('x' * 3_000_000 + '\\n\\n' + 'the end')"
    seen = await sandbox.run_agent(backend, script, root=tmp_path)
    assert [len(line) for _, line in seen.lines] == [3_000_000, 0, 7]
    assert seen.result.output_bytes == 3_000_009


async def test_endless_output_ends_the_run(backend: Backend, tmp_path: Path) -> None:
    """Over the cap, on either stream, the agent is killed; it never blocks and never fills the memory."""
    script = "import sys\nwhile True: sys.stderr.write('y' * 1000 + '\\n'); sys.stdout.write('x' * 1000 + '\\n')"
    seen = await sandbox.run_agent(backend, script, root=tmp_path, limits=Limits(timeout_s=60, output_bytes=1_000_000))
    assert seen.result.ended is Ended.OUTPUT_CAP
    assert sum(len(line) for _, line in seen.lines) <= 1_000_000


async def test_an_error_of_the_caller_ends_the_run(backend: Backend, tmp_path: Path) -> None:
    """What the caller's own line function raises is not swallowed, and the agent does not outlive it."""
    mark = f"caller-{os.getpid()}-{tmp_path.name}"

    def fail(stream: str, line: bytes) -> None:
        raise KeyError(line)

    with pytest.raises(KeyError):
        await sandbox.run_agent(backend, "import time; print('x'); time.sleep(600)", mark, root=tmp_path, on_line=fail)
    assert sandbox.alive_with(mark) == []


async def test_unread_input_is_no_error(backend: Backend, tmp_path: Path) -> None:
    """An agent that never reads its task, however long, ends as it wants."""
    seen = await sandbox.run_agent(backend, "print('done')", root=tmp_path, make=lambda _: {"stdin": b"x" * 3_000_000})
    assert (seen.result.ended, seen.out) == (Ended.EXITED, "done")


async def test_a_cancelled_run_leaves_nothing(backend: Backend, tmp_path: Path) -> None:
    """Cancelling the task kills the agent before the cancellation arrives at the caller."""
    mark = f"cancel-{os.getpid()}-{tmp_path.name}"
    started = asyncio.Event()
    task = asyncio.ensure_future(
        sandbox.run_agent(
            backend, "import time; print('x'); time.sleep(600)", mark, root=tmp_path, on_line=lambda *_: started.set()
        )
    )
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sandbox.alive_with(mark) == []
    assert not list(tmp_path.iterdir())


async def test_a_run_that_is_cancelled_while_it_starts_leaves_nothing(backend: Backend, tmp_path: Path) -> None:
    """At whatever moment it is cancelled, nothing stays: no process, no directory, no thread."""
    for delay in (0.0, 0.002, 0.005, 0.01, 0.02, 0.04):
        mark = f"early-{os.getpid()}-{tmp_path.name}-{delay}"
        run = sandbox.run_agent(backend, "import time; time.sleep(600)", mark, root=tmp_path)
        task = asyncio.ensure_future(run)
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sandbox.alive_with(mark) == []
        assert not list(tmp_path.iterdir())
    sandbox.wait_until(lambda: not any(thread.name == "sandbox" for thread in threading.enumerate()))


async def test_runs_at_once_do_not_meet(backend: Backend, tmp_path: Path) -> None:
    """Several runs have their own files, HOME and output."""
    script = """
    import os, sys, time
    open(os.path.expanduser("~/mine"), "x").write(sys.argv[1])
    open("out/mine", "x").write(sys.argv[1])
    time.sleep(0.2)
    print(open(os.path.expanduser("~/mine")).read())
    """
    seen = await asyncio.gather(
        *(sandbox.run_agent(backend, script, str(n), root=tmp_path, run_id=f"run-{n}") for n in range(4))
    )
    assert [(one.out, one.result.files[0].data) for one in seen] == [(str(n), str(n).encode()) for n in range(4)]


async def test_hostile_results_are_left_where_they_are(backend: Backend, tmp_path: Path) -> None:
    """Links, pipes, hard links, deep trees, closed and huge files: listed with reasons, never followed, all removed."""
    script = """
    import os
    os.chdir("out")
    open("good.txt", "w").write("good")
    open("-rf", "w").write("also good")
    os.chmod("good.txt", 0o4755)
    os.symlink("/etc/passwd", "passwd")
    os.symlink("/", "root")
    os.mkfifo("pipe")
    open("one", "w").write("x"); os.link("one", "two")
    with open("sparse", "wb") as f: f.truncate(50 << 20)
    open("line\\nend", "w"); open(b"bad\\xff", "w")
    os.makedirs("/".join("d" * 30)); open("/".join("d" * 30) + "/deep.txt", "w")
    open("closed", "w"); os.chmod("closed", 0)
    os.mkdir("locked"); open("locked/x", "w"); os.chmod("locked", 0)
    """
    seen = await sandbox.run_agent(backend, script, root=tmp_path)
    assert seen.result.exit_code == 0, seen.err
    skipped = {file.path: file.reason for file in seen.result.skipped}
    assert {file.path: file.data for file in seen.result.files if file.data} == {
        "good.txt": b"good",
        "-rf": b"also good",
    }
    assert skipped["passwd"] == skipped["root"] == "symbolic link"
    assert skipped["pipe"] == "named pipe"
    assert "hard link" in skipped["one"]
    assert "hard link" in skipped["two"]
    assert "bytes" in skipped["sparse"]
    assert "control" in skipped["line\\nend"]
    assert any("UTF-8" in reason for reason in skipped.values())
    assert any("levels deep" in reason for reason in skipped.values())
    assert not list(tmp_path.iterdir())


async def test_without_out_nothing_can_be_left(backend: Backend, tmp_path: Path) -> None:
    """A run that gives no files back has no place to leave them, where something confines it."""
    script = "open('out/x', 'w').write('x')"
    seen = await sandbox.run_agent(backend, script, root=tmp_path, make=lambda _: {"out": False})
    assert seen.result.files == ()
    assert (seen.result.exit_code == 0) == (backend.name == "unsafe")


async def test_a_login_directory_becomes_home(backend: Backend, tmp_path: Path) -> None:
    """A copy: what the agent changes stays in the run; links are left out and named."""
    login = tmp_path / "login"
    (login / ".agent").mkdir(parents=True)
    (login / ".agent" / "token").write_text("t0ken")
    (login / "link").symlink_to("/etc/passwd")
    script = """
    import os
    token = os.path.expanduser("~/.agent/token")
    print(open(token).read(), os.listdir(os.path.expanduser("~")))
    open(token, "w").write("x")
    """
    seen = await sandbox.run_agent(backend, script, root=tmp_path / "runs", make=lambda _: {"home_from": login})
    assert seen.out == "t0ken ['.agent']"
    assert (login / ".agent" / "token").read_text() == "t0ken"
    assert any("not copied" in line for line in seen.result.warnings)


@pytest.mark.parametrize(
    "wrong",
    [
        {"files": {"../x": b""}},
        {"files": {"/etc/x": b""}},
        {"files": {"out/x": b""}},
        {"files": {"a": b"", "a/b": b""}},
        {"argv": ()},
        {"argv": ("a\0b",)},
        {"environment": {"A=B": "c"}},
        {"model_socket": Path("/nonexistent.sock")},
    ],
    ids=lambda wrong: repr(wrong)[:40],
)
async def test_a_malformed_request_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    """It is an error before anything starts, with the reason, and the place is cleared."""
    backend = await choose.choose_backend(root=tmp_path, unsafe=True)
    assert isinstance(backend, Backend)
    with pytest.raises(errors.Refused):
        await sandbox.run_agent(backend, "", root=tmp_path, make=lambda _: wrong)
    assert not list(tmp_path.iterdir())


async def test_a_run_id_is_used_once_at_a_time(tmp_path: Path) -> None:
    """Two runs of one id would share a directory: the second is refused, and does not disturb the first."""
    backend = await choose.choose_backend(root=tmp_path, unsafe=True)
    assert isinstance(backend, Backend)
    async with place.place(backend, root=tmp_path, run_id="one") as first:
        with pytest.raises(errors.Refused, match="one"):
            async with place.place(backend, root=tmp_path, run_id="one"):
                pass
        assert first.directory.is_dir()
    for wrong in ("", "../x", "a/b", ".hidden", "a" * 121):
        with pytest.raises(errors.Refused):
            async with place.place(backend, root=tmp_path, run_id=wrong):
                pass


async def test_a_sandbox_killed_from_outside_is_said(backend: Backend, tmp_path: Path) -> None:
    """The memory killer takes the outermost process: the run is `killed`, and its agent does not go on."""
    mark = f"outermost-{os.getpid()}-{tmp_path.name}"

    def kill(stream: str, line: bytes) -> None:
        os.kill(json.loads((tmp_path / "run-1.json").read_text())["child"]["pid"], signal.SIGKILL)

    seen = await sandbox.run_agent(
        backend, "import time; print('x'); time.sleep(600)", mark, root=tmp_path, on_line=kill
    )
    assert (seen.result.ended, seen.result.exit_code, seen.result.signal) == (Ended.KILLED, None, signal.SIGKILL)
    assert seen.result.detail
    sandbox.wait_until(lambda: not sandbox.alive_with(mark))
