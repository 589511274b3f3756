"""What an event says in words: one rule for each kind that people meet often, plain facts for every other one."""

import math
from collections.abc import Callable, Iterable, Mapping

from pydantic import JsonValue

from workers.show import figures
from workers.show.screen import line

Facts = Mapping[str, JsonValue]


def describe(kind: str, data: Facts) -> str:
    """One line about an event; never fails, whatever the facts are."""
    return _RULES.get(kind, plain)(data)


def whole(data: Facts, name: str) -> int | None:
    """A number of the event as a whole one, also from its `usage`; None where there is none."""
    value = data.get(name)
    if value is None:
        usage = data.get("usage")
        value = usage.get(name) if isinstance(usage, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return round(value)


def shown(name: str, value: JsonValue) -> str:
    """A fact as people read it: hashes short, money as money, instants as dates; nothing for an empty one."""
    if value is None or value == "" or value == [] or value == {} or value is False or value == 0:
        return ""
    if isinstance(value, list):
        return line(", ".join(shown(name, item) for item in value))
    if isinstance(value, dict):
        return line(", ".join(f"{key} {shown(key, item)}".strip() for key, item in value.items()))
    if name.endswith("_micros") and isinstance(value, int):
        return figures.money(value)
    if name.endswith("_ms") and isinstance(value, int) and value > 10**11:
        return figures.instant(value)
    text = line(str(value))
    return figures.short(text) if text.startswith("sha256:") or name.endswith("sha256") else text


def plain(data: Facts, *, without: Iterable[str] = ()) -> str:
    """Every fact that has no column of its own: `name value`, empty ones left out."""
    left_out = _QUIET.union(without)
    return _joined(
        f"{name.replace('_', ' ')} {words}"
        for name, value in data.items()
        if name not in left_out and (words := shown(name, value))
    )


_QUIET = frozenset(
    (
        "ms",
        "duration_ms",
        "active_ms",
        "input_tokens",
        "output_tokens",
        "cost_micros",
        "mail",
        "key",
        "v",
        "digest",
        "version",
    )
)
"""Fields that have a column of their own, or that only programs compare."""
_STEP = ("step", "segment", "ordinal", "cause", "model", "attempt", "calls", "retries")


def _joined(parts: Iterable[str]) -> str:
    return line(" · ".join(filter(None, parts)))


def _started(data: Facts) -> str:
    pins, inputs, merged = data.get("pins"), data.get("inputs"), whole(data, "merged")
    by, as_of = shown("by", data.get("by")), shown("as_of", data.get("as_of"))
    parts = [shown("cause", data.get("cause")), f"by {by}" if by else "", f"as of {as_of[:16]}" if as_of else ""]
    if isinstance(pins, dict):
        parts += [f"model {shown('model', pins.get('model'))}", f"contract {shown('sha256', pins.get('contract'))}"]
    if isinstance(inputs, dict) and inputs:
        parts.append(f"inputs {', '.join(inputs)}")
    if merged:
        parts.append(f"took {figures.counted(merged, 'waiting wake')} along")
    return _joined(parts)


def _ended(data: Facts) -> str:
    verdict, reason, report = (shown(name, data.get(name)) for name in ("verdict", "reason", "report"))
    requests, calls = whole(data, "requests") or 0, whole(data, "tool_calls") or 0
    spent = f"{figures.counted(requests, 'request')}, {figures.counted(calls, 'tool call')}"
    why = f"{verdict}: {reason}" if reason and reason not in report else verdict
    return _joined((why, report, spent))


def _waiting(data: Facts) -> str:
    items = data.get("items")
    until = ""
    if isinstance(items, list):
        deadlines = [found for item in items if isinstance(item, dict) and (found := whole(item, "deadline_ms"))]
        until = f" until {figures.instant(min(deadlines))} UTC" if deadlines else ""
    return line(f"for {shown('for', data.get('for'))}{until}")


def _model(data: Facts) -> str:
    """A request: what the model asked for, or how the attempt failed; attempts and models only where they say something."""
    attempt = whole(data, "attempt") or 1
    failed = shown("failed", data.get("failed"))
    asked = shown("calls", data.get("calls"))
    return _joined(
        (
            f"FAILED: {failed}" if failed else "",
            f"asks for {asked}" if asked else "" if failed else "answers in words",
            f"attempt {attempt}" if attempt > 1 or failed else "",
            f"at {shown('model', data.get('model'))}" if failed else "",
            plain(data, without=(*_STEP, "failed")),
        )
    )


def _tools(data: Facts) -> str:
    """A round of tools: each call with its time, failures and retries by name."""
    calls, retries = data.get("calls"), data.get("retries")
    done = [_call(call) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    again = (
        [plain(retry, without=("call",)) for retry in retries if isinstance(retry, dict)]
        if isinstance(retries, list)
        else []
    )
    return _joined((", ".join(done), *(f"RETRY {words}" for words in again), plain(data, without=_STEP)))


def _call(call: Facts) -> str:
    name, took, outcome = shown("tool", call.get("tool")), whole(call, "ms"), shown("outcome", call.get("outcome"))
    words = [name, figures.duration(took) if took is not None else "", outcome if outcome != "success" else ""]
    return " ".join(filter(None, words))


def _handoff(data: Facts) -> str:
    """How a coding agent's run ended: which agent, its calls, what it left and what it read through the turn."""
    agent = " ".join(filter(None, (shown(name, data.get(name)) for name in ("agent", "agent_version"))))
    model = shown("model", data.get("model"))
    used = _calls(data.get("tool_calls"))
    reads = _calls(data.get("reads"))
    files = whole(data, "files") or 0
    return _joined(
        (
            " ".join(filter(None, (agent or shown("runner", data.get("runner")), f"({model})" if model else ""))),
            shown("status", data.get("status")),
            f"calls {used}" if used else "",
            f"read {reads}" if reads else "",
            figures.counted(files, "file") if files else "",
            shown("job", data.get("job")),
        )
    )


def _calls(counts: JsonValue) -> str:
    """`Read 3 (1 failed), Bash 1` of a table of counts by tool."""
    if not isinstance(counts, dict):
        return ""
    said = []
    for tool, count in counts.items():
        if isinstance(count, dict):
            wrong = [f"{number} {word}" for word in ("failed", "denied") if (number := whole(count, word))]
            said.append(line(f"{tool} {whole(count, 'calls') or 0}" + (f" ({', '.join(wrong)})" if wrong else "")))
    return ", ".join(said)


def _effect(data: Facts) -> str:
    words = filter(None, (shown(field, data.get(field)) for field in ("state", "decision")))
    by, reason = shown("by", data.get("by")), shown("reason", data.get("reason"))
    target = " to ".join(filter(None, (shown("action", data.get("action")), shown("target", data.get("target")))))
    return _joined(
        (shown("effect", data.get("effect")), target, ", ".join(words) + (f" by {by}" if by else ""), reason)
    )


def _report(data: Facts) -> str:
    return _joined(shown(name, data.get(name)) for name in ("verb", "target", "description"))


def _returned(data: Facts) -> str:
    return _joined(("the turn ended without hearing it", f"it is wake {shown('wake', data.get('wake'))} now"))


_RULES: dict[str, Callable[[Facts], str]] = {
    "turn.started": _started,
    "turn.ended": _ended,
    "turn.waiting": _waiting,
    "step.model": _model,
    "step.tools": _tools,
    "step.handoff": _handoff,
    "effect.planned": _effect,
    "effect.moved": _effect,
    "effect.failed": _effect,
    "report": _report,
    "steer.returned": _returned,
}
