"""From settings to the values of the core: pure, one function per value, so that below the root nothing knows settings."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

from config.settings import RunnerSettings as RunnerTable
from config.settings import Settings, Team
from heinzelwerk import budget
from heinzelwerk.budget import Caps
from heinzelwerk.errors import ConfigurationError
from heinzelwerk.handoff import Usage
from heinzelwerk.ports import Policy
from heinzelwerk.runner.adapter import Login, RunnerSettings
from heinzelwerk.runner.metering import ModelAccess
from heinzelwerk.store.options import StoreOptions

_MILLION = Decimal(1_000_000)
_VENDOR_URLS = {"ANTHROPIC_API_KEY": "https://api.anthropic.com", "OPENAI_API_KEY": "https://api.openai.com"}


def caps(settings: Settings, team: str | None) -> Caps:
    """What a team may spend; the deployment's caps hold for each, a team's own only tighten them."""
    deployment, own = settings.heinzel, settings.teams.get(team or "", Team())
    return Caps(
        turn=_least(deployment.max_usd, own.turn_usd),
        session_day=_least(deployment.session_day_usd, own.session_day_usd),
        team_day=_least(own.day_usd),
    )


def _least(*amounts: Decimal | None) -> int | None:
    return min((budget.micros(amount) for amount in amounts if amount is not None), default=None)


def zone(settings: Settings, team: str | None) -> ZoneInfo:
    """The time zone of a team's schedules; UTC for a team without a table."""
    return ZoneInfo(settings.teams.get(team or "", Team()).timezone)


def directories(settings: Settings) -> dict[str, Path]:
    """The teams whose repository is a directory of the operator's: there an approved amendment is written."""
    tables = settings.teams.items()
    return {name: Path(table.source) for name, table in tables if table.source and not table.source_is_remote}


def policy(settings: Settings, team: str | None) -> Policy:
    """What the operator allows a team."""
    heinzel, effects = settings.heinzel, settings.effects
    table = settings.teams.get(team or "", Team())
    return Policy(
        caps=caps(settings, team),
        unattended=frozenset((one.action, one.target) for one in effects.unattended),
        effect_timeout_s=effects.timeout,
        effect_margin_s=effects.margin,
        approval_ttl_s=effects.approval,
        question_ttl_s=effects.question,
        budget_ttl_s=effects.budget,
        turns_an_hour=heinzel.turns_an_hour,
        history_tokens=heinzel.history_tokens,
        tool_timeout_s=heinzel.tool_timeout,
        max_requests=heinzel.max_requests,
        max_tool_calls=heinzel.max_tool_calls,
        request_timeout_s=heinzel.request_timeout,
        in_flight=heinzel.in_flight,
        roles=table.roles,
        asset_types=table.asset_types,
        secrets=settings.secrets(),
    )


def store_options(settings: Settings) -> StoreOptions:
    """The store's times and caps."""
    store = settings.store
    return StoreOptions(
        lease_ms=_ms(store.lease),
        slots={name: team.slots for name, team in settings.teams.items()},
        inbox_cap=store.inbox,
        body_ttl_ms=_ms(settings.retention.bodies),
        approval_ttl_ms=_ms(settings.effects.approval),
        ring_first_ms=_ms(store.ring_first),
        ring_most_ms=_ms(store.ring_longest),
        prefix=store.prefix,
    )


def runner_settings(name: str, settings: Settings) -> RunnerSettings:
    """One coding agent as the runner adapters take it. ConfigurationError where its key is not set."""
    table = settings.handoff.runners[name]
    return RunnerSettings(
        runner=table.agent,
        executable=table.executable,
        node=table.node,
        search_path=table.search_path,
        read_only=table.read_only,
        model=table.model,
        access=None
        if table.auth == "login" or (table.agent == "command" and not table.key)
        else _access(name, table, settings),
        login=Login(credentials=table.login, hosts=frozenset(table.login_hosts)) if table.login else None,
        price=_priced(settings),
        tools=table.tools,
        wire=table.wire,
        command=table.command,
        trust_command=table.trust_command,
    )


def _access(name: str, table: RunnerTable, settings: Settings) -> ModelAccess:
    speaks_anthropic = table.wire == "anthropic-messages" or (table.wire is None and table.agent == "claude-code")
    variable = table.key or ("ANTHROPIC_API_KEY" if speaks_anthropic else "OPENAI_API_KEY")
    base_url = table.base_url or settings.heinzel.base_url or _VENDOR_URLS.get(variable)
    key = settings.keys.get(variable)
    if key is None or base_url is None:
        missing = f"{variable} is not set" if key is None else "base_url is not set"
        raise ConfigurationError(
            f"[handoff.runners.{name}]: {missing}", fix=f"set {variable if key is None else 'base_url'}"
        )
    return ModelAccess(base_url=base_url, key=key.get_secret_value())


def _priced(settings: Settings) -> Callable[[str, Usage, Decimal | None], Decimal | None]:
    """The operator's price of a model where there is one, else what the gateway reports; None: unknown."""
    table = {name.rpartition(":")[2]: price for name, price in settings.heinzel.prices.items()}

    def price(model: str, usage: Usage, reported: Decimal | None) -> Decimal | None:
        known = table.get(model)
        if known is None:
            return reported
        read = known.input if known.cache_read is None else known.cache_read
        write = known.input if known.cache_write is None else known.cache_write
        return (
            known.input * usage.input
            + known.output * usage.output
            + read * usage.cache_read
            + write * usage.cache_write
        ) / _MILLION

    return price


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
