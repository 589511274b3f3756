"""Every row of the conformance corpus, run whole; the rows that deviate on purpose are listed in `corpus.DEVIATIONS`."""

from datetime import datetime
from typing import Any

import pytest

from heinzelwerk import contract, forms, ids, schedule, text, verification
from heinzelwerk.contract import Installed, Reading, directory, graph, methods
from tests.unit.contract.corpus import CORPUS, DEVIATIONS, kept, rows

BERLIN = schedule.zone("Europe/Berlin")


def places(reading: Reading) -> list[tuple[str, int, str, str]]:
    return sorted((d.code, d.line, d.severity.value, d.field) for d in reading.diagnostics)


def recorded(row: dict[str, Any]) -> list[tuple[str, int, str, str]]:
    return sorted((d["code"], d["line"], d["severity"], d["field"]) for d in row["diagnostics"])


@pytest.mark.parametrize("row", kept("expected.jsonl", "file"), ids=lambda row: row["file"])
def test_contract_file(row: dict[str, Any]) -> None:
    """A contract file gives the recorded diagnostics, hashes and normalised frontmatter."""
    data = (CORPUS / "cases" / row["file"]).read_bytes()
    reading = contract.read(data, file_name=row["name"], namespace="me")
    assert places(reading) == recorded(row)
    assert reading.valid is row["valid"]
    if "sha256" in row:
        assert reading.sha256 == row["sha256"]
    if "body_sha256" in row:
        assert reading.body_sha256 == row["body_sha256"]
    if "frontmatter" in row:
        assert reading.contract is not None
        assert dict(reading.contract.frontmatter) == row["frontmatter"]


@pytest.mark.parametrize("file", [name for name in DEVIATIONS if name.endswith(".md")])
def test_contract_file_that_deviates(file: str) -> None:
    """A file that was accepted for a value that only compares equal is refused at that value's line."""
    row = next(row for row in rows("expected.jsonl") if row["file"] == file)
    reading = contract.read((CORPUS / "cases" / file).read_bytes(), file_name=row["name"], namespace="me")
    assert [d.code for d in reading.diagnostics] == ["HZC002"]
    assert row["valid"]
    assert not reading.valid


@pytest.mark.parametrize("row", rows("expected_sets.jsonl"), ids=lambda row: row["set"])
def test_set(row: dict[str, Any]) -> None:
    """A whole directory gives the recorded diagnostics for each contract, cycles, gaps and edges."""
    parts = (directory.read_directory(CORPUS / "sets" / row["set"] / ns, namespace=ns) for ns in ("team", "me"))
    report = contract.check_set(reading for part in parts for reading in part)
    assert [(r.namespace, r.name, r.valid, places(r)) for r in report.readings] == [
        (c["namespace"], c["name"], c["valid"], recorded(c)) for c in row["contracts"]
    ]
    assert [list(cycle) for cycle in report.graph.cycles] == row["cycles"]
    assert [(e.source, e.target, e.kind.value, e.input) for e in report.graph.edges] == [
        (e["source"], e["target"], e["kind"], e.get("input")) for e in row["edges"]
    ]
    assert [(gap.contract, gap.input) for gap in report.graph.unmaintained] == [
        (gap["contract"], gap["input"]) for gap in row["unmaintained"]
    ]
    assert graph.mermaid(report.graph).startswith("flowchart LR\n")


@pytest.mark.parametrize("row", rows("expected_service.jsonl"), ids=lambda row: row["file"])
def test_service(row: dict[str, Any]) -> None:
    """With an installation's operations and tools known, a contract gives the recorded diagnostics."""
    installed = Installed(actions={"heinzel.wake": "write"}, runner_tools=frozenset({"Read", "Grep", "Glob"}))
    data = (CORPUS / "service" / row["file"]).read_bytes()
    reading = contract.read(data, file_name=row["name"], namespace="me")
    (checked,) = contract.check_set([reading], installed=installed).readings
    assert places(checked) == recorded(row)
    assert checked.valid is row["valid"]


