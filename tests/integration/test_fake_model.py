"""The scripted model server speaks the three wire formats well enough for the real clients behind pydantic-ai."""

import asyncio
import functools
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic_ai import Agent, ModelHTTPError
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.support.fake_model import Answer, calls, fails, fake_model, says

Make = Callable[[str, str], Any]


def anthropic(http: httpx2.AsyncClient, url: str, key: str) -> AnthropicModel:
    return AnthropicModel("m", provider=AnthropicProvider(base_url=url, api_key=key, http_client=http))


def responses(http: httpx2.AsyncClient, url: str, key: str) -> OpenAIResponsesModel:
    return OpenAIResponsesModel("m", provider=OpenAIProvider(base_url=f"{url}/v1", api_key=key, http_client=http))


def chat(http: httpx2.AsyncClient, url: str, key: str) -> OpenAIChatModel:
    return OpenAIChatModel("m", provider=OpenAIProvider(base_url=f"{url}/v1", api_key=key, http_client=http))


@pytest.fixture(params=[anthropic, responses, chat])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    async with httpx2.AsyncClient() as http:
        yield functools.partial(request.param, http)


async def test_a_tool_is_called_and_an_answer_given(client: Make) -> None:
    """One round of tools and a text, with the usage that the script names, and a log of what was asked."""
    got: list[str] = []
    async with fake_model([calls("look", path="notes.txt"), says("done")], key="k") as server:
        agent = Agent(client(server.url, "k"))

        @agent.tool_plain
        def look(path: str) -> str:
            got.append(path)
            return "hello"

        result = await agent.run("go")
        assert (result.output, got) == ("done", ["notes.txt"])
        assert result.usage.output_tokens == 80
        assert len(server.asked) == 2
        assert "hello" in json.dumps(server.asked[1].body)


async def test_an_answer_is_streamed(client: Make) -> None:
    """The same script serves a client that streams."""
    async with fake_model([says("streamed words")], key="k") as server:
        async with Agent(client(server.url, "k")).run_stream("go") as result:
            assert await result.get_output() == "streamed words"
        assert server.asked[0].body["stream"] is True


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_an_error_of_the_provider_arrives(client: Make, status: int) -> None:
    """Its status reaches the caller."""
    async with fake_model([fails(status, "invalid_request_error")]) as server:
        with pytest.raises(ModelHTTPError) as caught:
            await Agent(client(server.url, "k")).run("go")
    assert caught.value.status_code == status


async def test_a_wrong_key_is_401(client: Make) -> None:
    """Whoever does not have the key is told so."""
    async with fake_model([says("x")], key="right") as server:
        with pytest.raises(ModelHTTPError) as caught:
            await Agent(client(server.url, "wrong")).run("go")
    assert caught.value.status_code == 401


async def test_a_cut_stream_is_an_error(client: Make) -> None:
    """A stream that breaks off is seen as broken, not as a short answer."""
    async with fake_model([Answer(text="half", cut_after=1)]) as server:
        with pytest.raises(Exception, match=r"."):
            async with Agent(client(server.url, "k")).run_stream("go") as result:
                await result.get_output()


async def test_it_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    """For tests that block their loop: it prints its URL, serves, and ends with its stdin."""
    script = tmp_path / "script.json"
    script.write_text('[{"text": "from outside"}]')
    command = (sys.executable, "-m", "tests.support.fake_model", str(script))
    child = await asyncio.create_subprocess_exec(*command, stdin=-1, stdout=-1, cwd=Path(__file__).parents[2])
    assert child.stdout is not None
    assert child.stdin is not None
    url = (await child.stdout.readline()).decode().strip()
    async with httpx2.AsyncClient() as http:
        result = await Agent(chat(http, url, "k")).run("go")
    seen = json.loads(await child.stdout.readline())
    child.stdin.close()
    assert await child.wait() == 0
    assert (result.output, seen["path"]) == ("from outside", "/v1/chat/completions")
