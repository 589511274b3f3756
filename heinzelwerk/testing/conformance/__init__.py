"""Pytest classes that an adapter must pass: `CapabilitySuite`, `WindowSuite`, `PublisherSuite`, `RunnerSuite`.

    from heinzelwerk.testing.conformance import PublisherSuite

    class TestWiki(PublisherSuite):
        arguments = {"page": "Weekly"}
        missing = {"page": "Nowhere"}

        @pytest.fixture
        def publisher(self) -> Wiki:
            return Wiki(FakeServer())

Our own adapters and their doubles pass the same classes. Needs pytest and pytest-asyncio in mode `auto`.
"""

import pytest

pytest.register_assert_rewrite(f"{__name__}.capability", f"{__name__}.publisher", f"{__name__}.runner")

from heinzelwerk.testing.conformance.capability import CapabilitySuite, WindowSuite  # noqa: E402 - after the line above, for good messages
from heinzelwerk.testing.conformance.publisher import PublisherSuite  # noqa: E402
from heinzelwerk.testing.conformance.runner import RunnerSuite  # noqa: E402

__all__ = ["CapabilitySuite", "PublisherSuite", "RunnerSuite", "WindowSuite"]
