"""From a request and its place to the process to start: argument list, plan file, environment, descriptors."""

from __future__ import annotations

import marshal
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from heinzelwerk.errors import Refused
from heinzelwerk.sandbox import bubblewrap, landlock
from heinzelwerk.sandbox.place import INSIDE, SCRIPTS, Place
from heinzelwerk.sandbox.spec import Limits, SandboxSpec

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What Popen is given."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    inherited: tuple[int, ...]


def prepare(spec: SandboxSpec, place: Place, *, control: int, status: int) -> Launch:
    """Write the plan of a filled place and compose its command. `control`, `status`: the child's ends of two pipes."""
    _check(spec)
    shim = (str(place.backend.python), "-I", "-S", f"{place.layout.run}/shim.pyc", f"{place.layout.run}/plan")
    plan: dict[str, object] = {
        "argv": list(spec.argv),
        "work": place.layout.work,
        "control_fd": control,
        "status_fd": status,
        "limits": _rlimits(spec.limits),
    }
    if place.backend.name == "bubblewrap":
        (place.directory / "run/passwd").write_text(bubblewrap.PASSWD.format(home=place.layout.home), encoding="ascii")
        plan |= {"reap": False, "forward": bubblewrap.forwards(spec, place)}
        plan |= {"seed": f"{INSIDE}/seed", "home": place.layout.home}
        argv = bubblewrap.command(spec, place, shim)
    else:
        account = place.backend.drop_to
        peer_uid = os.geteuid() if account is None else account.uid
        plan |= {
            "reap": True,
            "worker_pid": os.getpid(),
            "forward": landlock.forwards(spec, place),
            "peer_uid": peer_uid,
        }
        plan |= {"fence": landlock.rules(spec, place) if place.backend.name == "landlock" else None}
        argv = shim
    (place.directory / "run/plan").write_bytes(marshal.dumps(plan))
    return Launch(
        argv=(*_drop(spec, place), *argv),
        environment=_environment(spec, place),
        inherited=(control, status, *(listener.fileno() for listener in place.listeners)),
    )


def _drop(spec: SandboxSpec, place: Place) -> tuple[str, ...]:
    """The words in front that turn root into the account; none for an unprivileged worker."""
    account = place.backend.drop_to
    if account is None:
        return ()
    for path in (spec.model_socket, spec.tools_socket):
        if path is not None:
            os.chown(path, account.uid, account.gid)
    plan = place.entry
    wanted = {"uid": account.uid, "gid": account.gid, "reach": bubblewrap.reach(spec, place)}
    plan.write_bytes(marshal.dumps(wanted))
    return (str(place.backend.python), "-I", "-S", str(SCRIPTS / "enter.py"), str(plan))


def _environment(spec: SandboxSpec, place: Place) -> dict[str, str]:
    fixed = {"HOME": place.layout.home, "TMPDIR": place.layout.tmp, "LANG": "C.UTF-8", "USER": "agent"}
    return {"PATH": SEARCH_PATH, **fixed, **spec.environment, "HOME": place.layout.home, "TMPDIR": place.layout.tmp}


def _rlimits(limits: Limits) -> dict[str, int]:
    return {
        "CORE": 0,
        "NOFILE": limits.nofile,
        "NPROC": limits.nproc,
        "FSIZE": limits.fsize,
        "DATA": limits.data,
        "CPU": limits.cpu_s,
    }


def _check(spec: SandboxSpec) -> None:
    if not spec.argv:
        raise Refused("the command of the run is empty")
    words = (*spec.argv, *spec.environment, *spec.environment.values())
    if any("\x00" in word for word in words) or any("=" in name or not name for name in spec.environment):
        raise Refused("the command or environment of the run holds a zero byte or a malformed name")
    for path in (spec.model_socket, spec.tools_socket):
        if path is not None and not Path(path).is_socket():
            raise Refused(f"{path} is no socket: start the model's proxy before the run")
