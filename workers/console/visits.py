"""Who asks: the host, the cookie, the form. A `Visit` is what every page starts from.

With people in the settings everybody logs in. Without any, whoever is on this machine is the person who started the
console: then only loopback's own names are answered, and nothing that a proxy passed on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from heinzelwerk import ids
from heinzelwerk.client import Client
from workers.console import forms, pages
from workers.console.cookies import NOBODY, Pass, Seals
from workers.serving import LOOPBACK, host

if TYPE_CHECKING:
    from config.settings import Console as ConsoleSettings
    from heinzelwerk.ports import Works
    from workers.root import Runtime

_PASSED_ON = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""What a proxy adds."""
TOKEN = "token"  # noqa: S105 - a field's name
CHANGES = ("POST",)


@dataclass(frozen=True)
class Doors:
    """The rules of one deployment: which host is ours, whose cookies count, who is there without a login."""

    runtime: Runtime
    settings: ConsoleSettings
    seals: Seals
    cookie: str
    here: str

    @classmethod
    def of(cls, runtime: Runtime, *, here: str) -> Doors:
        """The doors of these settings; `here` is who started the console."""
        settings = runtime.settings.console
        secret = settings.secret.get_secret_value().encode() if settings.secret else os.urandom(32)
        hashes = {name: person.password.get_secret_value() for name, person in settings.people.items()}
        name = "__Host-heinzelwerk" if _secure(settings) else f"heinzelwerk-{settings.port}"
        return cls(runtime, settings, Seals(secret, hashes, lasts_s=settings.session), name, here)

    @property
    def secure(self) -> bool:
        """Whether people come by https."""
        return _secure(self.settings)

    def origin(self, connection: HTTPConnection) -> str | None:
        """Our own origin as this request names it; None where its host is not ours."""
        given, url = connection.headers.get("host", "").lower(), self.settings.url
        if url is not None:
            scheme, _, ours = url.partition("://")
            default = {"http": ":80", "https": ":443"}[scheme]
            return url if given.removesuffix(default) == ours else None
        if not self.settings.people and any(name in connection.headers for name in _PASSED_ON):
            return None
        return f"http://{given}" if host(given) in LOOPBACK else None

    def given(self, request: Request) -> Pass | None:
        """The pass of this browser; None where it has none that counts."""
        return self.seals.read(request.cookies.get(self.cookie, ""), now_s=self.now_s())

    def fresh(self, who: str) -> Pass:
        """A pass that begins now."""
        return Pass(who, os.urandom(18).hex(), int(self.now_s()))

    def now_s(self) -> float:
        """This machine's time, which cookies count by."""
        return self.runtime.works.clock.now().timestamp()

    def address(self, request: Request) -> str:
        """Where a request comes from: behind a proxy what that one says last, which no client can write."""
        peer = request.client.host if request.client else "unknown"
        if not self.secure:
            return peer
        return request.headers.get("x-forwarded-for", peer).rpartition(",")[2].strip()[:64] or peer

    def keep(self, response: Response, given: Pass) -> None:
        """Give the browser this pass."""
        response.set_cookie(
            self.cookie,
            self.seals.written(given),
            max_age=int(self.settings.session),
            path="/",
            secure=self.secure,
            httponly=True,
            samesite="strict",
        )


@dataclass
class Visit:
    """One request of one person: what they may see, what they posted, and the pages that they get."""

    doors: Doors
    request: Request
    given: Pass
    known: bool
    form: Mapping[str, str] = field(default_factory=dict)
    teams: tuple[str, ...] = ()

    @property
    def person(self) -> str:
        """Whose name stands on the spine with what is decided here."""
        return self.given.who if self.doors.settings.people else self.doors.here

    @property
    def works(self) -> Works:
        """The ports that serve no team in particular."""
        return self.doors.runtime.works

    async def enter(self) -> None:
        """Find out whose teams these are: those of the settings and the store, as far as the person may see them."""
        runtime = self.doors.runtime
        known = {*await runtime.works.store.teams(), *runtime.settings.teams}
        people = self.doors.settings.people
        self.teams = tuple(sorted(known & set(people[self.given.who].teams) if people else known))

    def step(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def team(self) -> str:
        """The path's team; 404 where there is none or it is not this person's, which sound alike."""
        name = self.step("team")
        if name not in self.teams:
            raise HTTPException(404, "there is no such team, or it is not yours")
        return name

    async def now_ms(self) -> int:
        """The server's time, which everything shown is told by."""
        return await self.works.store.now_ms()

    def client(self, team: str | None = None) -> Client:
        """The client of the path's team, or of another one of this person's."""
        name = team or self.team()
        return Client(self.doors.runtime.works_of(name), name)

    def heinzel(self) -> str:
        """The path's Heinzelmännchen; 404 for what is no name."""
        name = self.step("name")
        if not ids.is_name(name):
            raise HTTPException(404, "there is no Heinzelmännchen of this name")
        return name

    def zone(self, team: str) -> tzinfo:
        """The team's time zone, in which its times are shown."""
        return self.doors.runtime.works_of(team).timezone

    def said(self, name: str) -> str:
        """A field of the form; "" where it is missing."""
        return self.form.get(name, "")

    def token(self, path: str) -> str:
        """The token of a form that posts to this path."""
        return self.doors.seals.token(self.given, path)

    def page(self, name: str, *, status: int = 200, headers: dict[str, str] | None = None, **words: Any) -> Response:
        """A page with this person's name and teams on it."""
        return pages.page(name, status=status, headers=headers, visit=self, **words)

    async def read_form(self, *, largest: int = forms.LARGEST) -> None:
        """Take the posted form; 403 where it does not come from a page of ours that this browser got."""
        if self.request.headers.get("origin") != self.doors.origin(self.request):
            raise HTTPException(
                403, "this form comes from another site, or from nowhere: open the page and send it again"
            )
        fields = await forms.read(self.request, largest=largest)
        if not self.doors.seals.token_fits(fields.get(TOKEN, ""), self.given, self.request.url.path):
            raise HTTPException(403, "this form is older than your login, or not of this browser: open the page again")
        self.form = {name: value for name, value in fields.items() if name != TOKEN}


def _secure(settings: ConsoleSettings) -> bool:
    return settings.url is not None and settings.url.startswith("https:")


def first(doors: Doors, request: Request) -> Visit:
    """The visit of a browser, logged in or not: without people in the settings everybody is known."""
    given = doors.given(request)
    known = not doors.settings.people or (given is not None and given.who != NOBODY)
    return Visit(doors, request, given or doors.fresh(NOBODY), known)
