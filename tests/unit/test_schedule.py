"""Slots of a schedule against a slow reference, over clock changes of real zones; and what missed slots become."""

from datetime import UTC, datetime, timedelta

import pytest
from croniter import croniter
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heinzelwerk import schedule
from heinzelwerk.schedule import CatchUp, Fault, Schedule

# Zones with changes of an hour, of half an hour, at midnight, and one that skipped a whole day.
CHANGES = [
    ("Europe/Berlin", "2026-03-29T01:00:00+00:00"),
    ("Europe/Berlin", "2026-10-25T01:00:00+00:00"),
    ("America/New_York", "2026-11-01T06:00:00+00:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00+00:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30:00+00:00"),
    ("America/Sao_Paulo", "2018-11-04T03:00:00+00:00"),
    ("Pacific/Apia", "2011-12-30T10:00:00+00:00"),
    ("Africa/Casablanca", "2026-03-22T02:00:00+00:00"),
    ("UTC", "2026-01-01T00:00:00+00:00"),
]
CRONS = [
    "* * * * *",
    "*/7 * * * *",
    "30 2 * * *",
    "0 * * * *",
    "0 0 * * *",
    "15,45 1-3 * * *",
    "0 3 * * 7",
    "59 23 31 12 *",
    "0 12 L * *",
    "10 0 30 * *",
]
HOURS = st.integers(min_value=-60 * 50, max_value=60 * 50).map(lambda minutes: timedelta(minutes=minutes))


def reference(cron: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    """Every local minute of the days around, asked one by one."""
    where = schedule.zone(zone)
    local = after.astimezone(where).replace(tzinfo=None, second=0, microsecond=0) - timedelta(days=2)
    last = until.astimezone(where).replace(tzinfo=None) + timedelta(days=2)
    calendar = croniter(cron, local - timedelta(minutes=1))
    found = set()
    while (naive := calendar.get_next(datetime)) <= last:
        slot = naive.replace(tzinfo=where, fold=0).astimezone(UTC)
        if after < slot <= until:
            found.add(slot)
    return sorted(found)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(CHANGES), st.sampled_from(CRONS), HOURS, st.integers(min_value=0, max_value=60 * 30))
@example(("Pacific/Apia", "2011-12-30T10:00:00+00:00"), "0 0 * * *", timedelta(hours=-30), 60 * 60)
@example(("Europe/Berlin", "2026-10-25T01:00:00+00:00"), "15,45 1-3 * * *", timedelta(minutes=-20), 45)
def test_slots_equal_the_reference(change: tuple[str, str], cron: str, offset: timedelta, minutes: int) -> None:
    """Slots, the next one and the latest one agree with asking every minute, wherever the look begins and ends."""
    zone, moment = change
    after = datetime.fromisoformat(moment) + offset
    until = after + timedelta(minutes=minutes)
    plan = Schedule.parse(cron, timezone=zone)
    expected = reference(cron, zone, after, until)
    assert [slot.astimezone(UTC) for slot in plan.slots(after, until)] == expected
    latest = plan.latest(after, until)
    assert (latest.astimezone(UTC) if latest else None) == (expected[-1] if expected else None)
    following = plan.next_slot(after)
    if expected:
        assert following is not None
        assert following.astimezone(UTC) == expected[0]
    else:
        assert following is None or following > until


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(CHANGES), st.sampled_from(CRONS[:6]), HOURS)
def test_two_looks_lose_and_double_nothing(change: tuple[str, str], cron: str, offset: timedelta) -> None:
    """Cutting a stretch of time anywhere gives the same slots as looking at it whole."""
    zone, moment = change
    middle = datetime.fromisoformat(moment)
    after, until = middle - timedelta(hours=5), middle + timedelta(hours=5)
    cut = min(max(middle + offset / 12, after), until)
    plan = Schedule.parse(cron, timezone=zone)
    assert plan.slots(after, cut) + plan.slots(cut, until) == plan.slots(after, until)


