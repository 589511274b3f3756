"""What an agent can do to the machine: each attack succeeds without a sandbox, and not inside one.

The rows are those of the measured attack table. "Without" is the same script in the same unprivileged account. Every row
runs on each backend that works on this machine; the others are skipped by name, and one test says which were tested.
"""

import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from heinzelwerk.sandbox.spec import Backend, Ended, Limits, Refusal
from tests.support import sandbox

pytestmark = pytest.mark.skipif(os.name != "posix", reason="agents run on POSIX systems alone")


@dataclass
class World:
    """What lies around an agent: files that its account may read and write, ports, and another process of it."""

    directory: Path
    tcp_port: int
    udp: socket.socket
    unix: Path
    abstract: str
    bystander: int

    def words(self) -> tuple[str, ...]:
        """For the scripts: argv[1:]."""
        ports = (str(self.tcp_port), str(self.udp.getsockname()[1]))
        return (str(self.directory), *ports, str(self.unix), self.abstract, str(self.bystander))


@pytest.fixture(params=sandbox.CONFINING)
def backend(request: pytest.FixtureRequest) -> Backend:
    found = sandbox.backend_here(request.param)
    if isinstance(found, Refusal):
        pytest.skip(f"{request.param} cannot be tested on this machine: {found.detail}")
    return found


@pytest.fixture
def world() -> Iterator[World]:
    with sandbox.public_directory() as directory:
        secret = directory / "secret.txt"
        secret.write_text("the secret of the worker")
        for name in ("own.txt", "target.txt"):
            (directory / name).write_text("as it was")
            if (account := sandbox.unprivileged()) is not None:
                os.chown(directory / name, account, account)
        unix, abstract = directory / "service.sock", f"hw-test-{directory.name}"
        with (
            socket.create_server(("127.0.0.1", 0)) as tcp,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
            socket.socket(socket.AF_UNIX) as by_path,
            socket.socket(socket.AF_UNIX) as by_name,
            sandbox.outside(
                ["/bin/sleep", "600"], environment={"WORKER_SECRET": "the secret of the worker"}
            ) as bystander,
        ):
            udp.bind(("127.0.0.1", 0))
            by_path.bind(str(unix))
            by_name.bind(f"\0{abstract}")
            unix.chmod(0o777)
            by_path.listen()
            by_name.listen()
            sandbox.wait_until(lambda: _runs(bystander.pid, "sleep"))
            yield World(directory, tcp.getsockname()[1], udp, unix, abstract, bystander.pid)


def _runs(pid: int, program: str) -> bool:
    return Path(f"/proc/{pid}/comm").read_text().strip() == program


PRELUDE = """
import ctypes, os, signal, socket, struct, sys
world, tcp, udp, unix, abstract, bystander = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:6], int(sys.argv[6])
out = os.path.join(os.getcwd(), "out")
libc = ctypes.CDLL(None, use_errno=True)
"""

ATTACKS = {
    "write a new file outside": "open(world + '/new.txt', 'w').write('x'); print('DONE')",
    "append to a file outside": "open(world + '/target.txt', 'a').write('x'); print('DONE')",
    "remove a file outside": "os.unlink(world + '/target.txt'); print('DONE')",
    "read a secret file": "print('DONE' if 'secret' in open(world + '/secret.txt').read() else '')",
    "read through a link": """
os.symlink(world + '/secret.txt', out + '/link')
print('DONE' if 'secret' in open(out + '/link').read() else '')""",
    "list a directory outside": "print('DONE' if 'secret.txt' in os.listdir(world) else '')",
    "find a secret in another process": """
for name in filter(str.isdigit, os.listdir('/proc')):
    try:
        if b'WORKER_SECRET' in open(f'/proc/{name}/environ', 'rb').read():
            print('DONE')
    except OSError: pass""",
    "kill another process": "os.kill(bystander, signal.SIGKILL); print('DONE')",
    "kill everything": """
os.kill(bystander, 0)  # it can be named: without a sandbox, the same signal to -1 would reach it
print('DONE')""",
    "connect to a port of the machine": "socket.create_connection(('127.0.0.1', tcp), timeout=5); print('DONE')",
    "connect by fast open, past connect()": """
s = socket.socket(); s.sendto(b'x', 0x20000000, ('127.0.0.1', tcp)); print('DONE')""",
    "connect by multipath TCP": """
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); s.settimeout(5); s.connect(('127.0.0.1', tcp)); print('DONE')""",
    "send a datagram to the machine": """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', udp)); s.send(b'x'); s.send(b'x')
print('DONE')""",
    "connect to a unix socket of the machine": "socket.socket(socket.AF_UNIX).connect(unix); print('DONE')",
    "connect to an abstract socket": "socket.socket(socket.AF_UNIX).connect('\\0' + abstract); print('DONE')",
    "hard link a file into the results": "os.link(world + '/own.txt', out + '/linked'); print('DONE')",
    "make namespaces": "print('DONE' if libc.unshare(0x10000000) == 0 else os.strerror(ctypes.get_errno()))",
    "trace another process": "print('DONE' if libc.ptrace(16, bystander, 0, 0) == 0 else 'denied')",
    "change the given files": "open('given.txt', 'a').write('x'); print('DONE')",
}

