"""The `offline` model: deterministic, shipped with the product, no key and no network. For trying the system out.

It is a model like any other to the engine: it reads with the turn's tools and returns an outcome. What it says is made by
rule (`offline_draft`), and both the draft and the report say that no language model wrote it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from heinzelwerk.engine import context, messages, offline_draft
from heinzelwerk.engine.offline_draft import Source, Written

NAME = "offline"
_DATA = re.compile(r'<data source="([^"]*)">\n(.*)\n</data>\s*$', re.DOTALL)


class OfflineModel(Model):
    """Calls every `read_` tool and `last_approved`, then returns a draft by rule."""

    def __init__(self) -> None:
        super().__init__(profile=ModelProfile(supports_json_schema_output=True))

    @property
    def model_name(self) -> str:
        """Its name in a settings file."""
        return NAME

    @property
    def system(self) -> str:
        """It is its own provider."""
        return NAME

    @property
    def provider(self) -> None:
        """There is none."""
        return None

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Read first; with everything read, write."""
        read = _returns(messages)
        wanted = [tool.name for tool in model_request_parameters.function_tools if tool.name.startswith("read_")]
        missing = [name for name in wanted if name not in read and name != "read_skill"]
        facts = _facts(model_request_parameters, messages)
        parts = [ToolCallPart(name, {}, tool_call_id=f"offline_{name}") for name in missing]
        if "last_approved" not in read and facts:
            output = next(iter(facts["outputs"]))
            parts.append(ToolCallPart("last_approved", {"output": output}, tool_call_id="offline_last_approved"))
        if not parts:
            parts = [_outcome(facts, read, asked=_asked(messages))]
        return ModelResponse(parts=parts, model_name=NAME, provider_name=NAME, usage=_usage(messages, parts))


def _returns(found: Sequence[ModelMessage]) -> dict[str, str]:
    return {
        part.tool_name: part.model_response_str()
        for message in found
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }


def _facts(parameters: ModelRequestParameters, found: Sequence[ModelMessage]) -> dict[str, Any]:
    told = [part.content for part in parameters.instruction_parts or ()]
    told.extend(m.instructions for m in reversed(found) if isinstance(m, ModelRequest) and m.instructions)
    for words in told:
        _, opened, rest = words.rpartition(context.FACTS_OPEN)
        if opened:
            facts: dict[str, Any] = json.loads(rest.partition(context.FACTS_CLOSE)[0])
            return facts
    return {}


def _asked(found: Sequence[ModelMessage]) -> bool:
    prompts = [p for m in found if isinstance(m, ModelRequest) for p in m.parts if isinstance(p, UserPromptPart)]
    return bool(prompts) and str(prompts[-1].content).startswith("This turn's cause: asked")


def _outcome(facts: dict[str, Any], read: dict[str, str], *, asked: bool) -> ToolCallPart:
    return ToolCallPart(messages.OUTPUT_TOOL, _decide(facts, read, asked=asked), tool_call_id="offline_outcome")


def _decide(facts: dict[str, Any], read: dict[str, str], *, asked: bool) -> dict[str, Any]:
    if asked:
        return _nothing("No language model is configured, so nobody here understands messages: set [heinzel] model.")
    sources = [_source(name.removeprefix("read_"), words) for name, words in read.items() if name.startswith("read_")]
    output, output_format = next(iter(facts["outputs"].items()))
    written = offline_draft.write(str(facts["title"]), sources, output_format=str(output_format))
    if _parsed(read.get("last_approved", "")) == written.text.strip():
        return _nothing("The text by rule is the one that was approved last.")
    checks = [offline_draft.check(item, written) for item in facts["done_when"]]
    draft = {
        "text": written.text,
        "output": output,
        "contract_version": facts["contract_version"],
        "done_when": [{"item": c.item, "met": c.met, "evidence": c.evidence} for c in checks],
    }
    return {"report": _report(written), "draft": draft}


def _report(written: Written) -> str:
    return f"Drafted from {written.basis} by rule; no language model was asked."


def _nothing(reason: str) -> dict[str, Any]:
    return {
        "report": f"Nothing to do, by rule; no language model was asked. {reason}",
        "nothing_to_do": True,
        "reason": reason,
    }


def _source(name: str, words: str) -> Source:
    found = _DATA.search(words)
    if found is None:
        return Source(name, None, gap=words.partition(": ")[2] or words)
    return Source(name, _parsed(words))


def _parsed(words: str) -> Any:
    """What stands between the marks: JSON where it is JSON, else the text."""
    found = _DATA.search(words)
    if found is None:
        return None
    try:
        return json.loads(found[2])
    except ValueError:
        return found[2].replace("<\\/data", "</data").strip()


def _usage(found: Sequence[ModelMessage], parts: Sequence[ToolCallPart]) -> RequestUsage:
    """Counted by the same rule as every guess here: a quarter of the characters."""
    written = sum(context.tokens(part.args_as_json_str()) for part in parts)
    heard = sum(context.tokens(str(getattr(part, "content", "") or "")) for message in found for part in message.parts)
    return RequestUsage(input_tokens=heard, output_tokens=written)
