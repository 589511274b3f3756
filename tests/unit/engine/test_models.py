"""Models from settings: extras, keys, gateways and prices, table-driven from the pinned library."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
import tomllib
from decimal import Decimal
from importlib import metadata
from pathlib import Path
from typing import Any

import pydantic_ai.providers
import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.usage import RequestUsage

from heinzelwerk import errors
from heinzelwerk.engine import Models, ModelSettings, Price, models, prefixes, prices
from heinzelwerk.engine.offline import OfflineModel
from tests.unit.engine.desk import desk, outcome

PYPROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
EMBEDDINGS_AND_SPEECH = {"voyageai", "sentence-transformers", "elevenlabs"}
DOLLARS = {"m": Price(Decimal(1), Decimal(2))}


def library_prefixes() -> set[str]:
    """The prefixes that the pinned library matches on, read from its own source."""
    tree = ast.parse(inspect.getsource(pydantic_ai.providers.infer_provider_class))
    found = {node.value for case in ast.walk(tree) if isinstance(case, ast.match_case) for node in ast.walk(case.pattern)
             if isinstance(node, ast.Constant) and isinstance(node.value, str)}  # fmt: skip
    assert len(found) > 30
    return found


def test_every_prefix_of_the_library_is_known() -> None:
    """A release of the library with a new provider fails here until the table has it."""
    ours = set(models.known_prefixes()) - set(prefixes.OURS)
    assert ours == library_prefixes() - EMBEDDINGS_AND_SPEECH


HINTS = """
import json, re, sys
for client in json.loads(sys.argv[1]):
    sys.modules[client] = None
from pydantic_ai.providers import infer_provider_class
found = {}
for prefix in json.loads(sys.argv[2]):
    try:
        infer_provider_class(prefix)
    except ImportError as error:
        hint = re.search(r"pydantic-ai-slim\\[([a-z-]+)\\]", str(error))
        found[prefix] = hint[1] if hint else error.name.split(".")[0]
print(json.dumps(found))
"""


def test_each_prefix_names_the_extra_that_the_library_names() -> None:
    """With the vendors' clients hidden, what the library's own hint names is what our extra installs."""
    clients = ["openai", "anthropic", "google.genai", "boto3", "botocore", "groq", "mistralai", "cohere", "xai_sdk"]
    hidden = json.dumps([*clients, "huggingface_hub", "typesafe_sdk"])
    script = [sys.executable, "-c", HINTS, hidden, json.dumps(list(prefixes.EXTRA_OF))]
    hints = json.loads(subprocess.run(script, capture_output=True, text=True, check=True).stdout)
    assert len(hints) > 25
    for prefix, named in hints.items():
        ours = prefixes.distributions(prefixes.EXTRA_OF[prefix])
        assert named in ours or prefixes.distributions(named) <= ours, (prefix, named)


def test_there_is_an_extra_of_ours_for_every_extra_that_serves_chat_models() -> None:
    """`heinzelwerk[x]` brings `pydantic-ai-slim[x]`, for each of them."""
    ours = PYPROJECT["project"]["optional-dependencies"]
    for extra in prefixes.EXTRAS:
        assert ours[extra] == [f"pydantic-ai-slim[{extra}]"]
    known = {m[1] for r in metadata.requires("pydantic-ai-slim") or () if (m := re.search(r"extra == '([^']+)'", r))}
    assert set(prefixes.EXTRAS) <= known


def test_the_missing_extra_is_named() -> None:
    """For a model whose client is not installed the extra is named, and for one that is there nothing."""
    assert models.missing_extra("anthropic:claude-sonnet-4-5") is None
    assert models.missing_extra("openai-chat:m") is None
    assert models.missing_extra("offline") is None
    assert models.missing_extra("groq:m") == "groq"
    assert models.missing_extra("gateway/groq:m") == "groq"
    with pytest.raises(errors.ConfigurationError, match="extra 'groq'") as caught:
        Models(ModelSettings()).model("groq:m")
    assert "heinzelwerk[groq]" in caught.value.fix


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the variable; nothing is sent."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    found = models.missing_key("anthropic:claude-sonnet-4-5", Models(ModelSettings()))
    assert found is not None
    assert "ANTHROPIC_API_KEY" in found
    with_key = Models(ModelSettings(keys={"anthropic": "k"}))
    assert models.missing_key("anthropic:claude-sonnet-4-5", with_key) is None


@pytest.mark.parametrize("name", ["nonsense:m", "gpt-4o", "anthropc:claude"])
def test_an_unknown_prefix_is_refused_with_the_known_ones(name: str) -> None:
    """The fix lists what can be written."""
    with pytest.raises(errors.ConfigurationError) as caught:
        Models(ModelSettings()).model(name)
    assert "anthropic" in caught.value.fix


def test_a_gateway_takes_the_models_of_its_protocol() -> None:
    """`base_url` serves OpenAI- and Anthropic-compatible gateways; the other protocol's models go to their vendor."""
    openai = Models(ModelSettings(model="openai-chat:m", base_url="http://gw/v1", keys={"anthropic": "k"}))
    chat = openai.model("openai-chat:m")
    assert isinstance(chat, OpenAIChatModel)
    assert str(chat.base_url).startswith("http://gw/v1")
    responses = openai.model("openai:m")
    assert isinstance(responses, OpenAIResponsesModel)
    assert str(responses.base_url).startswith("http://gw/v1")
    assert "gw" not in str(openai.model("anthropic:claude-sonnet-4-5").base_url)
    anthropic = Models(ModelSettings(model="anthropic:m", base_url="http://gw", keys={"anthropic": "k"}))
    claude = anthropic.model("anthropic:m")
    assert isinstance(claude, AnthropicModel)
    assert str(claude.base_url).startswith("http://gw")


