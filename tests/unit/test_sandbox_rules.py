"""The pure parts of the sandbox: the system call filter, the command, the rules, lines out of bytes."""

import asyncio
import errno
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heinzelwerk import errors
from heinzelwerk.sandbox import bubblewrap, landlock, run, streams
from heinzelwerk.sandbox.inside import fence
from heinzelwerk.sandbox.place import Place
from heinzelwerk.sandbox.spec import Backend, Ended, InsidePath, Layout, Limits, SandboxSpec

ALLOW, KILL = 0x7FFF0000, 0x80000000
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS = {
    "x86_64": {
        "socket": 41,
        "sendto": 44,
        "sendmsg": 46,
        "clone": 56,
        "clone3": 435,
        "unshare": 272,
        "read": 0,
        "bpf": 321,
    },
    "aarch64": {
        "socket": 198,
        "sendto": 206,
        "sendmsg": 211,
        "clone": 220,
        "clone3": 435,
        "unshare": 97,
        "read": 63,
        "bpf": 280,
    },
}


def verdict(machine: str, call: str | int, *arguments: int, audit: int | None = None) -> int:
    """What the kernel would answer: an interpreter of the few instructions that the filter uses."""
    number = NUMBERS[machine][call] if isinstance(call, str) else call
    data = struct.pack("=iIQ6Q", number, audit or AUDIT[machine], 0, *arguments, *([0] * (6 - len(arguments))))
    code = list(struct.iter_unpack("=HBBI", fence.program(machine)))
    accumulator = at = 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        if operation == 0x06:
            return int(value)
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif operation == 0x54:
            accumulator &= value
        else:
            test = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[operation]
            at += if_true if test else if_false


def refused(code: int) -> int:
    return 0x00050000 | code


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_decides_as_written(machine: str) -> None:
    """On both machines: plain TCP passes, every other socket and every way around does not, the rest is untouched."""
    inet, inet6, unix, netlink, stream, datagram, cloexec = 2, 10, 1, 16, 1, 2, 0o2000000
    assert verdict(machine, "socket", inet, stream, 0) == ALLOW
    assert verdict(machine, "socket", inet6, stream | cloexec, 6) == ALLOW
    for arguments in ((inet, datagram, 0), (unix, stream, 0), (netlink, 3, 0), (inet, stream, 262), (inet, 3, 1)):
        assert verdict(machine, "socket", *arguments) == refused(errno.EACCES)
    assert verdict(machine, "sendto", 3, 0, 1, 0) == ALLOW
    assert verdict(machine, "sendto", 3, 0, 1, 0x20000000) == refused(errno.EACCES)
    assert verdict(machine, "sendmsg", 3, 0, 0x20004000) == refused(errno.EACCES)
    assert verdict(machine, "clone", 0x1200011) == ALLOW
    assert verdict(machine, "clone", 0x10000011) == refused(errno.EPERM)
    assert verdict(machine, "clone3") == refused(errno.ENOSYS)
    assert verdict(machine, "unshare") == verdict(machine, "bpf") == refused(errno.EPERM)
    assert verdict(machine, "read", 0, 0, 10) == ALLOW
    assert verdict(machine, "read", audit=0x40000003) == KILL
    assert verdict(machine, 0x40000000 + 41) == KILL


