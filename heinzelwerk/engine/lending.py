"""Lending a turn's own read tools to the coding agent of a handoff (ADR 0050 statement 8, last sentence).

They are the very tools that the turn's model has: the same schema, the same cleaning, framing and cutting. What is lent
only reads; `report` and `handoff` stay with the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pydantic import ValidationError
from pydantic_ai import ModelRetry, RunContext, Tool
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from heinzelwerk.engine import context, tools
from heinzelwerk.engine.deps import Reads, TurnDeps
from heinzelwerk.handoff import ToolAnswer, TurnTool
from heinzelwerk.opening import Opening
from heinzelwerk.ports import Capability, Policy

_KEPT = frozenset({"report", "handoff", "read_handoff_file"})
"""Tools that belong to the turn: its log, and the handoffs themselves."""


def lent(names: Sequence[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """Those of a turn's tools that an operator's patterns (`read_*`, `search_*`, `*`) lend to an agent, in order."""
    return tuple(
        name for name in names if name not in _KEPT and any(fnmatchcase(name, pattern) for pattern in patterns)
    )


def lend(
    opening: Opening, policy: Policy, capabilities: Mapping[str, Capability], names: Sequence[str]
) -> tuple[TurnTool, ...]:
    """The named read tools of this turn, callable from outside of a run; a name that the turn does not have is left out."""
    deps = Reads(opening, policy, capabilities)
    found = tools.generate(opening, policy, capabilities, handoff=False)
    return tuple(_lent(tool, deps) for tool in found if tool.name in names and tool.name not in _KEPT)


def _lent(tool: Tool[TurnDeps], deps: Reads) -> TurnTool:
    return TurnTool(
        name=tool.name,
        description=tool.description or tool.name,
        schema=tool.function_schema.json_schema,
        call=_Call(tool, deps),
    )


@dataclass(frozen=True, slots=True)
class _Call:
    tool: Tool[TurnDeps]
    deps: Reads

    async def __call__(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        """What the tool says; arguments that do not fit are told, with their place."""
        policy, schema = self.deps.policy, self.tool.function_schema
        # The library types a context by its model; no tool that reads asks for one.
        ctx: RunContext[Any] = RunContext(deps=self.deps, model=TestModel(), usage=RunUsage())
        try:
            wanted = schema.validator.validate_python(dict(arguments))
            async with asyncio.timeout(policy.tool_timeout_s):
                answer = str(await schema.call(wanted, ctx))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(str(step) for step in first["loc"]) or "the arguments"
            return ToolAnswer(f"{place}: {first['msg']}", ok=False)
        except ModelRetry as error:
            return ToolAnswer(str(error), ok=False)
        except TimeoutError:
            return ToolAnswer(f"It took longer than {policy.tool_timeout_s:g} s.", ok=False)
        return ToolAnswer(context.kept_secret(answer, policy.secrets))
