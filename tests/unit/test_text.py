"""Text rules: what is deleted is exactly the list, no address survives, and the cost is linear."""

import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heinzelwerk import text

WORDS = st.text(alphabet=st.sampled_from("ab.%+'-@_ 0\u200b\u2060é\n"), max_size=60)


def test_exactly_208_code_points_are_deleted() -> None:
    """A sweep over all of Unicode: only these go, and nothing is put in their place."""
    deleted = [point for point in range(sys.maxunicode + 1) if text.clean_text(chr(point)) != chr(point)]
    assert len(deleted) == 208
    assert all(text.clean_text(f"a{chr(point)}b") == "ab" for point in deleted)
    assert {0x1B, 0x0D, 0x9B, 0x200B, 0x202E, 0x2028, 0xFEFF, 0xE0041} <= set(deleted)
    assert not {0x09, 0x0A, 0x200D, 0xFE0F, 0x00AD} & set(deleted)


@given(WORDS)
def test_safe_text_stays_safe(words: str) -> None:
    """Cleaning and redacting once is enough: doing it again changes nothing."""
    once = text.safe(words)
    assert text.safe(once) == once


@given(WORDS, WORDS)
def test_an_address_never_survives(before: str, after: str) -> None:
    """Whatever stands around it, with blanks between, an address is gone, also with hidden characters inside."""
    assert "ada@example.com" not in text.safe(f"{before} ada@exa\u200bmple.com {after}")


def test_cutting_comes_last() -> None:
    """An address across the cut is redacted, not left as half an address."""
    words = "x" * 20 + " ada.lovelace@example.com"
    for limit in range(20, 46):
        assert "ada" not in text.bounded(words, limit=limit)
        assert "ada" not in text.clean_line(words, limit=limit)


def test_a_cut_says_what_is_missing() -> None:
    """The kept part is whole, and the mark counts."""
    assert text.bounded("a" * 1500, limit=1000) == "a" * 1000 + "\n[cut: 500 of 1,500 characters are missing here]"
    assert text.bounded("short", limit=1000) == "short"


@given(st.text(max_size=200), st.integers(min_value=1, max_value=50))
def test_a_line_is_one_line_within_its_limit(words: str, limit: int) -> None:
    """Line feeds and tabs become blanks, and the limit holds with the mark."""
    line = text.clean_line(words, limit=limit)
    assert len(line) <= limit
    assert "\n" not in line
    assert "\t" not in line


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "a.",
        "%40",
        "a@",
        "x%40a.a",
        "a" * 64 + "@" + "b." * 9 + "1 ",
        "@" + "b" * 63 + ".",
        "a@" + "b" * 63 + ".",
        "-%40a.",
    ],
)
def test_redaction_is_linear(unit: str) -> None:
    """Four times the text costs about four times the time, whatever it holds."""

    def seconds(size: int) -> float:
        words = unit * (size // len(unit)) + "@"
        best = float("inf")
        for _ in range(3):
            begun = time.thread_time()
            text.redact_emails(words)
            best = min(best, time.thread_time() - begun)
        return best

    for _ in range(4):
        small, large = seconds(1 << 15), seconds(1 << 17)
        # Below a quarter of a second noise is larger than the work; a quadratic pattern would take minutes.
        if large < 0.25 or large < small * 10:
            return
    pytest.fail(f"{large:.3f} s against {small:.3f} s for a quarter")
