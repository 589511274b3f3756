"""Settings: read once, from three places, with every fault named at its place."""

import re
import tomllib
from decimal import Decimal

import pytest

from config import settings as settings_module
from config import sources
from config.settings import Settings
from config.sources import BadSettings


def load(directory, toml="", /, overrides=None, **environment):
    if toml:
        (directory / "heinzelwerk.toml").write_text(toml)
    environment.setdefault("HEINZELWERK_SECRETS", str(directory / "secrets"))
    return sources.load(environment=environment, directory=directory, overrides=overrides)


def faults(directory, toml="", /, **environment):
    with pytest.raises(BadSettings) as caught:
        load(directory, toml, **environment)
    return caught.value.faults


def test_without_anything_the_defaults_hold(tmp_path):
    """An empty machine gets the offline model, durable writes, a lease of fifteen seconds, and no server."""
    settings = load(tmp_path).settings
    assert settings.heinzel.model == "offline"
    assert settings.heinzel.prices["offline"].input == 0
    assert (settings.store.url, settings.store.appendfsync, settings.store.lease) == (None, "always", 15.0)


def test_the_environment_wins_over_secret_files_over_the_file(tmp_path):
    """Each place is read; the later one wins key by key, not table by table."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "heinzelwerk_store__lease").write_text("30s\n")
    (tmp_path / "secrets" / "heinzelwerk_store__inbox").write_text("7\n")
    (tmp_path / "secrets" / "anthropic_api_key").write_text("sk-from-a-file\n")
    (tmp_path / "secrets" / "unrelated").write_text("x")
    settings = load(
        tmp_path,
        '[store]\nlease = "10s"\nprefix = "a:"\ninbox = 3\n[heinzel.classes]\nfast = "offline"\n',
        HEINZELWERK_STORE__LEASE="40s",
        HEINZELWERK_HEINZEL__MAX_USD="0.5",
        REDIS_URL="redis://:pass-word@host:1/0",
    ).settings
    assert (settings.store.lease, settings.store.prefix, settings.store.inbox) == (40.0, "a:", 7)
    assert settings.heinzel.max_usd == Decimal("0.5")
    assert settings.heinzel.classes == {"fast": "offline"}
    assert settings.store.url == "redis://:pass-word@host:1/0"
    assert settings.keys["ANTHROPIC_API_KEY"].get_secret_value() == "sk-from-a-file"
    assert settings.secrets() == ("sk-from-a-file", "pass-word")
    assert "sk-from-a-file" not in repr(settings)
    assert "pass-word" not in repr(settings)


def test_the_named_url_wins_over_redis_url_and_overrides_over_all(tmp_path):
    """REDIS_URL is the general wish, HEINZELWERK_STORE__URL the particular one, an override the program's own."""
    both = {"REDIS_URL": "redis://a:1", "HEINZELWERK_STORE__URL": "redis://b:1"}
    assert load(tmp_path, **both).settings.store.url == "redis://b:1"
    assert load(tmp_path, overrides={"store": {"url": "redis://c:1"}}, **both).settings.store.url == "redis://c:1"


def test_lists_and_tables_come_from_the_environment_as_json(tmp_path):
    """What is no single value is JSON there; deeper keys may be named one by one."""
    settings = load(
        tmp_path,
        HEINZELWERK_EFFECTS__UNATTENDED='[{"action": "documents.replace-section", "target": "a.md"}]',
        HEINZELWERK_TEAMS__DOCS__SLOTS="3",
        HEINZELWERK_CODE_HOST__REPOSITORIES__PRODUCT="repo",
    ).settings
    assert settings.effects.unattended[0].target == "a.md"
    assert settings.teams["docs"].slots == 3
    assert settings.code_host.repositories["product"] == tmp_path / "repo"


