"""The table of bad input: each row through the real program, with its own message, exit code and fix; nothing is lost.

| row | command | exit |
|---|---|---|
| no server | list, doctor | 1 |
| a server that does not answer | wake | 1 |
| a wrong URL | list | 78 |
| a server that is too old | list | 78 |
| unknown model prefix, missing extra, missing key | try, up | 78 |
| a bad setting | list | 78 |
| a contract with errors | check, load | 1 |
| a target document or marker that is missing | wake, inbox, doctor | 0, then 1 in the inbox |
| a git path that is no repository | wake, doctor | 1 |
| two contracts that publish to one place | check, wake | warning, then refused |
| a section edited by hand between approval and placing | approve | conflict |
| a contract revoked between approval and effect | load | refused |
"""

import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance import shell
from tests.acceptance.shell import EXAMPLE, Done, Person

pytestmark = pytest.mark.xdist_group("bad-input")


def refused(done: Done, code: int, *words: str) -> None:
    """It ended with this code, said all of these words on stderr, named a fix, and printed nothing as a result."""
    assert done.code == code, f"{done.code}\n{done.out}\n{done.err}"
    assert done.err.startswith("error: ")
    for word in (*words, "fix: "):
        assert word in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


# -- the server ------------------------------------------------------------------------------------------------------


def test_no_server_says_how_to_get_one(person: Person) -> None:
    """Without REDIS_URL and without an `up` in this directory every command that needs the store says both ways."""
    refused(person.types("list"), 1, "no server", "heinzelwerk up", "REDIS_URL", str(person.directory))
    looked = person.types("doctor")
    assert looked.code == 1
    assert "down store" in looked.out


def test_a_server_that_does_not_answer_is_named(person: Person) -> None:
    """The address is in the message, without a password that it may hold."""
    done = person.types("wake", "x", REDIS_URL="redis://:hunter2secret@127.0.0.1:1/0")
    refused(done, 1, "127.0.0.1:1", "start the server, or correct REDIS_URL")
    assert "hunter2secret" not in done.err


def test_a_wrong_url_is_a_setting(person: Person) -> None:
    """The variable is named, with the form to write."""
    refused(person.types("list", REDIS_URL="http://localhost"), 78, "REDIS_URL", "redis://")


class _OldServer(socketserver.StreamRequestHandler):
    """Speaks just enough of the protocol to be Redis 5."""

    def handle(self) -> None:
        """Answer as Redis 5 does: HELLO is not known, everything else is fine."""
        while line := self.rfile.readline():
            words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2] for _ in range(int(line[1:]))]
            if words[0].upper() == b"HELLO":
                self.wfile.write(b"-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n")
            else:
                self.wfile.write(b"+OK\r\n")


