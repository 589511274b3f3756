"""Registries: what is built from which values, what a plugin must bring, and what a fingerprint leaves out."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from pydantic import JsonValue

from heinzelwerk import plugin
from heinzelwerk.capability import registry as capabilities
from heinzelwerk.capability.memory import MemoryDocuments
from heinzelwerk.capability.shapes import VOLATILE
from heinzelwerk.contract.methods import METHODS
from heinzelwerk.errors import ConfigurationError
from heinzelwerk.publisher import registry as publishers
from heinzelwerk.publisher.memory import MemorySections


class Tracker(MemoryDocuments):
    name = "tracker"


class Pages(MemorySections):
    action = "wiki.replace-page"


def make_tracker(settings: plugin.Settings) -> object:
    return Tracker({str(settings["ref"]): b"x"})


def make_pages(settings: plugin.Settings) -> object:
    return Pages({})


def make_second_documents(settings: plugin.Settings) -> object:
    return MemoryDocuments({})


def make_second_sections(settings: plugin.Settings) -> object:
    return MemorySections({})


def make_nonsense(settings: plugin.Settings) -> object:
    return object()


def fail(settings: plugin.Settings) -> object:
    raise KeyError("token")


def refuse(settings: plugin.Settings) -> object:
    raise ConfigurationError("tracker: token is missing: set it")


def capabilities_with(factory: Callable[..., object] | None, *, wanted: str = "acme") -> dict[str, object]:
    built = capabilities.build(
        repositories={"app": Path("/srv/app")},
        documents=Path("/srv/documents"),
        plugins={wanted: {"ref": "a.md"}},
        installed=[] if factory is None else [_Here(factory)],
    )
    return dict(built)


class _Here(EntryPoint):
    """An entry point to a function of this module, which pytest does not put on the import path."""

    def __init__(self, factory: Callable[..., object]) -> None:
        super().__init__("acme", f"tests:{factory.__name__}", "group")
        vars(self)["factory"] = factory

    def load(self) -> object:
        return vars(self)["factory"]


def test_only_what_is_configured_is_there() -> None:
    """No repositories, no code host; no directory, no documents and nothing to place into."""
    assert capabilities.build(repositories={}, documents=None) == {}
    assert publishers.build(documents=None) == {}
    assert set(capabilities.build(repositories={"a": Path("a")}, documents=Path("d"))) == {"code-host", "documents"}
    assert set(publishers.build(documents=Path("d"))) == {"documents.replace-section"}


def test_a_plugin_is_built_from_its_own_settings() -> None:
    """A named plugin joins what the product brings; an installed one that is not named is never imported."""
    assert isinstance(capabilities_with(make_tracker)["tracker"], Tracker)
    built = publishers.build(documents=None, plugins={"acme": {}}, installed=[_Here(make_pages)])
    assert set(built) == {"wiki.replace-page"}
    assert publishers.build(documents=None, plugins={}, installed=[_Here(fail)]) == {}


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (None, r"no installed package brings 'acme' \(installed: none\)"),
        (make_second_documents, r"'acme' offers 'documents', which is there already"),
        (make_nonsense, r"is no capability: it needs name"),
        (fail, r"could not be built: KeyError: 'token'"),
        (refuse, r"^tracker: token is missing: set it$"),
    ],
)
def test_a_plugin_that_does_not_fit_stops_the_start(factory: Callable[..., object] | None, words: str) -> None:
    """Each refusal is a configuration error that names the plugin and the reason."""
    with pytest.raises(ConfigurationError, match=words):
        capabilities_with(factory)


@pytest.mark.parametrize(
    ("factory", "words"),
    [(make_second_sections, "which is there already"), (make_nonsense, "is no publisher: it needs action")],
)
def test_a_publisher_that_does_not_fit_stops_the_start(factory: Callable[..., object], words: str) -> None:
    """The same for publishers."""
    with pytest.raises(ConfigurationError, match=words):
        publishers.build(documents=Path("d"), plugins={"acme": {}}, installed=[_Here(factory)])


def test_an_entry_point_that_cannot_be_imported_says_which() -> None:
    """A package whose module is gone is named with its entry point."""
    broken = EntryPoint("acme", "no_such_module_anywhere:make", capabilities.GROUP)
    with pytest.raises(ConfigurationError, match=r"no_such_module_anywhere:make\).*ModuleNotFoundError"):
        plugin.load(capabilities.GROUP, {"acme": {}}, installed=[broken])


ENTRY: dict[str, JsonValue] = {"title": "A", "url": "https://a.example/1", "state": "open", "updated_at": "1"}


@pytest.mark.parametrize(
    ("method", "field", "counts"),
    [
        ("tracker.issues_updated", "title", True),
        ("tracker.issues_updated", "state", True),
        ("tracker.issues_updated", "url", False),
        ("tracker.issues_updated", "updated_at", False),
        ("code-host.merged_pull_requests", "url", False),
        ("code-host.merged_pull_requests", "updated_at", True),
        ("acme.things", "url", True),
    ],
)
def test_a_fingerprint_leaves_volatile_fields_out(method: str, field: str, counts: bool) -> None:
    """A field that the table lists for the method's shape changes nothing; every other field does."""
    changed: JsonValue = [{**ENTRY, field: "other"}]
    assert (capabilities.fingerprint(method, [ENTRY]) != capabilities.fingerprint(method, changed)) is counts


def test_a_fingerprint_is_of_structure() -> None:
    """The order of keys does not count; the order and number of entries and the kind of a value do."""

    def made(data: JsonValue) -> str:
        return capabilities.fingerprint("tracker.issues_updated", data)

    assert made([{"a": 1, "b": 2}]) == made([{"b": 2, "a": 1}])
    different: list[JsonValue] = [[], [ENTRY], [ENTRY, ENTRY], ENTRY, None, [None], "text", [1], ["1"]]
    assert len({made(data) for data in different}) == len(different)


def test_every_listed_shape_is_one_that_a_method_returns() -> None:
    """The table names no shape that does not exist, so that a misspelt one cannot stay unnoticed."""
    assert set(VOLATILE) <= {method.returns.removesuffix("[]") for method in METHODS.values()}
