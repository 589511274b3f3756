"""The metering proxy: the one thing a sandboxed agent can reach, and the only holder of the real key.

It listens on a unix socket that is bound into the run's sandbox, passes allowed requests on to the model's provider,
reads the usage of every answer, and answers HTTP 402 once the run's dollars or requests are used up (facts 5.3).
"""

import asyncio
import hmac
import json
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from heinzelwerk.runner import lines
from heinzelwerk.runner.meter import WIRES, AnswerMeter, Meter, Wire

REQUEST_BYTES = 32 * 1024 * 1024
MOST_IN_FLIGHT = 8
"""Requests of one run that the provider works on at once; more wait, so that a budget is overshot by so many at most."""
_COUNT_TOKENS = "/v1/messages/count_tokens"
_MODELS = "/v1/models"
_FREE = frozenset({_COUNT_TOKENS, _MODELS})

# Only what the wire formats need goes out: a header is a way to smuggle.
_REQUEST_HEADERS = frozenset({"accept", "content-type", "user-agent", "idempotency-key"})
_REQUEST_PREFIXES = ("anthropic-", "x-stainless-")
_RESPONSE_DROPPED = frozenset(
    {"connection", "content-encoding", "content-length", "keep-alive", "server", "set-cookie", "transfer-encoding"}
)
# Tools that the provider itself would run: fetching, executing, calling other servers. They would be a way out of the
# sandbox, paid for beyond the tokens that we meter.
_HOSTED_TOOLS = (
    "web_search",
    "web_fetch",
    "file_search",
    "code_execution",
    "code_interpreter",
    "mcp",
    "image_generation",
)


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """Where the model is and how to get in. `base_url` may or may not end in `/v1`."""

    base_url: str
    key: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request, for gateways that want more than a key."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What one run may ask for."""

    wires: frozenset[Wire]
    models: frozenset[str]


class MeteringProxy:
    """The ASGI application of one run. `on_traffic` is called whenever bytes pass, so that silence can be told.

    `run_key` is what the agent takes for its key. Where the loopback device is the whole machine's (Landlock) others can
    connect, and this is what they do not have.
    """

    def __init__(
        self,
        *,
        access: ModelAccess,
        run_key: str,
        allowed: Allowed,
        meter: Meter,
        client: httpx.AsyncClient,
        on_traffic: Callable[[], None],
    ) -> None:
        self._access = access
        self._run_key = run_key.encode()
        self._allowed = allowed
        self._in_flight = asyncio.Semaphore(MOST_IN_FLIGHT)
        self._meter = meter
        self._client = client
        self._on_traffic = on_traffic
        self.app = Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST", "PUT", "DELETE"])])

    async def _answer(self, request: Request) -> Response:
        self._on_traffic()
        path = request.url.path
        if not self._admitted(request):
            return self._turn_away(request, 401, "authentication_error", "this is not the key of the run")
        if not self._path_allowed(request.method, path):
            return self._turn_away(request, 404, "not_found_error", "this run may not ask for that path")
        if path == _MODELS:
            return await self._forward(request, b"", "")
        try:
            body = await _read_body(request)
        except ClientDisconnect:
            return Response(status_code=499)
        if isinstance(body, _Unreadable):
            return self._turn_away(request, body.status, "invalid_request_error", body.why)
        payload = lines.event(body)
        if payload is None:
            return self._turn_away(request, 400, "invalid_request_error", "the body is no JSON object")
        model = lines.text(payload.get("model"))
        if model not in self._allowed.models:
            return self._turn_away(request, 403, "permission_error", f"this run may not use the model {model!r}")
        hosted = _hosted_tool(payload)
        if hosted is not None:
            return self._turn_away(request, 403, "permission_error", f"this run may not use {hosted}")
        # Written anew: of a name that comes twice in a body the provider might take the one that was not judged.
        sent = _with_usage(path, payload)
        if path in _FREE:
            return await self._forward(request, sent, model)
        await self._in_flight.acquire()
        response = None
        try:
            if self._meter.admit() is not None:
                return _error(402, "invalid_request_error", "handoff budget exhausted")
            response = await self._forward(request, sent, model)
            return response
        finally:
            if not isinstance(response, _Passed):
                self._in_flight.release()  # nothing is under way; otherwise the answer's end does it

    def _admitted(self, request: Request) -> bool:
        shown = (request.headers.get("x-api-key", ""), request.headers.get("authorization", "").removeprefix("Bearer "))
        return any(hmac.compare_digest(key.encode("utf-8", "replace"), self._run_key) for key in shown)

    def _path_allowed(self, method: str, path: str) -> bool:
        if method == "GET":
            return path == _MODELS
        if method != "POST":
            return False
        if path == _COUNT_TOKENS:
            return "anthropic-messages" in self._allowed.wires
        return WIRES.get(path) in self._allowed.wires

    def _turn_away(self, request: Request, status: int, kind: str, why: str) -> Response:
        self._meter.turned_away(f"{request.method[:8]} {request.url.path[:80]}: {why[:120]}")
        return _error(status, kind, why)

    async def _forward(self, request: Request, body: bytes, model: str) -> Response:
        path = request.url.path
        base = self._access.base_url.rstrip("/").removesuffix("/v1")
        query = f"?{request.url.query}" if request.url.query else ""
        outgoing = self._client.build_request(
            request.method, f"{base}{path}{query}", headers=self._headers(request), content=body or None
        )
        try:
            upstream = await self._client.send(outgoing, stream=True)
        except httpx.HTTPError as problem:
            self._note_answer(path)
            # The class alone: a message of the client can name hosts and addresses of the operator's network.
            return _error(502, "api_error", f"the model could not be reached: {type(problem).__name__}")
        self._note_answer(path)
        meter = None
        if path not in _FREE and upstream.is_success:
            streaming = upstream.headers.get("content-type", "").startswith("text/event-stream")
            meter = AnswerMeter(WIRES[path], streaming=streaming, request_bytes=len(body))
        headers = {name: value for name, value in upstream.headers.items() if name not in _RESPONSE_DROPPED}
        passed = _Passed(self._stream(upstream, meter, model), status_code=upstream.status_code, headers=headers)
        if path not in _FREE:
            passed.ended = self._in_flight.release
        return passed

    def _note_answer(self, path: str) -> None:
        if path not in _FREE:
            self._meter.answered()

    def _headers(self, request: Request) -> dict[str, str]:
        kept = {
            name: value
            for name, value in request.headers.items()
            if name in _REQUEST_HEADERS or name.startswith(_REQUEST_PREFIXES)
        }
        # Plain text between us and the provider is simplest to meter; what comes packed all the same is unpacked.
        credentials = {"authorization": f"Bearer {self._access.key}", "accept-encoding": "identity"}
        if "anthropic-messages" in self._allowed.wires:
            credentials = {"x-api-key": self._access.key, "accept-encoding": "identity"}
        return {**kept, **credentials, **self._access.headers}

    async def _stream(self, upstream: httpx.Response, meter: AnswerMeter | None, model: str) -> AsyncIterator[bytes]:
        try:
            async for chunk in upstream.aiter_bytes():
                self._on_traffic()
                if meter is not None:
                    meter.feed(chunk)
                yield chunk
        finally:
            # Also when the agent hangs up or is killed: what was answered so far is paid for.
            if meter is not None:
                self._meter.add(model, meter.finish())
            with anyio.CancelScope(shield=True):
                await upstream.aclose()


