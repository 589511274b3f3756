"""Reading from a disk: which files count, and that no link is followed."""

import os
from pathlib import Path

import pytest

from heinzelwerk import contract
from heinzelwerk.contract import directory, starter
from tests.unit.contract.writing import document


def write(path: Path, text: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.name.removesuffix(contract.SUFFIX)
    path.write_text(document().replace("name: x", f"name: {name}") if text is None else text, encoding="utf-8")
    return path


def test_one_level_or_all(tmp_path: Path) -> None:
    """A team's directory is read flat; `check PATH` looks below, but not into hidden directories; other files are left."""
    for name in ("b.prose.md", "a.prose.md", "notes.md", "sub/c.prose.md", ".git/d.prose.md"):
        write(tmp_path / name)
    assert [r.name for r in directory.read_directory(tmp_path)] == ["a", "b"]
    assert [r.name for r in directory.read_path(tmp_path)] == ["a", "b", "c"]
    assert all(r.valid for r in directory.read_path(tmp_path))


def test_one_bad_file_hides_no_other(tmp_path: Path) -> None:
    """A broken contract is reported beside the good ones."""
    write(tmp_path / "bad.prose.md", "\x00")
    write(tmp_path / "good.prose.md")
    assert [(r.name, r.valid) for r in directory.read_directory(tmp_path)] == [("bad", False), ("good", True)]


def test_links_are_never_followed(tmp_path: Path) -> None:
    """A linked file or directory inside is skipped; a linked or false directory itself is one HZC001."""
    outside = write(tmp_path / "outside" / "secret.prose.md")
    team = tmp_path / "team"
    write(team / "a.prose.md")
    (team / "linked.prose.md").symlink_to(outside)
    (team / "sub").symlink_to(outside.parent)
    assert [r.name for r in directory.read_path(team)] == ["a"]
    link = tmp_path / "link"
    link.symlink_to(team)
    file = tmp_path / "file"
    file.write_text("")
    for place in (link, file):
        (reading,) = directory.read_directory(place)
        assert [(d.code, d.line, d.field) for d in reading.diagnostics] == [("HZC001", 1, "directory")]
    linked_file = tmp_path / "y.prose.md"
    linked_file.symlink_to(outside)
    (reading,) = directory.read_path(linked_file)
    assert not reading.valid


def test_a_single_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    """`check FILE` says what is wrong with the name, too; a path that is not there says so."""
    (reading,) = directory.read_path(write(tmp_path / "x.md", document()))
    assert [d.code for d in reading.diagnostics] == ["HZC010"]
    (missing,) = directory.read_path(tmp_path / "no.prose.md")
    assert [(d.code, d.field) for d in missing.diagnostics] == [("HZC001", "file")]
    assert directory.read_directory(tmp_path / "absent") == ()


def test_pipes_and_too_large_files_end_at_once(tmp_path: Path) -> None:
    """A named pipe does not hold the check, and a huge file is not read into memory."""
    os.mkfifo(tmp_path / "pipe.prose.md")
    with (tmp_path / "huge.prose.md").open("wb") as sparse:
        sparse.truncate(4 * 1024**3)
    by_name = {r.name: r for r in directory.read_directory(tmp_path)}
    assert [d.code for d in by_name["huge"].diagnostics] == ["HZC001"]
    (pipe,) = directory.read_path(tmp_path / "pipe.prose.md")
    assert not pipe.valid


@pytest.mark.parametrize("name", ["weekly-notes", "a", "a" * 64])
def test_a_new_contract_is_valid_as_it_is(name: str) -> None:
    """What `new` writes passes its own check, without a warning, and names itself."""
    reading = contract.read(contract.template(name).encode(), file_name=starter.file_name(name))
    assert reading.diagnostics == ()
    assert reading.name == name


@pytest.mark.parametrize("name", ["Weekly", "-a", "a--b", "", "a" * 65, "x\n---"])
def test_a_bad_name_gives_no_contract(name: str) -> None:
    """`new` refuses a name that no contract may have."""
    with pytest.raises(ValueError, match="no contract name"):
        contract.template(name)
