"""Value forms beyond the corpus: limits, normal forms, and what each refusal says."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heinzelwerk import forms
from heinzelwerk.contract import methods
from heinzelwerk.forms import MailQuery


@given(st.integers(min_value=1, max_value=10**9))
def test_a_duration_reads_back(seconds: int) -> None:
    """The shortest form of a length means the same length."""
    length = timedelta(seconds=seconds)
    assert forms.duration(forms.duration_text(length)) == length


@pytest.mark.parametrize(
    "text", ["01m", "5M", " 5m", "5m ", "٥m", "5m5s", "1w", "-1s", "9999999999d", "9" * 100_000 + "s", 5, None, True]
)
def test_what_is_no_duration(text: object) -> None:
    """Other digits, blanks, signs, units and lengths are refused, however long the text."""
    with pytest.raises(ValueError, match="write"):
        forms.duration(text)


@pytest.mark.parametrize(
    ("text", "normal"),
    [("24h", "1d"), ("last 24h", "1d"), ("next 48h", "next 2d"), ("31622400s", "366d"), ("90s", "90s")],
)
def test_windows_have_one_normal_form(text: str, normal: str) -> None:
    """Backwards is the default and is not written; the largest unit that fits is."""
    assert str(forms.window(text)) == normal


@pytest.mark.parametrize("text", ["31622401s", "Next 7d", "next\t7d", "next", "last ", "last last 7d", "7d\n"])
def test_what_is_no_window(text: str) -> None:
    """Anything but one blank and at most 366 days is refused."""
    with pytest.raises(ValueError, match=r"write|narrow"):
        forms.window(text)


def test_a_window_is_half_open_around_the_wake() -> None:
    """`7d` ends at the moment of the wake, `next 7d` begins there."""
    now = datetime(2026, 5, 4, tzinfo=UTC)
    assert forms.window("7d").around(now) == (now - timedelta(days=7), now)
    assert forms.window("next 7d").around(now) == (now, now + timedelta(days=7))


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        (" documents:write , read ", "documents:read,write"),
        ("documents:read,", "documents:read"),
        ("ji-ra:tracker:read", "ji-ra:tracker:read"),
        ("tracker:read,read", "tracker:read"),
    ],
)
def test_requirements_have_one_normal_form(text: str, normal: str) -> None:
    """Modes are sorted and stand once; blanks around them go."""
    assert str(forms.requirement(text, modes_of=methods.MODES)) == normal


@pytest.mark.parametrize(
    "text",
    [
        "tracker",
        "tracker : read",
        "nope:read",
        "tracker:write",
        "Jira:tracker:read",
        ":tracker:read",
        "a:b:c:read",
        "",
        3,
    ],
)
def test_what_is_no_requirement(text: object) -> None:
    """Unknown capabilities, modes that a capability lacks and bad adapter names are refused."""
    with pytest.raises(ValueError, match=r"\S"):
        forms.requirement(text, modes_of=methods.MODES)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("  ", MailQuery()),
        ("from:@Example.com", MailQuery(sender="example.com")),
        ("from:@@a", MailQuery(sender="@@a")),
        ("\tlabel:a/b\nsubject:from:x", MailQuery(subject="from:x", label="a/b")),
        ('from:"Ada <a@b.example>"', MailQuery(sender="ada <a@b.example>")),
    ],
)
def test_mail_queries(text: str, query: MailQuery) -> None:
    """Terms come in any order; quotes hold blanks; a sender is lower case, a domain loses its sign."""
    assert MailQuery.parse(text) == query


@pytest.mark.parametrize(
    "text",
    ["FROM:a", "from: a", 'from:""', 'from:" "', 'subject:x"y"', 'subject:"x"label:b', "from:a from:a", "x", '"'],
)
def test_what_is_no_mail_query(text: str) -> None:
    """A term that could be read in two ways is not guessed at."""
    with pytest.raises(ValueError, match="write"):
        MailQuery.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "a@b",
        "a@b.c1",
        "a@c_d.example",
        'a"b@c.example',
        "a\x07@c.example",
        "x" * 65 + "@c.example",
        "a@" + "b." * 10 + "com",
    ],
)
def test_what_is_no_address(text: str) -> None:
    """Names, quotes, control characters and addresses longer than the redaction finds are refused."""
    with pytest.raises(ValueError, match="no plain e-mail address"):
        forms.people(text)


def test_people_are_counted_once_and_bounded() -> None:
    """Case and blanks make no second person; more than a hundred are too many."""
    assert forms.people(" Ada@Example.com ,ada@example.com,") == ("ada@example.com",)
    assert len(forms.addresses(f"a{n}@c.example" for n in range(100))) == 100
    with pytest.raises(ValueError, match="fewer people"):
        forms.addresses(f"a{n}@c.example" for n in range(101))


def test_every_method_of_the_table_is_consistent() -> None:
    """Checks name arguments that exist; a window is never an argument too; only reads take windows."""
    for method in methods.METHODS.values():
        assert set(method.checks) <= set(method.arguments)
        assert methods.WINDOW not in method.arguments
        assert method.mode == "read" or not method.window
    assert {m.read for m in methods.METHODS.values() if m.window} == {
        "calendar.events",
        "calendar.free_busy",
        "chat.messages",
        "code-host.merged_pull_requests",
        "mail.messages",
        "meetings.ended",
        "meetings.transcripts",
        "tracker.issues_updated",
    }
