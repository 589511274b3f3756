"""One wake from the shell: woken, drafted, decided, placed, read on by the next contract; then everything that can be asked."""

import json
from pathlib import Path

import psutil
import pytest

import heinzelwerk
from tests.acceptance import shell
from tests.acceptance.shell import Person

pytestmark = pytest.mark.xdist_group("crew")


@pytest.fixture(scope="module")
def placed(crew: Person) -> str:
    """The id of a draft that went the whole way: woken, drafted, approved as ada, placed."""
    woken = crew.succeeds("wake", "changelog", "--wait", "--json").data
    assert (woken["state"], woken["disposition"]) == ("completed", "accepted")
    (item,) = [item for item in crew.succeeds("inbox", "--json").data["items"] if item["heinzel"] == "changelog"]
    shown = crew.succeeds("drafts", item["id"])
    assert "Add a door" in shown.out
    assert "+- " in shown.out
    done = crew.succeeds("approve", item["id"], "--as", "ada", "--wait", "--json").data["draft"]
    assert (done["state"], done["decided_by"]) == ("completed", "ada")
    return str(item["id"])


def test_an_approved_draft_stands_in_the_document_once(crew: Person, placed: str) -> None:
    """The section holds every entry of the window, the words around it are untouched."""
    text = (crew.directory / "documents" / "changes.md").read_text()
    assert text.count("Add a door") == 1
    assert text.count("Fix the window") == 1
    assert text.startswith("# ")


def test_markers_say_what_placed_the_section(crew: Person, placed: str) -> None:
    """A placed section carries the effect's key and the hash of its content; before that its markers have neither."""
    fresh = (shell.EXAMPLE / "documents" / "changes.md").read_text()
    assert "<!-- heinzelwerk:begin changelog -->" in fresh
    text = (crew.directory / "documents" / "changes.md").read_text()
    key = crew.succeeds("drafts", placed, "--json").data["draft"]["key"]
    assert f"<!-- heinzelwerk:begin changelog key={key} sha256=" in text
    assert "<!-- heinzelwerk:end changelog -->" in text


async def test_the_python_client_sees_what_the_shell_sees(crew: Person, placed: str) -> None:
    """`heinzelwerk.connect` needs the address and the team: the same spine, the same drafts, wakes and decisions."""
    url = (crew.directory / ".heinzelwerk" / "server" / "server.url").read_text()
    async with heinzelwerk.connect(url, team="crew") as client:
        assert (await client.effect(placed)).decided_by == "ada"
        log = await client.log("changelog")
        reply = await client.wake("changelog", key="manual/from-python", by="a-program")
        assert reply.disposition == "accepted"
        async for _ in client.watch(reply):
            pass
        ended = await client.settled(reply)
        assert not isinstance(ended, str)
        assert ended is not None
        assert ended.wake.by == "a-program"
    exported = crew.succeeds("export", "changelog").out
    assert exported.startswith(b"".join(log.lines).decode())


def test_the_first_decision_wins_and_the_second_is_told_who_decided(crew: Person, placed: str) -> None:
    """A second decision changes nothing, ends with 1 and names who was first."""
    second = crew.types("decline", placed, "--as", "grace")
    assert second.code == 1
    assert "already decided by ada" in second.err


def test_a_log_tells_the_turn_and_the_decision(crew: Person, placed: str) -> None:
    """Steps with their tokens and cost, the draft, who approved it, that it was placed; as JSON the same events."""
    log = crew.succeeds("log", "changelog", "--turn", "1").out
    for words in ("turn started", "asks for read_merged", "effect planned", "approved by ada", "$0.0000"):
        assert words in log
    kinds = [event["kind"] for event in crew.succeeds("log", "changelog", "--json").data["events"]]
    assert kinds[0] == "turn.started"
    assert "turn.ended" in kinds


def test_the_approval_wakes_who_reads_the_output(crew: Person, placed: str) -> None:
    """The digest reads the approved changelog and asks for its own approval."""
    shell.wait_for(
        lambda: any(item["heinzel"] == "weekly-digest" for item in crew.succeeds("inbox", "--json").data["items"]),
        "the digest's draft",
    )
    assert "inputs" in crew.succeeds("log", "weekly-digest").out