class _Passed(StreamingResponse):
    ended: Callable[[], None] = staticmethod(lambda: None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except httpx.HTTPError:
            # The provider broke off. Leaving the answer unfinished makes the server break off too, so that the agent
            # sees a cut stream and not a short answer.
            return
        finally:
            self.ended()


@dataclass(frozen=True, slots=True)
class _Unreadable:
    status: int
    why: str


async def _read_body(request: Request) -> bytes | _Unreadable:
    encoding = request.headers.get("content-encoding", "identity")
    if encoding not in ("identity", "gzip"):
        return _Unreadable(415, f"content-encoding {encoding[:20]!r} is not read here; send it plain or as gzip")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > REQUEST_BYTES:
            return _Unreadable(413, f"the body has more than {REQUEST_BYTES} bytes")
    if encoding == "identity":
        return bytes(body)
    unpacker = zlib.decompressobj(wbits=31)
    try:
        plain = unpacker.decompress(bytes(body), REQUEST_BYTES)
    except zlib.error:
        return _Unreadable(400, "the body is no gzip")
    if unpacker.unconsumed_tail:
        return _Unreadable(413, f"the unpacked body has more than {REQUEST_BYTES} bytes")
    return plain


def _hosted_tool(payload: dict[str, Any]) -> str | None:
    if payload.get("mcp_servers"):
        return "MCP servers of the provider"
    for tool in lines.objects(payload.get("tools")):
        kind = lines.text(tool.get("type"))
        if kind.startswith(_HOSTED_TOOLS):
            return f"the provider's tool {kind!r}"
    return None


def _with_usage(path: str, payload: dict[str, Any]) -> bytes:
    """The body to send: a streamed chat completion names its usage only where it was asked to."""
    if WIRES.get(path) == "openai-chat" and payload.get("stream") is True:
        options = lines.mapping(payload.get("stream_options"))
        payload = {**payload, "stream_options": {**options, "include_usage": True}}
    return json.dumps(payload, separators=(",", ":")).encode()


def _error(status: int, kind: str, message: str) -> Response:
    # Both vendors' shapes in one body; the header keeps Claude Code from trying again what cannot succeed.
    error = {"type": kind, "message": message, "code": kind}
    retry = "true" if status >= 500 else "false"
    return JSONResponse({"type": "error", "error": error}, status_code=status, headers={"x-should-retry": retry})
