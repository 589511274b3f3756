"""Checks that need more than one file: the graph of a whole set, and what the deployment has installed."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from heinzelwerk.contract import diagnostic, graph
from heinzelwerk.contract.definition import Contract
from heinzelwerk.contract.diagnostic import Diagnostic, Severity
from heinzelwerk.contract.graph import Graph
from heinzelwerk.contract.methods import Mode
from heinzelwerk.contract.reader import Reading

_PLACEHOLDER = re.compile(r"\{\{asset:[a-z0-9-]+\}\}")


@dataclass(frozen=True, slots=True)
class Installed:
    """What a deployment has, as far as a check may know it; None where it does not.

    `actions`: publish actions and other operations with their mode. `runner_tools`: the tools that the bound coding agent
    lists as read-only. `skills`: the names of the team's skills.
    """

    actions: Mapping[str, Mode] | None = None
    runner_tools: frozenset[str] | None = None
    skills: frozenset[str] | None = None


NOTHING_KNOWN = Installed()


@dataclass(frozen=True, slots=True)
class SetReport:
    """The readings of a set with all their diagnostics, in the order given, and their graph."""

    readings: tuple[Reading, ...]
    graph: Graph

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All diagnostics, by file and line."""
        return diagnostic.in_order(found for reading in self.readings for found in reading.diagnostics)

    @property
    def errors(self) -> int:
        """How many diagnostics stop a contract."""
        return sum(found.severity is Severity.ERROR for found in self.diagnostics)

    @property
    def warnings(self) -> int:
        """How many diagnostics stop nothing."""
        return len(self.diagnostics) - self.errors

    def as_dict(self) -> dict[str, object]:
        """The shape of `check --json`: the files, then every diagnostic."""
        files = [reading.file for reading in self.readings]
        return {"files": files, "diagnostics": [found.as_dict() for found in self.diagnostics]}


def check_set(readings: Iterable[Reading], *, installed: Installed = NOTHING_KNOWN, whole: bool = True) -> SetReport:
    """Add what only the whole set or the deployment shows (HZC012 to 015, 024, 025, 030 to 032).

    `whole` False leaves out what is true of complete sets alone: cycles and outputs that nobody maintains.
    """
    given = tuple(readings)
    net = graph.build(given)
    marks = _marks(net)
    found: dict[int, list[Diagnostic]] = defaultdict(list)
    for index, reading in enumerate(given):
        contract = reading.definition
        if contract is None:
            continue
        if whole:
            found[index] += _graph_diagnostics(reading, contract, marks)
        found[index] += _installed_diagnostics(reading, contract, installed)
    _add_shared_targets(given, found)
    return SetReport(tuple(reading.adding(found[index]) for index, reading in enumerate(given)), net)


@dataclass(frozen=True, slots=True)
class _Marks:
    """A graph's findings by the names that a check looks up: cycles by member, gaps by contract and input, maintainers."""

    cycle_of: Mapping[str, tuple[str, ...]]
    why: Mapping[tuple[str, str], str]
    maintainer: Mapping[str, str]


def _marks(net: Graph) -> _Marks:
    return _Marks(
        cycle_of={name: cycle for cycle in net.cycles for name in cycle},
        why={(gap.contract, gap.input): gap.why for gap in net.unmaintained},
        maintainer={edge.target: edge.source for edge in net.edges if edge.kind is graph.EdgeKind.MAINTAINS},
    )


def _graph_diagnostics(reading: Reading, contract: Contract, marks: _Marks) -> Iterable[Diagnostic]:
    for key, spec in contract.inputs.items():
        if spec.contract is None:
            continue
        path = ("hz", "inputs", key, "read")
        cycle = marks.cycle_of.get(reading.id)
        if reading.namespace == "team" and spec.contract[0] == "me":
            message = f"a team's contract reads {spec.read}, which only one person has"
            yield reading.finding("HZC032", path, message, "Move that contract to the team, or read something else.")
        elif (reading.id, key) in marks.why:
            message = f"nobody maintains {spec.read}: {marks.why[reading.id, key]}"
            yield reading.finding(
                "HZC031", path, message, "Add that contract, or correct the name; until then it is a gap."
            )
        elif cycle is not None and marks.maintainer.get(spec.read) in cycle:
            message = f"the input closes a cycle: {', '.join(cycle)} wait for each other"
            yield reading.finding("HZC030", path, message, "Delete one of the inputs between them.")


def _installed_diagnostics(reading: Reading, contract: Contract, installed: Installed) -> Iterable[Diagnostic]:
    for index, publish in enumerate(contract.publishes):
        path = ("hz", "publishes", index, "action")
        mode = None if installed.actions is None else installed.actions.get(publish.action, "absent")
        if mode == "absent":
            known = ", ".join(sorted(name for name, kind in (installed.actions or {}).items() if kind == "write"))
            hint = f"Enable its publisher, or use one of {known or 'none'}."
            yield reading.finding("HZC012", path, f"nothing installed provides {publish.action}", hint)
        elif mode == "read":
            message = f"{publish.action} only reads, so it can place nothing"
            yield reading.finding("HZC013", path, message, "Name an action that writes.")
    for index, tool in enumerate(contract.agent.tools):
        if installed.runner_tools is not None and tool not in installed.runner_tools:
            message = f"the coding agent does not list {tool} as a tool that only reads"
            hint = f"Use one of {', '.join(sorted(installed.runner_tools)) or 'none'}, or ask the operator."
            yield reading.finding("HZC024", ("hz", "agent", "tools", index), message, hint)
    for index, skill in enumerate(contract.uses):
        if installed.skills is not None and skill not in installed.skills:
            hint = f"Add skills/{skill}/SKILL.md, or delete the entry."
            yield reading.finding("HZC015", ("hz", "uses", index), f"there is no skill {skill}", hint)
    for key, spec in contract.inputs.items():
        for name, value in spec.args.items():
            if _PLACEHOLDER.fullmatch(value):
                place = ("hz", "inputs", key, "args", name)
                yield reading.finding("HZC025", place, f"{value} is still a placeholder", "Write what it stands for.")


def _add_shared_targets(readings: Sequence[Reading], found: dict[int, list[Diagnostic]]) -> None:
    """Warn at every place that publishes to the document and marker of another one: the two would replace each other."""
    places: dict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)
    for at, reading in enumerate(readings):
        for index, publish in enumerate(reading.definition.publishes if reading.definition is not None else ()):
            if "ref" in publish.args and "marker" in publish.args:
                target = (publish.action, str(publish.args["ref"]), str(publish.args["marker"]))
                places[target].append((at, index))
    for (_, ref, marker), users in places.items():
        for at, index in users if len(users) > 1 else ():
            others = sorted({readings[other].id for other, number in users if (other, number) != (at, index)})
            message = f"{', '.join(others)} also publishes to {marker} in {ref}"
            path = ("hz", "publishes", index, "args", "marker")
            found[at].append(readings[at].finding("HZC014", path, message, "Give each contract a marker of its own."))
