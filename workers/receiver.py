"""The receiver of webhooks: `POST /events/<name>` wakes whoever listens, and is answered 2xx only when that is stored.

401 unsigned or wrongly signed; 413 too long; 400 no delivery id or no JSON; 404 nobody listens; 503 not stored, repeat it.
Nothing is stored of what is not answered 2xx, except in a 503's case what others already took: there it is a duplicate.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import structlog
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from heinzelwerk import announcing, errors
from heinzelwerk.client import Client
from heinzelwerk.errors import ConfigurationError
from heinzelwerk.wake import Disposition
from workers import serving, signatures
from workers.serving import LOOPBACK, READING_S
from workers.signatures import SLACK, Sender

if TYPE_CHECKING:
    from config.settings import Events
    from workers.root import Runtime

log = structlog.get_logger("heinzelwerk.receiver")

UNSIGNED = Sender("local", "unsigned", b"")
"""Whoever posts on this machine while no source is set up."""
ID_HEADER = "x-event-id"
"""An unsigned delivery's id. A browser sends no such header to a strange host without asking, so no web page can post."""
_GITHUB_ID = "x-github-delivery"
_DRAINED = 64 * 1024 * 1024
_RETRY_AFTER = {"retry-after": "30"}
_FORM = "application/x-www-form-urlencoded"


