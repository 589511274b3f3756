"""Verifying exported spines: every kind of bad line, the leniencies, and that what we write verifies."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heinzelwerk import verification
from heinzelwerk.event import Chain, Note
from heinzelwerk.verification import Why

AT = datetime(2026, 10, 24, 7, 0, tzinfo=UTC)
FIRST = {"v": 1, "seq": 1, "ts": "2026-10-24T07:00:00Z", "prev": None, "kind": "a"}


def line(**changes: object) -> bytes:
    return json.dumps({**FIRST, **changes}).encode() + b"\n"


@pytest.mark.parametrize(
    ("exported", "bad_line", "why"),
    [
        (line()[:-1], 1, Why.LINE),
        (line() + line()[:-1], 2, Why.LINE),
        (b"{\n", 1, Why.ENVELOPE),
        (b"\n", 1, Why.ENVELOPE),
        (b"\xff\n", 1, Why.ENVELOPE),
        (b"\xef\xbb\xbf" + line(), 1, Why.ENVELOPE),
        (line(extra=1), 1, Why.ENVELOPE),
        (line(v=True), 1, Why.ENVELOPE),
        (line(v=2), 1, Why.ENVELOPE),
        (line(seq="1"), 1, Why.ENVELOPE),
        (line(seq=True), 1, Why.ENVELOPE),
        (line(ts=1792825200), 1, Why.ENVELOPE),
        (line(ts="2026-10-24"), 1, Why.ENVELOPE),
        (line(ts="0001-01-01T00:00:00+01:00"), 1, Why.ENVELOPE),
        (line(turn=""), 1, Why.ENVELOPE),
        (line(data=None), 1, Why.ENVELOPE),
        (line(kind="a\n"), 1, Why.ENVELOPE),
        (line(seq=2), 1, Why.CHAIN),
        (line(prev="0" * 64), 1, Why.CHAIN),
        (line() + line(), 2, Why.CHAIN),
    ],
)
def test_bad_lines(exported: bytes, bad_line: int, why: Why) -> None:
    """The first bad line is named with its reason; what stands before it is kept."""
    found = verification.verify(exported)
    assert (found.bad_line, found.why) == (bad_line, why)
    assert len(found.events) == len(found.hashes) == bad_line - 1


@pytest.mark.parametrize(
    "exported",
    [
        b"",
        line()[:-1] + b"\r\n",
        b"  " + line(),
        line(data={"x": 1}).replace(b"1}", b"NaN}"),
        line(ts="2026-10-24 09:00+02:00"),
        b'{"seq":2,"seq":1,"ts":"2026-10-24T07:00:00Z","prev":null,"kind":"a"}\n',
    ],
)
def test_leniencies(exported: bytes) -> None:
    """Carriage returns, blanks, NaN in data, other time forms and repeated keys pass: the hash covers them as they are."""
    assert verification.verify(exported).ok


def test_seq_and_chain_may_go_on_after_a_seal() -> None:
    """An export that begins after sealed events is checked against the seal's number and hash."""
    lines, chain = Chain().extend([Note("a"), Note("b"), Note("c")], at=AT)
    first = verification.verify_lines(lines[:1])
    rest = verification.verify(b"".join(lines[1:]), seq=1, head=first.hashes[-1])
    assert rest.ok
    assert rest.hashes[-1] == chain.head
    assert verification.verify(b"".join(lines[1:])).why is Why.CHAIN


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.text(max_size=8), JSON, max_size=3), min_size=1, max_size=6), st.data())
def test_what_we_write_verifies_and_any_change_shows(datas: list[dict[str, object]], data: st.DataObject) -> None:
    """Our own lines verify; one flipped byte anywhere breaks the chain at that line, or at the next one."""
    lines, chain = Chain().extend([Note("step.model", entry, turn="t") for entry in datas], at=AT)
    whole = b"".join(lines)
    good = verification.verify(whole)
    assert good.ok
    assert good.hashes[-1] == chain.head
    assert [dict(event.data) for event in good.events] == datas
    position = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
    found = verification.verify(changed)
    assert not found.ok or found.hashes[-1] != chain.head
