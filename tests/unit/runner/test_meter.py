"""Usage out of answers, and the limits over their sum."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heinzelwerk.handoff import Usage
from heinzelwerk.runner.meter import AnswerMeter, Meter, Metered, Wire
from tests.support.patience import patient

WIRES: tuple[Wire, ...] = ("anthropic-messages", "openai-responses", "openai-chat")
ONE = Metered(usage=Usage(input=1), estimated=False, reported_usd=None)


def events(*data: object) -> bytes:
    return b"".join(b"event: x\ndata: " + json.dumps(one).encode() + b"\n\n" for one in data)


def streamed(wire: Wire, body: bytes, *, size: int = 7, request_bytes: int = 400) -> Metered:
    meter = AnswerMeter(wire, streaming=True, request_bytes=request_bytes)
    for start in range(0, len(body), size):
        meter.feed(body[start : start + size])
    return meter.finish()


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_later_figures_of_a_stream_win(size: int) -> None:
    """Anthropic's counts are cumulative, may be corrected by the last event, and null corrects nothing."""
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}
    middle = {"type": "message_delta", "usage": {"output_tokens": 7, "input_tokens": None}}
    end = {"type": "message_delta", "usage": {"output_tokens": 9, "cache_read_input_tokens": 2}}
    found = streamed("anthropic-messages", events(start, middle, end), size=size)
    assert found == Metered(Usage(input=5, output=9, cache_read=2), estimated=False, reported_usd=None)


def test_windows_line_ends_and_comments_are_read() -> None:
    """Server-sent events may end lines with CR LF, carry comments, and leave the space after the colon out."""
    data = json.dumps({"usage": {"prompt_tokens": 4, "completion_tokens": 2, "cost": 0.5}})
    body = f": keep-alive\r\n\r\ndata:{data}\r\n\r\ndata: [DONE]\r\n\r\n".encode()
    assert streamed("openai-chat", body) == Metered(Usage(input=4, output=2), False, Decimal("0.5"))


def test_an_incomplete_response_of_openai_has_a_usage_too() -> None:
    """`response.incomplete` and `response.failed` carry one like `response.completed`."""
    end = {"type": "response.incomplete", "response": {"usage": {"input_tokens": 9, "output_tokens": 4}}}
    assert streamed("openai-responses", events(end)).usage == Usage(input=9, output=4)


def test_a_stream_cut_after_its_start_keeps_the_input_and_estimates_the_output() -> None:
    """What was named counts as named; what was said counts by its length."""
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 50, "output_tokens": 1}}}
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x" * 400}}
    found = streamed("anthropic-messages", events(start, delta))
    assert found.estimated
    assert found.usage.input == 50
    assert 100 <= found.usage.output <= 110


def test_a_whole_answer_without_usage_is_estimated() -> None:
    """An answer of a gateway that names no usage is not free."""
    meter = AnswerMeter("openai-chat", streaming=False, request_bytes=4000)
    meter.feed(b'{"choices":[{"message":{"content":"' + b"x" * 400 + b'"}}]}')
    found = meter.finish()
    assert found.estimated
    assert found.usage.input == 1000
    assert found.usage.output >= 100


@patient
@given(st.sampled_from(WIRES), st.booleans(), st.lists(st.binary(max_size=200), max_size=5), st.integers(0, 1 << 20))
def test_any_bytes_are_metered(wire: Wire, streaming: bool, chunks: list[bytes], request_bytes: int) -> None:
    """No answer breaks the meter, and no figure is negative."""
    meter = AnswerMeter(wire, streaming=streaming, request_bytes=request_bytes)
    for chunk in chunks:
        meter.feed(chunk)
    usage = meter.finish().usage
    assert min(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning) >= 0


@patient
@given(
    st.sampled_from(WIRES),
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text(max_size=5),
        lambda x: (
            st.lists(x, max_size=3)
            | st.dictionaries(
                st.sampled_from(["usage", "message", "response", "choices", "delta", "type", "input_tokens", "cost"]),
                x,
                max_size=4,
            )
        ),
    ),
)
def test_any_event_is_metered(wire: Wire, event: object) -> None:
    """Neither is there an event of another shape that breaks it."""
    streamed(wire, events(event), size=64)


def test_limits_admit_up_to_and_not_beyond() -> None:
    """Requests by their number; dollars by their sum; the first limit that was met is the one that is named."""
    meter = Meter(price=lambda *_: Decimal("0.5"), max_usd=Decimal(1), max_requests=10)
    for _ in range(2):
        assert meter.admit() is None
        meter.add("m", ONE)
    assert (meter.admit(), meter.admit()) == ("dollars", "dollars")
    report = meter.report()
    assert (report.requests, report.cost_usd, report.cut) == (2, Decimal(1), "dollars")


def test_no_limit_is_no_limit() -> None:
    """Without limits nothing is cut, priced or not."""
    meter = Meter(price=lambda *_: None, max_usd=None, max_requests=None)
    for _ in range(100):
        assert meter.admit() is None
        meter.add("m", ONE)
    assert (meter.report().usage.input, meter.report().cost_usd) == (100, None)


def test_a_budget_of_nothing_admits_nothing() -> None:
    """A turn that has nothing left hands nothing on."""
    assert Meter(price=lambda *_: Decimal(0), max_usd=Decimal(0), max_requests=None).admit() == "dollars"
