"""Logs: JSON where no person reads, and no secret in any of it."""

import io
import json
import logging

import pytest
import structlog

from workers import log as logs

SECRET = "sk-canary-123"


@pytest.fixture
def lines():
    stream = io.StringIO()
    root, levels = logging.getLogger(), {name: logging.getLogger(name).level for name in logs._QUIET}
    kept = root.handlers, root.level
    logs.set_up(log_format="json", level="info", secrets=(SECRET,), context={"worker": "turns-1"}, stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers, root.level = kept
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


def test_our_lines_and_everybodys_have_one_shape(lines):
    """Event, level, time, worker; a library's line is one of them."""
    structlog.get_logger("a").info("turn ended", session="crew/page", turn=3)
    logging.getLogger("some.library").warning("it %s", "broke")
    ours, theirs = lines()
    assert (ours["event"], ours["session"], ours["turn"], ours["level"]) == ("turn ended", "crew/page", 3, "info")
    assert (theirs["event"], theirs["logger"], theirs["worker"]) == ("it broke", "some.library", "turns-1")
    assert ours["at"]
    assert theirs["at"]


def test_secrets_are_redacted_wherever_they_stand(lines):
    """Event, values, nested data, arguments of a library's line, tracebacks."""
    structlog.get_logger("a").info(f"key {SECRET}", url=f"https://x?key={SECRET}", deep={"a": [SECRET, {SECRET: 1}]})
    logging.getLogger("lib").warning("sent %s", {"key": SECRET})
    try:
        raise RuntimeError(f"refused {SECRET}")
    except RuntimeError:
        structlog.get_logger("a").exception("failed")
        logging.getLogger("lib").exception("failed")
    text = json.dumps(found := lines())
    assert len(found) == 4
    assert SECRET not in text
    assert text.count(logs.REDACTED) >= 6
    assert "RuntimeError" in found[2]["exception"]


def test_noise_of_the_task_queue_is_quiet(lines):
    """A line per received message says nothing that ours do not."""
    logging.getLogger("celery.worker.strategy").info("Task received")
    logging.getLogger("celery.app.trace").info("Task succeeded")
    logging.getLogger("celery.app.trace").error("Task failed")
    assert [line["event"] for line in lines()] == ["Task failed"]
