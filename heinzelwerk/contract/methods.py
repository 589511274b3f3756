"""Which capabilities there are, which methods each has, and what a contract gives to read one: the table as data.

An adapter's Protocol lives with the adapters; this table is what a contract is checked against, so that a contract can
be checked where no adapter is installed. Source: the contract format, section 1.7.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from heinzelwerk import forms

Mode = Literal["read", "write"]
RUNNER = "agent-runner"
WINDOW = "window"


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a capability.

    `arguments` are the names a contract gives under `args`, all of them text; `window` says that the method also takes
    one; `checks` read single arguments and raise ValueError with the reason. `returns` is the result's shape.
    """

    capability: str
    name: str
    mode: Mode
    arguments: tuple[str, ...] = ()
    window: bool = False
    returns: str = ""
    checks: Mapping[str, Callable[[str], object]] = field(default_factory=dict)

    @property
    def read(self) -> str:
        """The name that `hz.inputs.<name>.read` uses: `<capability>.<method>`."""
        return f"{self.capability}.{self.name}"

    @property
    def usable_as_input(self) -> bool:
        """Whether a contract may declare it as an input: it reads, and it is not the runner."""
        return self.mode == "read" and self.capability != RUNNER


def _mail_query(text: str) -> object:
    return forms.MailQuery.parse(text)


_TABLE = (
    Method(RUNNER, "run", "read", ("prompt",), returns="AgentResult"),
    Method("ai-access", "status", "read", returns="AccessStatus"),
    Method("ai-access", "test", "read", returns="AccessTest"),
    Method("calendar", "events", "read", window=True, returns="Event[]"),
    Method(
        "calendar", "free_busy", "read", ("people",), window=True, returns="FreeBusy[]", checks={"people": forms.people}
    ),
    Method("calendar", "create_event", "write", ("event",), returns="Event"),
    Method("calendar", "update_event", "write", ("event", "change"), returns="Event"),
    Method("calendar", "cancel_event", "write", ("event", "notify"), returns="EventCancellation"),
    Method("calendar", "respond", "write", ("event", "response"), returns="Event"),
    Method("chat", "messages", "read", ("channel",), window=True, returns="Message[]"),
    Method("chat", "post", "write", ("channel", "text", "thread"), returns="PostedMessage"),
    Method("code-host", "merged_pull_requests", "read", ("repository",), window=True, returns="PullRequest[]"),
    Method("directory", "person", "read", ("person",), returns="Person | null"),
    Method("directory", "reports", "read", ("person",), returns="Person[]"),
    Method("documents", "read", "read", ("ref",), returns="Document"),
    Method("documents", "replace_section", "write", ("ref", "marker", "text"), returns="SectionReplacement"),
    Method("mail", "messages", "read", ("query",), window=True, returns="MailMessage[]", checks={"query": _mail_query}),
    Method("mail", "read", "read", ("message",), returns="MailContent"),
    Method("mail", "thread", "read", ("thread",), returns="MailThread"),
    Method("mail", "draft", "read", ("draft",), returns="DraftedMail"),
    Method("mail", "create_draft", "write", ("draft",), returns="DraftedMail"),
    Method("mail", "send_draft", "write", ("draft", "seen"), returns="SentMail"),
    Method("mail", "relabel", "write", ("thread", "add", "remove"), returns="MailLabels"),
    Method("meetings", "ended", "read", window=True, returns="Meeting[]"),
    Method("meetings", "transcripts", "read", window=True, returns="Transcript[]"),
    Method("meetings", "transcript", "read", ("meeting",), returns="Transcript"),
    Method("team-graph", "snapshot", "read", returns="object"),
    Method("tracker", "issues_updated", "read", ("project",), window=True, returns="Issue[]"),
)

METHODS: Mapping[str, Method] = MappingProxyType({method.read: method for method in _TABLE})
"""Every method by `<capability>.<method>`."""

CAPABILITIES: Mapping[str, tuple[Method, ...]] = MappingProxyType(
    {name: tuple(m for m in _TABLE if m.capability == name) for name in dict.fromkeys(m.capability for m in _TABLE)}
)
"""The methods of each capability, by its name."""

MODES: Mapping[str, frozenset[str]] = MappingProxyType(
    {name: frozenset(m.mode for m in methods) for name, methods in CAPABILITIES.items()}
)
"""The modes that each capability has; what `forms.requirement` checks against."""
