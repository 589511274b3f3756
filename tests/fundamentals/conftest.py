"""A quiet house for each concept."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
import structlog

from heinzelwerk.testing import house
from heinzelwerk.testing.house import House


@pytest.fixture
async def home() -> AsyncIterator[House]:
    """One team with one contract, every port a double, the path itself real."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    built = house.build()
    await built.load(house.page())
    yield built
    structlog.reset_defaults()
