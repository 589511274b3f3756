"""Checks over several contracts and an installation: cycles, gaps, personal inputs, targets, actions, tools, skills."""

from heinzelwerk import contract
from heinzelwerk.contract import Installed, Reading, SetReport, graph
from tests.unit.contract.writing import document


def member(name: str, reads: dict[str, str] | None = None, *, namespace: str = "team", hz: str = "") -> Reading:
    inputs = "".join(f'    {key}: {{read: "contract:{read}", stage: draft}}\n' for key, read in (reads or {}).items())
    text = document(hz + (f"  inputs:\n{inputs}" if inputs else ""), inputs="".join(reads or {}))
    data = text.replace("name: x", f"name: {name}").encode()
    return contract.read(data, file_name=f"{name}.prose.md", namespace=namespace, file=f"workflows/{name}.prose.md")


def found(report: SetReport) -> list[tuple[str, str, str]]:
    return [(reading.id, d.code, d.field) for reading in report.readings for d in reading.diagnostics]


def test_a_cycle_marks_only_the_inputs_that_close_it() -> None:
    """Members of a cycle are refused at the inputs between them; who only reads a member is not."""
    report = contract.check_set(
        [
            member("a", {"b": "team/b#page", "c": "team/c#page"}),
            member("b", {"a": "team/a#page"}),
            member("c"),
            member("d", {"a": "team/a#page"}),
        ]
    )
    assert found(report) == [("team:a", "HZC030", "hz.inputs.b.read"), ("team:b", "HZC030", "hz.inputs.a.read")]
    assert report.graph.cycles == (("team:a", "team:b"),)
    assert [reading.valid for reading in report.readings] == [False, False, True, True]


def test_the_order_puts_maintainers_before_readers() -> None:
    """Each contract stands after those that it reads, whatever the order of the files."""
    chain = [member(f"c{n}", {"a": f"team/c{n + 1}#page"} if n < 5 else None) for n in range(6)]
    assert contract.check_set(chain).graph.order == tuple(f"team:c{n}" for n in reversed(range(6)))


def test_a_long_chain_and_a_large_cycle_need_no_recursion() -> None:
    """Twelve hundred contracts in one chain, closed to a cycle, are checked."""
    size = 1200
    ring = [member(f"c{n}", {"a": f"team/c{(n + 1) % size}#page"}) for n in range(size)]
    report = contract.check_set(ring)
    assert len(report.graph.cycles[0]) == size
    assert report.errors == size


def test_gaps_and_personal_inputs() -> None:
    """A missing contract, another output and a personal contract are three different findings; the last goes first."""
    report = contract.check_set(
        [
            member("a", {"b": "team/no#page", "c": "team/z#other", "d": "me/no#page"}),
            member("z"),
            member("m", {"b": "me/no#page"}, namespace="me"),
        ]
    )
    assert found(report) == [
        ("team:a", "HZC031", "hz.inputs.b.read"),
        ("team:a", "HZC031", "hz.inputs.c.read"),
        ("team:a", "HZC032", "hz.inputs.d.read"),
        ("me:m", "HZC031", "hz.inputs.b.read"),
    ]
    assert [reading.valid for reading in report.readings] == [False, True, True]
    assert "maintains page, not other" in report.readings[0].diagnostics[1].message


def test_loose_files_are_not_judged_as_a_set() -> None:
    """Without the whole set nothing is said about cycles and gaps."""
    assert found(contract.check_set([member("a", {"b": "team/no#page"})], whole=False)) == []


def test_two_contracts_with_one_target_and_marker_are_warned() -> None:
    """Two sections with one marker in one document would replace each other; other markers and documents are fine."""

    def publishing(name: str, ref: str, marker: str) -> Reading:
        args = f"{{ref: {ref}, marker: {marker}}}"
        return member(
            name, hz=f"  publishes:\n    - {{action: documents.replace-section, output: page, args: {args}}}\n"
        )

    report = contract.check_set(
        [
            publishing("a", "x.md", "m"),
            publishing("b", "x.md", "m"),
            publishing("c", "x.md", "n"),
            publishing("d", "y.md", "m"),
        ]
    )
    field = "hz.publishes.0.args.marker"
    assert found(report) == [("team:a", "HZC014", field), ("team:b", "HZC014", field)]
    assert "team:b" in report.readings[0].diagnostics[0].message
    assert report.errors == 0


def test_what_is_installed_decides_over_actions_tools_and_skills() -> None:
    """Unknown actions, tools and skills are warnings, a reading action and a placeholder are errors."""
    hz = (
        "  uses: [known, absent]\n  agent: {tools: [Read, Bash]}\n"
        "  publishes: [{action: no.where, output: page}, {action: docs.read, output: page}, {action: docs.place, output: page}]\n"
    )
    installed = Installed(
        actions={"docs.read": "read", "docs.place": "write"},
        runner_tools=frozenset({"Read"}),
        skills=frozenset({"known"}),
    )
    report = contract.check_set([member("a", hz=hz)], installed=installed)
    assert sorted(found(report)) == [
        ("team:a", "HZC012", "hz.publishes.0.action"),
        ("team:a", "HZC013", "hz.publishes.1.action"),
        ("team:a", "HZC015", "hz.uses.1"),
        ("team:a", "HZC024", "hz.agent.tools.1"),
    ]
    assert report.errors == 1
    assert found(contract.check_set([member("a", hz=hz)])) == []


def test_json_shape_of_a_report() -> None:
    """`check --json` is the files, then diagnostics of exactly seven keys."""
    shape = contract.check_set([member("a", {"b": "team/no#page"})]).as_dict()
    assert shape["files"] == ["workflows/a.prose.md"]
    (diagnostic,) = shape["diagnostics"]
    assert list(diagnostic) == ["file", "line", "code", "severity", "field", "message", "hint"]
    assert (diagnostic["file"], diagnostic["line"], diagnostic["severity"]) == ("workflows/a.prose.md", 11, "warning")


def test_mermaid_labels_hold_no_markup() -> None:
    """Quotes, hashes and angle brackets in arguments cannot end a label or begin an element."""
    hz = '  requires: [documents:read]\n  inputs:\n    a: {read: documents.read, args: {ref: "<b>\\"#x\\"&"}}\n'
    data = document(hz, inputs="a").encode()
    chart = graph.mermaid(contract.check_set([contract.read(data, file_name="x.prose.md")]).graph)
    labels = [line.split('"')[1] for line in chart.splitlines() if '"' in line]
    assert len(labels) == 3
    assert not any(set('<>"') & set(label) for label in labels)
    assert all(line.count('"') in (0, 2) for line in chart.splitlines())


def test_text_of_a_graph_names_what_is_wrong() -> None:
    """The terminal form shows reads, maintains, gaps and cycles; of nothing it says so."""
    shown = graph.text(contract.check_set([member("a", {"a": "team/a#page", "b": "team/no#page"})]).graph)
    assert "team:a  (on a cycle)" in shown
    assert "contract:team/no#page  (nobody maintains it)" in shown
    assert "cycle: team:a" in shown
    assert graph.text(contract.check_set([]).graph) == "no contracts\n"
