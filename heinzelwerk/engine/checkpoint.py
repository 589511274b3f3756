"""The checkpoint: a capability of the run that stores every step before the next one begins.

It commits after every node but the last, answers finished calls from the ledger, remembers what a retry budget's last
rejection was, and lets messages in with the next request. What the last node made travels in the segment's one last commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from pydantic import JsonValue, ValidationError
from pydantic_ai import CallToolsNode, ModelRequestNode, ModelRetry, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ToolFailedError,
    ToolRetryError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import ToolDefinition

from heinzelwerk.ending import Failed, HandedBack
from heinzelwerk.engine import context, messages
from heinzelwerk.engine.deps import TurnDeps
from heinzelwerk.engine.leave import Leave
from heinzelwerk.engine.segment import Segment
from heinzelwerk.engine.steps import Round
from heinzelwerk.ports import Clock, Interrupt, Policy
from heinzelwerk.turn import CallRecord, CallState

log = structlog.get_logger("heinzelwerk.engine")

MOST_REPEATS = 3
"""The same call with the same arguments this often in a row ends the turn `failed: loop`."""
_TOLD = ("handoff", "status", "state", "decision", "reason", "result", "report", "detail", "fix", "warnings", "files")
"""What a model is told of a handoff's or a proposal's end; hashes, times and costs are the spine's."""
INTERRUPTED = "Interrupted: this worker stopped while the call ran. It was not run again, and its effect is unknown."


@dataclass(frozen=True, slots=True)
class Rejection:
    """The last refused call or output: what a spent retry budget leaves behind."""

    call: ToolCallPart | None
    error: BaseException


