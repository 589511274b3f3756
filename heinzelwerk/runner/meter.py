"""What a model's answers cost: usage read from the three wire formats, and the limits of one run over it. Pure.

A budget stop needs figures that the agent cannot bend and that survive its death; so they are read here, from the
responses that pass through `heinzelwerk.runner.metering`, and not from what the agent prints.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from heinzelwerk.handoff import Usage
from heinzelwerk.runner import lines

Wire = Literal["anthropic-messages", "openai-responses", "openai-chat"]
Cut = Literal["dollars", "requests"]
Price = Callable[[str, Usage, Decimal | None], Decimal | None]
"""`(model, usage, cost that the answer itself named)` -> dollars, or None for a model without a price."""

WIRES: dict[str, Wire] = {
    "/v1/messages": "anthropic-messages",
    "/v1/responses": "openai-responses",
    "/v1/chat/completions": "openai-chat",
}

_BODY_CAP = 16 * 1024 * 1024
_LINE_CAP = 8 * 1024 * 1024
_BYTES_PER_TOKEN = 4  # the rule of thumb for an answer that was cut before it named its usage


@dataclass(frozen=True, slots=True)
class ProxyReport:
    """What the proxy saw of one run."""

    requests: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: Decimal | None = Decimal(0)
    """None where an answer could not be priced; the run was then cut at its next request."""
    cut: Cut | None = None
    """The limit for which a request was answered 402, if one was."""
    estimated: int = 0
    """Answers without a usage of their own (cut streams), counted by their length."""
    unanswered: int = 0
    """Requests that were sent and had no answer when the run ended: they may have been billed."""
    turned_away: tuple[str, ...] = ()
    """Requests outside the allow-list, as `METHOD path: reason`, the first few."""


@dataclass(frozen=True, slots=True)
class Metered:
    """One answer's usage; `estimated` where it did not name all of it itself."""

    usage: Usage
    estimated: bool
    reported_usd: Decimal | None


