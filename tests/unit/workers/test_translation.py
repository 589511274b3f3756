"""From settings to the core's values: nothing is lost on the way."""

import sys
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from config.settings import Settings
from heinzelwerk.errors import ConfigurationError
from heinzelwerk.handoff import Usage
from heinzelwerk.ids import SessionId
from workers import archive, engine, profiles, root, translation

SETTINGS = Settings.model_validate(
    {
        "heinzel": {"max_usd": 2, "session_day_usd": 10, "prices": {"openai:m": {"input": 1, "output": 4}}},
        "store": {"url": "redis://:pass-word@127.0.0.1:1/0", "lease": "3s", "prefix": "t:"},
        "teams": {
            "rich": {"turn_usd": 5, "day_usd": 100, "timezone": "Europe/Berlin", "slots": 3},
            "poor": {"turn_usd": "0.5", "session_day_usd": 1, "day_usd": 3},
        },
        "effects": {"unattended": [{"action": "documents.replace-section", "target": "a.md"}]},
        "handoff": {
            "runners": {
                "claude": {"agent": "claude-code"},
                "own": {"agent": "command", "command": ["x", "{prompt_file}"], "trust_command": True},
            }
        },
        "keys": {"ANTHROPIC_API_KEY": "sk-secret-a", "CO_API_KEY": "sk-secret-c"},
    }
)


def test_a_teams_caps_only_tighten():
    """The deployment's cap holds for every team; without a table of its own a team's day is capped all the same."""
    rich, poor, other = (translation.caps(SETTINGS, team) for team in ("rich", "poor", "other"))
    assert (rich.turn, rich.session_day, rich.team_day) == (2_000_000, 10_000_000, 100_000_000)
    assert (poor.turn, poor.session_day, poor.team_day) == (500_000, 1_000_000, 3_000_000)
    assert (other.turn, other.session_day, other.team_day) == (2_000_000, 10_000_000, 50_000_000)


def test_policy_and_store_say_what_the_settings_say():
    """Times become milliseconds, targets pairs, secrets are known to whoever redacts."""
    policy, options = translation.policy(SETTINGS, "rich"), translation.store_options(SETTINGS)
    assert policy.unattended == {("documents.replace-section", "a.md")}
    assert set(policy.secrets) == {"sk-secret-a", "sk-secret-c", "pass-word"}
    assert (options.lease_ms, options.prefix, options.slots_of("rich"), options.slots_of("x")) == (3000, "t:", 3, 50)
    assert str(translation.zone(SETTINGS, "rich")) == "Europe/Berlin"


def test_models_get_keys_by_prefix_and_prices():
    """A vendor's variable is found by the prefix of its model strings."""
    settings = engine.model_settings(SETTINGS)
    assert settings.keys == {"anthropic": "sk-secret-a", "cohere": "sk-secret-c"}
    assert settings.prices["openai:m"].output == Decimal(4)
    assert settings.prices["offline"].input == 0 if "offline" in settings.prices else True


def test_a_runner_gets_its_key_or_says_which_is_missing():
    """The key that fits the agent's protocol; a command needs none."""
    claude = translation.runner_settings("claude", SETTINGS)
    assert claude.access.base_url == "https://api.anthropic.com"
    assert claude.access.key == "sk-secret-a"
    assert translation.runner_settings("own", SETTINGS).access is None
    codex = SETTINGS.model_copy(
        update={"handoff": SETTINGS.handoff.model_validate({"runners": {"codex": {"agent": "codex"}}})}
    )
    with pytest.raises(ConfigurationError, match=r"\[handoff\.runners\.codex\]: OPENAI_API_KEY is not set"):
        translation.runner_settings("codex", codex)


def test_a_runners_price_is_the_operators_else_the_gateways():
    """Dollars per million tokens; cached tokens without a price count as input; unknown stays unknown."""
    price = translation._priced(SETTINGS)
    assert price("m", Usage(input=1_000_000, output=500_000, cache_read=100_000), None) == Decimal("3.1")
    assert price("other", Usage(input=1), Decimal("0.2")) == Decimal("0.2")
    assert price("other", Usage(input=1), None) is None


def test_every_queue_is_read_by_a_process_of_up(tmp_path):
    """`up` starts turn workers, solo, upkeep, handoffs where a runner is set up, and beat, by our own command line."""
    fleet = profiles.fleet(SETTINGS, config=tmp_path / "h.toml", environment={}, logs=tmp_path)
    names = [program.name for program in fleet]
    assert names == ["turns-1", "turns-2", "upkeep", "solo", "handoffs", "beat"]
    known = profiles.profiles(SETTINGS)
    read = {queue for name in ("turns", "upkeep", "solo", "handoffs") for queue in known[name].queues}
    assert read == set(known["all"].queues) == {"turns", "chat", "effects", "upkeep", "solo", "handoffs"}
    assert fleet[0].command == (
        sys.executable, "-P", "-m", "workers", "--config", str(tmp_path / "h.toml"), "worker", "turns",
    )  # fmt: skip
    assert fleet[0].grace_s > SETTINGS.workers.grace


def test_only_handoff_workers_need_the_agents_keys():
    """A turn worker offers a handoff without being able to start one; no connection is opened by building."""
    runtime = root.build(SETTINGS, profile="turns")
    assert runtime.works.runners == {}
    assert engine.offered(SETTINGS) == ("claude", "own")
    assert set(root.build(SETTINGS, profile="handoffs").works.runners) == {"claude", "own"}


def test_each_team_has_its_own_caps_over_the_same_store():
    """One store, bell and keeper for all; what differs is policy and time zone, and a wrapper sees each bundle."""
    seen = []
    runtime = root.build(SETTINGS, profile="client", wrap=lambda works: seen.append(works) or works)
    rich, poor = runtime.works_of("rich"), runtime.works_of("poor")
    assert rich.store is poor.store
    assert rich.policy.caps != poor.policy.caps
    assert runtime.works_of("rich") is rich
    assert seen == [rich, poor]


def test_no_server_is_said_with_its_fix():
    """Without an address nothing is built."""
    with pytest.raises(ConfigurationError, match="no server: set REDIS_URL"):
        root.build(Settings(), profile="turns")


def test_an_archive_keeps_whole_lines(tmp_path):
    """Sealed lines are appended, one a line."""
    session = SessionId("crew", "page")
    archive.append(tmp_path, session, [b'{"a":1}', b'{"a":2}\n'])
    archive.append(tmp_path, session, [b'{"a":3}'])
    assert (tmp_path / "crew" / "page.jsonl").read_bytes() == b'{"a":1}\n{"a":2}\n{"a":3}\n'


async def test_pruning_counts_from_the_servers_clock(tmp_path):
    """What ended before the retention goes, seen from the store's own time."""

    class Store:
        async def now_ms(self):
            return int(datetime(2026, 1, 31, tzinfo=UTC).timestamp() * 1000)

        async def prune(self, team, *, before_ms, archive):
            self.before = datetime.fromtimestamp(before_ms / 1000, UTC)
            await archive(SessionId(team, "page"), [b"{}"])
            return 1

    store = Store()
    assert await archive.prune("crew", archive.Retention(30 * 86400.0, tmp_path), store) == 1
    assert store.before == datetime(2026, 1, 1, tzinfo=UTC)
    assert (tmp_path / "crew" / "page.jsonl").exists()
