"""What people may rely on: the names, places and codes of README's table that need no deployment that runs."""

import io
import re
from pathlib import Path

import pytest

from tests.acceptance import shell
from tests.acceptance.shell import CHECKOUT, Person
from workers.cli import entry
from workers.cli.entry import COMMANDS
from workers.cli.shell import Shell
from workers.show.screen import Screen


def test_every_command_explains_itself(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` of every command ends with 0 and says what it does; a mistyped command ends with 2 and the nearest name."""
    assert "Usage: heinzelwerk" in person.succeeds("--help").out
    for command in COMMANDS:
        err = io.StringIO()
        assert entry.run([command, "--help"], Shell(Screen(io.StringIO(), err))) == 0
        help_text = capsys.readouterr().out
        assert help_text.startswith(f"Usage: heinzelwerk {command} ")
        assert len(help_text.splitlines()[2].strip()) > 10
        assert entry.run([f"{command}x"], Shell(Screen(io.StringIO(), err))) == 2
        assert "Did you mean" in err.getvalue()


def test_a_shell_completes_commands_and_options(person: Person) -> None:
    """README's line prints a completion script for bash, zsh and fish; asked as a shell asks, it names what begins so."""
    for kind in ("bash", "zsh", "fish"):
        assert "_HEINZELWERK_COMPLETE" in person.succeeds(_HEINZELWERK_COMPLETE=f"{kind}_source").out
    asked = {"_HEINZELWERK_COMPLETE": "bash_complete"}
    assert person.succeeds(**asked, COMP_WORDS="heinzelwerk ap", COMP_CWORD="1").out.split() == ["plain,approve"]
    options = person.succeeds(**asked, COMP_WORDS="heinzelwerk approve --e", COMP_CWORD="2").out
    assert options.split() == ["plain,--edit"]


def test_the_result_alone_is_on_stdout(tmp_path: Path) -> None:
    """What was asked for is on stdout; what is only said beside it is on stderr."""
    person = shell.settle(tmp_path / "team")
    done = person.succeeds("try", "workflows/changelog.prose.md")
    assert "Add a door" in done.out
    assert "Nothing was placed" in done.err
    assert "Nothing was placed" not in done.out


def test_exit_codes_mean_what_the_table_says(person: Person) -> None:
    """0 done, 1 refused or no server, 2 usage, 78 configuration."""
    codes = [
        person.types("check").code,
        person.types("list").code,
        person.types("list", "--nonsense").code,
        person.types("list", HEINZELWERK_STORE__LEASE="soon").code,
    ]
    assert codes == [0, 1, 2, 78]


def test_the_settings_file_is_found_in_this_order(person: Person) -> None:
    """--config before HEINZELWERK_CONFIG before ./heinzelwerk.toml: each file here has a fault that names it."""
    for name in ("given", "variable", "heinzelwerk"):
        (person.directory / f"{name}.toml").write_text(f"[{name}-table]\nx = 1\n")
    assert "heinzelwerk-table" in person.types("list").err
    assert "variable-table" in person.types("list", HEINZELWERK_CONFIG="variable.toml").err
    assert "given-table" in person.types("--config", "given.toml", "list", HEINZELWERK_CONFIG="variable.toml").err
    assert "given-table" in person.types("list", "--config", "given.toml").err


def test_the_environment_wins_over_the_file(person: Person) -> None:
    """REDIS_URL and HEINZELWERK_<SECTION>__<KEY> are used instead of what the file says."""
    (person.directory / "heinzelwerk.toml").write_text('[store]\nurl = "redis://127.0.0.1:2/0"\n')
    assert "127.0.0.1:2" in person.types("list").err
    assert "127.0.0.1:1" in person.types("list", REDIS_URL="redis://127.0.0.1:1/0").err
    assert "127.0.0.1:3" in person.types("list", HEINZELWERK_STORE__URL="redis://127.0.0.1:3/0").err


def test_a_key_comes_from_environment_or_secret_file(tmp_path: Path) -> None:
    """A vendor's variable or a secret file of that name is the key; in the settings file it is refused, and never shown."""
    person = shell.settle(tmp_path / "team")
    settings = person.directory / "heinzelwerk.toml"
    settings.write_text(settings.read_text().replace('"offline"', '"anthropic:claude-sonnet-4-5"'))
    assert "down models" not in person.types("doctor", ANTHROPIC_API_KEY="sk-test-1234567890").out
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "anthropic_api_key").write_text("sk-test-1234567890\n")
    assert "down models" not in person.types("doctor", HEINZELWERK_SECRETS=str(secrets)).out
    settings.write_text(settings.read_text() + '\n[keys]\nANTHROPIC_API_KEY = "sk-in-the-file-1234"\n')
    refused = person.types("doctor")
    assert refused.code == 78
    assert "sk-in-the-file-1234" not in refused.err + refused.out


def test_the_example_settings_load(person: Person) -> None:
    """The commented starter file is valid as it is, with every table named as in the documentation."""
    example = (CHECKOUT / "config" / "heinzelwerk.example.toml").read_text()
    (person.directory / "heinzelwerk.toml").write_text(example)
    assert person.types("doctor").code != 78
    for table in (
        "[heinzel]",
        "[store]",
        "[teams.",
        "[code-host.repositories]",
        "[documents]",
        "[effects]",
        "[workers]",
    ):
        assert table in example


def test_new_writes_a_contract_that_passes_its_check(person: Person) -> None:
    """The starter is valid as it is, stands where `check` looks, and an existing file is never overwritten."""
    person.succeeds("new", "weekly-report")
    path = person.directory / "workflows" / "weekly-report.prose.md"
    checked = person.succeeds("check", "--json").data
    assert ([Path(file).name for file in checked["files"]], checked["diagnostics"]) == ([path.name], [])
    path.write_text("mine")
    again = person.types("new", "weekly-report")
    assert again.code == 1
    assert path.read_text() == "mine"
    assert person.types("new", "No Name").code == 1


def test_new_stays_where_contracts_are_kept(person: Person) -> None:
    """Somebody who stands in workflows/, or among contracts elsewhere, gets the next one beside them, and `check` finds it."""
    inside = Person(person.directory / "workflows")
    inside.directory.mkdir()
    assert inside.succeeds("new", "one", "--json").data["path"] == "one.prose.md"
    elsewhere = Person(person.directory / "flat")
    elsewhere.directory.mkdir()
    elsewhere.succeeds("new", "one", "--directory", ".")
    assert elsewhere.succeeds("new", "two", "--json").data["path"] == "two.prose.md"
    assert "1 contract checked" in inside.succeeds("check").out
    assert "2 contracts checked" in elsewhere.succeeds("check").out


def test_every_row_of_the_table_names_a_real_test() -> None:
    """README promises nothing that no test holds."""
    rows = re.findall(r"^\| .* \| .* \| `(test_\w+)` \|$", (CHECKOUT / "README.md").read_text(), re.MULTILINE)
    known = "".join(
        path.read_text()
        for folder in ("tests/acceptance", "tests/unit/show")
        for path in (CHECKOUT / folder).glob("test_*.py")
    )
    assert len(rows) >= 15
    assert [row for row in rows if f"def {row}(" not in known] == []
