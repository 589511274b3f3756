"""The rules of a run under Landlock: what may be read, written and connected to. The fence is `inside/fence.py`."""

from __future__ import annotations

from heinzelwerk.sandbox.place import Place
from heinzelwerk.sandbox.spec import SandboxSpec

WARNING = (
    "Landlock is weaker than bubblewrap: processes share the machine's process table and loopback device, and an agent in "
    "the worker's own account can change the modes and times of files that this account owns. Install bubblewrap."
)

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_ETC = (
    *(
        "ssl/certs",
        "ssl/openssl.cnf",
        "ca-certificates",
        "pki/tls/certs",
        "pki/ca-trust",
        "alternatives",
        "ld.so.cache",
        "ld.so.conf",
    ),
    *("ld.so.conf.d", "nsswitch.conf", "localtime", "passwd", "group", "hosts", "protocols", "services"),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


def rules(spec: SandboxSpec, place: Place) -> dict[str, list[object]]:
    """What `fence.close` takes."""
    layout = place.layout
    etc = [f"/etc/{name}" for name in _ETC]
    given = [str(path) for path in (place.backend.python_home, *spec.read_only)]
    ports = [
        port
        for port, path in ((layout.model_port, spec.model_socket), (layout.tools_port, spec.tools_socket))
        if path is not None
    ]
    return {
        "read": [*_SYSTEM, *etc, *given, layout.work, layout.run],
        "write": [*([layout.out] if spec.out else []), layout.home, layout.tmp],
        "devices": list(_DEVICES),
        "ports": list(ports),
    }


def forwards(spec: SandboxSpec, place: Place) -> list[dict[str, object]]:
    """The listening sockets that the supervisor inherits, and where they lead."""
    pairs = zip(place.listeners, (spec.model_socket, spec.tools_socket), strict=True)
    return [{"fd": listener.fileno(), "socket": str(path)} for listener, path in pairs if path is not None]
