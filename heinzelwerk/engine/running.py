"""One run of the agent library, from where a segment begins, and the translation of its ends into ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_ai import Agent, CancellationToken, DeferredToolRequests, ModelRetry, RunContext, ToolOutput
from pydantic_ai.exceptions import RunCancelled, UnexpectedModelBehavior, UsageLimitExceeded, UserError
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.run import AgentRun
from pydantic_ai.usage import UsageLimits

from heinzelwerk import amending, errors, text
from heinzelwerk.ending import Ending, Failed, Finished, OverBudget, Overdue, Parked, Proposal, Stopped, Tail
from heinzelwerk.engine import context, jobs, lending, messages, start, steps, tools
from heinzelwerk.engine.checkpoint import Checkpoint
from heinzelwerk.engine.deps import TurnDeps
from heinzelwerk.engine.flights import Flights
from heinzelwerk.engine.leave import Leave
from heinzelwerk.engine.metered import Candidate, MeteredModel, Patience, Readers
from heinzelwerk.engine.purse import AT_CAP
from heinzelwerk.engine.segment import Segment
from heinzelwerk.engine.summary import summarise
from heinzelwerk.mail import MailKind
from heinzelwerk.outcome import Outcome, faults
from heinzelwerk.ports import Interrupt
from heinzelwerk.turn import TurnRecord

if TYPE_CHECKING:
    from heinzelwerk.engine.run import PydanticEngine

_OUTPUT: list[Any] = [ToolOutput(Outcome, name=messages.OUTPUT_TOOL), DeferredToolRequests]


class Run:
    """One run of the library, and the translation of its ends into ours."""

    def __init__(self, engine: PydanticEngine, segment: Segment, begun: start.Start, first: Candidate) -> None:
        self._engine, self._segment, self._begun = engine, segment, begun
        self._opening, self._claim = segment.opening, segment.claim
        self._token = CancellationToken()
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._checkpoint = Checkpoint(segment, self._opening.calls, self._opening.answers, engine.clock, engine.policy)
        self._model = self._metered(first, lambda: engine.fallback(self._opening), engine.readers(segment))
        self._run: AgentRun[TurnDeps, Any] | None = None

    def _metered(
        self, first: Candidate, fallback: Callable[[], Candidate | None], readers: Readers | None = None
    ) -> MeteredModel:
        engine = self._engine
        rules, jitter = engine.patience
        policy = engine.policy
        return MeteredModel(
            first,
            fallback,
            segment=self._segment,
            patience=Patience(rules, engine.circuit, jitter, self._pause),
            flights=Flights(self._claim, policy.in_flight, policy.request_timeout_s, jitter, self._pause),
            clock=engine.clock,
            timed=self._timed,
            timeout_s=policy.request_timeout_s,
            readers=readers,
        )

    def _timed(self, ms: int) -> None:
        self._checkpoint.request_ms = ms

    async def _pause(self, seconds: float) -> None:
        """Wait between two attempts; an interrupt ends it."""
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except TimeoutError:
            return

    def _interrupted(self, why: Interrupt) -> None:
        """Called from any thread."""
        self._loop.call_soon_threadsafe(self._woken.set)
        if why is not Interrupt.HAND_BACK:
            self._token.cancel()

    async def end(self) -> Ending:
        """Run to the end and say what it was."""
        try:
            return await self._go()
        except Leave as leave:
            return self._left(leave)
        except UsageLimitExceeded as error:
            return self._over_limit(error)
        except UnexpectedModelBehavior as error:
            return self._spent_retries(error)
        except RunCancelled as cancelled:
            return await self._cancelled(cancelled)
        except UserError as error:
            return self._failed(self._tail(), "the model cannot run this turn", str(error))

    async def _go(self) -> Ending:
        policy = self._engine.policy
        generated = self._engine.toolbox(self._opening)
        instructions = context.instructions(self._opening, handoff=self._engine.runner is not None)
        self._segment.told(instructions, 600 * (len(generated) + 3))
        self._claim.on_interrupt(self._interrupted)
        await self._sum_up()
        await self._segment.begin(self._begun)
        agent = _agent(policy.retries_of_tool, policy.retries_of_output)
        with agent.override(tools=generated):  # instead of a second set of tools, which costs tasks at every step
            async with agent.iter(
                model=self._model,
                instructions=instructions,
                capabilities=[self._checkpoint],
                conversation=messages.conversation(
                    self._begun.messages, self._segment.turn.usage, self._segment.turn.id()
                ),
                deps=TurnDeps(self._opening, policy, self._engine.capabilities, self._segment),
                usage_limits=self._limits(),
                cancellation_token=self._token,
            ) as run:
                self._run = self._checkpoint.run = run
                async for _ in run:
                    pass
        output: Any = run.result.output if run.result is not None else None
        return self._deferred(output) if isinstance(output, DeferredToolRequests) else self._finished(output)

    async def _sum_up(self) -> None:
        """Let a new turn's oldest lines be summed up, where they do not fit and a fast model is configured."""
        engine, budget = self._engine, self._engine.policy.history_tokens
        candidate = None if self._opening.history else engine.fast()
        turns = context.left_out(self._opening, budget=budget) if candidate is not None else ()
        if candidate is None or not turns:
            return
        await self._segment.book_unanswered()
        helper = self._metered(candidate, lambda: None)
        try:
            words = await self._unless_interrupted(summarise(self._segment, helper, turns))
        except Leave:
            self._model.sent = helper.sent
            raise
        self._model.use_first()
        self._begun = start.start(self._opening, budget=budget, summary=words)

    async def _unless_interrupted(self, work: Coroutine[Any, Any, str]) -> str:
        """Outside the library's loop nothing listens to its token: end the work at an interrupt, or see it through."""
        task, woken = asyncio.ensure_future(work), asyncio.ensure_future(self._woken.wait())
        await asyncio.wait({task, woken}, return_when=asyncio.FIRST_COMPLETED)
        woken.cancel()
        why = self._claim.interrupted
        if not task.done() and why is not Interrupt.HAND_BACK:
            task.cancel()
            await asyncio.wait({task})
        if task.cancelled():
            if why is Interrupt.LOST:
                raise errors.LeaseLost(f"the lease of {self._claim.session} was lost before the turn ran")
            if why is Interrupt.OVERDUE:
                raise Leave(Overdue)
            by = await self._stopper()
            raise Leave(lambda tail: Stopped(tail, by))
        return await task

    def _limits(self) -> UsageLimits:
        """The hard stop inside a step, and the deployment's numbers of requests and calls."""
        policy, segment = self._engine.policy, self._segment
        return UsageLimits(
            request_limit=policy.max_requests,
            tool_calls_limit=policy.max_tool_calls,
            output_tokens_limit=segment.purse.output_ceiling(segment.turn),
        )

    # -- ends --------------------------------------------------------------------------------------------------

    def _messages(self) -> Sequence[ModelMessage]:
        return self._run.ctx.state.message_history if self._run is not None else self._begun.messages

    def _tail(self, found: Sequence[ModelMessage] | None = None, **parts: Any) -> Tail:
        return self._segment.tail(found, sent=self._model.sent, **parts)

    def _round(self, found: Sequence[ModelMessage]) -> dict[str, Any]:
        """The record of the last round of tools, for the tail."""
        last = found[-1] if found else None
        made = steps.tools(self._segment.turn, self._checkpoint.round(last if isinstance(last, ModelRequest) else None))
        return {"turn": made.turn, "notes": made.notes}

    def _finished(self, outcome: Outcome) -> Ending:
        found = self._messages()
        return Finished(self._tail(found, **self._round(found)), outcome)

    def _deferred(self, requests: DeferredToolRequests) -> Ending:
        found = self._messages()
        turn = self._segment.turn
        keys = {
            call.tool_call_id: f"{turn.ordinal}:{call.tool_call_id}" for call in (*requests.calls, *requests.approvals)
        }
        calls = {keys[c.tool_call_id]: tools.Handoff.model_validate(c.args_as_dict()) for c in requests.calls}
        made = jobs.make(calls, self._asked(turn), turn, now_ms=self._claim.now_ms())
        proposals = tuple(
            Proposal(keys[c.tool_call_id], *tools.proposed(c.tool_name, c.args_as_dict(), self._engine.operations))
            for c in requests.approvals
        )
        tail = self._tail(found, bodies=made.bodies, **self._round(found))
        return Parked(tail, made.waits, made.records, proposals)

    def _asked(self, turn: TurnRecord) -> jobs.Asked:
        """What handoffs are made from now: the runner, and what is left of the turn's money and time."""
        engine, names = self._engine, [tool.name for tool in self._engine.toolbox(self._opening)]
        return jobs.Asked(
            runner=engine.runner or "",
            reads=lending.lent(names, engine.lends),
            left_micros=self._segment.purse.left(turn),
            left_s=max(self._opening.contract.timeout_s - turn.active_ms / 1000, 1.0),
        )

    def _failed(self, tail: Tail, reason: str, detail: str) -> Failed:
        """A failure without the values that must not leave a turn: providers quote keys in their refusals."""
        secrets = self._engine.policy.secrets
        return Failed(tail, context.kept_secret(reason, secrets), context.kept_secret(text.safe(detail), secrets))

    def _left(self, leave: Leave, found: Sequence[ModelMessage] | None = None) -> Ending:
        ending = leave.ending(self._tail(found))
        if isinstance(ending, Failed):
            return self._failed(ending.tail, ending.reason, ending.detail)
        if not isinstance(ending, OverBudget) or ending.cap != "turn":
            return ending
        tail = ending.tail
        turn = tail.turn.model_copy(update={"counters": {**tail.turn.counters, AT_CAP: 1}})
        return OverBudget(
            Tail(turn, tail.notes, tail.history, tail.calls, tail.bodies, tail.settle), ending.cap, ending.needed
        )

    def _over_limit(self, error: UsageLimitExceeded) -> Ending:
        """A limit of the library's: the tokens that the cap can buy, or the deployment's numbers of requests and calls."""
        words = text.safe(str(error))
        if "output_tokens_limit" in words:
            return self._left(Leave(lambda tail: OverBudget(tail, "turn")), self._messages())
        return self._failed(self._tail(self._messages()), f"limit: {text.clean_line(words, limit=200)}", words)

    def _spent_retries(self, error: UnexpectedModelBehavior) -> Ending:
        """The retry budget is used up: the rejection that did it goes into the history, its type and place onto the spine."""
        found, info = self._checkpoint.exhausted(self._messages(), error)
        rejection = self._checkpoint.rejection
        refused = rejection.error if rejection is not None else error
        parts = self._round(found)
        where = rejection.call.tool_name if rejection is not None and rejection.call is not None else "the answer"
        output = where in (messages.OUTPUT_TOOL, "the answer")
        what = "outcome" if output else f"tool {where}"
        reason = f"{what} not valid after {info.max_retries} retries: {_place(refused)}"
        return self._failed(self._tail(found, **parts), reason, f"{error}\n\n{refused}")

    async def _cancelled(self, cancelled: RunCancelled) -> Ending:
        why = self._claim.interrupted
        if why is Interrupt.LOST or why is None:
            raise errors.LeaseLost(f"the lease of {self._claim.session} was lost while the turn ran")
        found = messages.with_results(cancelled.all_messages(), self._checkpoint.finished)
        tail = self._tail(found if len(found) > self._segment.stored else None)
        if why is Interrupt.OVERDUE:
            return Overdue(tail)
        return Stopped(tail, await self._stopper())

    async def _stopper(self) -> str:
        """Who asked for the stop: the interrupt came ahead of the mail that says so."""
        stop = next(
            (
                m
                for m in await self._claim.fetch_mail()
                if m.kind is MailKind.STOP and m.turn in (None, self._segment.turn.number)
            ),
            None,
        )
        return (stop.by or "") if stop is not None else ""


