"""What every capability holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import ClassVar

import pytest
from pydantic import BaseModel

from heinzelwerk import text
from heinzelwerk.errors import ReadFailed
from heinzelwerk.ports import Capability


class CapabilitySuite:
    """Give the fixture `capability`, with something to read, and a read that works (`method`, `arguments`)."""

    method: ClassVar[str]
    arguments: ClassVar[Mapping[str, str]]

    @pytest.fixture
    def capability(self) -> Capability:
        """The adapter, with something to read."""
        raise NotImplementedError("give a fixture `capability`")

    def test_it_says_what_it_offers(self, capability: Capability) -> None:
        """A name, and for each method the model of its arguments: contracts are checked against them."""
        methods = capability.methods()
        assert capability.name
        assert self.method in methods
        assert all(issubclass(model, BaseModel) for model in methods.values())

    async def test_an_answer_is_data(self, capability: Capability) -> None:
        """JSON, and the same when asked again: an answer that varies by itself would wake a model for nothing."""
        first = await capability.read(self.method, self.arguments, since=None, until=None)
        again = await capability.read(self.method, self.arguments, since=None, until=None)
        assert json.loads(json.dumps(first, allow_nan=False)) == first
        assert first == again

    async def test_an_answer_is_clean(self, capability: Capability) -> None:
        """No hidden characters and no mail addresses: what a turn reads may come from strangers."""
        found = await capability.read(self.method, self.arguments, since=None, until=None)
        for word in _strings(found):
            assert text.clean_text(word) == word
            assert text.redact_emails(word) == word

    async def test_what_it_does_not_know_is_refused(self, capability: Capability) -> None:
        """An unknown method, an unknown argument and a missing one end as ReadFailed, never as an answer or another error."""
        wrong = [("no_such_method", {}), (self.method, {**self.arguments, "no_such_argument": "x"})]
        if any(field.is_required() for field in capability.methods()[self.method].model_fields.values()):
            wrong.append((self.method, {}))
        for method, arguments in wrong:
            with pytest.raises(ReadFailed):
                await capability.read(method, arguments, since=None, until=None)


class WindowSuite(CapabilitySuite):
    """For reads that answer a list of what happened between two instants."""

    async def test_a_window_is_half_open(self, capability: Capability) -> None:
        """A window from an instant to itself is empty, and two that meet have everything between them, once."""
        start, now = datetime(1970, 1, 2, tzinfo=UTC), datetime(2000, 1, 1, tzinfo=UTC)
        assert await capability.read(self.method, self.arguments, since=start, until=start) == []
        whole = await capability.read(self.method, self.arguments, since=None, until=None)
        before = await capability.read(self.method, self.arguments, since=None, until=now)
        after = await capability.read(self.method, self.arguments, since=now, until=None)
        assert isinstance(before, list)
        assert isinstance(after, list)
        assert [*before, *after] == whole


def _strings(data: object) -> list[str]:
    if isinstance(data, str):
        return [data]
    inner = data.values() if isinstance(data, Mapping) else data if isinstance(data, list) else ()
    return [word for one in inner for word in _strings(one)]
