from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance import shell
from tests.acceptance.shell import Person


@pytest.fixture
def person(tmp_path: Path) -> Person:
    """Somebody in an empty directory."""
    return Person(tmp_path)


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """The example team, up and running for the tests of one module."""
    person = shell.settle(tmp_path_factory.mktemp("crew") / "team")
    with shell.up(person):
        yield person
