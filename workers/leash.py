"""Run one command that ends whatever way its starter ends. Started by path: `python -I -S leash.py GRACE COMMAND...`.

The starter holds the other end of our stdin. When that closes, because the starter closed it or is gone (SIGKILL
included), the command gets SIGTERM and, GRACE seconds later, its whole process group gets SIGKILL. Signals that reach
us go on to the command; its exit code becomes ours. Should we be killed ourselves, the kernel kills the command
(Linux). Standard library only, and no import of ours: it starts in some 15 ms and stays small.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run the command to its end; answers its exit code, 128 + number where a signal ended it."""
    grace_s, command = float(arguments[0]), arguments[1:]
    woken, waker = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    leash = os.getpid()
    command_pid = os.fork()
    if command_pid == 0:
        _become(command, leash)
    for number in FORWARDED:
        signal.signal(number, lambda received, _frame: _send(command_pid, received))
    return _watch(command_pid, woken, grace_s)


def _watch(command_pid: int, woken: int, grace_s: float) -> int:
    watched, kill_at = [0, woken], float("inf")
    while (status := _ended(command_pid)) is None:
        ready, _, _ = select.select(watched, [], [], 0.5 if kill_at < float("inf") else None)
        if woken in ready:
            os.read(woken, 4096)
        if 0 in ready and not os.read(0, 4096):
            watched, kill_at = [woken], time.monotonic() + grace_s
            _send(command_pid, signal.SIGTERM)
        if time.monotonic() >= kill_at:
            _send(-command_pid, signal.SIGKILL)
    return _exit_code(status)


def _ended(pid: int) -> int | None:
    """The status of a command that has ended, None while it runs; what it left behind in its group is killed.

    Looked at before it is reaped, the group's number is still its own. Python has no waitid on macOS before 3.13.
    """
    if hasattr(os, "waitid"):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        _send(-pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]
    ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        return None
    _send(-pid, signal.SIGKILL)
    return status


def _exit_code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):  # it went first; macOS says the latter of a zombie's group
        pass


def _become(command: list[str], leash: int) -> None:
    """In the fork: a session of its own, no stdin, default signals, then the command; never returns."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in (signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        if sys.platform == "linux":
            import ctypes

            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != leash:  # killed before the kernel knew what to do
                os._exit(125)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    os._exit(127)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
