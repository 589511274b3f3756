"""Every setting once: its type, its default, and why. Where they are read from is in config/sources.py.

Durations are numbers of seconds or text such as "500ms", "15s", "10m", "2h", "30d". Money is US dollars. Relative paths
are relative to the settings file, without one to the working directory. All values are frozen.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    model_validator,
)

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NAME = r"^[a-z](?:-?[a-z0-9])*$"
_THIS_MACHINE = ("127.0.0.1", "::1", "localhost")
_SCRYPT = re.compile(r"scrypt:(?:16384|32768|65536|131072):8:[1-9]:[\w-]{20,88}:[\w-]{40,88}")
LONGEST_TURN_S = 2 * 3600.0
"""A contract's timeout is at most two hours; no segment lives longer than that and two minutes."""


def _seconds(given: Any) -> Any:
    if isinstance(given, str):
        found = _DURATION.fullmatch(given.strip())
        if found is None:
            raise ValueError('not a duration: write seconds, or a number with ms, s, m, h or d, such as "15s"')
        return float(found[1]) * _UNITS[found[2]]
    return given


def _anchored(path: Path, info: ValidationInfo) -> Path:
    base = (info.context or {}).get("base")
    return path if base is None else (Path(base) / path.expanduser()).resolve()


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise ValueError(f"{name!r} is no time zone: write one such as Europe/Berlin") from None
    return name


def _server_url(url: str) -> str:
    if urlsplit(url).scheme not in ("redis", "rediss", "redis+socket", "unix"):
        raise ValueError("not the address of a server: write redis://host:6379/0, or rediss:// for TLS")
    return url


def _origin(url: str) -> str:
    """`https://host[:port]` as browsers name an origin; plain http only on this machine."""
    parts = urlsplit(url.strip())
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.query or parts.path.strip("/"):
        raise ValueError("not the address of a site: write https://heinzelwerk.example.com, without a path")
    if parts.scheme == "http" and host not in _THIS_MACHINE:
        raise ValueError("passwords would travel in the clear: write https://..., and put a proxy with TLS in front")
    named = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{named}" + (f":{port}" if port not in (None, default) else "")


def _password_hash(secret: SecretStr) -> SecretStr:
    if _SCRYPT.fullmatch(secret.get_secret_value().strip()) is None:
        raise ValueError("not a password's hash: `heinzelwerk console --password` makes one")
    return SecretStr(secret.get_secret_value().strip())


Seconds = Annotated[float, BeforeValidator(_seconds)]
AnchoredPath = Annotated[Path, AfterValidator(_anchored)]
TimeZone = Annotated[str, AfterValidator(_zone)]
ServerUrl = Annotated[str, AfterValidator(_server_url)]
Origin = Annotated[str, AfterValidator(_origin)]
PasswordHash = Annotated[SecretStr, AfterValidator(_password_hash)]
Dollars = Annotated[Decimal, Field(ge=0, max_digits=12, decimal_places=6)]
Name = Annotated[str, Field(pattern=_NAME, max_length=64)]


