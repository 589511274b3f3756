"""A scripted model server on 127.0.0.1: Anthropic Messages, OpenAI Responses and Chat Completions, streamed or not.

Each request takes the next answer of the script (the last one repeats) and is written to the log, so a test can say
exactly what a provider does: answer, call a tool, refuse, be overloaded, hang, cut the stream, pack the answer.

    async with fake_model([calls("read", path="notes.txt"), says("done")]) as model:
        ...  # model.url, model.requests

Its own process, for tests that block their loop: `python -m tests.support.fake_model SCRIPT.json`, which prints the
URL and then one JSON line per request.
"""

import asyncio
import gzip
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from heinzelwerk.runner.serving import serve


@dataclass(frozen=True)
class Tokens:
    """What one answer claims to have used, in the sense of `heinzelwerk.handoff.Usage`."""

    input: int = 1200
    output: int = 40
    cache_read: int = 300
    cache_write: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Answer:
    """What the server does with one request."""

    text: str = ""
    tool: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    namespace: str | None = None
    """Of the tool, in the Responses format: how Codex offers the tools of an MCP server."""
    tokens: Tokens = Tokens()
    status: int = 200
    error: str = "api_error"
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    hang: bool = False
    """Accept the request and never answer."""
    cut_after: int | None = None
    """Send this many stream events and then drop the connection."""
    stall_after: int | None = None
    """Send this many stream events and then nothing more."""
    packed: bool = False
    """Send the answer as gzip whatever the client accepts."""
    usage: bool = True
    """False: leave the usage out."""


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


Script = Sequence[Answer] | Callable[[Seen], Answer]


def says(text: str, **more: Any) -> Answer:
    """A final answer."""
    return Answer(text=text, **more)


def calls(tool: str, /, **arguments: Any) -> Answer:
    """A call of one tool."""
    return Answer(tool=tool, arguments=arguments)


