"""Close Landlock and seccomp around the calling thread, by system calls alone. Linux >= 6.12, x86_64 and aarch64.

Landlock bounds files, TCP ports, signals and abstract sockets. Seccomp closes what Landlock does not see: every
other kind of socket (UDP, unix paths such as docker.sock, MPTCP and TCP fast open, which pass by the port rule), namespaces,
mounts, tracing, io_uring, and system calls in a foreign format. Source: facts/coding_agents.md 5.5; landlock(7).
"""

import ctypes
import errno
import os
import platform
import struct
from typing import Any

ABI_NEEDED = 6
"""Kernel 6.12: the first that keeps signals inside. Below it an agent could kill its supervisor."""

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_PATH_BENEATH, _NET_PORT = 1, 2

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
ALL_FILES = (1 << 16) - 1
ON_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
READ = EXECUTE | READ_FILE | READ_DIR
READ_WRITE = ALL_FILES & ~IOCTL_DEV & ~((1 << 6) | (1 << 11))  # neither character nor block devices can be made
DEVICE = READ_FILE | WRITE_FILE | IOCTL_DEV
CONNECT_TCP, ALL_TCP = 1 << 1, 3
ALL_SCOPES = 3  # abstract unix sockets, signals

_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """The Landlock ABI of the running kernel, 0 where it has none or has it switched off."""
    version: int = _libc.syscall(_CREATE, None, ctypes.c_size_t(0), 1)
    return max(version, 0)


def close(rules: "dict[str, Any]") -> None:
    """Restrict this thread and what it starts. `rules`: read, write, devices (paths), ports (numbers). OSError: no fence.

    A path that does not exist is left out: it cannot be reached either.
    """
    if abi() < ABI_NEEDED:
        raise OSError(errno.ENOSYS, f"Landlock ABI {ABI_NEEDED} is not there")
    attributes = struct.pack("=QQQ", ALL_FILES, ALL_TCP, ALL_SCOPES)
    ruleset = _call(_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    for access, paths in ((READ, rules["read"]), (READ_WRITE, rules["write"]), (DEVICE, rules["devices"])):
        for path in paths:
            _allow_path(ruleset, path, access)
    for port in rules["ports"]:
        _call(_ADD_RULE, ruleset, _NET_PORT, struct.pack("=QQ", CONNECT_TCP, port), 0)
    no_new_privileges = 38
    if _libc.prctl(no_new_privileges, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
    _call(_RESTRICT, ruleset, 0)
    os.close(ruleset)
    _filter_calls()


def _allow_path(ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not os.path.isdir(path):
        access &= ON_A_FILE
    _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", access, descriptor), 0)
    os.close(descriptor)


def _call(number: int, *arguments: "bytes | int | ctypes.c_size_t") -> int:
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), f"system call {number}")
    return result


# Seccomp: classic BPF over struct seccomp_data {int nr; u32 arch; u64 ip; u64 args[6]}.
_LOAD, _EQUAL, _GREATER_EQUAL, _ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH = 0, 4

_MACHINES = {"x86_64": (0xC000003E, 1), "aarch64": (0xC00000B7, 2)}
"""AUDIT_ARCH, and the column of the numbers below."""

_DENIED = """
ptrace 101 117 | process_vm_readv 310 270 | process_vm_writev 311 271 | pidfd_getfd 438 438 | unshare 272 97
setns 308 268 | mount 165 40 | umount2 166 39 | pivot_root 155 41 | chroot 161 51 | open_tree 428 428
move_mount 429 429 | fsopen 430 430 | fsconfig 431 431 | fsmount 432 432 | fspick 433 433
mount_setattr 442 442 | bpf 321 280 | perf_event_open 298 241 | userfaultfd 323 282 | io_uring_setup 425 425
io_uring_enter 426 426 | io_uring_register 427 427 | add_key 248 217 | request_key 249 218 | keyctl 250 219
kexec_load 246 104 | kexec_file_load 320 294 | init_module 175 105 | finit_module 313 273
delete_module 176 106 | open_by_handle_at 304 265 | name_to_handle_at 303 264 | swapon 167 224
swapoff 168 225 | acct 163 89 | modify_ldt 154 - | uselib 134 - | quotactl 179 60
"""
_LOOKED_AT = """
socket 41 198 | sendto 44 206 | sendmsg 46 211 | sendmmsg 307 269 | clone 56 220 | clone3 435 435
"""

_NEW_NAMESPACE = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_FAST_OPEN = 0x20000000  # MSG_FASTOPEN connects without connect(), past the port rule


def program(machine: str) -> bytes:
    """The filter for one architecture, as an array of struct sock_filter; KeyError for another machine."""
    audit, column = _MACHINES[machine]
    calls = _numbers(_LOOKED_AT, column)
    code = [
        *(_load(_ARCH), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _KILL)),
        *(_load(_NUMBER), (_GREATER_EQUAL, 0, 1, 0x40000000), (_RETURN, 0, 0, _KILL)),  # the x32 format
    ]
    for number in _numbers(_DENIED, column).values():
        code += [(_EQUAL, 0, 1, number), _refuse(errno.EPERM)]
    # Without a look at clone3's flags, which lie behind a pointer: libraries fall back to clone on ENOSYS.
    code += [(_EQUAL, 0, 1, calls["clone3"]), _refuse(errno.ENOSYS)]
    code += _where(calls["clone"], [_load(_argument(0)), (_ANY_BIT, 0, 1, _NEW_NAMESPACE), _refuse(errno.EPERM)])
    code += _where(
        calls["socket"],
        [
            *(_load(_argument(0)), (_EQUAL, 2, 0, 2), (_EQUAL, 1, 0, 10), _refuse(errno.EACCES)),  # AF_INET, AF_INET6
            *(_load(_argument(1)), (_AND, 0, 0, 0xF), (_EQUAL, 1, 0, 1), _refuse(errno.EACCES)),  # SOCK_STREAM
            *(_load(_argument(2)), (_EQUAL, 2, 0, 0), (_EQUAL, 1, 0, 6), _refuse(errno.EACCES)),  # TCP itself
        ],
    )
    for name, position in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        flags = [_load(_argument(position)), (_ANY_BIT, 0, 1, _FAST_OPEN), _refuse(errno.EACCES)]
        code += _where(calls[name], flags)
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _numbers(table: str, column: int) -> "dict[str, int]":
    rows = [row.split() for line in table.strip().splitlines() for row in line.split("|")]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def _load(offset: int) -> "tuple[int, int, int, int]":
    return (_LOAD, 0, 0, offset)


def _argument(position: int) -> int:
    return 16 + 8 * position  # the low half, on the little-endian machines that are known here


def _refuse(code: int) -> "tuple[int, int, int, int]":
    return (_RETURN, 0, 0, _ERRNO | code)


def _where(number: int, body: "list[tuple[int, int, int, int]]") -> "list[tuple[int, int, int, int]]":
    """`body` for one system call; what falls out of its end is allowed."""
    return [(_EQUAL, 0, len(body) + 1, number), *body, (_RETURN, 0, 0, _ALLOW)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def _filter_calls() -> None:
    machine = platform.machine()
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"no system call table for {machine}")
    code = program(machine)
    packed = _Program(len(code) // 8, code)
    set_seccomp, mode_filter = 22, 2
    if _libc.prctl(set_seccomp, mode_filter, ctypes.byref(packed), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the system call filter was not taken")