def test_ten_wakes_with_one_key_are_one_turn(crew: Person) -> None:
    """The first is accepted, the others are duplicates of the same wake."""
    replies = [crew.succeeds("wake", "changelog", "--key", "manual/ten", "--json").data for _ in range(10)]
    assert [reply["disposition"] for reply in replies] == ["accepted"] + ["duplicate"] * 9
    assert len({reply["wake"] for reply in replies}) == 1
    crew.succeeds("wake", "changelog", "--key", "manual/ten", "--wait")
    events = crew.succeeds("log", "changelog", "--limit", "10000", "--json").data["events"]
    assert sum(event["data"].get("key") == "manual/ten" and event["kind"] == "turn.started" for event in events) == 1


def test_an_export_is_verifiable_and_a_changed_one_is_found(crew: Person, placed: str) -> None:
    """`export` writes lines whose chain `--verify` checks away from the server; one changed letter is named by its line."""
    file = crew.directory / "changelog.jsonl"
    crew.succeeds("export", "changelog", "-o", str(file))
    assert "the chain holds" in crew.succeeds("export", "--verify", str(file)).out
    lines = file.read_text().splitlines(keepends=True)
    lines[1] = lines[1].replace('"seq":2', '"seq":2 ', 1)
    file.write_text("".join(lines))
    broken = crew.types("export", "--verify", str(file), "--json")
    assert (broken.code, broken.data["bad_line"], broken.data["why"]) == (1, 3, "chain")


def test_a_declined_draft_places_nothing(crew: Person) -> None:
    """The document stays as it is; the draft says who declined and why."""
    before = (crew.directory / "documents" / "changes.md").read_text()
    shell.git(crew.directory / "product", "commit", "-q", "--allow-empty", "-m", "Paint the wall")
    turn = crew.succeeds("wake", "changelog", "--wait", "--json").data["turn"]
    (draft,) = [
        one
        for one in crew.succeeds("drafts", "--json").data["drafts"]
        if (one["heinzel"], one["turn"]) == ("changelog", turn)
    ]
    crew.succeeds("decline", draft["id"], "--reason", "too long")
    shown = crew.succeeds("drafts", draft["id"]).out
    assert "declined by tester" in shown
    assert "too long" in shown
    assert (crew.directory / "documents" / "changes.md").read_text() == before


def test_an_edited_draft_is_placed_as_edited(crew: Person) -> None:
    """Who edits while approving approves the edited text, and that is what is placed."""
    shell.git(crew.directory / "product", "commit", "-q", "--allow-empty", "-m", "Oil the hinges")
    turn = crew.succeeds("wake", "changelog", "--wait", "--json").data["turn"]
    (draft,) = [
        one
        for one in crew.succeeds("drafts", "--json").data["drafts"]
        if (one["heinzel"], one["turn"]) == ("changelog", turn)
    ]
    edited = crew.directory / "edited.md"
    edited.write_text("Only this line.\n")
    done = crew.succeeds("approve", draft["id"], "--edit", str(edited), "--wait", "--json").data["draft"]
    assert (done["state"], done["edited"]) == ("completed", True)
    assert "Only this line." in (crew.directory / "documents" / "changes.md").read_text()


def test_an_event_is_delivered_once(crew: Person) -> None:
    """The same delivery id of one source wakes once; its data reaches the turn, not the spine."""
    data = crew.directory / "event.json"
    data.write_text(json.dumps({"secret-word": "xyzzy"}))
    replies = [crew.succeeds("event", "changelog", "--id", "d-1", "--data", str(data), "--json").data for _ in range(2)]
    assert [reply["disposition"] for reply in replies] == ["accepted", "duplicate"]
    assert replies[0]["key"] == "event/cli/d-1"
    assert "xyzzy" not in crew.succeeds("log", "changelog", "--limit", "10000", "--json").out


def test_a_chat_message_gets_its_reply(crew: Person) -> None:
    """`chat` waits for the turn and prints what it said."""
    reply = crew.succeeds("chat", "changelog", "What changed?", "--json").data
    assert reply["key"].startswith("asked/cli/")
    assert reply["reply"]


