"""The metering proxy between a client on its unix socket and a scripted provider."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from heinzelwerk.handoff import Usage
from heinzelwerk.runner.meter import Meter, Price, Wire
from heinzelwerk.runner.metering import MOST_IN_FLIGHT, REQUEST_BYTES, Allowed, MeteringProxy, ModelAccess
from heinzelwerk.runner.serving import listening, serve
from tests.support.fake_model import Answer, FakeModel, Script, Tokens, fails, fake_model, says

KEY = "the-real-key"
ONE = Usage(input=1200, output=40, cache_read=300)
SHOWN = {"x-api-key": "placeholder"}
PATHS: dict[Wire, str] = {
    "anthropic-messages": "/v1/messages",
    "openai-responses": "/v1/responses",
    "openai-chat": "/v1/chat/completions",
}


def cent_each(model: str, usage: Usage, reported: Decimal | None) -> Decimal | None:
    return reported if reported is not None else Decimal("0.01")


@dataclass
class Proxied:
    client: httpx.AsyncClient
    model: FakeModel
    meter: Meter
    traffic: list[int]

    async def ask(self, wire: Wire, **body: Any) -> httpx.Response:
        return await self.client.post(PATHS[wire], json={"model": "m", "messages": [], **body})


@asynccontextmanager
async def proxied(
    script: Script,
    directory: Path,
    *,
    wire: Wire = "anthropic-messages",
    price: Price = cent_each,
    max_usd: str | None = None,
    max_requests: int | None = None,
    base: str = "",
) -> AsyncIterator[Proxied]:
    """A client whose only way to the fake provider is the proxy."""
    meter = Meter(price=price, max_usd=None if max_usd is None else Decimal(max_usd), max_requests=max_requests)
    traffic: list[int] = []
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(fake_model(script, key=KEY))
        upstream = await stack.enter_async_context(httpx.AsyncClient())
        proxy = MeteringProxy(
            access=ModelAccess(base_url=model.url + base, key=KEY),
            run_key="placeholder",
            allowed=Allowed(wires=frozenset({wire}), models=frozenset({"m"})),
            meter=meter,
            client=upstream,
            on_traffic=lambda: traffic.append(1),
        )
        path = directory / "model.sock"
        listener = stack.enter_context(listening(path))
        await stack.enter_async_context(serve(proxy.app, listener))
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        headers = {"x-api-key": "placeholder", "authorization": "Bearer placeholder", "cookie": "a=b", "x-secret": "s"}
        client = httpx.AsyncClient(transport=transport, base_url="http://model", headers=headers)
        yield Proxied(await stack.enter_async_context(client), model, meter, traffic)


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("packed", [True, False])
async def test_usage_is_read_from_every_wire_format(wire: Wire, stream: bool, packed: bool, tmp_path: Path) -> None:
    """Streamed or not, packed or not, each format's usage and price arrive, and the client sees the whole answer."""
    async with proxied([says("hello", packed=packed)], tmp_path, wire=wire) as proxy:
        reply = await proxy.ask(wire, stream=stream)
        assert reply.status_code == 200
        assert "hello" in reply.text
        report = proxy.meter.report()
        assert (report.requests, report.usage, report.cost_usd) == (1, ONE, Decimal("0.01"))
        assert (report.estimated, report.cut) == (0, None)
        assert proxy.traffic


async def test_reasoning_and_cache_writes_are_counted(tmp_path: Path) -> None:
    """Every kind of token of the result's `usage` has a place on the wire."""
    tokens = Tokens(input=5, output=9, cache_read=2, cache_write=3)
    async with proxied([says("x", tokens=tokens)], tmp_path) as proxy:
        await proxy.ask("anthropic-messages", stream=True)
        assert proxy.meter.report().usage == Usage(input=5, output=9, cache_read=2, cache_write=3)
    tokens = Tokens(input=5, output=9, cache_read=2, reasoning=4)
    async with proxied([says("x", tokens=tokens)], tmp_path, wire="openai-responses") as proxy:
        await proxy.ask("openai-responses", stream=True)
        assert proxy.meter.report().usage == Usage(input=5, output=9, cache_read=2, reasoning=4)


@pytest.mark.parametrize("base", ["", "/v1", "/v1/"])
async def test_the_real_key_is_put_in_outside_and_nothing_else_leaks_out(base: str, tmp_path: Path) -> None:
    """The provider sees the real key and none of the client's own headers beyond the wire format's."""
    async with proxied([says("x")], tmp_path, base=base) as proxy:
        reply = await proxy.client.post("/v1/messages?beta=true", json={"model": "m"}, headers={"anthropic-beta": "b"})
        assert reply.status_code == 200
        seen = proxy.model.requests[0]
        assert seen.path == "/v1/messages"
        assert seen.headers["x-api-key"] == KEY
        assert seen.headers["anthropic-beta"] == "b"
        assert not {"authorization", "cookie", "x-secret"} & set(seen.headers)
        assert KEY not in reply.text + str(reply.headers)