@lru_cache(maxsize=8)
def _agent(of_tool: int, of_output: int) -> Agent[TurnDeps, Any]:
    """The agent of every turn with these retries. Building one costs more than a request of ours, most of it the schema of
    the outcome; what is a turn's own (model, instructions, tools, checkpoints) is given to its run."""
    agent: Agent[TurnDeps, Any] = Agent(
        deps_type=TurnDeps, output_type=_OUTPUT, retries={"tools": of_tool, "output": of_output}
    )
    agent.output_validator(_fits)
    return agent


async def _fits(ctx: RunContext[TurnDeps], output: Any) -> Any:
    """An outcome that does not fit its contract goes back to the model, like one that is no valid outcome."""
    if not isinstance(output, Outcome):
        return output
    opening = ctx.deps.opening
    contract = opening.contract
    fault = faults(output, version=opening.version, outputs=contract.outputs, done_when=contract.done_when)
    if fault is not None:
        raise ModelRetry(fault)
    if output.amendment is not None:
        wrong = amending.fault(text.clean_text(output.amendment.text), name=contract.name)
        if wrong:
            raise ModelRetry(f"the amendment's text is no valid contract file: {wrong}")
    return output


def _place(error: BaseException) -> str:
    """Type and place of a rejection; its words may hold what the model wrote and stay in the body."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "the outcome"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        return f"{place}: {first['type']}{more}"
    return text.clean_line(str(error), limit=200)