def test_the_time_zone_of_the_machine_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker anywhere computes the same slots."""
    import time

    plan = Schedule.parse("30 2 * * *", timezone="Europe/Berlin")
    after = datetime(2026, 3, 28, tzinfo=UTC)
    found = []
    for zone in ("UTC", "America/New_York", "Asia/Kolkata"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        found.append(plan.slots(after, after + timedelta(days=3)))
    monkeypatch.undo()
    time.tzset()
    assert found[0] == found[1] == found[2]
    assert [slot.isoformat() for slot in found[0]] == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:30:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", Fault.SHAPE),
        ("@Daily", Fault.SHAPE),
        ("@reboot", Fault.SHAPE),
        ("0 0 7 * * MON", Fault.SHAPE),
        ("０ 7 * * *", Fault.SHAPE),
        ("R 7 * * *", Fault.RANDOM),
        ("0 r(1-5) * * *", Fault.RANDOM),
        ("R/5 * * * *", Fault.RANDOM),
        ("1,R * * * *", Fault.RANDOM),
        ("H 7 * * *", Fault.RANGE),
        ("60 7 * * *", Fault.RANGE),
        ("*/0 * * * *", Fault.RANGE),
        ("0 7 * * MON-", Fault.RANGE),
        ("0 0 30 2 *", Fault.NEVER),
        ("0 0 31 4,6,9,11 *", Fault.NEVER),
    ],
)
def test_what_is_no_schedule(text: str, fault: Fault) -> None:
    """A bad text has a fault, a message and a hint; parsing it raises with both."""
    found = schedule.problem(text)
    assert found is not None
    assert found.fault is fault
    assert found.message
    assert found.hint
    with pytest.raises(ValueError, match=r"\S"):
        Schedule.parse(text, timezone="UTC")


@pytest.mark.parametrize(
    "text", ["0 7 * MAR,APR FRI", " 0  7 * * * ", "0\t7 * * *", "@hourly", "5-1 * * * *", "0 9 L * *", "0 9 * * fri#1"]
)
def test_names_with_an_r_and_blanks_are_fine(text: str) -> None:
    """Months and weekdays that hold an R are no random moments; blanks may be doubled."""
    assert schedule.problem(text) is None


@given(st.text(max_size=60))
@example("* * * * *\n")
@example("99999999999999999999 * * * *")
def test_any_text_is_judged(text: str) -> None:
    """No text makes the check raise."""
    schedule.problem(text)


@pytest.mark.parametrize(
    "name", ["", "Mars/Olympus", "America", "../../etc/passwd", "/etc/localtime", "Europe/Berlin\x00"]
)
def test_what_is_no_time_zone(name: str) -> None:
    """A name that is no zone is refused, also one that is a path."""
    with pytest.raises(ValueError, match="no time zone"):
        schedule.zone(name)


def test_a_schedule_of_leap_days_has_a_next_slot() -> None:
    """A slot years away is found; so is the newest one before it."""
    plan = Schedule.parse("0 9 29 2 MON#5", timezone="UTC")
    following = plan.next_slot(datetime(2026, 1, 1, tzinfo=UTC))
    assert following == datetime(2044, 2, 29, 9, tzinfo=UTC)


NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
MISSED = tuple(NOW - timedelta(minutes=5 * n) for n in reversed(range(1, 37)))


def test_three_hours_missed_end_in_thirty_six_records() -> None:
    """`latest` runs the newest missed slot and skips the rest; `skip` runs none; nothing is lost either way."""
    latest = schedule.due(MISSED, now=NOW, catch_up=CatchUp.LATEST, grace=timedelta(seconds=30))
    assert latest.run == MISSED[-1]
    assert latest.skipped == MISSED[:-1]
    skip = schedule.due(MISSED, now=NOW, catch_up=CatchUp.SKIP, grace=timedelta(seconds=30))
    assert skip.run is None
    assert skip.skipped == MISSED


def test_a_slot_on_time_runs_under_both_rules() -> None:
    """A slot that is at most `grace` old is not missed."""
    slot = NOW - timedelta(seconds=30)
    for rule in CatchUp:
        assert schedule.due((slot,), now=NOW, catch_up=rule, grace=timedelta(seconds=30)).run == slot
    assert schedule.due((), now=NOW, catch_up=CatchUp.LATEST, grace=timedelta()) == schedule.Due(None, ())
    with pytest.raises(ValueError, match="later"):
        schedule.due((NOW + timedelta(seconds=1),), now=NOW, catch_up=CatchUp.LATEST, grace=timedelta())
