"""Skills: the format's limits, what tries to grant, precedence between layers, and which turns get which."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heinzelwerk import contract, skill, skill_directory
from heinzelwerk.skill import Applies, Layer, Refusal, Skill
from tests.unit.contract.writing import document


def main(extra: str = "", *, body: str = "# How\n", name: str = "demo", description: str = "Does x.") -> bytes:
    return f"---\nname: {name}\ndescription: {description}\n{extra}---\n{body}".encode()


def read(files: dict[str, bytes] | None = None, *, name: str = "demo", layer: Layer = Layer.TEAM) -> Skill | Refusal:
    return skill.read(name, {"SKILL.md": main(name=name), **(files or {})}, layer=layer)


def good(extra: str = "", *, name: str = "demo", layer: Layer = Layer.TEAM, body: str = "# How\n") -> Skill:
    found = skill.read(name, {"SKILL.md": main(extra, name=name, body=body)}, layer=layer)
    assert isinstance(found, Skill), found
    return found


def test_a_plain_skill_is_read() -> None:
    """The files of other tools' skills work as they are: hints are kept as text and never applied."""
    found = good("license: MIT\nallowed-tools: [Read, Grep]\nuser-invocable: false\nmetadata: {author: team, n: 1}\n")
    assert (found.name, found.description, found.body, found.applies) == ("demo", "Does x.", "# How", None)
    assert dict(found.hints) == {
        "license": "MIT",
        "metadata": "author=team, n=1",
        "allowed-tools": "Read, Grep",
        "user-invocable": "false",
    }


@pytest.mark.parametrize(
    "key",
    [
        "hz: {tools: [Bash]}",
        "hz: {applies: {roles: [a]}, inputs: {}}",
        "hz: 1",
        "hz.tools: x",
        "hzx: 1",
        "HZ: {}",
        "metadata: {hz.grants: all}",
        "metadata: {hz: all}",
    ],
)
def test_a_skill_cannot_grant(key: str) -> None:
    """Anything under `hz` but `hz.applies` is refused with HZC051, wherever it is hidden."""
    found = skill.read("demo", {"SKILL.md": main(f"{key}\n")})
    assert isinstance(found, Refusal)
    assert found.code == "HZC051"
    assert "HZC051" in str(found)


APPLIES = Applies(
    asset_types=frozenset({"weekly-report"}), roles=frozenset({"lead"}), capabilities=frozenset({"tracker", "chat"})
)


@pytest.mark.parametrize(
    "extra",
    [
        "hz: {applies: {asset_types: [weekly-report], roles: lead, capabilities: [tracker, chat]}}\n",
        "hz.applies: [asset:weekly-report, role:lead, capability:tracker, capability:chat]\n",
        'metadata: {hz.applies: "asset:weekly-report role:lead, capability:tracker capability:chat"}\n',
    ],
)
def test_applies_has_three_forms_of_one_meaning(extra: str) -> None:
    """Frontmatter, dotted key and the format's own metadata map say the same."""
    assert good(extra).applies == APPLIES


@pytest.mark.parametrize(
    "value", ["[tracker]", "{tools: [x]}", "tracker", "{roles: [Bad Name]}", "3", "", "[[role:a]]"]
)
def test_applies_that_cannot_be_read(value: str) -> None:
    """What is none of the forms is refused, with the forms in the hint."""
    found = skill.read("demo", {"SKILL.md": main(f"hz.applies: {value}\n")})
    assert isinstance(found, Refusal)
    assert "capabilit" in found.hint


SECRETS = [
    "-----BEGIN RSA PRIVATE KEY-----",
    "ghp_" + "a" * 36,
    "AKIA" + "A" * 16,
    "sk-ant-" + "a" * 30,
    "xoxb-" + "1" * 12,
]


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"a.bin": b"\xff"}, "a.bin"),
        ({"a.md": b"x\0"}, "a.md:1"),
        ({"a.md": "x\ny\u200b".encode()}, "a.md:2"),
        ({"a.md": b"x" * (200 * 1024 + 1)}, "a.md"),
        ({f"a{n}.md": b"x" * 200 * 1024 for n in range(6)}, "files"),
        ({f"a{n}.md": b"x" for n in range(65)}, "files"),
        ({"a/b/c/d/e.md": b"x"}, "a/b/c/d/e.md"),
        ({"SKILL.md": main(body="x" * 64 * 1024)}, "SKILL.md"),
        ({"SKILL.md": main("license: " + "x" * 4200 + "\n")}, "SKILL.md:1"),
        ({"SKILL.md": main("foo: 1\n")}, "SKILL.md"),
        ({"SKILL.md": main("license: &a x\n")}, "SKILL.md:4"),
        ({"SKILL.md": main(description='""')}, "SKILL.md"),
        ({"SKILL.md": main(description='"a\\nb"')}, "SKILL.md"),
        ({"SKILL.md": main(description="d" * 1025)}, "SKILL.md"),
        ({"SKILL.md": main(name="other")}, "SKILL.md"),
        ({"SKILL.md": b"# no frontmatter\n"}, "SKILL.md:1"),
        *(({"notes.md": f"a\n{secret}".encode()}, "notes.md:2") for secret in SECRETS),
    ],
)
def test_what_is_refused(files: dict[str, bytes], place: str) -> None:
    """Every limit names the file, and the line where there is one."""
    found = read(files)
    assert isinstance(found, Refusal), found
    assert found.place == place
    assert found.hint