class _Answer(Exception):
    """Ends a delivery with a status and a sentence."""

    def __init__(self, status: int, reason: str, fix: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.fix, self.headers = status, reason, fix, headers

    def response(self) -> Response:
        return JSONResponse({"error": self.reason, "fix": self.fix}, self.status, headers=self.headers)


@dataclass(frozen=True, slots=True)
class _Delivery:
    """A verified delivery: who sent it, its id, its data; `challenge` is Slack's question whether we are there."""

    sender: Sender
    id: str
    data: JsonValue
    challenge: str | None = None


class Receiver:
    """The web application over one deployment's ports."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._events: Events = runtime.settings.events
        self._senders = senders(self._events)
        routes = [Route("/events/{name}", self._event, methods=["POST"]), Route("/health", self._health)]
        self.app = Starlette(routes=routes)

    async def _event(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            delivery = await self._read(request)
            if delivery.challenge is not None:
                return PlainTextResponse(delivery.challenge)
            return await self._announced(name, delivery)
        except _Answer as answer:
            log.warning("event refused", event_name=name[:100], status=answer.status, reason=answer.reason)
            return answer.response()
        except ClientDisconnect:
            return Response(status_code=400)

    async def _read(self, request: Request) -> _Delivery:
        body = await _body(request, self._events.largest)
        headers = {key.lower(): value for key, value in request.headers.items()}
        sender = self._verified(headers, body)
        try:
            data = announcing.payload(_json_of(body, headers.get("content-type", "")))
        except errors.Refused as refused:
            raise _Answer(400, str(refused), refused.fix) from refused
        if sender.scheme == SLACK and isinstance(data, dict) and data.get("type") == "url_verification":
            return _Delivery(sender, "", data, challenge=str(data.get("challenge", ""))[:1000])
        return _Delivery(sender, _id(sender, headers, data), data)

    def _verified(self, headers: Mapping[str, str], body: bytes) -> Sender:
        if not self._senders:
            if serving.host(headers.get("host", "")) not in LOOPBACK:  # a name that was pointed here from outside
                raise _Answer(401, "unsigned, and not for this machine by its name", "set up [events.sources.<name>]")
            return UNSIGNED
        now = self._runtime.works.clock.now().timestamp()
        found = signatures.verified(headers, body, self._senders, now_s=now, replay_s=self._events.replay)
        if isinstance(found, str):
            raise _Answer(401, found, "sign with the secret of one of [events.sources.*]")
        return found

    async def _announced(self, name: str, delivery: _Delivery) -> Response:
        try:
            client = await self._client(delivery.sender)
            entries = await client.contracts()
            names = announcing.listeners(name, entries)
            if not names:
                heard = ", ".join(announcing.heard(entries)) or "none"
                raise _Answer(404, f"nobody listens to {name[:100]!r}", f"events that are listened to: {heard}")
            announced = await announcing.announce(
                client, name, names, source=delivery.sender.name, delivery=delivery.id, data=delivery.data
            )
        except errors.RetryLater as error:
            raise _Answer(503, f"not stored: {error}", "repeat it", _RETRY_AFTER) from error
        except errors.Refused as refused:
            raise _Answer(400, str(refused), refused.fix) from refused
        if announced.disposition is Disposition.REFUSED:
            reason = next(one.reason for one in announced.replies if one.disposition is Disposition.REFUSED)
            raise _Answer(503, f"not stored for all: {reason}", "repeat it", _RETRY_AFTER)
        log.info("event accepted", event_name=name, key=announced.key, disposition=announced.disposition.value)
        return JSONResponse(announced.as_data(), 202)

    async def _client(self, sender: Sender) -> Client:
        team = sender.team
        if team is None:
            known = {*await self._runtime.works.store.teams(), *self._runtime.settings.teams}
            if len(known) != 1:
                fix = f"set [events.sources.{sender.name}] team"
                raise _Answer(503, f"whose event is it? there are {len(known)} teams", fix, _RETRY_AFTER)
            team = known.pop()
        return Client(self._runtime.works_of(team), team)

    async def _health(self, request: Request) -> Response:
        try:
            await self._runtime.works.store.now_ms()
        except errors.HeinzelwerkError as error:
            return JSONResponse({"state": "down", "reason": str(error)}, 503)
        return JSONResponse({"state": "up"})


def senders(events: Events) -> tuple[Sender, ...]:
    """The sources of the settings, ready to verify."""
    return tuple(
        Sender(name, table.scheme, table.secret.get_secret_value().encode(), table.team)
        for name, table in events.sources.items()
    )


def listening(events: Events) -> socket.socket:
    """The socket of the settings. ConfigurationError where it may not or cannot be listened on."""
    if events.address not in LOOPBACK and not events.sources:
        raise ConfigurationError(
            f"[events] address: {events.address} is beyond this machine, and nobody would have to sign",
            fix="set up [events.sources.<name>] with a scheme and a secret, or leave the address at 127.0.0.1",
        )
    return serving.listening("events", events.address, events.port)


async def serve(runtime: Runtime, listener: socket.socket) -> None:
    """Receive until SIGTERM or Ctrl-C; what was begun is answered first."""
    await serving.serve(Receiver(runtime).app, listener)


async def _body(request: Request, largest: int) -> bytes:
    """The body, at most `largest` bytes. What is longer is read on and thrown away, so that the sender hears why."""
    kept, seen = bytearray(), 0
    try:
        async with asyncio.timeout(READING_S):
            async for chunk in request.stream():
                seen += len(chunk)
                if seen <= largest:
                    kept += chunk
                if seen > _DRAINED:
                    break
    except TimeoutError:
        raise _Answer(408, f"the body did not come within {READING_S:.0f} s") from None
    if seen > largest:
        raise _Answer(
            413, f"the body is longer than {largest:,} bytes", "send a link instead, or raise [events] largest"
        )
    return bytes(kept)


def _json_of(body: bytes, content_type: str) -> bytes | str:
    """The JSON text of a body: all of it, or the form field `payload` that GitHub and Slack can be told to use."""
    if content_type.partition(";")[0].strip().lower() != _FORM:
        return body
    try:
        return parse_qs(body.decode("ascii"), strict_parsing=True, max_num_fields=100)["payload"][0]
    except (ValueError, KeyError):
        raise _Answer(400, "a form without a field `payload`", "send application/json") from None


def _id(sender: Sender, headers: Mapping[str, str], data: JsonValue) -> str:
    """The sender's own id of this delivery, which it repeats with each attempt."""
    if sender.scheme == SLACK:
        found = data if isinstance(data, dict) else {}
        given, place = found.get("event_id") or found.get("trigger_id"), "event_id"
    else:
        place = ID_HEADER if sender is UNSIGNED else _GITHUB_ID
        given = headers.get(place)
    if not isinstance(given, str) or not given:
        raise _Answer(400, f"no delivery id: {place} is missing", "send the sender's id of this delivery")
    return given