def test_pause_and_resume_show_in_the_list(crew: Person) -> None:
    """A paused Heinzelmännchen says so until it is resumed."""

    def state() -> str:
        rows = crew.succeeds("list", "--json").data["heinzel"]
        return next(str(row["state"]) for row in rows if row["name"] == "changelog")

    crew.succeeds("pause", "changelog")
    assert state() == "paused"
    crew.succeeds("resume", "--all")
    crew.succeeds("resume", "changelog")
    assert state() == "scheduled"


def test_a_drained_deployment_keeps_wakes_and_goes_on_afterwards(crew: Person) -> None:
    """While drained nothing is claimed; after `drain --off` the wake that came meanwhile is worked off."""
    assert "nothing is at work" in crew.succeeds("drain", "--wait").out
    try:
        assert "drained" in crew.types("doctor").out
        crew.succeeds("wake", "changelog", "--key", "manual/drained")
    finally:
        crew.succeeds("drain", "--off")
    done = crew.succeeds("wake", "changelog", "--key", "manual/drained", "--wait", "--json").data
    assert (done["disposition"], done["state"]) == ("duplicate", "completed")


def test_what_is_asked_as_json_is_json_alone(crew: Person, placed: str) -> None:
    """stdout of every reading command with --json is one document."""
    for words in (
        ("list",),
        ("show", "changelog"),
        ("inbox",),
        ("drafts",),
        ("costs",),
        ("doctor",),
        ("check",),
        ("graph",),
    ):
        assert isinstance(crew.succeeds(*words, "--json").data, dict), words


def test_a_mistyped_name_gets_the_nearest_one(crew: Person) -> None:
    """Nobody is woken, and the fix names who was probably meant; where nobody is near it names the list."""
    for words in (("wake", "chnagelog"), ("wake", "chnagelog", "--wait"), ("chat", "chnagelog", "hello")):
        done = crew.types(*words)
        assert done.code == 1
        assert "did you mean changelog? `heinzelwerk list`" in done.err
    assert "did you mean" not in crew.types("wake", "quite-another").err


def test_a_dry_run_shows_what_the_model_would_get_and_its_price(crew: Person) -> None:
    """Instructions, first message, inputs with hashes and the cap; no turn is started."""
    before = crew.succeeds("show", "changelog", "--json").data["last_turn"]
    found = crew.succeeds("wake", "changelog", "--dry-run", "--json").data
    assert found["dry_run"] is True
    assert "Every entry has its date." in found["packet"]["instructions"]
    assert found["packet"]["inputs"]["merged"]["data"][0]["title"] == "Add a door"
    assert found["packet"]["max_usd"] == 0.5
    assert crew.succeeds("show", "changelog", "--json").data["last_turn"] == before


def test_a_costs_table_has_the_caps(crew: Person, placed: str) -> None:
    """Every session that spent, the team's sum, and what the caps are."""
    found = crew.succeeds("costs", "--json").data
    assert found["caps"]["turn"] == 2_000_000
    assert "changelog" in found["each"]


def test_the_data_of_up_stays_out_of_the_teams_git(crew: Person) -> None:
    """`git add -A` in a repository that ignores nothing takes none of what the server and the logs wrote."""
    (crew.directory / ".gitignore").unlink()
    shell.git(crew.directory, "init", "-q")
    for kept in ("server", "logs"):
        shell.git(crew.directory, "check-ignore", "-q", f".heinzelwerk/{kept}")


def test_nothing_is_alive_when_up_is_killed(tmp_path: Path) -> None:
    """After SIGKILL of `up` its server and its workers go by themselves."""
    with shell.started(shell.settle(tmp_path / "team")) as process:
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) > 6
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive, [child.cmdline() for child in alive]


def test_up_brings_back_a_server_that_was_killed(tmp_path: Path) -> None:
    """After SIGKILL of the server alone `up` says so, starts it with its data at its address, and wakes run again."""
    person = shell.settle(tmp_path / "team")
    with shell.started(person):
        before = person.succeeds("wake", "changelog", "--wait", "--json").data
        server = psutil.Process(int((person.directory / ".heinzelwerk" / "server" / "server.pid").read_text()))
        server.kill()
        shell.wait_for(lambda: person.types("list").code == 0, "the server to be back")
        assert person.succeeds("wake", "changelog", "--wait", "--json").data["turn"] > before["turn"]
    assert "server: ended, starts again" in (person.directory / "up.err").read_text()
