"""The graph between contracts: who maintains which output, who reads it, and which contracts wait for each other.

Nodes are contracts (`<namespace>:<name>`), assets (`contract:<namespace>/<name>#<output>`) and sources (a capability's
method with its arguments). Only contracts whose frontmatter was read take part. Source: the contract format, section 1.8.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from heinzelwerk.contract.definition import InputSpec
from heinzelwerk.contract.reader import Reading


class NodeKind(StrEnum):
    """What a node stands for."""

    ASSET = "asset"
    CONTRACT = "contract"
    SOURCE = "source"


class EdgeKind(StrEnum):
    """A contract maintains its asset; an asset or a source is read by a contract."""

    MAINTAINS = "maintains"
    READS = "reads"


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """One node; `maintained` is False for an asset that no contract maintains."""

    kind: NodeKind
    id: str
    maintained: bool = True


@dataclass(frozen=True, slots=True)
class Edge:
    """One edge in the direction in which text flows; `input` names the input that reads, None for maintains."""

    source: str
    target: str
    kind: EdgeKind
    input: str | None = None


@dataclass(frozen=True, slots=True)
class Unmaintained:
    """An input that reads an output which nobody maintains, and why."""

    contract: str
    input: str
    asset: str
    why: str


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes by kind and id, edges in the order of the contracts, and what follows from them.

    `cycles` are the groups of contracts that depend on themselves, each sorted. `order` holds every contract that takes part,
    each after those that it reads; members of a cycle stand together.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    cycles: tuple[tuple[str, ...], ...]
    unmaintained: tuple[Unmaintained, ...]
    order: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The shape of `graph --json`: nodes, edges, cycles, unmaintained, order, mermaid."""
        return {**asdict(self), "mermaid": mermaid(self)}


def asset(namespace: str, name: str, output: str) -> str:
    """The id of a contract's output."""
    return f"contract:{namespace}/{name}#{output}"


def source(spec: InputSpec) -> str:
    """The id of what an input reads: an asset, or the method with its arguments sorted."""
    if spec.contract is not None:
        return asset(*spec.contract)
    arguments = (f" {name}={json.dumps(spec.args[name], ensure_ascii=False)}" for name in sorted(spec.args))
    return spec.read + "".join(arguments)


def build(readings: Iterable[Reading]) -> Graph:
    """The graph of a set of readings, in their order."""
    members = [(reading.id, reading, reading.definition) for reading in readings if reading.definition is not None]
    made = {asset(reading.namespace, reading.name, contract.output): name for name, reading, contract in members}
    edges = [Edge(name, output, EdgeKind.MAINTAINS) for output, name in made.items()]
    nodes = {Node(NodeKind.CONTRACT, name) for name, _, _ in members} | {
        Node(NodeKind.ASSET, output) for output in made
    }
    outputs = {name: contract.output for name, _, contract in members}
    reads: dict[str, set[str]] = {name: set() for name, _, _ in members}
    unmaintained: list[Unmaintained] = []
    for name, _, contract in members:
        for key, spec in contract.inputs.items():
            origin = source(spec)
            edges.append(Edge(origin, name, EdgeKind.READS, key))
            if spec.contract is None:
                nodes.add(Node(NodeKind.SOURCE, origin))
            elif origin in made:
                reads[name].add(made[origin])
            else:
                nodes.add(Node(NodeKind.ASSET, origin, maintained=False))
                unmaintained.append(Unmaintained(name, key, origin, _why(spec.contract, outputs)))
    groups = _components(reads)
    cycles = tuple(sorted(group for group in groups if len(group) > 1 or group[0] in reads[group[0]]))
    order = tuple(name for group in groups for name in group)
    return Graph(tuple(sorted(nodes)), tuple(edges), cycles, tuple(unmaintained), order)


def _why(wanted: tuple[str, str, str], outputs: Mapping[str, str]) -> str:
    namespace, name, output = wanted
    maintainer = f"{namespace}:{name}"
    if maintainer not in outputs:
        return f"there is no contract {maintainer}"
    return f"{maintainer} maintains {outputs[maintainer]}, not {output}"


def _components(reads: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Strongly connected components, each sorted, a component after all that it reads (Tarjan 1972, without recursion)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    found: list[tuple[str, ...]] = []
    for root in reads:
        work = [(root, iter(sorted(reads[root])))] if root not in index else []
        while work:
            node, neighbours = work[-1]
            if node not in index:
                index[node] = lowest[node] = len(index)
                path.append(node)
                on_path.add(node)
            deeper = next((other for other in neighbours if other not in index or other in on_path), None)
            if deeper is not None and deeper not in index:
                work.append((deeper, iter(sorted(reads[deeper]))))
                continue
            if deeper is not None:
                lowest[node] = min(lowest[node], index[deeper])
                continue
            work.pop()
            if work:
                lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
            if lowest[node] == index[node]:
                group = path[path.index(node) :]
                del path[len(path) - len(group) :]
                on_path.difference_update(group)
                found.append(tuple(sorted(group)))
    return found


def text(graph: Graph) -> str:
    """The graph for a terminal: each contract in order, what it reads and what it maintains, then what is wrong."""
    on_cycle = {name for cycle in graph.cycles for name in cycle}
    missing = {node.id for node in graph.nodes if not node.maintained}
    lines: list[str] = []
    for name in graph.order:
        lines.append(f"{name}{'  (on a cycle)' if name in on_cycle else ''}")
        for edge in graph.edges:
            if edge.kind is EdgeKind.READS and edge.target == name:
                note = "  (nobody maintains it)" if edge.source in missing else ""
                lines.append(f"  reads      {edge.input}: {edge.source}{note}")
            elif edge.kind is EdgeKind.MAINTAINS and edge.source == name:
                lines.append(f"  maintains  {edge.target}")
    lines += [f"cycle: {', '.join(cycle)} wait for each other" for cycle in graph.cycles]
    return "\n".join(lines) + "\n" if lines else "no contracts\n"


_SHAPES = {NodeKind.ASSET: '("{}")', NodeKind.CONTRACT: '["{}"]', NodeKind.SOURCE: '>"{}"]'}
_ENTITIES = str.maketrans({"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "\n": " "})


def mermaid(graph: Graph) -> str:
    """The graph as a Mermaid flowchart; labels hold nothing that Mermaid or a page would read as markup."""
    names = {node.id: f"n{index}" for index, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    lines += [f"  {names[node.id]}{_SHAPES[node.kind].format(node.id.translate(_ENTITIES))}" for node in graph.nodes]
    for edge in graph.edges:
        arrow = f"-- {edge.input} -->" if edge.input is not None else "-->"
        lines.append(f"  {names[edge.source]} {arrow} {names[edge.target]}")
    lines += _mermaid_class("missing", "stroke-dasharray: 5 5", [names[n.id] for n in graph.nodes if not n.maintained])
    lines += _mermaid_class("cycle", "stroke-width: 3px", [names[name] for cycle in graph.cycles for name in cycle])
    return "\n".join(lines) + "\n"


def _mermaid_class(name: str, style: str, members: Sequence[str]) -> list[str]:
    return [f"  classDef {name} {style}", f"  class {','.join(members)} {name}"] if members else []
