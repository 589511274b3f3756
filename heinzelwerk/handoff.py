"""One coding-agent run as values: what is asked for, what came back, and what is refused before anything starts.

Source: ADR 0050 statement 6; the shapes, caps, status order and hashes are those of `facts/coding_agents.md` 7.2-7.4,
measured on the real CLIs. Nothing here starts anything: `heinzelwerk.runner` does, `heinzelwerk.sandbox` confines.
"""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

PROMPT_BYTES = 256 * 1024
CONTRACT_BYTES = 64 * 1024
FILES_MAX = 500
FILE_BYTES = 10 * 1024 * 1024
FILES_BYTES = 50 * 1024 * 1024
PATH_DEPTH = 12


class Status(StrEnum):
    """How a handoff ended. Members are in deciding order: the first that applies wins."""

    REFUSED = "refused"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    BUDGET = "budget"
    FAILED = "failed"
    COMPLETED = "completed"


UsageSource = Literal["proxy", "agent", "none"]
CostSource = Literal["proxy", "agent-list", "agent-guess", "none"]

Data = bytes  # `bytes` is the JSON key of a size in two values below, and hides the type there
# Dollars are decimals inside and numbers in JSON, where people and jq read them.
Dollars = Annotated[Decimal, PlainSerializer(float, return_type=float, when_used="json")]


class Value(BaseModel):
    """What every value here shares: it is frozen, and an unknown field is an error rather than a silent loss."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(Value):
    """What the parent enforces. Seconds, bytes, dollars; None is no limit of that kind."""

    timeout_s: float = Field(default=600.0, gt=0)
    idle_s: float = Field(default=180.0, gt=0)
    """No output and no traffic with the model for this long ends the run as `timeout`."""
    stop_grace_s: float = Field(default=5.0, ge=0)
    """Between the polite interrupt, after which an agent may still report its cost, and the kill."""
    max_usd: Dollars | None = Field(default=None, ge=0)
    max_turns: int | None = Field(default=60, gt=0)
    max_requests: int | None = Field(default=200, gt=0)
    transcript_bytes: int = Field(default=2 * 1024 * 1024, ge=4096)
    """Half of it keeps the beginning of the transcript, half keeps the end."""
    output_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    out_files: int = Field(default=500, ge=0)
    out_bytes: int = Field(default=50 * 1024 * 1024, ge=0)


class HandoffFile(Value):
    """One file that the turn chose to give: a relative POSIX path and its bytes."""

    path: str
    data: bytes

    @property
    def sha256(self) -> str:
        """Lower-case hex of the bytes."""
        return sha256(self.data)


class HandoffRequest(Value):
    """One run that is asked for. `run_id` names it for ever: an adapter is called once for it and never retries."""

    run_id: str
    agent: str
    prompt: str
    contract: str = ""
    """The contract's body: standing instructions."""
    files: tuple[HandoffFile, ...] = ()
    tools: tuple[str, ...] = ()
    """Of the adapter's read-only tools; none means all of them."""
    turn_tools: tuple[str, ...] = ()
    """Names of the turn's own read tools that the agent may call over MCP."""
    model: str | None = None
    effort: str | None = None
    output_dir: bool = True
    """Whether there is an `out/` for the agent to leave files in."""
    limits: Limits = Limits()


class Usage(Value):
    """Tokens of a run. `input` has neither cached nor cache-writing tokens in it; `output` includes `reasoning`."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
        )

    @property
    def total(self) -> int:
        """All tokens that are paid for; reasoning is already in the output."""
        return self.input + self.output + self.cache_read + self.cache_write


class ToolCount(Value):
    """Calls of one tool by the agent: all of them, those that failed, and those that were not allowed."""

    calls: int = 0
    failed: int = 0
    denied: int = 0


class AgentInfo(Value):
    """Which agent ran: the adapter's name, the version it gave of itself, the SHA-256 of its executable."""

    name: str
    version: str | None = None
    sha256: str | None = None


class SandboxInfo(Value):
    """What confined it. `network` says what was reachable: `model`, `provider-hosts`, `none` or `host` (unsafe)."""

    backend: str
    version: str | None = None
    network: str = "model"


