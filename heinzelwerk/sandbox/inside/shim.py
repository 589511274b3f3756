"""Start an agent, forward its model's port, obey the control pipe, and leave nobody behind.

Usage: shim.py PLAN. Under bubblewrap this is the one child of the namespace's init; under Landlock it is the
supervisor outside the fence and the subreaper of everything inside. The plan names two descriptors:

control  `G` starts the agent, `I` sends it SIGINT, end of file kills everything (the worker is gone, or wants that)
status   lines: `ready`, `started PID`, `error TEXT`, `exit CODE` or `signal NUMBER`

The last line is written when everything else is dead, so that it means what it says. The plan is marshalled, and json
is not imported, because that would be a seventh of the time that a sandbox takes to start.
"""

import errno
import marshal
import os
import select
import signal
import socket
import sys
from typing import Any


class Shim:
    """One agent from start to end."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.control: int = plan["control_fd"]
        self.status: int = plan["status_fd"]
        self.agent = 0
        self.ending = ""
        self.poll = select.poll()
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # -I leaves the script's own directory out
        import forward  # type: ignore[import-not-found]

        self.forwarder = forward.Forwarder(self.poll, plan.get("peer_uid"))

    def run(self) -> None:
        """Everything, in order."""
        for descriptor in (self.control, self.status, *(entry.get("fd", -1) for entry in self.plan["forward"])):
            if descriptor >= 0:
                os.set_inheritable(descriptor, False)
        _protect(self.plan["worker_pid"] if self.plan["reap"] else None)
        self.wake, wake_end = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self.stop_all())
        self.say("ready")
        if os.read(self.control, 1) != b"G":
            os._exit(1)
        try:
            self.prepare()
            self.start()
        except OSError as error:
            self.say(f"error {error.strerror}: {error.filename or self.plan['argv'][0]}".replace("\n", " "))
            os._exit(1)
        self.say(f"started {self.agent}")
        try:
            self.watch()
        finally:
            self.stop_all()  # whatever went wrong in here: the agent does not go on alone

    def prepare(self) -> None:
        """The private HOME, where it is memory that only exists in here, and the forwarded ports."""
        if self.plan.get("seed"):
            _copy_tree(self.plan["seed"], self.plan["home"])
        for entry in self.plan["forward"]:
            if "fd" in entry:
                listener = socket.socket(fileno=entry["fd"])
            else:
                listener = socket.create_server(("127.0.0.1", entry["port"]), backlog=64)
            self.forwarder.listen(listener, entry["socket"])

    def start(self) -> None:
        """Fork and exec; an exec that fails raises here, with its errno."""
        report, child_report = os.pipe()
        self.agent = os.fork()
        if self.agent == 0:
            _become_agent(self.plan, child_report)
        os.close(child_report)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)  # the agent's pipes are the agent's: their ends must show when it closes them
        os.close(null)
        failure = b"".join(iter(lambda: os.read(report, 4096), b""))
        os.close(report)
        if failure:
            number, _, where = failure.decode("utf-8", "replace").partition(" ")
            raise OSError(int(number), os.strerror(int(number)), where)

    def watch(self) -> None:
        """Forward and obey until the agent has ended or the control pipe has."""
        self.poll.register(self.control, select.POLLIN)
        self.poll.register(self.wake, select.POLLIN)
        while not self.ending:
            for descriptor, events in self.poll.poll():
                if descriptor == self.control:
                    self.obey()
                elif descriptor == self.wake:
                    self.collect_children()
                else:
                    self.forwarder.ready(descriptor, events)

    def obey(self) -> None:
        """One or more letters of the control pipe, or its end."""
        order = os.read(self.control, 64)
        if not order:
            self.stop_all()
        if b"I" in order:
            _signal(self.agent, signal.SIGINT)

    def collect_children(self) -> None:
        """Reap what has died, without waiting."""
        try:
            os.read(self.wake, 4096)
        except BlockingIOError:
            pass
        while True:
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.note(pid, code)

    def note(self, pid: int, code: int) -> None:
        """Remember the agent's end; others are only reaped."""
        if pid == self.agent and not self.ending:
            value = os.waitstatus_to_exitcode(code)
            self.ending = f"signal {-value}" if value < 0 else f"exit {value}"

    def stop_all(self) -> None:
        """Kill everything that descends from here, reap it, say how the agent ended, and go."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.plan["reap"]:
            self.kill_descendants()
        else:
            _signal(-1)  # the whole namespace, but its init and this one
            while self.reap_one():
                pass
        self.say(self.ending or f"signal {int(signal.SIGKILL)}")
        os._exit(0)

    def kill_descendants(self) -> None:
        """Until there is none: orphans become children of this subreaper as their parents die."""
        while True:
            family = _descendants(os.getpid()) or [-self.agent]  # its process group, where there is no /proc
            for pid in family:
                _signal(pid, signal.SIGSTOP)  # first, so that none forks while its neighbours are being killed
            for pid in family:
                _signal(pid)
            if not self.reap_one():
                return
            while self.reap_one(os.WNOHANG):
                pass

    def reap_one(self, flags: int = 0) -> bool:
        """Whether a child was reaped; False: there is none (or, with WNOHANG, none that is dead)."""
        try:
            pid, code = os.waitpid(-1, flags)
        except ChildProcessError:
            return False
        self.note(pid, code)
        return pid != 0

    def say(self, line: str) -> None:
        """One line to the worker; it may be gone."""
        try:
            os.write(self.status, line.encode("utf-8", "surrogateescape") + b"\n")
        except OSError:
            pass


def _become_agent(plan: dict[str, Any], report: int) -> None:
    """In the child: limits, working directory, fence, exec. Never returns."""
    where = plan["argv"][0]
    try:
        import resource

        os.setsid()
        if plan["reap"]:
            _die_with_parent(signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGINT, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        for name, value in plan["limits"].items():
            kind = getattr(resource, f"RLIMIT_{name}", None)
            if kind is not None:
                hard = resource.getrlimit(kind)[1]
                bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
                resource.setrlimit(kind, (bound, bound))
        where = plan["work"]
        os.chdir(where)
        where = plan["argv"][0]
        if plan.get("fence"):
            import fence  # type: ignore[import-not-found]

            fence.close(plan["fence"])
        os.execvp(plan["argv"][0], plan["argv"])  # noqa: S606 - an argument list, no shell
    except OSError as error:
        os.write(report, f"{error.errno or errno.EIO} {error.filename or where}".encode())
    except BaseException as error:  # noqa: BLE001 - the one after this line is the parent's code, in a copy of it
        os.write(report, f"{errno.EIO} {where} ({type(error).__name__}: {error})".encode())
    os._exit(127)


def _protect(worker_pid: "int | None") -> None:
    """Closed to the agent, which shares our account: no tracing, no borrowing of our descriptors through /proc.

    With the worker's pid also: orphans of the agent become ours, and the worker's thread does not end without us.
    """
    if sys.platform != "linux":
        return
    import ctypes

    set_dumpable, set_child_subreaper = 4, 36
    libc = ctypes.CDLL(None)
    libc.prctl(set_dumpable, 0, 0, 0, 0)
    if worker_pid is None:
        return
    libc.prctl(set_child_subreaper, 1, 0, 0, 0)
    _die_with_parent(signal.SIGTERM)
    if os.getppid() != worker_pid:
        os._exit(1)  # it died before the line above took effect


def _die_with_parent(number: int) -> None:
    if sys.platform == "linux":
        import ctypes

        set_pdeathsig = 1
        ctypes.CDLL(None).prctl(set_pdeathsig, int(number), 0, 0, 0)


def _signal(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _descendants(top: int) -> "list[int]":
    """Every process below `top`, from one pass over /proc; none where there is no such thing (macOS)."""
    children: dict[int, list[int]] = {}
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return []
    for name in names:
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(name))
    found, waiting = [], [top]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _copy_tree(source: str, target: str) -> None:
    """Regular files and directories; modes are the owner's alone."""
    for entry in os.scandir(source):
        there = os.path.join(target, entry.name)
        if entry.is_dir(follow_symlinks=False):
            os.makedirs(there, mode=0o700, exist_ok=True)
            _copy_tree(entry.path, there)
        elif entry.is_file(follow_symlinks=False):
            with open(entry.path, "rb") as old, open(there, "wb", opener=_private) as new:
                while chunk := old.read(1 << 20):
                    new.write(chunk)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def main(path: str) -> None:
    """Read the plan and run it."""
    with open(path, "rb") as file:
        plan = marshal.load(file)  # noqa: S302 - written by the worker, where the agent cannot write
    Shim(plan).run()


if __name__ == "__main__":
    main(sys.argv[1])