class Section(BaseModel):
    """A table of settings: frozen; a key that does not exist is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Price(Section):
    """Dollars per million tokens of one model."""

    input: Decimal = Field(ge=0)
    output: Decimal = Field(ge=0)
    cache_read: Decimal | None = Field(default=None, ge=0)  # None: counted as input
    cache_write: Decimal | None = Field(default=None, ge=0)


class Heinzel(Section):
    """`[heinzel]`: which model runs a turn, and what a turn may cost at most."""

    model: str = "offline"  # needs no key, so that a first `up` works; any pydantic-ai model string otherwise
    model_fast: str | None = None  # summaries of long histories; None: the same as `model`
    base_url: str | None = None  # a gateway of your own
    api: Literal["openai", "anthropic"] | None = None  # the protocol it speaks; None: what `model` speaks
    fallback: str | None = None  # used when the provider of `model` stays down
    classes: dict[Literal["fast", "standard", "best"], str] = Field(default_factory=dict)
    prices: dict[str, Price] = Field(default_factory=dict)
    in_flight: dict[Name, Annotated[int, Field(ge=1)]] = Field(
        default_factory=dict
    )  # requests at once, by prefix of `model`
    max_usd: Dollars = Decimal(2)  # one turn; a contract may ask for less, never for more
    session_day_usd: Dollars | None = Decimal(10)  # one Heinzelmännchen in one UTC day
    max_tokens: int = Field(default=8192, ge=256)  # of one answer: what is reserved before each request
    max_requests: int = Field(default=40, ge=1)  # of one turn: a model that never ends is stopped
    max_tool_calls: int = Field(default=200, ge=1)
    history_tokens: int = Field(default=12_000, ge=500)  # earlier turns in the instructions
    request_timeout: Seconds = Field(default=120.0, gt=0)
    tool_timeout: Seconds = Field(default=60.0, gt=0)
    turns_an_hour: int = Field(default=60, ge=1)  # of one Heinzelmännchen: loops through the world end here


class Store(Section):
    """`[store]`: the server that holds the truth, and how long a lease lasts."""

    url: ServerUrl | None = Field(default=None, repr=False)  # also REDIS_URL
    broker_url: ServerUrl | None = Field(default=None, repr=False)  # Celery's; None: the same server, other prefix
    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9_.:-]*$")  # lets deployments share a server
    lease: Seconds = Field(default=15.0, ge=0.3)  # a dead worker's work starts elsewhere this much later
    appendfsync: Literal["always", "everysec"] = "always"  # free at load: writes are grouped; ADR in docs/adr
    ring_first: Seconds = Field(default=5.0, gt=0)  # a lost doorbell is rung again after this, then doubling
    ring_longest: Seconds = Field(default=300.0, gt=0)
    inbox: int = Field(default=1000, ge=1)  # wakes that may queue for one Heinzelmännchen


class Team(Section):
    """`[teams.<name>]`: where a team's contracts come from and how much it may run and spend."""

    source: str | None = None  # a directory, or the URL of a git repository
    branch: str = "main"  # of a git repository
    reload: Seconds = Field(default=300.0, ge=0)  # upkeep looks for changes this often; 0: only `load` does
    timezone: TimeZone = "UTC"  # of schedules in contracts that name none
    slots: int = Field(default=50, ge=1)  # sessions of the team that run at once
    turn_usd: Dollars | None = None  # tighter than [heinzel] max_usd
    session_day_usd: Dollars | None = None
    day_usd: Dollars | None = Decimal(50)  # the whole team in one UTC day
    roles: tuple[str, ...] = ()  # what the team is, for skills that say which roles they are for
    asset_types: tuple[str, ...] = ()  # what its contracts are about, for skills that say which assets they are for

    @model_validator(mode="after")
    def _source_is_a_place(self, info: ValidationInfo) -> Team:
        if self.source is not None and not self.source_is_remote:
            object.__setattr__(self, "source", str(_anchored(Path(self.source), info)))
        return self

    @property
    def source_is_remote(self) -> bool:
        """Whether the source is fetched with git instead of read from a directory."""
        return self.source is not None and bool(re.match(r"[a-z+]+://|[^/\s]+@[^/\s]+:", self.source))


class Skills(Section):
    """`[skills]`: advice that every team's turns get beside the skills of its own repository."""

    directories: tuple[AnchoredPath, ...] = ()  # each holds <name>/SKILL.md; these win over a team's of the same name
    packages: tuple[str, ...] = ()  # installed packages with a directory `skills`; a team's of the same name wins


class CodeHost(Section):
    """`[code-host]`: the git repositories that contracts may read, by the name that they use for it."""

    repositories: dict[str, AnchoredPath] = Field(default_factory=dict)


class Adapters(Section):
    """`[adapters.capabilities.<name>]`, `[adapters.publishers.<name>]`: what installed packages bring, with its settings.

    An adapter acts only where its table stands here, be it empty; docs/adapters.md says how one is written.
    """

    capabilities: dict[Name, dict[str, Any]] = Field(default_factory=dict, repr=False)
    publishers: dict[Name, dict[str, Any]] = Field(default_factory=dict, repr=False)

    def secrets(self) -> tuple[str, ...]:
        """The values whose keys say that they are secret."""
        tables = (*self.capabilities.values(), *self.publishers.values())
        return tuple(
            value
            for table in tables
            for key, value in table.items()
            if isinstance(value, str) and re.search(r"(?i)key|token|secret|password", key)
        )


class Documents(Section):
    """`[documents]`: the directory of Markdown files that drafts are placed in; None: there is none."""

    directory: AnchoredPath | None = None
    chat: bool = False  # a chat may propose new text for a marked section; a person confirms each


class EventSource(Section):
    """`[events.sources.<name>]`: who may post events, and how they sign them."""

    scheme: Literal["github", "slack"]  # whose signatures: X-Hub-Signature-256, or X-Slack-Signature with a time
    secret: SecretStr = Field(min_length=16)  # what they sign with; better as a secret file
    team: Name | None = None  # whose Heinzelmännchen they wake; None: the only team's


