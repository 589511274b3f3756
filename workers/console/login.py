"""Logging in and out. Who fails too often waits; an unknown name costs the time of a known one and is answered alike."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import structlog
from starlette.responses import RedirectResponse, Response

from workers.console import passwords
from workers.console.cookies import NOBODY, Pass
from workers.console.throttle import Throttle
from workers.console.visits import Visit

log = structlog.get_logger("heinzelwerk.console")

PATH = "/login"
_LARGEST = 16_384
_FROM_ONE_ADDRESS = 10
_FOR_ONE_NAME = 30
"""Failures in five minutes: of one address, and of one name from wherever; all unknown names count as one."""
_AT_ONCE = 2
"""Passwords that are compared at once, each in 32 MiB."""


class Gate:
    """The login of one console: its counts live as long as its process."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle
        self._comparing = asyncio.Semaphore(_AT_ONCE)

    async def show(self, visit: Visit) -> Response:
        """The form; whoever is logged in already goes on."""
        after = within(visit.request.query_params.get("next", "/"))
        if visit.known:
            return RedirectResponse(after, 303)
        return _form(visit, after)

    async def enter(self, visit: Visit) -> Response:
        """Log in with name and password: another pass than before, and on to where the person wanted to go."""
        await visit.read_form(largest=_LARGEST)
        name, after = visit.said("name").strip().lower(), within(visit.said("next"))
        person = visit.doors.settings.people.get(name)
        address = visit.doors.address(visit.request)
        counted = {f"address {address}": _FROM_ONE_ADDRESS, f"name {name if person else ''}": _FOR_ONE_NAME}
        wait = self._throttle.begin(counted.items())
        if wait is not None:
            log.warning("login refused", address=address, wait_s=round(wait))
            seconds = int(wait) + 1
            wrong = f"too many failed logins: try again in {seconds} s"
            return _form(visit, after, wrong=wrong, status=429, headers={"retry-after": str(seconds)})
        stored = person.password.get_secret_value() if person else passwords.NOBODY
        async with self._comparing:
            fits = await asyncio.to_thread(passwords.fits, visit.said("password"), stored)
        if not fits or person is None:
            log.warning("login failed", address=address, person=name if person else "unknown")
            return _form(visit, after, wrong="this name and this password do not fit together", status=403)
        self._throttle.forgive(counted)
        log.info("logged in", address=address, person=name)
        answer = RedirectResponse(after, 303)
        visit.doors.keep(answer, visit.doors.fresh(name))
        return answer


async def leave(visit: Visit) -> Response:
    """Log out: this pass counts nowhere any more, also not on another console of the deployment."""
    remaining_ms = int((visit.given.since_s + visit.doors.settings.session + 60 - visit.doors.now_s()) * 1000)
    if visit.given.who != NOBODY and remaining_ms > 0:
        await visit.works.store.take_turns(_ended(visit.given), ttl_ms=remaining_ms)
    answer = RedirectResponse(PATH if visit.doors.settings.people else "/", 303)
    visit.doors.keep(answer, visit.doors.fresh(NOBODY))
    return answer


async def left(visit: Visit) -> bool:
    """Whether somebody logged out with this pass."""
    return visit.given.who != NOBODY and bool(await visit.works.store.is_taken(_ended(visit.given)))


def within(path: str) -> str:
    """A path of ours to go on to; the inbox for whatever leads elsewhere."""
    parts = urlsplit(path) if path.isascii() and path.isprintable() else None
    ours = parts is not None and not parts.scheme and not parts.netloc and path.startswith("/")
    return path if ours and not path.startswith(("//", "/\\")) and "\\" not in path else "/"


def _form(
    visit: Visit, after: str, *, wrong: str = "", status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    answer = visit.page("login.html", status=status, headers=headers, after=after, wrong=wrong)
    visit.doors.keep(answer, visit.given)
    return answer


def _ended(given: Pass) -> str:
    return f"console-left-{given.nonce}"
