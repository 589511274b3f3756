"""The frontmatter of a contract as a validated model: keys, types, limits, and what contradicts between keys.

A rule inside one value is a field's; a rule between keys of one mapping is an after-validator of that mapping, which
pydantic runs once every field of it is valid. Source: the contract format, section 1.2, and the keys that are ours.
"""

import re
from datetime import timedelta
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from heinzelwerk import forms
from heinzelwerk import schedule as schedules
from heinzelwerk.contract import methods
from heinzelwerk.contract.frontmatter import Path

SCHEMA = 1
LONGEST_TIMEOUT = timedelta(hours=2)
PLACED = "placed"
"""The error type of a rule between keys; its context holds the message, the hint and the path below the mapping."""

_CONTRACT_READ = re.compile(r"contract:(me|team)/([a-z](?:-?[a-z0-9])*)#([a-z][a-z0-9_]*)")
_METHOD_READ = re.compile(r"[a-z][a-z0-9-]*\.[a-z][a-z0-9_]*")
_LONGEST_NAME = 64
_LARGEST_NUMBER = 2**53


def _refuse(path: Path, message: str, hint: str = "") -> NoReturn:
    """Raise for a place below the mapping that is being validated."""
    # pydantic renders the message itself, and cannot where it quotes half of a character pair.
    words = message.encode("utf-8", "backslashreplace").decode()
    raise PydanticCustomError(PLACED, "{message}", {"message": words, "hint": hint, "path": path})


def contract_read(read: str) -> tuple[str, str, str] | None:
    """Namespace, name and output of `contract:<namespace>/<name>#<output>`; None for any other text."""
    found = _CONTRACT_READ.fullmatch(read)
    return (found[1], found[2], found[3]) if found is not None and len(found[2]) <= _LONGEST_NAME else None


def _read(text: str) -> str:
    if contract_read(text) is None and _METHOD_READ.fullmatch(text) is None:
        raise ValueError(
            f"{text[:60]!r} names nothing to read: write <capability>.<method>, or contract:team/<name>#<output>"
        )
    return text


def _schema(value: object) -> object:
    if type(value) is not int or value != SCHEMA:
        raise ValueError(f"the schema is not the whole number {SCHEMA}: write {SCHEMA}, without quotes")
    return value


def _amount(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("true and false are no amount in dollars: write a number such as 0.50")
    return value


def _timezone(name: str) -> str:
    schedules.zone(name)
    return name


def _window(text: str) -> str:
    return str(forms.window(text))


def _duration(text: str) -> str:
    return forms.duration_text(forms.duration(text))


def _encodable(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            "half of a character pair (a lone surrogate) cannot be stored: write the character itself"
        ) from error
    return text


def _argument(value: object) -> object:
    """A publisher's argument: text, a finite number that any JSON reader takes, or a boolean."""
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, int | float) and abs(value) < _LARGEST_NUMBER:
        return value
    raise ValueError("a publisher takes no such argument: write text, a boolean, or a number below 2^53")


Ident = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
Text = Annotated[str, AfterValidator(_encodable)]
Trigger = Annotated[str, StringConstraints(pattern=r"^(?:inputs|event\.[a-z](?:[._-]?[a-z0-9])*)$", max_length=128)]
SkillName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*(?:-[a-z0-9]+)*$", max_length=64)]