class TranscriptInfo(Value):
    """The kept transcript: where it lies, bytes seen, bytes kept, the hash of what was kept."""

    path: str | None = None
    bytes: int = 0
    kept: int = 0
    sha256: str | None = None
    truncated: bool = False
    data: Data = Field(default=b"", exclude=True, repr=False)
    """What was kept, for whoever stores it; no part of the JSON form."""


class OutputFile(Value):
    """One file that the agent left in `out/`."""

    path: str
    bytes: int
    sha256: str
    data: Data = Field(default=b"", exclude=True, repr=False)
    """Its content, for whoever stores it; no part of the JSON form."""


class HandoffResult(Value):
    """What came of a handoff. `report` is set by a completed run alone; a partial text is in `detail`."""

    status: Status
    report: str | None = None
    detail: str | None = None
    fix: str | None = None
    warnings: tuple[str, ...] = ()
    agent: AgentInfo
    sandbox: SandboxInfo | None = None
    model: str | None = None
    turns: int | None = None
    tool_calls: dict[str, ToolCount] = Field(default_factory=dict)
    usage: Usage = Usage()
    usage_source: UsageSource = "none"
    cost_usd: Dollars | None = None
    cost_source: CostSource = "none"
    started_at: datetime | None = None
    duration_ms: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    transcript: TranscriptInfo | None = None
    files: tuple[OutputFile, ...] = ()
    hashes: dict[str, str] = Field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The JSON form: every key of facts 7.2, always, in that order."""
        return self.model_dump(mode="json")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTool:
    """One read tool of the turn: its name, what it is for, the JSON schema of its arguments, and how it is called.

    `call` returns the text for the model. A wrong argument or a failed read is text too, with `ok` False.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], Awaitable["ToolAnswer"]]


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool said, and whether it did what was asked."""

    text: str
    ok: bool = True


class Refusal(Value):
    """Why nothing was started, and what would have to change."""

    detail: str
    fix: str


class KeyFound(Value):
    """A credential in a file meant for a handoff: where, and of what kind. Never the value itself."""

    path: str
    line: int
    kind: str


def refused(request: HandoffRequest, refusal: Refusal, *, agent: AgentInfo | None = None) -> HandoffResult:
    """The result of a run that was not started."""
    return HandoffResult(
        status=Status.REFUSED,
        detail=refusal.detail,
        fix=refusal.fix,
        agent=agent or AgentInfo(name=request.agent),
        model=request.model,
        hashes=input_hashes(request),
    )


def check_request(request: HandoffRequest) -> Refusal | None:
    """What is wrong with a request before anything is started, or None."""
    if not request.prompt.strip():
        return Refusal(detail="The task is empty.", fix="Say what the coding agent should do.")
    for what, text, cap in (("task", request.prompt, PROMPT_BYTES), ("contract", request.contract, CONTRACT_BYTES)):
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > cap:
            return Refusal(
                detail=f"The {what} has {size} bytes; at most {cap} reach a coding agent.",
                fix="Give long material as a file, and name that file in the task.",
            )
    return _check_files(request.files) or _refuse_keys(request.files)


def _check_files(files: Sequence[HandoffFile]) -> Refusal | None:
    if len(files) > FILES_MAX:
        return Refusal(detail=f"{len(files)} files were given; the cap is {FILES_MAX}.", fix="Give fewer files.")
    seen: set[str] = set()
    total = 0
    for file in files:
        problem = path_problem(file.path)
        if problem is not None:
            return Refusal(
                detail=f"The path {file.path!r} {problem}.", fix="Use a relative path such as notes/week.md."
            )
        if file.path in seen:
            return Refusal(detail=f"The path {file.path!r} was given twice.", fix="Give each file one path.")
        if any(str(parent) in seen for parent in PurePosixPath(file.path).parents):
            return Refusal(detail=f"The path {file.path!r} lies below a file.", fix="Give each file a path of its own.")
        seen.add(file.path)
        total += len(file.data)
        if len(file.data) > FILE_BYTES:
            return Refusal(
                detail=f"{file.path} has {len(file.data)} bytes; the cap is {FILE_BYTES}.", fix="Give a smaller part."
            )
    if total > FILES_BYTES:
        return Refusal(detail=f"The files have {total} bytes together; the cap is {FILES_BYTES}.", fix="Give less.")
    return None


def path_problem(path: str) -> str | None:
    """What keeps a path from lying safely inside the working directory, as the end of a sentence, or None."""
    if not path or path.startswith("/"):
        return "is not relative"
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        return "has a control character in it"
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "has an empty, `.` or `..` part"
    if len(parts) > PATH_DEPTH:
        return f"is more than {PATH_DEPTH} levels deep"
    if any(len(part.encode("utf-8", "surrogatepass")) > 255 for part in parts):
        return "has a part longer than 255 bytes"
    if parts[0] == "out":
        return "lies in `out`, which is the agent's"
    return None


# Prefixes that vendors gave their keys so that they can be found, and a length that prose does not reach.
_KEYS: tuple[tuple[str, bytes], ...] = (
    ("Anthropic key", rb"sk-ant-[A-Za-z0-9_-]{20,}"),
    # A digit among the first hundred characters: long hyphenated names have the same prefix, and none.
    ("OpenAI key", rb"sk-(?=[A-Za-z_-]{0,100}[0-9])[A-Za-z0-9_-]{32,}"),
    ("GitHub token", rb"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}"),
    ("GitLab token", rb"glpat-[A-Za-z0-9_-]{20,}"),
    ("Slack token", rb"xox[abeprs]-[A-Za-z0-9-]{10,}"),
    ("AWS access key", rb"(?:AKIA|ASIA)[0-9A-Z]{16}"),
    ("AWS secret key", rb"(?i:aws_secret_access_key)[\"' \t]{0,4}[=:][\"' \t]{0,4}[A-Za-z0-9/+]{40}"),
    ("Google API key", rb"AIza[0-9A-Za-z_-]{35}"),
    ("Google token", rb"ya29\.[0-9A-Za-z_-]{20,}"),
    ("Stripe key", rb"[rs]k_live_[0-9A-Za-z]{20,}"),
    ("npm token", rb"npm_[A-Za-z0-9]{36}"),
    ("PyPI token", rb"pypi-[A-Za-z0-9_-]{40,}"),
    ("Hugging Face token", rb"hf_[A-Za-z0-9]{30,}"),
    ("private key", rb"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"),
)
KEY_PATTERN = re.compile(
    rb"(?<![A-Za-z0-9_-])(?:" + b"|".join(b"(?P<k%d>%b)" % (i, p) for i, (_, p) in enumerate(_KEYS)) + b")"
)


def find_keys(files: Iterable[HandoffFile]) -> tuple[KeyFound, ...]:
    """Credentials in files, by the vendors' own key patterns; linear in the size of the files."""
    return tuple(
        KeyFound(path=file.path, line=file.data.count(b"\n", 0, match.start()) + 1, kind=_kind_of(match))
        for file in files
        for match in KEY_PATTERN.finditer(file.data)
    )