def test_classes_are_mapped_by_configuration() -> None:
    """A contract's hint picks a model string; it never names a vendor."""
    settings = ModelSettings(model="a:1", model_fast="a:2", classes={"best": "b:3"})
    assert [settings.for_class(hint) for hint in (None, "standard", "fast", "best")] == ["a:1", "a:1", "a:2", "b:3"]
    assert settings.named() == ("a:1", "a:2", "b:3")


def test_the_deployments_price_comes_first_then_the_list() -> None:
    """A configured price wins over the published one; a listed model needs none."""
    keys = {"anthropic": "k"}
    listed = Models(ModelSettings(keys=keys)).quote("anthropic:claude-sonnet-4-5")
    assert listed.source == "list"
    usage = RequestUsage(input_tokens=1_000_000, output_tokens=0)
    assert (listed.micros(usage) or 0) > 1_000_000
    own = Models(ModelSettings(keys=keys, prices={"anthropic:claude-sonnet-4-5": Price(Decimal(1), Decimal(1))}))
    assert own.quote("anthropic:claude-sonnet-4-5").micros(usage) == 1_000_000


def test_a_gateway_never_inherits_a_vendors_price() -> None:
    """A model that the vendor prices is unpriced behind a gateway, until the operator sets it."""
    gateway = Models(ModelSettings(model="openai-chat:gpt-4o", base_url="http://gw/v1"))
    with pytest.raises(errors.ConfigurationError, match="gateway's prices are its own") as caught:
        gateway.quote("openai-chat:gpt-4o")
    assert '"openai-chat:gpt-4o"' in caught.value.fix


def test_a_reported_cost_counts_before_the_list() -> None:
    """Where nothing is configured the provider's own figure is taken."""
    listed = Models(ModelSettings(keys={"anthropic": "k"})).quote("anthropic:claude-sonnet-4-5")
    usage = RequestUsage(input_tokens=10, output_tokens=10, cost=Decimal("0.25"))
    assert prices.cost(listed, usage) == 250_000
    assert prices.cost(prices.TableQuote(Price(Decimal(1), Decimal(1))), usage) == 20


@pytest.mark.parametrize(
    ("details", "micros"),
    [
        ({"cost": 0.0123}, 12_300),
        ({"cost": 0}, 0),
        ({"cost": 0.001, "is_byok": True, "upstream_inference_cost": 0.02}, 21_000),
        ({"cost": -1.0}, 20_000),
        ({"cost": float("nan")}, 20_000),
        ({"cost": 0.001, "is_byok": True}, 20_000),
        ({}, 20_000),
    ],
)
async def test_what_openrouter_reports_is_what_a_turn_is_charged(details: dict[str, Any], micros: int) -> None:
    """Its figure stands in the provider's details and counts before the published list; nonsense counts as nothing said."""

    class Routed(FunctionModel):
        @property
        def system(self) -> str:
            return "openai"

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        found = outcome()(messages, info)
        assert isinstance(found, ModelResponse)
        found.usage = RequestUsage(input_tokens=10_000)
        found.provider_details = details
        return found

    name = "routed:gpt-4.1"  # two dollars for a million tokens in
    made = await desk(
        settings={"model": name, "prices": {}},
        models={"routed": lambda name: Routed(answer, model_name="gpt-4.1")},
    )
    assert (await made.finish()).usage.cost_micros == micros


def test_offline_is_free_and_needs_nothing() -> None:
    """The shipped model has no key, no extra and the price 0."""
    found = Models(ModelSettings())
    assert isinstance(found.model("offline"), OfflineModel)
    assert found.quote("offline").micros(RequestUsage(input_tokens=10**6, output_tokens=10**6)) == 0


def test_a_price_table_is_pinned_by_its_hash() -> None:
    """Another price is another hash; the order of the table is none."""
    two = {"a": Price(Decimal(1), Decimal(2)), "b": Price(Decimal(3), Decimal(4))}
    assert prices.table_digest(two) == prices.table_digest(dict(reversed(two.items())))
    assert prices.table_digest(two) != prices.table_digest(DOLLARS)


def test_the_affordable_output_is_what_the_rest_buys() -> None:
    """At 1 and 2 dollars a million, 3,000 micro-dollars behind 1,000 tokens buy 1,000."""
    quote = prices.TableQuote(DOLLARS["m"])
    assert prices.affordable_output(quote, input_tokens=1_000, micros=3_000, wanted=8_000) == 1_000
    assert prices.affordable_output(quote, input_tokens=1_000, micros=500, wanted=8_000) == 0
    assert prices.affordable_output(prices.FREE, input_tokens=1_000, micros=0, wanted=8_000) == 8_000


def test_the_engine_pins_its_library() -> None:
    """The pin names the exact release whose messages the bodies hold."""
    assert models.version() == f"pydantic-ai:{metadata.version('pydantic-ai-slim')}"
    assert f"pydantic-ai-slim=={metadata.version('pydantic-ai-slim')}" in PYPROJECT["project"]["dependencies"]