@pytest.mark.parametrize("row", rows("text_cases.jsonl"), ids=lambda row: row["note"])
def test_text(row: dict[str, Any]) -> None:
    """Text is cleaned and redacted as recorded."""
    rules = {"clean_text": text.clean_text, "redact_emails": text.redact_emails, "redact_emails(clean_text)": text.safe}
    assert rules[row["fn"]](row["in"]) == row["out"]


def normal_form(kind: str, value: Any) -> Any:
    match kind:
        case "duration":
            return forms.duration_text(forms.duration(value))
        case "window":
            return str(forms.window(value))
        case "requirement":
            return str(forms.requirement(value, modes_of=methods.MODES))
        case "mail_query":
            query = forms.MailQuery.parse(value)
            return {"sender": query.sender, "subject": query.subject, "label": query.label}
        case "addresses":
            return list(forms.people(value))
        case "contract_name":
            if not ids.is_name(value):
                raise ValueError(f"{value!r} is no name")
            return value
    raise AssertionError(f"the corpus has a new kind: {kind}")


@pytest.mark.parametrize("row", rows("values.jsonl"), ids=lambda row: f"{row['kind']}-{row['in']!r}"[:60])
def test_value(row: dict[str, Any]) -> None:
    """A value form is accepted or refused as recorded, and has the recorded normal form."""
    if row["ok"]:
        assert normal_form(row["kind"], row["in"]) == row["out"]
    else:
        with pytest.raises(ValueError, match=r".+"):
            normal_form(row["kind"], row["in"])


@pytest.mark.parametrize("row", kept("schedules.jsonl", "schedule"), ids=lambda row: row["schedule"])
def test_schedule(row: dict[str, Any]) -> None:
    """A cron text is valid or not as recorded, and its next three times are, in Berlin too."""
    problem = schedule.problem(row["schedule"])
    assert (problem is None) is row["valid"]
    if problem is not None:
        assert problem.fault == row["kind"]
        return
    for day in ("2026_03_28", "2026_10_24"):
        start = datetime.fromisoformat(day.replace("_", "-"))
        for zone, key in ((schedule.zone("UTC"), f"after_{day}"), (BERLIN, f"berlin_after_{day}")):
            found, slot = [], schedule.place(start, zone)
            for _ in row[key]:
                following = schedule.Schedule(row["schedule"], zone).next_slot(slot)
                assert following is not None
                slot = following
                found.append((slot.replace(tzinfo=None) if zone is not BERLIN else slot).isoformat())
            assert found == row[key]


def test_schedule_that_deviates() -> None:
    """A random minute is refused, with its own reason."""
    (row,) = (row for row in rows("schedules.jsonl") if row["schedule"] in DEVIATIONS)
    problem = schedule.problem(row["schedule"])
    assert problem is not None
    assert problem.fault is schedule.Fault.RANDOM


@pytest.mark.parametrize("row", rows("dst.jsonl"), ids=lambda row: f"{row['zone']} {row['schedule']} {row['after']}")
def test_clock_change(row: dict[str, Any]) -> None:
    """Slots over a clock change are the recorded ones, each once; so is the latest."""
    cron = schedule.Schedule.parse(row["schedule"], timezone=row["zone"])
    after, until = datetime.fromisoformat(row["after"]), datetime.fromisoformat(row["until"])
    assert [slot.isoformat() for slot in cron.slots(after, until)] == row["slots"]
    latest = cron.latest(after, until)
    assert (latest.isoformat() if latest else None) == row["latest"]


@pytest.mark.parametrize("row", rows("expected_spine.jsonl"), ids=lambda row: row["file"])
def test_spine(row: dict[str, Any]) -> None:
    """An exported spine keeps the recorded events, and stops at the recorded line for the recorded reason."""
    found = verification.verify((CORPUS / "spine" / row["file"]).read_bytes())
    assert found.ok is row["ok"]
    assert len(found.events) == row["events"]
    assert list(found.hashes) == row["hashes"]
    assert (found.bad_line, found.why) == (row.get("bad_line"), row.get("why"))
