"""Which runners there are, and how an agent is found on a machine."""

from importlib import metadata
from pathlib import Path

import pytest

from heinzelwerk.errors import ConfigurationError
from heinzelwerk.handoff import Refusal
from heinzelwerk.runner import install, registry
from heinzelwerk.runner.adapter import Find, RunnerSettings
from heinzelwerk.runner.codex import Codex
from heinzelwerk.runner.pi import Pi


class ThirdParty(Pi):
    """What another package might bring."""

    name = "third"


def entry(name: str, value: str) -> metadata.EntryPoint:
    return metadata.EntryPoint(name=name, value=value, group=registry.GROUP)


@pytest.fixture
def bring(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    def entries(*found: metadata.EntryPoint) -> None:
        monkeypatch.setattr(registry.metadata, "entry_points", lambda group: found if group == registry.GROUP else ())

    return entries


def test_the_house_has_four() -> None:
    """Their names are those of the settings."""
    assert registry.names()[:4] == ("claude-code", "codex", "pi", "command")
    assert [registry.adapter_for(name).name for name in registry.BUILT_IN] == list(registry.BUILT_IN)


def test_a_third_party_adds_one_by_an_entry_point(bring) -> None:  # type: ignore[no-untyped-def]
    """It is listed and made like the built-in ones; a built-in name cannot be taken over."""
    bring(entry("third", f"{__name__}:ThirdParty"), entry("pi", "somewhere.else:Evil"))
    assert registry.names() == ("claude-code", "codex", "pi", "command", "third")
    assert registry.adapter_for("pi").name == "pi"


def test_a_runner_that_does_not_load_is_said(bring) -> None:  # type: ignore[no-untyped-def]
    """A broken package is named, with what Python said."""
    bring(entry("broken", "no.such.module:Adapter"))
    with pytest.raises(ConfigurationError, match=r"broken.*no\.such\.module"):
        registry.adapter_for("broken")


def test_an_unknown_runner_is_said_with_the_known_ones() -> None:
    """A misspelt name finds the right one in the message."""
    with pytest.raises(ConfigurationError, match="claude-code"):
        registry.adapter_for("claude")


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def settings(directory: Path, **more: object) -> RunnerSettings:
    return RunnerSettings(runner="x", search_path=str(directory / "bin"), **more)  # type: ignore[arg-type]


def found(what: install.Installation | Refusal) -> install.Installation:
    assert isinstance(what, install.Installation)
    return what


def test_an_executable_brings_its_directory(tmp_path: Path) -> None:
    """A program outside /usr is bound with the directory that it is in."""
    program = put(tmp_path / "bin" / "tool")
    one = found(install.locate(Find(name="tool"), settings(tmp_path)))
    assert one.argv == (str(program),)
    assert one.read_only == (program.parent,)


def test_an_npm_installation_is_bound_whole_and_its_native_binary_preferred(tmp_path: Path) -> None:
    """Behind npm's start script the real binary is found; it needs no Node."""
    modules = tmp_path / "lib" / "node_modules"
    script = put(modules / "@openai" / "codex" / "bin" / "codex.js")
    native = put(modules / "@openai" / "codex-linux-x64" / "vendor" / "x86_64-unknown-linux-musl" / "bin" / "codex")
    link = tmp_path / "bin" / "codex"
    link.parent.mkdir()
    link.symlink_to(script)
    one = found(install.locate(Codex.find, settings(tmp_path)))
    assert one.argv == (str(native),)
    assert one.read_only == (modules,)


def test_a_script_runs_on_a_node(tmp_path: Path) -> None:
    """pi is a script: the Node of the settings or of the search path starts it, and both are bound."""
    script = put(tmp_path / "lib" / "node_modules" / "pi" / "cli.js")
    node = put(tmp_path / "node" / "bin" / "node")
    one = found(install.locate(Pi.find, settings(tmp_path, executable=script, node=node)))
    assert one.argv == (str(node), str(script))
    assert set(one.read_only) == {tmp_path / "lib" / "node_modules", node.parent}
    without = install.locate(Pi.find, settings(tmp_path, executable=script))
    assert isinstance(without, Refusal)
    assert "Node" in without.fix


def test_a_system_program_needs_nothing_more() -> None:
    """What lies below /usr is in every sandbox."""
    one = found(install.locate(Find(name="sh"), RunnerSettings(runner="x", executable=Path("/usr/bin/env"))))
    assert one.read_only == ()