@pytest.mark.parametrize("name", ["hz-x", "hzfoo", "heinzelx", "a--b", "1a", "A", "a" * 65, ""])
def test_bad_names(name: str) -> None:
    """Our own prefixes and anything but words joined by dashes are no skill names."""
    assert isinstance(read(name=name), Refusal)


def test_limits_are_exact() -> None:
    """What is exactly at a limit is read."""
    room = 64 * 1024 - len(main(body=""))
    files = {
        "SKILL.md": main(body="x" * room),
        "a/b/c/d.md": b"x",
        "big.md": b"x" * 200 * 1024,
        **{f"f{n}.md": b"x" for n in range(62)},
    }
    assert isinstance(read(files), Skill)


def test_the_fingerprint_covers_paths_contents_and_their_borders() -> None:
    """Moving a byte between path and content, or between files, is another skill; order does not matter."""
    assert skill.fingerprint({"a": b"bc"}) != skill.fingerprint({"ab": b"c"})
    assert skill.fingerprint({"a": b"1", "b": b"2"}) == skill.fingerprint({"b": b"2", "a": b"1"})
    known = {"SKILL.md": b"---\nname: demo\ndescription: Does x.\n---\n# Body\n"}
    assert skill.fingerprint(known) == "aabba7116e09902a6299182dae5909d2cafe6c6d98d81732695a13c2633b8abf"


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=12), st.binary(max_size=60), max_size=4), st.text(max_size=120))
def test_any_files_are_judged(files: dict[str, bytes], head: str) -> None:
    """Whatever the files hold, the answer is a skill or a refusal."""
    data = f"---\n{head}\n---\n".encode("utf-8", "replace")
    assert isinstance(skill.read("demo", {**files, "SKILL.md": data}), Skill | Refusal)


def test_the_most_specific_layer_wins() -> None:
    """One name, all layers: the operator's counts, and the result goes from general to specific."""
    offered = [good(layer=layer, body=layer.name) for layer in (Layer.OPERATOR, Layer.PACKAGE, Layer.TEAM)]
    offered.append(good(name="zeta", layer=Layer.TEAM))
    resolved = skill.resolve(offered)
    assert [(s.name, s.layer) for s in resolved.skills] == [("zeta", Layer.TEAM), ("demo", Layer.OPERATOR)]
    assert resolved.named("demo") is offered[0]


def test_two_of_one_layer_that_differ_are_decided_by_a_more_specific_one_or_by_nobody() -> None:
    """Neither is guessed at; the same text twice is no dispute."""
    one, two = (good(layer=Layer.PACKAGE, body=body) for body in ("one", "two"))
    team = good(layer=Layer.TEAM, body="team")
    assert skill.resolve([one, two]) == skill.Resolved((), ("demo",))
    assert skill.resolve([one, two, team]).skills == (team,)
    assert len(skill.resolve([one, good(layer=Layer.PACKAGE, body="one")]).skills) == 1


def test_a_turn_gets_what_its_contract_names_and_what_applies() -> None:
    """`hz.uses` and matching `hz.applies`; every kind that a skill states must match; a name that is not there is missing."""
    data = document("  uses: [named, absent]\n  requires: [tracker:read]\n").encode()
    found = contract.read(data, file_name="x.prose.md").contract
    assert found is not None
    resolved = skill.resolve(
        [
            good(name="named"),
            good(name="other"),
            good("hz.applies: [capability:tracker]\n", name="fits"),
            good("hz.applies: [capability:chat]\n", name="unfit"),
            good("hz.applies: [capability:tracker, role:lead]\n", name="for-leads"),
        ]
    )
    selection = skill.select(resolved, found)
    assert [s.name for s in selection.skills] == ["fits", "named"]
    assert selection.missing == ("absent",)
    assert "for-leads" in [s.name for s in skill.select(resolved, found, roles=["lead"]).skills]


def test_reading_from_a_disk(tmp_path: Path) -> None:
    """Hidden files and caches are left out, links are refused, one bad skill hides no other."""
    for name in ("good", "bad", "linked"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_bytes(main(name=name))
    (tmp_path / "good" / ".hidden").write_bytes(b"\xff")
    (tmp_path / "good" / "__pycache__").mkdir()
    (tmp_path / "good" / "__pycache__" / "x.pyc").write_bytes(b"\xff")
    (tmp_path / "good" / "references").mkdir()
    (tmp_path / "good" / "references" / "a.md").write_text("more")
    (tmp_path / "bad" / "SKILL.md").unlink()
    (tmp_path / "linked" / "a.md").symlink_to("/etc/hostname")
    (tmp_path / "whole").symlink_to(tmp_path / "good")
    found = {entry.name: entry for entry in skill_directory.read_skills(tmp_path)}
    assert {name: isinstance(entry, Skill) for name, entry in found.items()} == {
        "bad": False,
        "good": True,
        "linked": False,
        "whole": False,
    }
    entry = found["good"]
    assert isinstance(entry, Skill)
    assert sorted(entry.files) == ["SKILL.md", "references/a.md"]
    assert skill_directory.read_skills(tmp_path / "absent") == ()