@pytest.fixture
def old_server() -> Iterator[str]:
    """The address of something that answers like Redis 5."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _OldServer) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"redis://127.0.0.1:{server.server_address[1]}/0"
        server.shutdown()


def test_a_server_that_is_too_old_is_refused(person: Person, old_server: str) -> None:
    """Nothing is tried on a server that lacks what the scripts use."""
    refused(person.types("list", REDIS_URL=old_server), 78, "older than 6.2", "upgrade")


# -- settings and models ---------------------------------------------------------------------------------------------


def test_every_bad_setting_is_named_at_once(person: Person) -> None:
    """File, key and reason for each, with a suggestion for a key that does not exist."""
    (person.directory / "heinzelwerk.toml").write_text(
        '[heinzel]\nmodl = "x"\nmax_usd = "lots"\n[store]\nlease = "fast"\n'
    )
    done = person.types("list")
    assert done.code == 78
    for words in ("heinzelwerk.toml", "modl", "max_usd", "lease"):
        assert words in done.err
    assert done.err.count("did you mean 'model'?") == 1
    (example,) = [word for word in done.err.split() if word.endswith("heinzelwerk.example.toml")]
    assert Path(example).is_file()


def test_a_settings_file_that_is_not_there_is_named(person: Person) -> None:
    """--config with a name that does not exist is no default."""
    done = person.types("list", "--config", "nope.toml")
    assert done.code == 78
    assert "nope.toml" in done.err


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("nonsense:large", ("nonsense", "offline")),
        ("mistral:mistral-large-latest", ("mistral", "pip install", "heinzelwerk[mistral]")),
        ("anthropic:claude-sonnet-4-5", ("anthropic", "ANTHROPIC_API_KEY")),
    ],
    ids=["unknown-prefix", "missing-extra", "missing-key"],
)
def test_a_model_that_cannot_run_is_said_before_anything_starts(
    tmp_path: Path, model: str, words: tuple[str, ...]
) -> None:
    """`try` ends with 78 and names the prefix, the extra or the key."""
    person = shell.settle(tmp_path / "team")
    settings = person.directory / "heinzelwerk.toml"
    settings.write_text(settings.read_text().replace('"offline"', json.dumps(model)))
    refused(person.types("try", "workflows/changelog.prose.md"), 78, *words)


def test_up_does_not_start_with_a_model_that_cannot_run(tmp_path: Path) -> None:
    """An hour later it would have been a failed turn; the doctor finds the same."""
    person = shell.settle(tmp_path / "team")
    settings = person.directory / "heinzelwerk.toml"
    settings.write_text(settings.read_text().replace('"offline"', '"nonsense:large"'))
    refused(person.types("up"), 78, "nonsense")
    assert "down models" in person.types("doctor").out


# -- contracts -------------------------------------------------------------------------------------------------------


def test_a_contract_with_errors_is_named_by_file_and_line(person: Person) -> None:
    """Each finding is `file:line  code  field  message` with a hint; the count comes last; exit 1."""
    broken = person.directory / "workflows" / "broken.prose.md"
    broken.parent.mkdir()
    broken.write_text("---\nname: broken\nkind: responsibility\nhz: {schema: 1}\n---\n### Goal\n")
    done = person.types("check")
    assert done.code == 1
    assert "broken.prose.md:" in done.out
    assert "HZC002" in done.out
    assert "hint: " in done.out
    assert "1 contract checked: " in done.out.splitlines()[-1]
    refused(person.types("try", str(broken)), 1, "broken.prose.md", "heinzelwerk check")


def test_two_contracts_on_one_place_are_warned_about(tmp_path: Path) -> None:
    """`check` names both places; a warning stops nothing."""
    person = shell.settle(tmp_path / "team")
    contract(person, "twin")
    done = person.types("check", "--json")
    found = [one for one in done.data["diagnostics"] if one["code"] == "HZC014"]
    assert done.code == 0
    assert {Path(one["file"]).name for one in found} == {"changelog.prose.md", "twin.prose.md"}


def test_an_action_that_nothing_provides_is_warned_about(tmp_path: Path) -> None:
    """`check` knows the publishers of the settings, and says `warning`; where there are no settings it cannot know."""
    person = shell.settle(tmp_path / "team")
    contract(person, "typo", marker="typo")
    path = person.directory / "workflows" / "typo.prose.md"
    path.write_text(path.read_text().replace("documents.replace-section", "documents.replace-sektion"))
    done = person.succeeds("check")
    (said,) = [line for line in done.out.splitlines() if "HZC012" in line]
    assert "warning: nothing installed provides documents.replace-sektion" in said
    assert "documents.replace-section" in done.out
    (person.directory / "heinzelwerk.toml").unlink()
    assert "HZC012" not in person.succeeds("check").out


def test_several_files_are_checked_at_once(tmp_path: Path) -> None:
    """What a shell makes of workflows/*.prose.md, or a commit hook of the files that were changed."""
    person = shell.settle(tmp_path / "team")
    names = ["workflows/changelog.prose.md", "workflows/nope.prose.md"]
    done = person.types("check", *names)
    assert done.code == 1
    assert "nope.prose.md:1 HZC001" in done.out
    assert "2 contracts checked: 1 error, 0 warnings" in done.out


def test_a_trial_that_could_place_nothing_says_what_to_correct(tmp_path: Path) -> None:
    """Neither a missing page nor a missing section ends in the advice to load it; a name finds its file as everywhere."""
    person = shell.settle(tmp_path / "team")
    contract(person, "lost", marker="nowhere")
    done = person.types("try", "lost")
    assert "this draft could not be placed: changes.md has no section nowhere" in done.out
    assert "Next: correct what is named above" in done.err
    well = person.succeeds("try", "changelog")
    assert "Next: heinzelwerk load, then heinzelwerk wake changelog" in well.err
    slip = person.types("try", "changelgo")
    assert slip.code == 2
    assert "there is no file 'changelgo', and no workflows/changelgo.prose.md" in slip.err


# -- what stands at the other end, on a deployment that runs ---------------------------------------------------------


def contract(
    person: Person, name: str, *, ref: str = "changes.md", marker: str = "changelog", repository: str = "this"
) -> None:
    """A contract of the team like its changelog, under another name and with another target."""
    text = (EXAMPLE / "workflows" / "changelog.prose.md").read_text()
    text = text.replace("name: changelog", f"name: {name}").replace('  schedule: "0 7 * * MON-FRI"\n', "")
    text = text.replace("ref: changes.md, marker: changelog", f"ref: {ref}, marker: {marker}")
    text = text.replace("repository: this", f"repository: {repository}")
    (person.directory / "workflows" / f"{name}.prose.md").write_text(text)


def page(person: Person, name: str, marker: str) -> Path:
    """A document with one empty section."""
    path = person.directory / "documents" / name
    path.write_text(f"# {name}\n\n<!-- heinzelwerk:begin {marker} -->\n<!-- heinzelwerk:end {marker} -->\n\nOurs.\n")
    return path


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """A team with trouble of every kind, up and running."""
    directory = tmp_path_factory.mktemp("crew") / "team"
    empty = tmp_path_factory.mktemp("empty")
    person = shell.settle(directory, more="")
    settings = directory / "heinzelwerk.toml"
    settings.write_text(settings.read_text().replace("[documents]", f'gone = "{empty}"\n\n[documents]'))
    contract(person, "no-document", ref="missing.md", marker="m")
    contract(person, "no-marker", ref="digest.md", marker="nowhere")
    contract(person, "no-repository", ref="spare.md", marker="s", repository="gone")
    contract(person, "twin")
    contract(person, "no-chat", ref="spare.md", marker="c")
    path = directory / "workflows" / "no-chat.prose.md"
    path.write_text(
        path.read_text()
        .replace("code-host:read", "chat:read")
        .replace("code-host.merged_pull_requests", "chat.messages")
        .replace("args: {repository: this}", "args: {channel: ops}")
    )
    for name in ("edited", "revoked"):
        contract(person, name, ref=f"{name}.md", marker="m")
        page(person, f"{name}.md", "m")
    with shell.up(person):
        yield person


def waiting(person: Person, name: str) -> dict[str, object]:
    """Wake it, and answer its newest draft."""
    turn = person.succeeds("wake", name, "--wait", "--json").data["turn"]
    drafts = person.succeeds("drafts", "--json").data["drafts"]
    (draft,) = [one for one in drafts if (one["heinzel"], one["turn"]) == (name, turn)]
    return dict(draft)


@pytest.mark.parametrize(("name", "words"), [("no-document", "missing.md"), ("no-marker", "nowhere")])
def test_a_target_that_is_missing_is_in_the_inbox_with_its_reason(crew: Person, name: str, words: str) -> None:
    """The turn ends, its text is kept, the draft says which document or marker is missing; the doctor warns of it."""
    draft = waiting(crew, name)
    assert draft["state"] == "failed"
    assert words in str(draft["reason"])
    assert "Add a door" in crew.succeeds("drafts", str(draft["id"])).out
    assert any(item["id"] == draft["id"] for item in crew.succeeds("inbox", "--json").data["items"])
    assert words in crew.succeeds("doctor").out


def test_a_path_that_is_no_repository_fails_the_turn_with_its_name(crew: Person) -> None:
    """The turn ends failed, exit 1, and names the repository as the contract calls it; the doctor warns of it."""
    done = crew.types("wake", "no-repository", "--wait", "--json")
    assert (done.code, done.data["state"]) == (1, "failed")
    assert "gone" in done.data["reason"]
    assert "repository gone" in crew.succeeds("doctor").out


def test_an_input_that_nothing_here_reads_is_known_to_the_doctor(crew: Person) -> None:
    """The failed turn advises the doctor, who names contract and input before the first turn too."""
    said = crew.succeeds("doctor").out
    assert "crew/no-chat cannot read merged: nothing here serves chat.messages" in said
    assert "fix: set up chat in heinzelwerk.toml" in said
    done = crew.types("wake", "no-chat", "--wait", "--json")
    assert (done.code, done.data["state"]) == (1, "failed")
    assert "nothing here serves chat.messages" in done.data["reason"]


def test_the_second_contract_on_one_place_is_refused_when_it_plans(crew: Person) -> None:
    """Its draft fails and names the other contract: two that replace each other's text never begin."""
    draft = waiting(crew, "twin")
    assert draft["state"] == "failed"
    assert "changelog publishes to" in str(draft["reason"])


def test_a_section_edited_after_the_approval_is_a_conflict_and_keeps_the_edit(crew: Person) -> None:
    """What a person wrote between approval and placing stands; the effect fails with the reason."""
    draft = waiting(crew, "edited")
    crew.succeeds("drain", "--wait")
    try:
        crew.succeeds("approve", str(draft["id"]))
        path = crew.directory / "documents" / "edited.md"
        path.write_text(path.read_text().replace("-->\n<!-- heinzelwerk:end", "-->\nBy hand.\n<!-- heinzelwerk:end"))
    finally:
        crew.succeeds("drain", "--off")
    ended = settled(crew, str(draft["id"]))
    assert ended["state"] == "failed"
    assert "By hand." in path.read_text()
    assert "Add a door" not in path.read_text()


def test_a_contract_revoked_after_the_approval_places_nothing(crew: Person) -> None:
    """A contract that is taken away between approval and effect changes nothing any more; the effect says so."""
    draft = waiting(crew, "revoked")
    crew.succeeds("drain", "--wait")
    try:
        crew.succeeds("approve", str(draft["id"]))
        (crew.directory / "workflows" / "revoked.prose.md").unlink()
        assert "revoked" in crew.types("load", "--json").data["teams"][0]["removed"]
    finally:
        crew.succeeds("drain", "--off")
    ended = settled(crew, str(draft["id"]))
    assert ended["state"] == "refused"
    assert ended["reason"]
    assert "Add a door" not in (crew.directory / "documents" / "revoked.md").read_text()


def settled(person: Person, draft: str) -> dict[str, object]:
    """The draft, once its effect has ended."""
    found: dict[str, object] = {}

    def ended() -> bool:
        found.update(person.succeeds("drafts", draft, "--json").data["draft"])
        return found["state"] in ("completed", "failed", "refused")

    shell.wait_for(ended, "the effect to end")
    return found