@given(st.integers(0, 500), st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_the_filter_answers_every_call(number: int, arguments: list[int]) -> None:
    """Whatever the call: one of the five answers, and never a run off the end of the program."""
    answers = {ALLOW, KILL, *(refused(code) for code in (errno.EPERM, errno.EACCES, errno.ENOSYS))}
    assert verdict("x86_64", number, *arguments) in answers


def test_a_machine_without_a_table_has_no_filter() -> None:
    """It is an error, never an empty filter."""
    with pytest.raises(KeyError):
        fence.program("riscv64")


def make_place(directory: Path, **changes: Any) -> Place:
    layout = Layout(
        work=InsidePath("/handoff/work"),
        home=InsidePath("/handoff/home"),
        tmp=InsidePath("/tmp"),
        run=InsidePath("/handoff/run"),
        python=InsidePath("/opt/python/bin/python3"),
        model_port=8080,
        tools_port=8081,
    )
    backend = Backend(
        name="bubblewrap",
        version="0",
        python=Path("/opt/python/bin/python3"),
        python_home=Path("/opt/python"),
        executable=Path("/usr/bin/bwrap"),
    )
    return Place(run_id="r", directory=directory, layout=layout, backend=backend, record=-1, out=-1, listeners=())


def test_the_command_holds_no_environment(tmp_path: Path) -> None:
    """Values of variables would show in the machine's list of processes: they are not in the command."""
    spec = SandboxSpec(argv=("agent",), environment={"KEY": "sesame"})
    words = bubblewrap.command(spec, make_place(tmp_path), ("inner",))
    assert not any("sesame" in word or word in ("--setenv", "--share-net") for word in words)
    assert {"--unshare-all", "--disable-userns", "--die-with-parent", "--new-session"} <= set(words)
    assert words[-2:] == ("--", "inner")
    assert words.index("--remount-ro") < words.index("--")


def test_a_size_stands_before_the_file_system_that_it_bounds(tmp_path: Path) -> None:
    """bwrap applies `--size` to the next `--tmpfs`; one without would be half of the memory."""
    words = bubblewrap.command(SandboxSpec(argv=("a",)), make_place(tmp_path), ("inner",))
    places = [at for at, word in enumerate(words) if word == "--tmpfs"]
    assert len(places) == 3
    assert all(words[at - 2] == "--size" for at in places)


@pytest.mark.parametrize("path", ["/", "/proc", "/dev/shm", "relative", "/handoff/work"])
def test_a_path_that_would_open_the_sandbox_is_refused(tmp_path: Path, path: str) -> None:
    """An installation may not be the whole machine or one of the sandbox's own places."""
    with pytest.raises(errors.Refused):
        bubblewrap.command(SandboxSpec(argv=("a",), read_only=(Path(path),)), make_place(tmp_path), ("inner",))


def test_only_the_asked_ports_are_open(tmp_path: Path) -> None:
    """Without a socket there is no rule for its port."""
    rules = landlock.rules(SandboxSpec(argv=("a",)), make_place(tmp_path))
    assert rules["ports"] == []
    rules = landlock.rules(SandboxSpec(argv=("a",), tools_socket=tmp_path / "t"), make_place(tmp_path))
    assert rules["ports"] == [8081]
    assert "/" not in rules["read"]
    assert rules["write"] == ["/handoff/work/out", "/handoff/home", "/tmp"]


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_lines_do_not_depend_on_how_they_arrive(chunks: list[bytes]) -> None:
    """However the bytes are cut on their way, the lines are those of the whole, split at `\\n` alone."""

    async def feed() -> list[bytes]:
        lines: list[bytes] = []
        protocol = streams.Lines(lines.append)
        for chunk in chunks:
            protocol.data_received(chunk)
        protocol.connection_lost(None)
        return lines

    whole = b"".join(chunks).split(b"\n")
    assert asyncio.run(feed()) == (whole if whole[-1] else whole[:-1])


@pytest.mark.parametrize(
    ("said", "code", "ended"),
    [
        (["started 7", "exit 0"], 0, Ended.EXITED),
        (["started 7", "signal 9"], 137, Ended.EXITED),  # the agent alone
        (["started 7"], -9, Ended.KILLED),  # all at once
        (["started 7", "signal 9"], -9, Ended.KILLED),  # the outermost first; the supervisor still saw its agent go
        (["started 7", "exit 0"], -9, Ended.EXITED),  # it had ended before
        (["started 7"], 1, Ended.KILLED),  # the supervisor alone
        (["ready"], 1, Ended.SETUP_FAILED),
    ],
)
async def test_how_a_run_ended(said: list[str], code: int, ended: Ended) -> None:
    """Who ended by himself, and whose sandbox was killed from outside: by the supervisor's lines and the outermost code."""
    watch = run.Watch(SandboxSpec(argv=("x",), limits=Limits()), lambda *_: None, None)
    for line in said:
        watch.status(line.encode())
    assert run.judged(Ended.EXITED, watch, code) is ended
    assert run.judged(Ended.TIMEOUT, watch, code) is Ended.TIMEOUT