class _Mapping(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Input(_Mapping):
    """One thing that a turn reads before it starts."""

    read: Annotated[str, AfterValidator(_read)]
    args: dict[str, Any] = Field(default_factory=dict)
    window: Annotated[str, AfterValidator(_window)] | None = None
    stage: Literal["draft"] | None = None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if contract_read(self.read) is not None:
            self._agree_with_contract()
        else:
            self._agree_with_method()
        return self

    def _agree_with_contract(self) -> None:
        if self.args:
            _refuse(("args",), "another contract's output takes no arguments", "Delete args.")
        if self.window is not None:
            _refuse(("window",), "another contract's output takes no window", "Delete window.")
        if self.stage is None:
            _refuse(("stage",), "another contract's output is read at a stage", "Add stage: draft.")

    def _agree_with_method(self) -> None:
        if self.stage is not None:
            _refuse(("stage",), "only another contract's output has a stage", "Delete stage.")
        method = _method(self.read)
        if not method.usable_as_input:
            reason = "writes" if method.mode == "write" else "is the coding agent, which a turn asks by handoff"
            _refuse(("read",), f"{self.read} {reason}; an input only reads", _methods_hint(method.capability))
        if method.window and self.window is None:
            _refuse(("window",), f"{self.read} reads a window of time", "Add window: 7d.")
        if not method.window and self.window is not None:
            _refuse(("window",), f"{self.read} takes no window", "Delete window.")
        _agree_arguments(self.args, method)


def _method(read: str) -> methods.Method:
    method = methods.METHODS.get(read)
    if method is not None:
        return method
    capability = read.partition(".")[0]
    if capability in methods.CAPABILITIES:
        return _refuse(("read",), f"{capability} has no method {read.partition('.')[2]}", _methods_hint(capability))
    known = ", ".join(sorted(methods.CAPABILITIES))
    return _refuse(("read",), f"there is no capability {capability}", f"Known are {known}.")


def _methods_hint(capability: str) -> str:
    readable = [method.read for method in methods.CAPABILITIES[capability] if method.usable_as_input]
    return f"It can be read with {', '.join(readable)}." if readable else "Choose another capability."


def _agree_arguments(args: dict[str, Any], method: methods.Method) -> None:
    takes = f"{method.read} takes {', '.join(method.arguments) or 'no arguments'}"
    for name in sorted(args):
        if name not in method.arguments:
            _refuse(("args", name), f"unknown argument {name}", f"{takes}.")
    for name in method.arguments:
        if name not in args:
            _refuse(("args",), f"the argument {name} is missing", f"{takes}: add args: {{{name}: ...}}.")
        value = args[name]
        if not isinstance(value, str):
            _refuse(("args", name), f"{name} must be text", "Put the value in quotes.")
        try:
            _encodable(value)
            method.checks.get(name, str)(value)
        except ValueError as error:
            _refuse(("args", name), str(error))


class Output(_Mapping):
    """The one text that a contract maintains."""

    format: Literal["markdown", "json"] = "markdown"


class Publish(_Mapping):
    """Where an approved draft goes: a publisher's action, the output it places, the publisher's own arguments."""

    action: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*(\.[a-z][a-z0-9-]*)+$")]
    output: Text
    args: dict[Text, Annotated[Any, BeforeValidator(_argument)]] = Field(default_factory=dict)


class Agent(_Mapping):
    """What a turn may use of models and of a coding agent; a class of model, never a vendor."""

    tools: list[Text] = Field(default_factory=list)
    max_usd: Annotated[float, BeforeValidator(_amount), Field(gt=0, allow_inf_nan=False)] | None = None
    model_class: Literal["fast", "standard", "best"] | None = None


class Hz(_Mapping):
    """Everything below `hz`."""

    schema_: Annotated[int, BeforeValidator(_schema)] = Field(alias="schema")
    title: Annotated[str, StringConstraints(min_length=1, max_length=80)]
    scope: Literal["personal", "team"] = "personal"
    schedule: str | None = None
    timezone: Annotated[str, AfterValidator(_timezone)] | None = None
    requires: list[str] = Field(default_factory=list)
    inputs: dict[Ident, Input] = Field(default_factory=dict)
    outputs: dict[Ident, Output]
    publishes: list[Publish] = Field(default_factory=list)
    agent: Agent = Agent()
    timeout: Annotated[str, AfterValidator(_duration)] = "10m"
    retries: Annotated[int, Field(strict=True, ge=0, le=3)] = 0
    catch_up: Literal["latest", "skip"] = "latest"
    on: list[Trigger] = Field(default_factory=list)
    uses: list[SkillName] = Field(default_factory=list)
    on_budget: Literal["stop", "ask"] = "stop"

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.schedule is not None and (fault := schedules.problem(self.schedule)) is not None:
            _refuse(("schedule",), fault.message, fault.hint)
        if forms.duration(self.timeout) > LONGEST_TIMEOUT:
            _refuse(("timeout",), f"{self.timeout} is longer than two hours", "Write at most 2h.")
        required = self._required()
        for name, source in self.inputs.items():
            capability = source.read.partition(".")[0]
            if contract_read(source.read) is None and capability not in required:
                _refuse(
                    ("inputs", name, "read"), f"{capability} is not required", f"Add {capability}:read to requires."
                )
        if len(self.outputs) != 1:
            _refuse(
                ("outputs",), f"{len(self.outputs)} outputs; a contract maintains exactly one", "Split the contract."
            )
        for index, publish in enumerate(self.publishes):
            if publish.output not in self.outputs:
                declared = ", ".join(self.outputs)
                _refuse(("publishes", index, "output"), f"{publish.output} is no output", f"Declared is {declared}.")
        _each_once(self.on, "on")
        _each_once(self.uses, "uses")
        return self

    def _required(self) -> frozenset[str]:
        seen: set[str] = set()
        for index, text in enumerate(self.requires):
            place = ("requires", index)
            try:
                need = forms.requirement(text, modes_of=methods.MODES)
            except ValueError as error:
                _refuse(place, str(error))
            if need.adapter is not None:
                _refuse(place, f"{text} pins an adapter", f"Write {need.capability}:read; operators choose adapters.")
            if "write" in need.modes:
                _refuse(place, f"{text} asks to write; a contract only reads", f"Write {need.capability}:read.")
            if need.capability in seen:
                _refuse(place, f"{need.capability} is required twice", "Keep one of the two.")
            seen.add(need.capability)
        return frozenset(seen)


def _each_once(values: list[str], key: str) -> None:
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            _refuse((key, index), f"{value} stands in {key} twice", "Keep one of the two.")
        seen.add(value)


_PRE = r"(?:0|[1-9][0-9]*)"


class Frontmatter(_Mapping):
    """The whole frontmatter, without the top-level keys that begin with `x-`."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z](?:-?[a-z0-9])*$", max_length=_LONGEST_NAME)]
    kind: Literal["responsibility"]
    description: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    id: Annotated[str, StringConstraints(pattern=r"^[0-9A-HJKMNP-TV-Z]{26}$")] | None = None
    version: Annotated[str, StringConstraints(pattern=rf"^{_PRE}\.{_PRE}\.{_PRE}(?:-[0-9A-Za-z.-]+)?$")] | None = None
    hz: Hz