def fails(status: int, error: str = "api_error", **headers: str) -> Answer:
    """An HTTP error as the providers send it; underscores in header names become dashes."""
    return Answer(
        status=status, error=error, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


HANG = Answer(hang=True)


class FakeModel:
    """The server's state: its script, and what it has seen."""

    def __init__(self, script: Script, *, key: str | None) -> None:
        self.script = script
        self.key = key
        self.url = ""
        self.requests: list[Seen] = []
        self.on_request: Callable[[Seen], None] = lambda seen: None
        self._next = 0
        self.app = Starlette(routes=[Route("/{path:path}", self._serve, methods=["GET", "POST"])])

    @property
    def asked(self) -> list[Seen]:
        """The requests that wanted an answer of the script."""
        return [seen for seen in self.requests if seen.path.endswith(("/messages", "/responses", "/completions"))]

    async def _serve(self, request: Request) -> Response:
        raw = await request.body()
        body = json.loads(raw) if raw else {}
        seen = Seen(request.method, request.url.path, dict(request.headers), body)
        self.requests.append(seen)
        self.on_request(seen)
        if self.key is not None and self.key not in (
            request.headers.get("x-api-key"),
            request.headers.get("authorization", "").removeprefix("Bearer "),
        ):
            return _refusal(fails(401, "authentication_error"), "invalid x-api-key")
        if seen.path.endswith("/models"):
            return JSONResponse({"object": "list", "data": [{"id": "fake-model", "object": "model"}]})
        if seen.path.endswith("/count_tokens"):
            return JSONResponse({"input_tokens": 10})
        answer = self._take(seen)
        await asyncio.sleep(answer.delay_s)
        if answer.hang:
            await asyncio.Event().wait()
        if answer.status != 200:
            return _refusal(answer, answer.error.replace("_", " "))
        return _reply(seen, answer)

    def _take(self, seen: Seen) -> Answer:
        if callable(self.script):
            return self.script(seen)
        answer = self.script[min(self._next, len(self.script) - 1)]
        self._next += 1
        return answer


@asynccontextmanager
async def fake_model(script: Script, *, key: str | None = None) -> AsyncIterator[FakeModel]:
    """Serve a script on a free port of the loopback; `key` is the only one that is let in, None lets everybody in."""
    model = FakeModel(script, key=key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        model.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with serve(model.app, listener):
            yield model


def _refusal(answer: Answer, message: str) -> Response:
    error = {"type": answer.error, "message": message, "code": answer.error}
    return JSONResponse({"type": "error", "error": error}, status_code=answer.status, headers=answer.headers)


def _reply(seen: Seen, answer: Answer) -> Response:
    wire = next(wire for end, wire in _WIRES.items() if seen.path.endswith(end))
    number = f"{id(seen):x}"
    if seen.body.get("stream") is not True:
        data = json.dumps(wire.whole(seen, answer, number)).encode()
        return _packed([data], "application/json", answer)
    events = list(wire.events(seen, answer, number))
    return _packed(events if answer.cut_after is None else events[: answer.cut_after], "text/event-stream", answer)


def _packed(chunks: list[bytes], kind: str, answer: Answer) -> Response:
    headers = {**answer.headers, "content-type": kind}
    if answer.packed:
        return Response(gzip.compress(b"".join(chunks)), headers={**headers, "content-encoding": "gzip"})
    if answer.cut_after is not None:
        return _Cut(_each(chunks, cut=True), headers=headers)
    if answer.stall_after is not None:
        return StreamingResponse(_each(chunks[: answer.stall_after], stall=True), headers=headers)
    return StreamingResponse(_each(chunks), headers=headers)


class _Broken(Exception):
    """Here the script says that the connection drops."""


class _Cut(StreamingResponse):
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        except _Broken:  # an answer that is left unfinished makes the server drop the connection
            return


async def _each(chunks: list[bytes], *, cut: bool = False, stall: bool = False) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
        await asyncio.sleep(0)
    if stall:
        await asyncio.Event().wait()
    if cut:
        raise _Broken


def _event(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


class _Messages:
    """Anthropic Messages."""

    @staticmethod
    def _usage(answer: Answer) -> dict[str, int]:
        tokens = answer.tokens
        return {
            "input_tokens": tokens.input,
            "cache_creation_input_tokens": tokens.cache_write,
            "cache_read_input_tokens": tokens.cache_read,
        }

    @classmethod
    def whole(cls, seen: Seen, answer: Answer, number: str) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "text", "text": answer.text}
        if answer.tool is not None:
            block = {"type": "tool_use", "id": f"toolu_{number}", "name": answer.tool, "input": answer.arguments}
        message = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": seen.body.get("model"),
            "content": [block],
            "stop_reason": "end_turn" if answer.tool is None else "tool_use",
            "stop_sequence": None,
        }
        usage = {**cls._usage(answer), "output_tokens": answer.tokens.output}
        return {**message, "usage": usage} if answer.usage else message

    @classmethod
    def events(cls, seen: Seen, answer: Answer, number: str) -> Iterator[bytes]:
        whole = cls.whole(seen, answer, number)
        block = whole["content"][0]
        start = {**whole, "content": [], "stop_reason": None, "usage": {**cls._usage(answer), "output_tokens": 1}}
        yield _event({"type": "message_start", "message": start})
        empty = {**block, "input": {}} if answer.tool else {**block, "text": ""}
        yield _event({"type": "content_block_start", "index": 0, "content_block": empty})
        delta = {"type": "text_delta", "text": answer.text}
        if answer.tool is not None:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(answer.arguments)}
        yield _event({"type": "content_block_delta", "index": 0, "delta": delta})
        yield _event({"type": "content_block_stop", "index": 0})
        stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield _event({"type": "message_delta", "delta": stop, "usage": {"output_tokens": answer.tokens.output}})
        yield _event({"type": "message_stop"})