class Events(Section):
    """`[events]`: the receiver of webhooks. Its events wake the contracts that declare `hz.on: [event.<name>]`."""

    address: str = "127.0.0.1"  # beyond loopback it listens only with a source that signs
    port: int = Field(default=8787, ge=0, le=65535)
    largest: int = Field(default=262_144, ge=1024, le=1_048_576)  # bytes of one delivery; more is answered 413
    replay: Seconds = Field(default=300.0, gt=0)  # a signed time older or newer than this is refused
    sources: dict[Name, EventSource] = Field(default_factory=dict)  # the name is part of the wakes' keys


class ConsolePerson(Section):
    """`[console.people.<name>]`: who may log in, and whose Heinzelmännchen they see and decide about."""

    teams: tuple[Name, ...] = Field(min_length=1)
    password: PasswordHash  # a hash that `heinzelwerk console --password` made; better as a secret file


class Console(Section):
    """`[console]`: the console in the browser. The person's name stands on the spine with what they decided."""

    address: str = "127.0.0.1"  # beyond loopback it listens only with people who log in, and with a url
    port: int = Field(default=8788, ge=0, le=65535)
    url: Origin | None = None  # as people type it, where a proxy stands in front; None: http on this machine
    session: Seconds = Field(default=43_200.0, ge=60)  # from the login to the next one
    secret: SecretStr | None = Field(default=None, min_length=32)  # signs cookies; None: another one at each start
    people: dict[Name, ConsolePerson] = Field(default_factory=dict)  # none: whoever is on this machine


class Metrics(Section):
    """`[metrics]`: what Prometheus scrapes. Names and sums, no words; still nobody's business beyond your own network."""

    address: str = "127.0.0.1"
    port: int = Field(default=8789, ge=0, le=65535)
    every: Seconds = Field(default=10.0, ge=1)  # a look at the store is kept so long, however many scrape


class Unattended(Section):
    """A publisher's action and a target that need no approval."""

    action: str
    target: str


class Effects(Section):
    """`[effects]`: how approved drafts reach the world."""

    unattended: tuple[Unattended, ...] = ()  # only an operator can say so; a contract cannot
    timeout: Seconds = Field(default=60.0, gt=0)  # one attempt
    margin: Seconds = Field(default=15.0, ge=0)  # after which an attempt that did not report is looked for
    approval: Seconds = Field(default=30 * 86400.0, gt=0)  # a draft that nobody decided expires
    question: Seconds = Field(default=30 * 86400.0, gt=0)
    budget: Seconds = Field(default=7 * 86400.0, gt=0)  # a turn that waits for money


class RunnerSettings(Section):
    """`[handoff.runners.<name>]`: a coding agent that turns may hand work to."""

    agent: str  # claude-code, codex, pi, command, or the name of an installed adapter
    model: str | None = None
    auth: Literal["key", "login"] = "key"  # the key stays outside the sandbox; a login's files are copied into it
    key: str | None = None  # whose key, e.g. "OPENAI_API_KEY"; None: the one that fits the agent's protocol
    base_url: str | None = None  # a gateway; None: the vendor's own address
    wire: Literal["anthropic-messages", "openai-responses", "openai-chat"] | None = (
        None  # for agents that speak several
    )
    login: AnchoredPath | None = None  # the directory of credentials for auth = "login"
    login_hosts: tuple[str, ...] = ()  # the only hosts that a login may talk to
    executable: AnchoredPath | None = None  # None: found on `search_path`
    node: AnchoredPath | None = None  # for agents that are Node scripts
    search_path: str = "/usr/local/bin:/usr/bin:/bin"
    read_only: tuple[AnchoredPath, ...] = ()  # more of this machine that the agent may read, such as a toolchain
    tools: tuple[str, ...] | None = None  # None: the adapter's read-only ones
    turn_tools: tuple[
        str, ...
    ] = ()  # the turn's own read tools that it may call over MCP, as patterns such as "read_*"
    command: tuple[str, ...] = ()  # of agent = "command", with placeholders
    trust_command: bool = False  # the operator says that the command only reads

    @model_validator(mode="after")
    def _a_login_is_complete(self) -> RunnerSettings:
        if self.auth == "login" and (self.login is None or not self.login_hosts):
            raise ValueError('auth = "login" needs login (the directory of credentials) and login_hosts')
        return self


class Handoff(Section):
    """`[handoff]`: coding agents, and the walls around them."""

    runners: dict[str, RunnerSettings] = Field(default_factory=dict)
    runner: str | None = None  # which one a turn gets; None: the only one
    backend: Literal["auto", "bubblewrap", "landlock", "unsafe"] = "auto"
    directory: AnchoredPath | None = None  # for runs and growing transcripts; None: below [workers] data
    account: str | None = None  # the unprivileged account when started as root; None: uid 65534

    @model_validator(mode="after")
    def _the_runner_exists(self) -> Handoff:
        if self.runner is not None and self.runner not in self.runners:
            raise ValueError(f"runner = {self.runner!r} is not one of [handoff.runners.*]")
        return self