@dataclass
class Checkpoint(AbstractCapability[TurnDeps]):
    """One segment's checkpoints. `run` is set once the run exists."""

    segment: Segment
    ledger: Mapping[str, CallRecord]
    answers: Mapping[str, str]
    clock: Clock
    policy: Policy
    run: AgentRun[TurnDeps, Any] | None = None
    rejection: Rejection | None = None
    request_ms: int = 0
    finished: dict[str, ToolReturnPart] = field(default_factory=dict)  # of the running round, as stored in the ledger
    _times: dict[str, int] = field(default_factory=dict)
    _batch: int = 0
    _seeded: bool = False

    # -- nodes -------------------------------------------------------------------------------------------------

    async def before_node_run(self, ctx: RunContext[TurnDeps], *, node: Any) -> Any:
        """Remember the size of a round of tools; carry retry budgets over a resume."""
        if isinstance(node, CallToolsNode):
            self._batch = len(node.model_response.tool_calls)
            self._times.clear()
            self.finished.clear()
        self._seed(ctx)
        return node

    async def after_node_run(self, ctx: RunContext[TurnDeps], *, node: Any, result: Any) -> Any:
        """Store what this node made, unless it is the last one."""
        if isinstance(node, ModelRequestNode) and isinstance(result, CallToolsNode):
            await self.segment.response(ctx.messages, ms=self.request_ms)
            self._stop_loops(ctx.messages)
            self._hand_back()
        elif isinstance(node, CallToolsNode) and isinstance(result, ModelRequestNode):
            found = [*ctx.messages, result.request]
            leaving = self.segment.claim.interrupted is Interrupt.HAND_BACK
            await self.segment.tools(found, self.round(result.request), again=not leaving)
            self._hand_back()
        return result

    def round(self, request: ModelRequest | None) -> Round:
        """What a round of tools came to, for its event and the counters."""
        parts = request.parts if request is not None else ()
        calls: list[dict[str, JsonValue]] = []
        for part in parts:
            if isinstance(part, ToolReturnPart):
                entry: dict[str, JsonValue] = {
                    "call": part.tool_call_id,
                    "tool": part.tool_name,
                    "outcome": part.outcome,
                }
                if part.tool_call_id in self._times:
                    entry["ms"] = self._times[part.tool_call_id]
                calls.append(entry)
        retries = [_retry(part) for part in parts if _retry_info(part) is not None]
        used = self.run.usage.tool_calls if self.run is not None else self.segment.turn.usage.tool_calls
        return Round(tuple(calls), tuple(retries), self._counters(parts), used)

    def _counters(self, parts: Sequence[Any]) -> dict[str, int]:
        found = {k: v for k, v in self.segment.turn.counters.items() if k.startswith("tool:")}
        for part in parts:
            if isinstance(part, ToolReturnPart):
                found.pop(f"tool:{part.tool_name}", None)
                if part.outcome == "retried" and part.retry is not None and part.retry.attempt is not None:
                    found[f"tool:{part.tool_name}"] = part.retry.attempt
        spent = self.run.ctx.state.output_retries_used if self.run is not None else 0
        return {**found, **({"output": spent} if spent else {})}

    def _seed(self, ctx: RunContext[TurnDeps]) -> None:
        """Retry budgets start anew with each run of the library; a turn's do not."""
        if self._seeded or self.run is None:
            return
        counters = self.segment.turn.counters
        self.run.ctx.state.output_retries_used = counters.get("output", 0)
        manager = ctx.tool_manager
        spent = {name.removeprefix("tool:"): n for name, n in counters.items() if name.startswith("tool:")}
        if not spent:
            self._seeded = True
        elif manager is not None and manager.ctx is not None:
            manager.ctx.retries.update(spent)
            self._seeded = True

    def _stop_loops(self, found: Sequence[ModelMessage]) -> None:
        if messages.repeats(found) < MOST_REPEATS:
            return
        response = found[-1]
        tool = response.tool_calls[-1].tool_name if isinstance(response, ModelResponse) else "a tool"
        detail = f"{tool} was called {MOST_REPEATS} times in a row with the same arguments."
        raise Leave(lambda tail: Failed(tail, f"loop: {tool} called {MOST_REPEATS} times alike", detail))

    def _hand_back(self) -> None:
        if self.segment.claim.interrupted is Interrupt.HAND_BACK:
            raise Leave(HandedBack)

    # -- requests ----------------------------------------------------------------------------------------------

    async def before_model_request(
        self, ctx: RunContext[TurnDeps], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Let waiting messages in: durable first, then in this very request."""
        self._seed(ctx)
        for words in await self.segment.take_mail(ctx.messages):
            ctx.enqueue(words)
        return request_context

    # -- calls -------------------------------------------------------------------------------------------------

    async def wrap_tool_execute(
        self, ctx: RunContext[TurnDeps], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Any
    ) -> Any:
        """Run a call once: finished ones are answered from the record, unsafe interrupted ones are told so."""
        key = f"{self.segment.turn.ordinal}:{call.tool_call_id}"
        record = self.ledger.get(key)
        if record is not None and record.state is CallState.DONE:
            return _again(record, call)
        if key in self.answers:
            return self._without_secrets(_answered(self.answers[key], call))
        safe = bool((tool_def.metadata or {}).get("replay_safe"))
        if record is not None and not safe:
            raise _interrupted(call, INTERRUPTED)
        deferring = bool((tool_def.metadata or {}).get("defers"))
        if not safe and not deferring:
            await self.segment.call(key, CallRecord(state=CallState.STARTED, tool=call.tool_name))
        began = self.clock.monotonic()
        try:
            value = await handler(args)
        except ToolRetryError as error:
            self.rejection = Rejection(call, error.__cause__ or error)
            if not safe:
                await self._done(key, call, str(getattr(error, "__cause__", error)), "retried")
            raise
        except UnexpectedModelBehavior as error:
            self.rejection = Rejection(call, error.__cause__ or error)
            raise
        except (CallDeferred, ApprovalRequired, ToolFailedError):
            raise
        except Exception as error:
            raise self._broken(call, error) from error
        value = self._without_secrets(value)
        self._times[call.tool_call_id] = int((self.clock.monotonic() - began) * 1000)
        if self._batch > 1 or not safe:
            await self._done(key, call, value, "success")
        return value

    def _broken(self, call: ToolCallPart, error: Exception) -> ToolFailedError:
        """A tool that fails in a way nobody foresaw is told to the model; a broken adapter ends no turn."""
        log.error("tool failed", tool=call.tool_name, turn=self.segment.turn.id(), error=repr(error))
        told = f"The tool failed ({type(error).__name__}). Go on without it, or say in your outcome what is missing."
        return ToolFailedError(ToolReturnPart(call.tool_name, told, tool_call_id=call.tool_call_id, outcome="failed"))

    def _without_secrets(self, value: Any) -> Any:
        return context.kept_secret(value, self.policy.secrets) if isinstance(value, str) else value

    async def _done(self, key: str, call: ToolCallPart, value: Any, outcome: str) -> None:
        if outcome == "success":
            self.finished[call.tool_call_id] = ToolReturnPart(call.tool_name, value, tool_call_id=call.tool_call_id)
        result = json.dumps(value, ensure_ascii=False, default=str)
        await self.segment.call(
            key, CallRecord(state=CallState.DONE, tool=call.tool_name, result=result, outcome=outcome)
        )

    # -- rejections --------------------------------------------------------------------------------------------

    async def on_tool_validate_error(
        self, ctx: RunContext[TurnDeps], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, error: Any
    ) -> Any:
        """Remember arguments that did not fit: the library records no rejection that spends the budget."""
        self.rejection = Rejection(call, error)
        raise error

    async def on_output_validate_error(
        self, ctx: RunContext[TurnDeps], *, output_context: Any, output: Any, error: Any
    ) -> Any:
        """Remember an outcome that is not valid."""
        self.rejection = Rejection(output_context.tool_call, error)
        raise error

    async def wrap_output_process(
        self, ctx: RunContext[TurnDeps], *, output_context: Any, output: Any, handler: Any
    ) -> Any:
        """Remember an outcome that does not fit its contract."""
        try:
            return await handler(output)
        except (ModelRetry, ToolRetryError) as error:
            self.rejection = Rejection(output_context.tool_call, error.__cause__ or error)
            raise

    def exhausted(
        self, found: Sequence[ModelMessage], error: BaseException
    ) -> tuple[list[ModelMessage], RetryInfo[Any]]:
        """The history with the rejection that spent the budget, and what it was."""
        rejection = self.rejection or Rejection(None, error.__cause__ or error)
        refused = rejection.error
        output = rejection.call is None or rejection.call.tool_name == messages.OUTPUT_TOOL
        limit = self.policy.retries_of_output if output else self.policy.retries_of_tool
        cause: Any = "validation_error" if isinstance(refused, ValidationError) else "model_retry"
        if rejection.call is None and not isinstance(refused, ValidationError | ModelRetry):
            cause = "no_output"
        info: RetryInfo[Any] = RetryInfo(cause, attempt=limit + 1, max_retries=limit)
        content: Any = (
            refused.errors(include_url=False, include_context=False)
            if isinstance(refused, ValidationError)
            else str(refused)
        )
        part: Any
        if rejection.call is not None:
            call = rejection.call
            part = ToolReturnPart(
                call.tool_name, content, tool_call_id=call.tool_call_id, outcome="retried", retry=info
            )
        else:
            part = RetryFeedbackPart(content, retry=info)
        kept = list(found)
        before: Sequence[Any] = ()
        if kept and isinstance(kept[-1], ModelRequest) and kept[-1].state == "interrupted":
            before = kept.pop().parts
        return [*kept, ModelRequest(parts=[*before, part], state="interrupted")], info


def _again(record: CallRecord, call: ToolCallPart) -> Any:
    value = json.loads(record.result or "null")
    if record.outcome == "retried":
        raise ModelRetry(str(value))
    if record.outcome == "interrupted":
        raise _interrupted(call, str(value))
    return value


def _answered(value: str, call: ToolCallPart) -> Any:
    """A wait's value as its call's return: JSON where it is JSON; what was cut or declined says so in its outcome."""
    try:
        found = json.loads(value)
    except ValueError:
        found = value
    known = found if isinstance(found, dict) else {"state": found}
    words = {known.get("status"), known.get("state"), known.get("decision")}
    told = context.framed(call.tool_name, {name: known[name] for name in _TOLD if known.get(name)})
    if "interrupted" in words:
        raise _interrupted(call, told)
    if words & {"declined", "expired"}:
        raise ToolFailedError(ToolReturnPart(call.tool_name, told, tool_call_id=call.tool_call_id, outcome="denied"))
    return told


def _interrupted(call: ToolCallPart, content: Any) -> ToolFailedError:
    part = ToolReturnPart(call.tool_name, content, tool_call_id=call.tool_call_id, outcome="interrupted")
    return ToolFailedError(part)


def _retry_info(part: Any) -> RetryInfo[Any] | None:
    info = getattr(part, "retry", None)
    return info if isinstance(info, RetryInfo) else None


def _retry(part: Any) -> dict[str, JsonValue]:
    info: RetryInfo[Any] = part.retry
    found: dict[str, JsonValue] = {"cause": str(info.cause), "attempt": info.attempt, "limit": info.max_retries}
    if isinstance(part, ToolReturnPart):
        found |= {"tool": part.tool_name, "call": part.tool_call_id}
    return found