def _kind_of(match: re.Match[bytes]) -> str:
    return _KEYS[int((match.lastgroup or "k0")[1:])][0]


def _refuse_keys(files: Sequence[HandoffFile]) -> Refusal | None:
    found = find_keys(files)
    if not found:
        return None
    places = ", ".join(f"{key.path}:{key.line} ({key.kind})" for key in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return Refusal(
        detail=f"The files hold what looks like a credential: {places}{more}.",
        fix="Take the credential out of the files, or leave these files out of the handoff.",
    )


def sha256(data: bytes) -> str:
    """Lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def canonical(value: Any) -> bytes:
    """The one JSON spelling that is hashed: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def input_hashes(request: HandoffRequest, *, launch: Mapping[str, str] | None = None) -> dict[str, str]:
    """Hashes of what went in (facts 7.4), with `request` over all of them: equal requests have equal ones.

    `launch` is what the adapter adds about how it starts the agent: hashes of argv, configuration and executable,
    the version. Never pass it a secret or a value of the environment.
    """
    hashes = {
        "prompt": sha256(request.prompt.encode("utf-8", "surrogatepass")),
        "contract": sha256(request.contract.encode("utf-8", "surrogatepass")),
        "files": sha256(canonical(sorted([file.path, file.sha256] for file in request.files))),
        **{f"file:{file.path}": file.sha256 for file in request.files},
        **(launch or {}),
    }
    asked = {"agent": request.agent, "model": request.model, "tools": sorted(request.tools), "effort": request.effort}
    return {**hashes, "request": sha256(canonical({**hashes, **asked}))}