class _Responses:
    """OpenAI Responses."""

    @staticmethod
    def whole(seen: Seen, answer: Answer, number: str) -> dict[str, Any]:
        content = {"type": "output_text", "text": answer.text, "annotations": []}
        item: dict[str, Any] = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed"}
        item["content"] = [content]
        if answer.tool is not None:
            item = {"id": f"fc_{number}", "type": "function_call", "call_id": f"call_{number}", "status": "completed"}
            item |= {"name": answer.tool, "arguments": json.dumps(answer.arguments)}
            item |= {} if answer.namespace is None else {"namespace": answer.namespace}
        tokens = answer.tokens
        sent = tokens.input + tokens.cache_read
        usage = {
            "input_tokens": sent,
            "input_tokens_details": {"cached_tokens": tokens.cache_read},
            "output_tokens": tokens.output,
            "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
            "total_tokens": sent + tokens.output,
        }
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 1796000000,
            "status": "completed",
            "model": seen.body.get("model"),
            "output": [item],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage if answer.usage else None,
        }

    @classmethod
    def events(cls, seen: Seen, answer: Answer, number: str) -> Iterator[bytes]:
        whole = cls.whole(seen, answer, number)
        item = whole["output"][0]
        numbered = enumerate(cls._plain_events(whole, item, answer))
        yield from (_event({**event, "sequence_number": position}) for position, event in numbered)

    @staticmethod
    def _plain_events(whole: dict[str, Any], item: dict[str, Any], answer: Answer) -> Iterator[dict[str, Any]]:
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        yield {"type": "response.created", "response": begun}
        place = {"output_index": 0, "item_id": item["id"]}
        if answer.tool is None:
            part = {"type": "output_text", "text": "", "annotations": []}
            yield {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}}
            yield {"type": "response.content_part.added", **place, "content_index": 0, "part": part}
            delta = {"content_index": 0, "delta": answer.text, "logprobs": []}
            yield {"type": "response.output_text.delta", **place, **delta}
            done = {"content_index": 0, "text": answer.text, "logprobs": []}
            yield {"type": "response.output_text.done", **place, **done}
        else:
            yield {"type": "response.output_item.added", "output_index": 0, "item": {**item, "arguments": ""}}
            yield {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]}
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        yield {"type": "response.completed", "response": whole}


class _Chat:
    """OpenAI Chat Completions."""

    @staticmethod
    def _usage(answer: Answer) -> dict[str, Any]:
        tokens = answer.tokens
        sent = tokens.input + tokens.cache_read
        return {
            "prompt_tokens": sent,
            "prompt_tokens_details": {"cached_tokens": tokens.cache_read},
            "completion_tokens": tokens.output,
            "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
            "total_tokens": sent + tokens.output,
        }

    @staticmethod
    def _said(answer: Answer, number: str) -> dict[str, Any]:
        if answer.tool is None:
            return {"role": "assistant", "content": answer.text}
        function = {"name": answer.tool, "arguments": json.dumps(answer.arguments)}
        call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    @classmethod
    def whole(cls, seen: Seen, answer: Answer, number: str) -> dict[str, Any]:
        reason = "stop" if answer.tool is None else "tool_calls"
        choice = {"index": 0, "message": cls._said(answer, number), "finish_reason": reason}
        whole = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1796000000, "choices": [choice]}
        named = {"usage": cls._usage(answer)} if answer.usage else {}
        return {**whole, "model": seen.body.get("model"), **named}

    @classmethod
    def events(cls, seen: Seen, answer: Answer, number: str) -> Iterator[bytes]:
        head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1796000000}
        head["model"] = seen.body.get("model", "")
        reason = "stop" if answer.tool is None else "tool_calls"
        choices = [
            {"index": 0, "delta": cls._said(answer, number), "finish_reason": None},
            {"index": 0, "delta": {}, "finish_reason": reason},
        ]
        for choice in choices:
            yield f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode()
        if answer.usage and seen.body.get("stream_options", {}).get("include_usage"):
            yield f"data: {json.dumps({**head, 'choices': [], 'usage': cls._usage(answer)})}\n\n".encode()
        yield b"data: [DONE]\n\n"


_WIRES: dict[str, type[_Messages] | type[_Responses] | type[_Chat]] = {
    "/messages": _Messages,
    "/responses": _Responses,
    "/chat/completions": _Chat,
}


async def _main(path: str) -> None:
    with open(path) as file:
        entries = json.load(file)
    script = [Answer(**{**entry, "tokens": Tokens(**entry.get("tokens", {}))}) for entry in entries]
    async with fake_model(script) as model:
        model.on_request = lambda seen: print(json.dumps({"path": seen.path, "body": seen.body}), flush=True)
        print(model.url, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