class Notices(Section):
    """`[notices]`: who is told of a waiting draft, a question, a failure. Nothing is sent unless something is set."""

    webhook: SecretStr | None = None
    smtp_host: str | None = None
    smtp_port: int = Field(default=587, ge=1, le=65535)
    smtp_user: str | None = None
    smtp_password: SecretStr | None = None
    sender: str | None = None
    recipients: tuple[str, ...] = ()
    link: str | None = None  # of a page of yours, with {team}, {heinzel}, {turn} and {id}
    every: Seconds = Field(default=15.0, ge=0.1)  # upkeep looks this often, less often where a look takes long

    @model_validator(mode="after")
    def _mail_has_both_ends(self) -> Notices:
        if self.smtp_host is not None and (self.sender is None or not self.recipients):
            raise ValueError("smtp_host needs sender and recipients")
        return self


class Workers(Section):
    """`[workers]`: how many processes and threads, and how they prove that they live."""

    turns: int = Field(default=2, ge=1)  # processes of the profile `turns` that `up` starts: one per core
    turn_threads: int = Field(default=100, ge=1)  # each only waits; 200 turns at once in 93 MB measured
    upkeep_threads: int = Field(default=32, ge=1)
    handoff_threads: int = Field(default=2, ge=1)  # coding agents at once
    grace: Seconds = Field(default=20.0, gt=0)  # from SIGTERM to SIGKILL: segments stop at their next checkpoint
    sweep_every: Seconds = Field(default=2.0, gt=0)
    heartbeat_every: Seconds = Field(default=10.0, gt=0)
    watch_every: Seconds = Field(default=1.0, gt=0)  # a stop, and a dead worker of the same machine, is seen this fast
    loop_late: Seconds = Field(default=5.0, gt=0)  # an event loop that has not ticked for this long renews no lease
    loop_silent: Seconds = Field(default=60.0, gt=0)  # and after this long its process ends
    data: AnchoredPath = Path(".heinzelwerk")  # the embedded server's and beat's files, and what each worker holds
    log_format: Literal["auto", "json", "text"] = "auto"  # auto: text on a terminal, else JSON
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class Retention(Section):
    """`[retention]`: words expire, the spine is sealed into an archive and shortened."""

    bodies: Seconds = Field(default=90 * 86400.0, gt=0)
    spine: Seconds = Field(default=365 * 86400.0, gt=0)
    archive: AnchoredPath | None = None  # sealed spines as lines; None: they are counted and dropped


class Settings(Section):
    """All settings of a deployment."""

    heinzel: Heinzel = Heinzel()
    store: Store = Store()
    teams: dict[Name, Team] = Field(default_factory=dict)
    skills: Skills = Skills()
    code_host: CodeHost = Field(default_factory=CodeHost)
    documents: Documents = Documents()
    adapters: Adapters = Field(default_factory=Adapters)
    effects: Effects = Effects()
    events: Events = Events()
    console: Console = Field(default_factory=Console)
    metrics: Metrics = Metrics()
    handoff: Handoff = Handoff()
    notices: Notices = Notices()
    workers: Workers = Workers()
    retention: Retention = Retention()
    keys: dict[str, SecretStr] = Field(default_factory=dict)  # ANTHROPIC_API_KEY and the like; never from the file

    @model_validator(mode="after")
    def _waits_end_before_words_expire(self) -> Settings:
        waits = {"approval": self.effects.approval, "question": self.effects.question, "budget": self.effects.budget}
        longest = max(waits, key=lambda name: waits[name])
        if waits[longest] >= self.retention.bodies:
            raise ValueError(
                f"[retention] bodies must be longer than [effects] {longest}: a turn would wait for words that are gone"
            )
        return self

    def secrets(self) -> tuple[str, ...]:
        """Every secret value in here, longest first: what is redacted wherever text leaves a program."""
        senders = (source.secret for source in self.events.sources.values())
        hashes = (person.password for person in self.console.people.values())
        told = (self.notices.webhook, self.notices.smtp_password)
        kept = (*self.keys.values(), *senders, *hashes, self.console.secret, *told)
        urls = (self.store.url, self.store.broker_url, self.heinzel.base_url)
        found = [secret.get_secret_value() for secret in kept if secret is not None]
        found += [password for url in urls if url and (password := urlsplit(url).password)]
        found += self.adapters.secrets()
        return tuple(sorted({value for value in found if len(value) >= 6}, key=len, reverse=True))
