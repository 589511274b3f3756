"""The console's web application: its paths, the door that every request goes through, its errors as pages.

A page is answered to whoever is logged in; a change needs a form of ours as well. 403 a form that is not ours; 404 not
there or not yours; 409 understood and not done, with the reason; 421 another host; 429 too many failed logins; 503 the
store is away.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from heinzelwerk import errors
from heinzelwerk.errors import ConfigurationError
from workers import serving
from workers.console import drafts, heinzel, login, money, pages, visits, waiting
from workers.console.login import Gate
from workers.console.throttle import Throttle
from workers.console.visits import Doors, Visit
from workers.serving import LOOPBACK

if TYPE_CHECKING:
    from config.settings import Console as ConsoleSettings
    from workers.root import Runtime

log = structlog.get_logger("heinzelwerk.console")

View = Callable[[Visit], Awaitable[Response]]
_HEALTH = "/healthz"
_HSTS = {"strict-transport-security": "max-age=31536000"}


def made(runtime: Runtime, *, here: str) -> ASGIApp:
    """The application over one deployment's ports; `here` is who started it."""
    doors = Doors.of(runtime, here=here)
    gate = Gate(Throttle(runtime.works.clock.monotonic))
    team = "/teams/{team}"
    one, turn = f"{team}/heinzel/{{name}}", f"{team}/heinzel/{{name}}/turns/{{turn:int}}"
    shown: dict[str, View] = {
        "/": waiting.inbox,
        "/costs": money.costs,
        team: heinzel.all_of,
        f"{team}/drafts": drafts.all_of,
        f"{team}/drafts/{{draft}}": drafts.one,
        one: heinzel.one,
        turn: heinzel.turn,
    }
    changes: dict[str, View] = {
        "/logout": login.leave,
        f"{team}/drafts/{{draft}}/{{verb:str}}": drafts.decide,
        f"{one}/{{verb:str}}": heinzel.change,
        f"{turn}/{{verb:str}}": heinzel.change_turn,
    }
    routes = [
        Route(_HEALTH, _health(runtime)),
        Route("/style.css", _style),
        Route("/favicon.ico", _nothing),
        Route(login.PATH, _door(doors, gate.show, opens=True)),
        Route(login.PATH, _door(doors, gate.enter, opens=True), methods=["POST"]),
        *(Route(path, _door(doors, view)) for path, view in shown.items()),
        *(Route(path, _door(doors, view), methods=["POST"]) for path, view in changes.items()),
    ]
    handlers = {HTTPException: _refused, errors.HeinzelwerkError: _failed, Exception: _broken}
    app = Starlette(routes=routes, exception_handlers=handlers)  # type: ignore[arg-type] # its types want one kind of error
    return pages.Headed(app, _HSTS if doors.secure else {})


def _door(doors: Doors, view: View, *, opens: bool = False) -> Callable[[Request], Awaitable[Response]]:
    """The view behind the door; one that `opens` is for those who have not logged in."""

    async def answered(request: Request) -> Response:
        if doors.origin(request) is None:
            raise HTTPException(421, "this is not the console's address: see [console] url in the settings")
        visit = visits.first(doors, request)
        if opens:
            return await view(visit)
        if not visit.known or await login.left(visit):
            return _asked_to_log_in(visit)
        if request.method in visits.CHANGES:
            await visit.read_form()
        await visit.enter()
        answer = await view(visit)
        if doors.given(request) is None:  # a first visit without a login: its forms need a pass to belong to
            doors.keep(answer, visit.given)
        return answer

    return answered


def _asked_to_log_in(visit: Visit) -> Response:
    """The way to the login. A link from elsewhere comes without the cookie, which is strict: it is followed once more."""
    request = visit.request
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if request.method in visits.CHANGES:
        raise HTTPException(403, "you are not logged in any more: log in, open the page again, and decide there")
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return pages.page("again.html", wanted=login.within(wanted))
    return RedirectResponse(f"{login.PATH}?next={quote(wanted, safe='')}", 303)


def _health(runtime: Runtime) -> Callable[[Request], Awaitable[Response]]:
    async def health(request: Request) -> Response:
        try:
            await runtime.works.store.now_ms()
        except errors.HeinzelwerkError:
            return JSONResponse({"state": "down", "reason": "the store does not answer"}, 503)
        return JSONResponse({"state": "up"})

    return health


async def _style(request: Request) -> Response:
    return PlainTextResponse(pages.STYLE, media_type="text/css")


async def _nothing(request: Request) -> Response:
    return Response(status_code=204)


async def _refused(request: Request, error: HTTPException) -> Response:
    return _problem(error.status_code, error.detail)


async def _failed(request: Request, error: errors.HeinzelwerkError) -> Response:
    """Errors that the core knows: not allowed or not there, or not now."""
    if isinstance(error, errors.RetryLater):
        log.warning("page failed", path=request.url.path, reason=str(error))
        return _problem(
            503, "the store does not answer; nothing was lost, try again in a while", headers={"retry-after": "30"}
        )
    return _problem(409, str(error))


async def _broken(request: Request, error: Exception) -> Response:
    """A bug of ours: the log has it, the page says no more than that."""
    return _problem(500, "something is wrong with this page; the console's log says what")


def _problem(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    return pages.page("problem.html", status=status, headers=headers, reason=reason)


def listening(settings: ConsoleSettings) -> socket.socket:
    """The socket of the settings. ConfigurationError where it may not or cannot be listened on."""
    inside = settings.address in LOOPBACK
    named = settings.url is not None and serving.host(settings.url.partition("://")[2]) not in LOOPBACK
    if not settings.people and (named or not inside):
        where = f"address: {settings.address}" if not inside else f"url: {settings.url}"
        raise ConfigurationError(
            f"[console] {where} is beyond this machine, and nobody would have to log in",
            fix="set up [console.people.<name>] with teams and a password (`heinzelwerk console --password`), "
            "or leave the address at 127.0.0.1 and the url unset",
        )
    if not inside and settings.url is None:
        raise ConfigurationError(
            f"[console] address: {settings.address} is beyond this machine, and the address that people type is not known",
            fix='set [console] url, such as "https://heinzelwerk.example.com", and put a proxy with TLS in front',
        )
    return serving.listening("console", settings.address, settings.port)


def address(settings: ConsoleSettings, listener: socket.socket) -> str:
    """What people type."""
    return settings.url or f"http://{serving.address_of(listener)}"