@pytest.mark.parametrize("wire", ["openai-responses", "openai-chat"])
async def test_openai_formats_carry_the_key_as_a_bearer(wire: Wire, tmp_path: Path) -> None:
    """And the placeholder is gone."""
    async with proxied([says("x")], tmp_path, wire=wire) as proxy:
        await proxy.ask(wire)
        assert proxy.model.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert "placeholder" not in str(proxy.model.requests[0].headers)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/files"),
        ("POST", "/v1/messages/batches"),
        ("POST", "/v1/messages/"),
        ("POST", "/v1/messages/../files"),
        ("POST", "/v1/responses"),
        ("GET", "/v1/messages"),
        ("DELETE", "/v1/models"),
        ("GET", "/"),
    ],
)
async def test_other_paths_are_turned_away_without_asking_the_provider(method: str, path: str, tmp_path: Path) -> None:
    """Only the run's own wire format, token counting and the list of models pass; the report names the rest."""
    async with proxied([says("x")], tmp_path) as proxy:
        reply = await proxy.client.request(method, httpx.URL("http://model" + path), json={"model": "m"})
        assert reply.status_code in (404, 405)
        assert proxy.model.requests == []
        assert proxy.meter.report().requests == 0


async def test_the_list_of_models_and_token_counting_are_free(tmp_path: Path) -> None:
    """They pass with the real key and count against no limit."""
    async with proxied([says("x")], tmp_path, max_requests=1) as proxy:
        assert (await proxy.client.get("/v1/models")).status_code == 200
        counted = await proxy.client.post("/v1/messages/count_tokens", json={"model": "m"})
        assert counted.json() == {"input_tokens": 10}
        assert proxy.meter.report().requests == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"no json", 400),
        (b"[]", 400),
        (b'{"model":"another"}', 403),
        (b"{}", 403),
        (b'{"model":"m","mcp_servers":[{"url":"https://elsewhere.example"}]}', 403),
        (b'{"model":"m","tools":[{"type":"web_fetch_20250910","name":"web_fetch"}]}', 403),
        (b'{"model":"m","tools":[{"type":"code_interpreter"}]}', 403),
    ],
)
async def test_other_models_and_the_providers_own_tools_are_turned_away(
    body: bytes, status: int, tmp_path: Path
) -> None:
    """A tool that the provider would run reaches the world; it is no way out of the sandbox."""
    async with proxied([says("x")], tmp_path) as proxy:
        assert (await proxy.client.post("/v1/messages", content=body)).status_code == status
        assert proxy.model.requests == []
        assert proxy.meter.report().turned_away


async def test_the_clients_own_tools_pass(tmp_path: Path) -> None:
    """Tools without a type, and functions, are run by the agent in its sandbox."""
    async with proxied([says("x")], tmp_path) as proxy:
        reply = await proxy.ask("anthropic-messages", tools=[{"name": "Read"}, {"type": "custom", "name": "x"}])
        assert reply.status_code == 200


async def test_request_bodies_are_capped_packed_or_not(tmp_path: Path) -> None:
    """A large body and a small one that unpacks to a large one are 413; an unknown packing is 415."""
    async with proxied([says("x")], tmp_path) as proxy:
        large = b'{"model":"m","x":"' + b"a" * REQUEST_BYTES + b'"}'
        assert (await proxy.client.post("/v1/messages", content=large)).status_code == 413
        packed = gzip.compress(large)
        for encoding, body, status in [("gzip", packed, 413), ("gzip", b"junk", 400), ("zstd", b"x", 415)]:
            headers = {"content-encoding": encoding}
            assert (await proxy.client.post("/v1/messages", content=body, headers=headers)).status_code == status
        fine = gzip.compress(json.dumps({"model": "m"}).encode())
        reply = await proxy.client.post("/v1/messages", content=fine, headers={"content-encoding": "gzip"})
        assert reply.status_code == 200


async def test_the_dollar_limit_ends_with_402(tmp_path: Path) -> None:
    """Two answers at a cent each use up two cents; the third request is refused, once and for all."""
    async with proxied([says("x")], tmp_path, max_usd="0.02") as proxy:
        codes = [(await proxy.ask("anthropic-messages", stream=True)).status_code for _ in range(4)]
        assert codes == [200, 200, 402, 402]
        report = proxy.meter.report()
        assert (report.cut, report.cost_usd, report.requests) == ("dollars", Decimal("0.02"), 2)
        assert len(proxy.model.requests) == 2