NEEDS = {
    "make namespaces": (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "user namespaces are closed here",
    ),
    "trace another process": ("/proc/sys/kernel/yama/ptrace_scope", "0", "processes may not trace each other here"),
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_works_outside_and_not_inside(
    backend: Backend, world: World, tmp_path: Path, name: str
) -> None:
    """Each row of the attack table: real in the bare account, without effect in the sandbox."""
    with sandbox.public_directory() as work:
        for path in (work / "given.txt", work / "out"):
            path.mkdir() if path.name == "out" else path.write_text("given")
            path.chmod(0o777)
        bystander = world.bystander
        inside = await sandbox.run_agent(
            backend,
            PRELUDE + ATTACKS[name],
            *world.words(),
            root=tmp_path,
            make=lambda _: {"files": {"given.txt": b"given"}},
        )
        assert "DONE" not in inside.out, inside.out
        assert inside.result.ended in (Ended.EXITED, Ended.KILLED)
        assert _runs(bystander, "sleep"), "the bystander is dead"
        assert (world.directory / "target.txt").read_text() == "as it was"
        assert not (world.directory / "new.txt").exists()
        bare = sandbox.run_outside(PRELUDE + ATTACKS[name], *world.words(), cwd=work)
        if "DONE" not in bare and name in ("make namespaces", "trace another process", "connect by multipath TCP"):
            pytest.skip(f"this machine refuses it to everybody, so nothing is proved: {bare.strip()[-200:]}")
        assert "DONE" in bare, bare


async def test_the_workers_environment_is_nowhere(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret of the worker's environment is in no variable and no process that an agent can see."""
    monkeypatch.setenv("WORKER_SECRET", "sesame")
    script = """
    import os
    found = [k for k in os.environ if k == "WORKER_SECRET"]
    try:
        for name in filter(str.isdigit, os.listdir("/proc")):
            for file in ("environ", "cmdline"):
                try:
                    if b"ses" b"ame" in open(f"/proc/{name}/{file}", "rb").read(): found.append(name)
                except OSError: pass
    except OSError: pass
    print(found)
    """
    seen = await sandbox.run_agent(backend, script, root=tmp_path)
    assert seen.out == "[]"
    assert "WORKER_SECRET" in sandbox.run_outside(script, environment={"WORKER_SECRET": "sesame"})


async def test_the_system_is_not_writable(backend: Backend, tmp_path: Path) -> None:
    """Also where the account would have the right: nothing of the system is open for writing, nothing secret readable."""
    script = """
    import os
    for path in ("/etc/passwd", "/usr/x", "/x", "/etc/x", "/root/x", "/dev/x", "/proc/sysrq-trigger", "x"):
        try: os.open(path, os.O_WRONLY | os.O_CREAT, 0o600); print("wrote", path)
        except OSError: pass
    for path in ("/etc/shadow", "/root/.ssh", "/root/.bashrc"):
        try: os.open(path, os.O_RDONLY); print("read", path)
        except OSError: pass
    """
    seen = await sandbox.run_agent(backend, script, root=tmp_path)
    assert (seen.result.ended, seen.out) == (Ended.EXITED, "")


async def test_only_its_own_processes_are_signalled(backend: Backend, world: World, tmp_path: Path) -> None:
    """SIGKILL to everybody reaches nobody outside, and the run ends with what is left of it."""
    script = "import os; os.kill(-1, 9); print('still here')"
    seen = await sandbox.run_agent(backend, script, root=tmp_path)
    assert seen.result.ended in (Ended.EXITED, Ended.KILLED)
    assert _runs(world.bystander, "sleep")


async def test_a_daemon_does_not_survive(backend: Backend, tmp_path: Path) -> None:
    """A child in a session of its own whose parents have ended lives on without a sandbox, and not with one."""
    mark = f"daemon-{os.getpid()}-{tmp_path.name}"
    script = """
    import os, sys, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in (0, 1, 2): os.close(fd)
            time.sleep(600)
        os._exit(0)
    os.wait()
    print("left one behind")
    """
    seen = await sandbox.run_agent(backend, script, mark, root=tmp_path)
    assert (seen.result.ended, seen.result.exit_code, seen.out) == (Ended.EXITED, 0, "left one behind")
    assert sandbox.alive_with(mark) == []
    sandbox.run_outside(script, mark)
    survivors = sandbox.alive_with(mark)
    assert len(survivors) == 1
    os.kill(survivors[0], signal.SIGKILL)


async def test_ignored_signals_do_not_help(backend: Backend, tmp_path: Path) -> None:
    """An agent that ignores every polite signal, and its children, are gone when a timeout's result exists."""
    mark = f"deaf-{os.getpid()}-{tmp_path.name}"
    script = """
    import os, signal, time
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
    os.fork(); os.setsid() if os.getpid() != os.getsid(0) else None
    print("deaf")
    time.sleep(600)
    """
    seen = await sandbox.run_agent(backend, script, mark, root=tmp_path, limits=Limits(timeout_s=2.0, stop_grace_s=0.2))
    assert (seen.result.ended, seen.result.exit_code, seen.result.signal) == (Ended.TIMEOUT, None, signal.SIGKILL)
    assert sandbox.alive_with(mark) == []


async def test_a_fork_bomb_is_bounded(backend: Backend, tmp_path: Path) -> None:
    """More processes than the limit cannot be made; those that were made are gone."""
    mark = f"bomb-{os.getpid()}-{tmp_path.name}"
    script = """
    import os, time
    made = 0
    try:
        for _ in range(80):
            if os.fork() == 0: time.sleep(600); os._exit(0)
            made += 1
    except OSError: pass
    print(made)
    """
    seen = await sandbox.run_agent(backend, script, mark, root=tmp_path, limits=Limits(timeout_s=60, nproc=64))
    assert 0 <= int(seen.out) < 64
    assert sandbox.alive_with(mark) == []
    bare = sandbox.run_outside(script.rstrip(" ") + "    import sys; sys.stdout.flush(); os.killpg(0, 9)\n", mark)
    assert int(bare) == 80


@pytest.mark.parametrize(
    ("script", "limits"),
    [
        ("b = bytearray(600 << 20); print('DONE')", Limits(data=256 << 20)),
        (
            "import os; open(os.environ.get('HOME', '.') + '/f', 'wb').write(bytes(40 << 20)); print('DONE')",
            Limits(fsize=8 << 20),
        ),
        ("import os, time\nwhile time.process_time() < 1.8: pass\nprint('DONE')", Limits(cpu_s=1)),
        (
            (
                "import os; f = open('/dev/shm/hw-test', 'wb'); os.unlink('/dev/shm/hw-test'); f.write(bytes(40 << 20));"
                "f.close(); print('DONE')"
            ),
            Limits(),
        ),
        ("import os; held = [os.open('/usr', os.O_RDONLY) for _ in range(500)]; print('DONE')", Limits(nofile=64)),
    ],
    ids=["memory", "file size", "cpu", "shared memory", "descriptors"],
)
async def test_a_resource_is_bounded(backend: Backend, tmp_path: Path, script: str, limits: Limits) -> None:
    """Each limit stops what the bare account may do."""
    seen = await sandbox.run_agent(backend, script, root=tmp_path, limits=limits)
    assert seen.result.ended is Ended.EXITED
    assert "DONE" not in seen.out
    assert seen.result.exit_code != 0
    with sandbox.public_directory() as work:
        assert "DONE" in sandbox.run_outside(script, cwd=work)


async def test_a_full_disk_is_the_agents_own(backend: Backend, tmp_path: Path) -> None:
    """Many files, each below the limit of one, end the run once they are over the cap together."""
    script = """
    import os, time
    for number in range(40):
        open(f"out/{number}", "wb").write(os.urandom(1 << 20))
    time.sleep(600)
    """
    limits = Limits(timeout_s=120, disk_bytes=16 << 20, fsize=4 << 20)
    seen = await sandbox.run_agent(backend, script, root=tmp_path, limits=limits)
    assert seen.result.ended is Ended.DISK_CAP


async def test_a_full_home_is_the_agents_own(backend: Backend, tmp_path: Path) -> None:
    """HOME and the temporary directory are bounded as well: memory of a fixed size, or watched like the results."""
    script = """
    import os, time
    try:
        for number in range(40):
            for place in (os.environ["HOME"], os.environ["TMPDIR"]):
                open(f"{place}/{number}", "wb").write(os.urandom(1 << 20))
        time.sleep(600)
    except OSError as error: print(error.strerror)
    """
    limits = Limits(timeout_s=120, disk_bytes=16 << 20, fsize=4 << 20)
    seen = await sandbox.run_agent(backend, script, root=tmp_path, limits=limits)
    assert seen.result.ended is Ended.DISK_CAP or "No space" in seen.out


async def test_the_supervisor_cannot_be_tricked(backend: Backend, tmp_path: Path) -> None:
    """An agent that kills its supervisor has killed itself: no run ends well that way, and nothing is left."""
    mark = f"traitor-{os.getpid()}-{tmp_path.name}"
    script = """
    import os, signal, time
    try: os.kill(os.getppid(), signal.SIGKILL); time.sleep(600)
    except OSError as error: print("denied")
    """
    seen = await sandbox.run_agent(backend, script, mark, root=tmp_path)
    assert seen.result.ended is Ended.KILLED or seen.out == "denied"
    assert sandbox.alive_with(mark) == []


def test_which_backends_were_tested(capsys: pytest.CaptureFixture[str]) -> None:
    """At least one confinement works wherever this suite is green; the others are named with the reason."""
    found = {name: sandbox.backend_here(name) for name in sandbox.CONFINING}
    with capsys.disabled():
        for name, backend in found.items():
            state = f"not tested: {backend.detail}" if isinstance(backend, Refusal) else f"tested, {backend.version}"
            print(f"\nsandbox backend {name}: {state}")
    assert any(isinstance(backend, Backend) for backend in found.values()), found