def test_paths_are_relative_to_the_file(tmp_path):
    """The same file means the same from wherever the command is started; URLs stay as they are."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "h.toml").write_text(
        '[documents]\ndirectory = "docs"\n[teams.a]\nsource = "../team"\n[teams.b]\nsource = "git@host:team.git"\n'
        '[code-host.repositories]\nproduct = "/srv/product"\n'
    )
    loaded = sources.load("etc/h.toml", environment={}, directory=tmp_path)
    assert loaded.settings.documents.directory == tmp_path / "etc" / "docs"
    assert loaded.settings.teams["a"].source == str(tmp_path / "team")
    assert loaded.settings.teams["b"].source == "git@host:team.git"
    assert loaded.settings.teams["b"].source_is_remote
    assert str(loaded.settings.code_host.repositories["product"]) == "/srv/product"
    named = sources.load(environment={"HEINZELWERK_CONFIG": "etc/h.toml"}, directory=tmp_path)
    assert named == loaded


def test_all_faults_are_named_at_once_with_file_key_and_reason(tmp_path):
    """A person corrects everything in one go; the message says which file or variable to edit."""
    found = [
        str(fault)
        for fault in faults(
            tmp_path,
            '[store]\nleese = 3\nlease = "soon"\n[heinzel]\nmax_usd = -1\n[worker]\nturns = 2\n[teams.Docs]\nslots = 0\n',
            HEINZELWERK_STORE__INBOX="many",
            HEINZELWERK_STOR__LEASE="1s",
            HEINZELWERK_EFFECTS__UNATTENDED="not json",
        )
    ]
    file = re.escape(str(tmp_path / "heinzelwerk.toml"))
    wanted = [
        rf"{file}: \[store\] leese: is not a setting; did you mean 'lease'\?",
        rf'{file}: \[store\] lease: not a duration: write seconds, .* such as "15s"',
        rf"{file}: \[heinzel\] max_usd: input should be greater than or equal to 0",
        rf"{file}: \[worker\]: is not a setting; did you mean 'workers'\?",
        rf"{file}: \[teams\] Docs: string should match pattern .*",
        rf"{file}: \[teams\] Docs.slots: input should be greater than or equal to 1",
        r"environment: HEINZELWERK_STORE__INBOX: input should be a valid integer.*",
        r"environment: HEINZELWERK_STOR__LEASE: names no setting",
        r"environment: HEINZELWERK_EFFECTS__UNATTENDED: is not valid JSON.*",
    ]
    for pattern in wanted:
        assert [line for line in found if re.fullmatch(pattern, line)], f"no fault like {pattern} in {found}"
    assert len(found) == len(wanted)


@pytest.mark.parametrize(
    ("toml", "reason"),
    [
        ("[store\n", "cannot be read as TOML: Expected ']' at the end of a table declaration"),
        ('[keys]\nANTHROPIC_API_KEY = "x"\n', "keys do not belong into this file"),
        ('[store]\nurl = "localhost"\n', "not the address of a server"),
        ('[teams.a]\ntimezone = "Mars/Base"\n', "'Mars/Base' is no time zone"),
        ('[handoff]\nrunner = "pi"\n', "is not one of [handoff.runners.*]"),
        ('[retention]\nbodies = "10d"\n', "bodies must be longer than [effects] approval"),
        ("[teams.a]\nslot = 1\n", "did you mean 'slots'?"),
        ("store = 3\n", "input should be a valid dictionary"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, toml, reason):
    """One fault, with its reason, whatever its kind."""
    (fault,) = faults(tmp_path, toml)
    assert reason in str(fault)
    assert str(tmp_path / "heinzelwerk.toml") in str(fault)


def test_a_named_file_that_is_missing_is_a_fault(tmp_path):
    """A typo in --config does not silently run on defaults."""
    with pytest.raises(BadSettings, match=r"--config: nowhere\.toml is not a file"):
        sources.load("nowhere.toml", environment={}, directory=tmp_path)
    with pytest.raises(BadSettings, match=r"HEINZELWERK_CONFIG: nowhere\.toml is not a file"):
        sources.load(environment={"HEINZELWERK_CONFIG": "nowhere.toml"}, directory=tmp_path)


def test_a_value_never_stands_in_a_fault(tmp_path):
    """A mistyped secret does not land in a log."""
    (fault,) = faults(tmp_path, HEINZELWERK_STORE__URL="canary-secret@host")
    assert "canary" not in str(fault)


def test_the_starter_file_loads_and_shows_the_defaults(tmp_path):
    """What a newcomer copies is right, and each commented key exists."""
    text = sources.EXAMPLE.read_text()
    settings = load(tmp_path, text).settings
    defaults = Settings(heinzel=settings.heinzel, teams=settings.teams, workers=settings.workers)
    assert settings.effects == defaults.effects
    assert settings.retention == defaults.retention
    uncommented = re.sub(r"^# (?=[a-z_]+ = |\[)", "", text, flags=re.MULTILINE)
    tomllib.loads(uncommented)
    assert load(tmp_path, uncommented).settings.handoff.runners["claude"].agent == "claude-code"


def test_every_setting_is_described():
    """docs/operations.md has a row for each key, under its table's heading, and none for one that does not exist."""
    text = (sources.EXAMPLE.parents[1] / "docs" / "operations.md").read_text()
    described = {
        heading: set(re.findall(r"^\| `([a-z_]+)` \|", part, re.MULTILINE))
        for heading, part in re.findall(r"\*\*`\[([^`]+)\]`\*\*\n(.*?)(?=\n\*\*`|\Z)", text, re.DOTALL)
    }
    tables = {
        "heinzel": settings_module.Heinzel,
        "heinzel.prices.<model>": settings_module.Price,
        "store": settings_module.Store,
        "teams.<name>": settings_module.Team,
        "skills": settings_module.Skills,
        "code-host": settings_module.CodeHost,
        "documents": settings_module.Documents,
        "adapters": settings_module.Adapters,
        "effects": settings_module.Effects,
        "effects.unattended[]": settings_module.Unattended,
        "console": settings_module.Console,
        "console.people.<name>": settings_module.ConsolePerson,
        "metrics": settings_module.Metrics,
        "events": settings_module.Events,
        "events.sources.<name>": settings_module.EventSource,
        "handoff": settings_module.Handoff,
        "handoff.runners.<name>": settings_module.RunnerSettings,
        "notices": settings_module.Notices,
        "workers": settings_module.Workers,
        "retention": settings_module.Retention,
    }
    assert described == {heading: set(table.model_fields) for heading, table in tables.items()}
    assert {name.replace("_", "-") for name in Settings.model_fields} - {"keys"} == {
        name.split(".")[0] for name in tables
    }