async def test_the_request_limit_ends_with_402_that_no_client_retries(tmp_path: Path) -> None:
    """The refusal has both vendors' shape and says that trying again is of no use."""
    async with proxied([says("x")], tmp_path, max_requests=1) as proxy:
        await proxy.ask("anthropic-messages")
        reply = await proxy.ask("anthropic-messages")
        assert reply.status_code == 402
        assert reply.json()["error"]["type"] == "invalid_request_error"
        assert reply.headers["x-should-retry"] == "false"
        assert proxy.meter.report().cut == "requests"


async def test_a_cost_that_cannot_be_computed_counts_at_the_cap(tmp_path: Path) -> None:
    """After an answer without a price nothing more is spent under a dollar limit, and the cost is not made up."""
    async with proxied([says("x")], tmp_path, price=lambda *_: None, max_usd="5") as proxy:
        assert [(await proxy.ask("anthropic-messages")).status_code for _ in range(2)] == [200, 402]
        assert proxy.meter.report().cost_usd is None


@pytest.mark.parametrize("status", [400, 401, 429, 500, 529])
async def test_errors_of_the_provider_pass_through(status: int, tmp_path: Path) -> None:
    """Status, body and Retry-After reach the agent, and nothing is booked."""
    async with proxied([fails(status, "overloaded_error", retry_after="7")], tmp_path) as proxy:
        reply = await proxy.ask("anthropic-messages", stream=True)
        assert reply.status_code == status
        assert reply.json()["error"]["type"] == "overloaded_error"
        assert reply.headers["retry-after"] == "7"
        assert proxy.meter.report().usage == Usage()


async def test_a_provider_that_is_not_there_is_502_without_a_word_about_the_network(tmp_path: Path) -> None:
    """The agent learns that the model could not be reached, not where it was looked for."""
    async with proxied([says("x")], tmp_path) as proxy:
        proxy.model.script = []
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient())
        gone = MeteringProxy(
            access=ModelAccess(base_url=proxy.model.url, key=KEY),
            run_key="placeholder",
            allowed=Allowed(wires=frozenset({"anthropic-messages"}), models=frozenset({"m"})),
            meter=proxy.meter,
            client=client,
            on_traffic=lambda: None,
        )
        asgi = httpx.ASGITransport(app=gone.app)
        inside = await stack.enter_async_context(
            httpx.AsyncClient(transport=asgi, base_url="http://model", headers=SHOWN)
        )
        reply = await inside.post("/v1/messages", json={"model": "m"})
    assert reply.status_code == 502
    assert proxy.model.url.rsplit(":", 1)[1] not in reply.text


@pytest.mark.parametrize("wire", PATHS)
async def test_a_cut_answer_is_estimated_and_marked(wire: Wire, tmp_path: Path) -> None:
    """A stream that breaks before its usage costs what it plausibly cost, and the report says that it is a guess."""
    cut = 1 if wire == "openai-chat" else 4
    async with proxied([Answer(text="word " * 200, cut_after=cut)], tmp_path, wire=wire) as proxy:
        with pytest.raises(httpx.RemoteProtocolError):
            await proxy.ask(wire, stream=True, padding="p" * 4000)
        for _ in range(200):
            if proxy.meter.report().estimated:
                break
            await asyncio.sleep(0.01)
        report = proxy.meter.report()
        assert report.estimated == 1
        assert report.usage.input >= 900
        assert report.usage.output >= 200
        assert report.cost_usd == Decimal("0.01")


async def test_an_agent_that_hangs_up_has_paid_for_what_came(tmp_path: Path) -> None:
    """When the agent is killed in the middle of an answer, what the provider had sent is booked."""
    async with proxied([Answer(text="word " * 200)], tmp_path) as proxy:
        async with proxy.client.stream("POST", "/v1/messages", json={"model": "m", "stream": True}) as reply:
            async for _ in reply.aiter_raw():
                break
        for _ in range(200):
            if proxy.meter.report().usage.input:
                break
            await asyncio.sleep(0.01)
        assert proxy.meter.report().usage.input == 1200


async def test_a_cost_that_the_gateway_names_reaches_the_price_rule(tmp_path: Path) -> None:
    """A gateway's own `usage.cost` is handed to the price function, which decides."""
    got: list[Decimal | None] = []

    def price(model: str, usage: Usage, reported: Decimal | None) -> Decimal | None:
        got.append(reported)
        return reported

    async def gateway(scope: Any, receive: Any, send: Any) -> None:
        body = b'{"usage":{"prompt_tokens":3,"completion_tokens":1,"cost":0.125}}'
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": body})

    meter = Meter(price=price, max_usd=None, max_requests=None)
    async with AsyncExitStack() as stack:
        upstream = httpx.AsyncClient(transport=httpx.ASGITransport(app=gateway))
        proxy = MeteringProxy(
            access=ModelAccess(base_url="http://gateway", key=KEY),
            run_key="placeholder",
            allowed=Allowed(wires=frozenset({"openai-chat"}), models=frozenset({"m"})),
            meter=meter,
            client=await stack.enter_async_context(upstream),
            on_traffic=lambda: None,
        )
        inside = httpx.AsyncClient(transport=httpx.ASGITransport(app=proxy.app), base_url="http://model", headers=SHOWN)
        client = await stack.enter_async_context(inside)
        await client.post("/v1/chat/completions", json={"model": "m"})
    assert (got, meter.report().cost_usd) == ([Decimal("0.125")], Decimal("0.125"))