class AnswerMeter:
    """Reads the usage of one answer while its (decoded) bytes pass."""

    def __init__(self, wire: Wire, *, streaming: bool, request_bytes: int) -> None:
        self._wire = wire
        self._streaming = streaming
        self._request_bytes = request_bytes
        self._buffer = bytearray()
        self._overlong = False
        self._usage: dict[str, Any] = {}
        self._complete = False
        self._delta_chars = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes; never raises."""
        if not self._streaming:
            self._buffer += chunk[: max(0, _BODY_CAP - len(self._buffer))]
            return
        self._buffer += chunk
        if b"\n" not in chunk:  # a long line is put together once, not looked at again with every piece of it
            self._drop_overlong()
            return
        *whole, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest)
        for line in whole:
            if self._overlong:
                self._overlong = False  # the tail of a line that was dropped
                continue
            self._line(line.strip())
        self._drop_overlong()

    def _drop_overlong(self) -> None:
        if len(self._buffer) > _LINE_CAP:
            self._buffer.clear()
            self._overlong = True

    def _line(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        data = line.removeprefix(b"data:").strip()
        event = lines.event(data)
        if event is None:
            self._complete = self._complete or (data == b"[DONE]" and bool(self._usage))
            return
        self._delta_chars += _delta_chars(event)
        match self._wire:
            case "anthropic-messages":
                self._merge(lines.mapping(event.get("message")).get("usage"))
                self._merge(event.get("usage"))
                self._complete = self._complete or event.get("type") == "message_delta"
            case "openai-responses":
                usage = lines.mapping(event.get("response")).get("usage")
                self._merge(usage)
                self._complete = self._complete or isinstance(usage, dict)
            case "openai-chat":
                self._merge(event.get("usage"))
                self._complete = self._complete or isinstance(event.get("usage"), dict)

    def _merge(self, usage: object) -> None:
        # Later figures are cumulative; a null in a later event does not undo an earlier number.
        self._usage |= {key: value for key, value in lines.mapping(usage).items() if value is not None}

    def finish(self) -> Metered:
        """The usage of the whole answer, or the best estimate of one that was cut."""
        if not self._streaming:
            body = lines.event(bytes(self._buffer))
            self._merge(lines.mapping(body).get("usage"))
            self._complete = bool(self._usage)
            self._delta_chars = len(self._buffer)
        named = _named(self._wire, self._usage)
        reported = lines.dollars(self._usage.get("cost"))
        if self._complete:
            return Metered(usage=named, estimated=False, reported_usd=reported)
        guessed_input = 0 if named.input + named.cache_read + named.cache_write else self._request_bytes
        estimate = Usage(
            input=named.input or guessed_input // _BYTES_PER_TOKEN,
            output=max(named.output, -(-self._delta_chars // _BYTES_PER_TOKEN)),
            cache_read=named.cache_read,
            cache_write=named.cache_write,
            reasoning=named.reasoning,
        )
        return Metered(usage=estimate, estimated=True, reported_usd=None)


def _delta_chars(event: dict[str, Any]) -> int:
    deltas = [event.get("delta"), *(choice.get("delta") for choice in lines.objects(event.get("choices")))]
    return sum(_string_chars(delta, depth=4) for delta in deltas)


def _string_chars(value: object, *, depth: int) -> int:
    if isinstance(value, str):
        return len(value)
    if depth == 0:
        return 0
    if isinstance(value, dict):
        return sum(_string_chars(part, depth=depth - 1) for part in value.values())
    return sum(_string_chars(part, depth=depth - 1) for part in value) if isinstance(value, list) else 0


def _named(wire: Wire, usage: dict[str, Any]) -> Usage:
    if wire == "anthropic-messages":
        return Usage(
            input=lines.count(usage.get("input_tokens")),
            output=lines.count(usage.get("output_tokens")),
            cache_read=lines.count(usage.get("cache_read_input_tokens")),
            cache_write=lines.count(usage.get("cache_creation_input_tokens")),
            reasoning=lines.count(lines.mapping(usage.get("output_tokens_details")).get("thinking_tokens")),
        )
    sent, made = ("input", "output") if wire == "openai-responses" else ("prompt", "completion")
    sent_details = lines.mapping(usage.get(f"{sent}_tokens_details"))
    cached = lines.count(sent_details.get("cached_tokens"))
    made_details = lines.mapping(usage.get(f"{made}_tokens_details"))
    return Usage(
        input=max(0, lines.count(usage.get(f"{sent}_tokens")) - cached),  # both formats count cached tokens in
        output=lines.count(usage.get(f"{made}_tokens")),
        cache_read=cached,
        cache_write=lines.count(sent_details.get("cache_write_tokens")),
        reasoning=lines.count(made_details.get("reasoning_tokens")),
    )


class Meter:
    """The running sum of one handoff and its limits. An overshoot is at most the requests in flight."""

    def __init__(self, *, price: Price, max_usd: Decimal | None, max_requests: int | None) -> None:
        self._price = price
        self._max_usd = max_usd
        self._max_requests = max_requests
        self._requests = 0
        self._answered = 0
        self._estimated = 0
        self._usage = Usage()
        self._cost = Decimal(0)
        self._unpriced = False
        self._cut: Cut | None = None
        self._turned_away: list[str] = []

    def admit(self) -> Cut | None:
        """Count one request in, or name the limit that it would cross."""
        if self._max_requests is not None and self._requests >= self._max_requests:
            self._cut = "requests"
        elif self._max_usd is not None and (self._unpriced or self._cost >= self._max_usd):
            self._cut = "dollars"  # a cost that cannot be computed counts at the cap
        if self._cut is None:
            self._requests += 1
        return self._cut

    def answered(self) -> None:
        """An admitted request has an answer, or surely gets none."""
        self._answered += 1

    def add(self, model: str, metered: Metered) -> None:
        """Book one answer."""
        self._usage += metered.usage
        self._estimated += metered.estimated
        cost = self._price(model, metered.usage, metered.reported_usd)
        if cost is None:
            self._unpriced = True
        else:
            self._cost += cost

    def turned_away(self, request: str) -> None:
        """Note a request outside the allow-list."""
        if len(self._turned_away) < 10:
            self._turned_away.append(request)

    def report(self) -> ProxyReport:
        """The figures so far."""
        return ProxyReport(
            requests=self._requests,
            usage=self._usage,
            cost_usd=None if self._unpriced else self._cost,
            cut=self._cut,
            estimated=self._estimated,
            unanswered=self._requests - self._answered,
            turned_away=tuple(self._turned_away),
        )
