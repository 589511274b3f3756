"""The bubblewrap command of a run. Every surprising piece has its reason in facts/coding_agents.md 5.2.

The environment is not here: bwrap is started with the agent's clean one, because its own is readable inside as that of
process 1, and because what `--setenv` is told shows in the machine's list of processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heinzelwerk.errors import Refused
from heinzelwerk.sandbox.place import INSIDE, Place
from heinzelwerk.sandbox.spec import Backend, SandboxSpec

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
PASSWD = "agent:x:1000:1000::{home}:/bin/sh\n"  # noqa: S105 - a line of /etc/passwd, without one

_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
_ETC = (
    *("ssl/certs", "ca-certificates", "pki/tls/certs", "pki/ca-trust", "alternatives", "ld.so.cache", "ld.so.conf"),
    *("ld.so.conf.d", "nsswitch.conf", "localtime", "protocols", "services"),
)
_RESERVED = ("/proc", "/dev", "/sys", str(INSIDE))


def command(spec: SandboxSpec, place: Place, inner: Sequence[str]) -> tuple[str, ...]:
    """The whole argument list; `inner` is what runs as the only child of the namespace's first process."""
    layout, directory, size = place.layout, place.directory, str(spec.limits.disk_bytes)
    out = ("--bind", f"{directory}/work/out", layout.out) if spec.out else ()
    return (
        str(place.backend.executable),
        *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
        *("--cap-drop", "ALL", "--uid", "1000", "--gid", "1000", "--hostname", "handoff"),
        *_system(),
        *("--ro-bind", f"{directory}/run/passwd", "/etc/passwd"),
        *("--proc", "/proc", "--dev", "/dev", "--size", "33554432", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108
        *("--size", size, "--tmpfs", layout.tmp, "--perms", "0700", "--size", size, "--tmpfs", layout.home),
        *("--ro-bind", f"{directory}/work", layout.work, *out),
        *("--ro-bind", f"{directory}/run", layout.run, "--ro-bind", f"{directory}/home", f"{INSIDE}/seed"),
        *_read_only(spec, place.backend),
        *_sockets(spec),
        *("--remount-ro", "/", "--chdir", layout.work, "--", *inner),
    )


def forwards(spec: SandboxSpec, place: Place) -> list[dict[str, object]]:
    """What the shim listens for on the namespace's own loopback device, and where it leads."""
    pairs = (
        (place.layout.model_port, spec.model_socket, "model"),
        (place.layout.tools_port, spec.tools_socket, "tools"),
    )
    return [{"port": port, "socket": f"{INSIDE}/{name}.sock"} for port, path, name in pairs if path is not None]


def reach(spec: SandboxSpec, place: Place) -> list[str]:
    """Every host path outside the system's own that the command names."""
    sockets = [path for path in (spec.model_socket, spec.tools_socket) if path is not None]
    paths = [place.directory, place.backend.python_home, place.backend.executable, *spec.read_only, *sockets]
    return [str(path) for path in paths if path is not None]


def _system() -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():  # a distribution that has not merged /usr
            arguments += ["--ro-bind", name, name]
    for name in _ETC:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return arguments


def _read_only(spec: SandboxSpec, backend: Backend) -> list[str]:
    arguments: list[str] = []
    for path in (backend.python_home, *spec.read_only):
        text = str(path)
        if (
            not path.is_absolute()
            or path == Path("/")
            or f"{text}/".startswith(tuple(f"{name}/" for name in _RESERVED))
        ):
            raise Refused(f"{path} cannot be bound into a sandbox: give the absolute path of the agent's own directory")
        if not f"{text}/".startswith("/usr/"):
            arguments += ["--ro-bind", text, text]
    return arguments


def _sockets(spec: SandboxSpec) -> list[str]:
    pairs = (("model", spec.model_socket), ("tools", spec.tools_socket))
    return [word for name, path in pairs if path is not None for word in ("--bind", str(path), f"{INSIDE}/{name}.sock")]
