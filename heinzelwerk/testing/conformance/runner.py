"""What every coding agent's adapter holds: it plans and reads, starts nothing, and carries no secret."""

from __future__ import annotations

import json
import re
from typing import ClassVar

import pytest

from heinzelwerk.handoff import HandoffRequest, Refusal
from heinzelwerk.runner.adapter import Adapter, Launch, Plan, RunnerSettings
from heinzelwerk.runner.metering import ModelAccess
from heinzelwerk.sandbox.spec import InsidePath, Layout

_SECRET = "sk-real-key-that-stays-outside"  # noqa: S105 - what the suite looks for where it must not be
_HOSTILE = (
    b"", b"\n", b"\x00\xff\xfe not text\n", b"{", b"[]", b"null", b'"x"', b'{"type":null}', b'{"type":["a"]}',
    b'{"type":"result","usage":"many","total_cost_usd":"NaN"}', b'{"type":"assistant","message":7}',
    b'{"a":' * 5_000, b'{"type":"' + b"x" * 200_000 + b'"}',
)  # fmt: skip

_LAYOUT = Layout(
    work=InsidePath("/handoff/work"),
    home=InsidePath("/handoff/home"),
    tmp=InsidePath("/handoff/tmp"),
    run=InsidePath("/handoff/run"),
    python=InsidePath("/usr/bin/python3"),
    model_port=8080,
    tools_port=8081,
)


class RunnerSuite:
    """Give the fixture `adapter`; `command` is for adapters that start what the operator's settings name."""

    command: ClassVar[tuple[str, ...]] = ()

    @pytest.fixture
    def adapter(self) -> Adapter:
        """The adapter."""
        raise NotImplementedError("give a fixture `adapter`")

    def _plan(self, adapter: Adapter, **asked: str) -> Plan | Refusal:
        settings = RunnerSettings(
            runner=adapter.name,
            model="m",
            command=self.command,
            trust_command=True,
            access=ModelAccess(base_url="https://models.example", key=_SECRET),
        )
        request = HandoffRequest(
            run_id="r",
            agent=adapter.name,
            prompt=asked.get("prompt", "Look."),
            contract=asked.get("contract", ""),
        )
        launch = Launch(layout=_LAYOUT, argv=("/opt/agent",), model="m", tools=adapter.read_tools, settings=settings)
        return adapter.plan(request, launch)

    def test_it_has_a_name(self, adapter: Adapter) -> None:
        """As settings and results write it."""
        assert re.fullmatch(r"[a-z][a-z0-9-]*", adapter.name)
        assert not set(adapter.read_tools) & set(adapter.more_tools)

    def test_a_plan_carries_no_secret(self, adapter: Adapter) -> None:
        """The real key is in no argument, variable or file: the proxy outside puts it in."""
        assert _SECRET not in str(self._plan(adapter))

    def test_long_words_are_not_on_the_command_line(self, adapter: Adapter) -> None:
        """Prompt and instructions go by stdin or files: a command line is short and everybody's to see."""
        made = self._plan(adapter, prompt="p" * 5_000, contract="c" * 5_000)
        if isinstance(made, Refusal):
            pytest.skip(f"this adapter plans nothing from these settings: {made.detail}")
        words = " ".join(made.argv)
        assert "ppp" not in words
        assert "ccc" not in words

    def test_the_same_request_is_planned_the_same_way(self, adapter: Adapter) -> None:
        """A plan depends on nothing else."""
        assert self._plan(adapter) == self._plan(adapter)

    def test_a_reader_never_raises(self, adapter: Adapter) -> None:
        """Whatever an agent prints, in whatever order, on either stream; and a reading is there at any time."""
        reader = adapter.reader()
        for line in _HOSTILE:
            reader.feed(line)
            reader.feed(line, "stderr")
            reader.reading()
        assert reader.reading().final in ("none", "success", "error", "budget", "aborted")

    def test_a_run_that_said_nothing_did_not_succeed(self, adapter: Adapter) -> None:
        """Silence is no success, and figures that nobody named are not made up."""
        reading = adapter.reader().reading()
        assert reading.final == "none"
        assert (reading.cost_usd, reading.usage, reading.turns) == (None, None, None)

    def test_readers_share_nothing(self, adapter: Adapter) -> None:
        """Each run has its own."""
        first, second = adapter.reader(), adapter.reader()
        first.feed(json.dumps({"type": "result", "result": "words of the first"}).encode())
        assert "words of the first" not in second.reading().text
