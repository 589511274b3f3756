"""A contract as the rest of the house uses it: frozen values with defaults filled in, made of a validated frontmatter."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from heinzelwerk import forms
from heinzelwerk.contract import model
from heinzelwerk.contract.model import Frontmatter
from heinzelwerk.schedule import CatchUp


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One declared input: a capability's method with its arguments, or another contract's output."""

    read: str
    args: Mapping[str, str]
    window: forms.Window | None = None
    stage: str | None = None

    @property
    def contract(self) -> tuple[str, str, str] | None:
        """Namespace, name and output where another contract maintains it; None for a capability's method."""
        return model.contract_read(self.read)


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """The declared output: `markdown` or `json`."""

    format: str


@dataclass(frozen=True, slots=True)
class PublishSpec:
    """Where an approved draft of `output` goes: a publisher's action with its own arguments."""

    action: str
    output: str
    args: Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """What the contract says of models and tools; None and () leave it to the deployment."""

    tools: tuple[str, ...] = ()
    max_usd: float | None = None
    model_class: str | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """The definition of one Heinzelmännchen, as one version of its file states it.

    `timezone` None means the team's. `requires` are requirements as text, trimmed. `outputs` has exactly one entry.
    `timeout_s` is in seconds. `on` holds `inputs` and `event.<name>`. `body` is the agent's text; `done_when` the texts of
    its items. `sha256` (`sha256:<hex>`) names the file's bytes. `frontmatter` is the normalised mapping: defaults filled
    in, keys of this version only where the file has them.
    """

    name: str
    namespace: str
    title: str
    description: str
    schedule: str | None
    timezone: str | None
    requires: tuple[str, ...]
    inputs: Mapping[str, InputSpec]
    outputs: Mapping[str, OutputSpec]
    publishes: tuple[PublishSpec, ...]
    agent: AgentSpec
    timeout_s: int
    retries: int
    catch_up: CatchUp
    on: tuple[str, ...]
    uses: tuple[str, ...]
    on_budget: str
    body: str
    done_when: tuple[str, ...]
    sha256: str
    frontmatter: Mapping[str, Any]

    @property
    def output(self) -> str:
        """The name of the one output."""
        return next(iter(self.outputs))


def build(front: Frontmatter, *, namespace: str, body: str, done_when: tuple[str, ...], sha256: str) -> Contract:
    """The contract that a validated frontmatter and the text of a body state."""
    hz = front.hz
    return Contract(
        name=front.name,
        namespace=namespace,
        title=hz.title,
        description=front.description,
        schedule=hz.schedule,
        timezone=hz.timezone,
        requires=tuple(text.strip() for text in hz.requires),
        inputs=MappingProxyType({name: _input(source) for name, source in hz.inputs.items()}),
        outputs=MappingProxyType({name: OutputSpec(output.format) for name, output in hz.outputs.items()}),
        publishes=tuple(PublishSpec(p.action, p.output, MappingProxyType(dict(p.args))) for p in hz.publishes),
        agent=AgentSpec(tuple(hz.agent.tools), hz.agent.max_usd, hz.agent.model_class),
        timeout_s=int(forms.duration(hz.timeout).total_seconds()),
        retries=hz.retries,
        catch_up=CatchUp(hz.catch_up),
        on=tuple(hz.on),
        uses=tuple(hz.uses),
        on_budget=hz.on_budget,
        body=body,
        done_when=done_when,
        sha256=sha256,
        frontmatter=MappingProxyType(normalised(front)),
    )


def _input(source: model.Input) -> InputSpec:
    window = forms.window(source.window) if source.window is not None else None
    return InputSpec(source.read, MappingProxyType(dict(source.args)), window, source.stage)


_OURS = ("timezone", "on", "uses", "on_budget")
"""Keys below `hz` that the format's first version lacks; a normalised frontmatter has them only where they were written."""


def normalised(front: Frontmatter) -> dict[str, Any]:
    """The frontmatter as plain JSON values with defaults filled in, the same for the same meaning."""
    data = front.model_dump(mode="json", by_alias=True)
    hz = data["hz"]
    for key in _OURS:
        if key not in front.hz.model_fields_set:
            del hz[key]
    if "model_class" not in front.hz.agent.model_fields_set:
        del hz["agent"]["model_class"]
    for publish, entry in zip(front.hz.publishes, hz["publishes"], strict=True):
        if "args" not in publish.model_fields_set:
            del entry["args"]
    return data