async def _hang_up(proxy: Proxied, directory: Path, *, stream: bool) -> None:
    """Ask, and be gone before the provider has said a word."""
    _, writer = await asyncio.open_unix_connection(str(directory / "model.sock"))
    body = json.dumps({"model": "m", "stream": stream, "padding": "p" * 4000}).encode()
    head = f"POST /v1/messages HTTP/1.1\r\nhost: model\r\nx-api-key: placeholder\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    while not proxy.model.requests:
        await asyncio.sleep(0.01)
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("stream", [True, False])
async def test_an_agent_that_hangs_up_before_the_answer_pays_for_it(stream: bool, tmp_path: Path) -> None:
    """Asking and not listening is no way around the budget: the answer is booked, and the next request is refused."""
    async with proxied([Answer(text="word " * 200, delay_s=0.3)], tmp_path, max_usd="0.01") as proxy:
        await _hang_up(proxy, tmp_path, stream=stream)
        for _ in range(300):
            if proxy.meter.report().cost_usd:
                break
            await asyncio.sleep(0.01)
        report = proxy.meter.report()
        assert report.usage.input >= 900
        assert report.cost_usd == Decimal("0.01")
        assert (await proxy.ask("anthropic-messages")).status_code == 402


async def test_the_provider_gets_the_very_request_that_was_judged() -> None:
    """Of two `model`s in one body we and the provider might read different ones: only one is sent on."""
    sent: list[bytes] = []

    def provider(request: httpx.Request) -> httpx.Response:
        sent.append(request.content)
        return httpx.Response(200, json={"usage": {"input_tokens": 1, "output_tokens": 1}})

    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(httpx.AsyncClient(transport=httpx.MockTransport(provider)))
        proxy = MeteringProxy(
            access=ModelAccess(base_url="http://provider", key=KEY),
            run_key="placeholder",
            allowed=Allowed(wires=frozenset({"anthropic-messages"}), models=frozenset({"m"})),
            meter=Meter(price=cent_each, max_usd=None, max_requests=None),
            client=upstream,
            on_traffic=lambda: None,
        )
        inside = httpx.AsyncClient(transport=httpx.ASGITransport(app=proxy.app), base_url="http://model", headers=SHOWN)
        client = await stack.enter_async_context(inside)
        twice = b'{"model":"dear","model":"m","tools":[{"type":"web_search"}],"tools":[],"x":"\\ud800"}'
        assert (await client.post("/v1/messages", content=twice)).status_code == 200
    assert [json.loads(body) for body in sent] == [{"model": "m", "tools": [], "x": "\ud800"}]
    assert b"dear" not in sent[0]


async def test_nobody_gets_in_without_the_key_of_the_run(tmp_path: Path) -> None:
    """Another program of this machine that finds the port is turned away before anything is asked."""
    async with proxied([says("x")], tmp_path) as proxy:
        for headers in ({"x-api-key": "other"}, {"x-api-key": "", "authorization": "Bearer \u00fc".encode("latin-1")}):
            given = {"x-api-key": "", "authorization": "", **headers}
            reply = await proxy.client.post("/v1/messages", json={"model": "m"}, headers=given)
            assert reply.status_code == 401
            assert (await proxy.client.get("/v1/models", headers=given)).status_code == 401
        assert proxy.model.requests == []
        assert proxy.meter.report().requests == 0


async def test_a_flood_overshoots_the_budget_by_what_is_in_flight(tmp_path: Path) -> None:
    """Forty requests at once against a budget of two: those that waited find it used up."""
    async with proxied([Answer(text="x", delay_s=0.05)], tmp_path, max_usd="0.02") as proxy:
        replies = await asyncio.gather(*(proxy.ask("anthropic-messages", stream=True) for _ in range(40)))
        codes = [reply.status_code for reply in replies]
        assert set(codes) == {200, 402}
        assert codes.count(200) <= 2 + MOST_IN_FLIGHT
        assert len(proxy.model.requests) == codes.count(200)
        assert (await proxy.ask("anthropic-messages")).status_code == 402
