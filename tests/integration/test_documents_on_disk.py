"""Documents on a real file system: links, owners, locks, full disks, and writers that die in the middle."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from heinzelwerk import errors
from heinzelwerk.capability.files import FileDocuments
from heinzelwerk.ports import Placement
from heinzelwerk.publisher import documents
from heinzelwerk.publisher.documents import LOCK_NAME, DocumentSections

CONTENT = "# Changes\n\n<!-- heinzelwerk:begin weekly -->\n<!-- heinzelwerk:end weekly -->\n"
ARGUMENTS = {"ref": "changes.md", "marker": "weekly"}


@pytest.fixture
def top(tmp_path: Path) -> Path:
    directory = tmp_path / "documents"
    directory.mkdir()
    (directory / "changes.md").write_text(CONTENT)
    return directory


async def put(top: Path, text: str = "One", *, key: str = "k", ref: str = "changes.md", seconds: float = 30) -> str:
    placement = Placement(key, {**ARGUMENTS, "ref": ref}, text, "")
    return await DocumentSections(top).place(placement, deadline_s=seconds)


def names(top: Path) -> set[str]:
    return {path.name for path in top.iterdir()} - {LOCK_NAME}


def links(top: Path) -> Iterator[tuple[str, str]]:
    """References that lead through a link, each with the kind of link."""
    secret = top.parent / "secret"
    secret.mkdir()
    (secret / "plan.md").write_text(CONTENT)
    (top / "file.md").symlink_to(secret / "plan.md")
    (top / "inside.md").symlink_to("changes.md")
    (top / "directory").symlink_to(secret)
    (top / "dangling.md").symlink_to("nowhere.md")
    yield from (
        ("file.md", "a link"),
        ("inside.md", "a link"),
        ("directory/plan.md", "a link"),
        ("dangling.md", "a link"),
        ("changes.md/x.md", "no directory"),
    )


async def test_links_are_never_followed(top: Path) -> None:
    """Neither reading nor writing goes through a link at any component, also not to a file of the same directory."""
    for ref, words in links(top):
        with pytest.raises(errors.FileUnsafe, match=words):
            await FileDocuments(top).read("read", {"ref": ref}, since=None, until=None)
        with pytest.raises(errors.TargetConflict, match=words):
            await put(top, ref=ref)
    assert (top.parent / "secret" / "plan.md").read_text() == CONTENT


async def test_the_directory_itself_may_be_a_link(top: Path) -> None:
    """The operator's own path is the operator's choice."""
    (top.parent / "link").symlink_to(top)
    assert await put(top.parent / "link")


async def test_what_is_no_plain_text_file_is_refused(top: Path) -> None:
    """A pipe does not block the reader, a directory is no document, and a huge file is not read."""
    os.mkfifo(top / "pipe.md")
    (top / "folder.md").mkdir()
    (top / "huge.md").write_bytes(b"x" * 1_048_577)
    for ref, words in (("pipe.md", "no regular file"), ("folder.md", "regular"), ("huge.md", "more than 1,048,576")):
        with pytest.raises(errors.FileUnsafe, match=words):
            await FileDocuments(top).read("read", {"ref": ref}, since=None, until=None)
    (top / "largest.md").write_bytes(b"x" * 1_048_576)
    assert await FileDocuments(top).read("read", {"ref": "largest.md"}, since=None, until=None)


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """A directory that is not mounted is a passing trouble of the target and a failed read of the input."""
    with pytest.raises(errors.FileUnreachable, match="documents directory"):
        await FileDocuments(tmp_path / "gone").read("read", {"ref": "a.md"}, since=None, until=None)
    with pytest.raises(errors.TargetUnavailable, match="documents directory"):
        await put(tmp_path / "gone")


async def test_hard_links_are_refused(top: Path) -> None:
    """A document with two names would lose one of them: nothing is written."""
    os.link(top / "changes.md", top.parent / "other.md")
    with pytest.raises(errors.TargetConflict, match="2 names"):
        await put(top)
    assert (top / "changes.md").read_text() == CONTENT


async def test_mode_and_owner_are_kept(top: Path) -> None:
    """The new document has the old one's permissions and, where that can be set, its owner."""
    path = top / "changes.md"
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 1234, 2345)
    before = path.stat()
    await put(top)
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino
    assert names(top) == {"changes.md"}


async def test_a_read_only_document_is_left_alone(top: Path) -> None:
    """Who took the write permission away meant it, although the directory would allow a replacement."""
    (top / "changes.md").chmod(0o444)
    with pytest.raises(errors.TargetUnavailable, match="read-only"):
        await put(top)
    assert (top / "changes.md").read_text() == CONTENT


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A directory that this test may read and not write, also where the tests run as root."""
    with tempfile.TemporaryDirectory(prefix="hw-test-") as name:
        directory = Path(name)
        (directory / "changes.md").write_text(CONTENT)
        directory.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            yield directory
        finally:
            if root:
                os.seteuid(0)
            directory.chmod(0o755)


async def test_a_directory_without_write_permission(nobody: Path) -> None:
    """The system's refusal is typed, nothing was changed, and looking still works."""
    with pytest.raises(errors.TargetUnavailable, match="Permission denied"):
        await put(nobody)
    assert (await DocumentSections(nobody).view(ARGUMENTS)).shown == ""
    assert names(nobody) == {"changes.md"}


async def test_a_document_of_somebody_else(nobody: Path) -> None:
    """Where the owner cannot be kept the document is not replaced: it would change hands unseen."""
    if os.geteuid() != 65534:
        pytest.skip("only root can make a document of somebody else")
    os.seteuid(0)
    nobody.chmod(0o777)
    os.seteuid(65534)
    with pytest.raises(errors.TargetUnavailable, match="Operation not permitted"):
        await put(nobody)
    assert (nobody / "changes.md").read_text() == CONTENT
    assert names(nobody) == {"changes.md"}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("step", ["write", "fsync", "fchmod", "rename"])
async def test_what_the_disk_refuses_changes_nothing(
    top: Path, monkeypatch: pytest.MonkeyPatch, number: int, step: str
) -> None:
    """Full, read-only or failing at any step before the end: the document is whole, no draft is left, and it can be
    tried again; only a rename that failed for an unknown reason leaves open what happened."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(documents.os, step, refuse)
    unknown = step == "rename" and number == errno.EIO
    with pytest.raises(errors.TargetUnknown if unknown else errors.TargetUnavailable, match=os.strerror(number)):
        await put(top)
    monkeypatch.undo()
    assert (top / "changes.md").read_text() == CONTENT
    assert names(top) == {"changes.md"}
    assert await put(top)


async def test_a_directory_that_was_not_synced_is_unknown(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the replacement nothing may be called unchanged: reading back tells that it arrived."""
    sync = os.fsync

    def only_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(descriptor)

    monkeypatch.setattr(documents.os, "fsync", only_files)
    with pytest.raises(errors.TargetUnknown, match="was replaced"):
        await put(top)
    assert (await DocumentSections(top).read_back(ARGUMENTS)).key == "k"


async def test_a_real_limit_on_file_size(top: Path) -> None:
    """The kernel itself refuses to write the new document; the old one stays whole."""
    code = """
        import asyncio, resource, signal, sys
        from pathlib import Path
        from heinzelwerk import errors
        from heinzelwerk.ports import Placement
        from heinzelwerk.publisher.documents import DocumentSections
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        placement = Placement("k", {"ref": "changes.md", "marker": "weekly"}, "x" * 100_000, "")
        try:
            asyncio.run(DocumentSections(Path(sys.argv[1])).place(placement, deadline_s=30))
        except errors.TargetUnavailable as error:
            print(error)
    """
    out = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", textwrap.dedent(code), str(top)], capture_output=True, text=True
    )
    assert os.strerror(errno.EFBIG) in out.stdout, out.stderr
    assert (top / "changes.md").read_text() == CONTENT
    assert names(top) == {"changes.md"}


async def test_an_edit_between_reading_and_replacing_is_kept(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor that saves while the new document is being written is noticed; both changes are there."""
    _edit_while_writing(top, monkeypatch, times=2)
    await put(top)
    content = (top / "changes.md").read_text()
    assert "One" in content
    assert content.endswith("edit 1\nedit 2\n")


async def test_a_document_that_never_rests_is_left_alone(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After three tries the effect waits; every edit is there and nothing else."""
    _edit_while_writing(top, monkeypatch, times=3)
    with pytest.raises(errors.TargetUnavailable, match="changed by others 3 times"):
        await put(top)
    assert (top / "changes.md").read_text() == CONTENT + "edit 1\nedit 2\nedit 3\n"


def _edit_while_writing(top: Path, monkeypatch: pytest.MonkeyPatch, *, times: int) -> None:
    sync, edits = os.fsync, iter(range(1, times + 1))

    def edit_first(descriptor: int) -> None:
        number = next(edits, None)
        if number is not None:
            with (top / "changes.md").open("a") as document:
                document.write(f"edit {number}\n")
        sync(descriptor)

    monkeypatch.setattr(documents.os, "fsync", edit_first)


async def test_a_held_lock_is_waited_for_until_the_deadline(top: Path) -> None:
    """Another writer's lock is waited for; past the deadline nothing was written and it may be tried again."""
    with (top / LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(errors.TargetUnavailable, match="another writer held"):
            await put(top, seconds=0.1)
        waiting = asyncio.create_task(put(top, seconds=60))
        await asyncio.sleep(0.1)
        assert not waiting.done()
    assert await waiting
    assert "One" in (top / "changes.md").read_text()


async def test_a_caller_that_stops_waiting_has_its_answer_before(top: Path) -> None:
    """Where the lock stays held, the attempt ends as unchanged a tenth before its time is over, not as a doubt."""
    seen: list[float] = []
    ticks = iter([0.0, 3.0, 4.4, 4.5])

    def tick() -> float:
        seen.append(next(ticks))
        return seen[-1]

    with (top / LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(errors.TargetUnavailable):
            await DocumentSections(top, monotonic=tick).place(Placement("k", ARGUMENTS, "One", ""), deadline_s=5)
    assert seen[-1] == 4.5


async def test_the_deadline_is_looked_at_again_under_the_lock(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt whose time runs out while it writes does not replace anything."""
    ticks = iter([0.0, 100.0])
    publisher = DocumentSections(top, monotonic=lambda: next(ticks))
    with pytest.raises(errors.TargetUnavailable, match="writing took too long"):
        await publisher.place(Placement("k", ARGUMENTS, "One", ""), deadline_s=30)
    assert (top / "changes.md").read_text() == CONTENT
    assert names(top) == {"changes.md"}


async def test_a_killed_writer_leaves_a_whole_document_and_a_free_lock(top: Path) -> None:
    """SIGKILL in the middle of writing: the old document is whole, the lock is free, its draft is cleaned up."""
    code = """
        import asyncio, signal, sys, threading
        from pathlib import Path
        from heinzelwerk.ports import Placement
        from heinzelwerk.publisher import documents
        documents.os.fsync = lambda _: signal.pthread_kill(threading.get_ident(), signal.SIGKILL)
        placement = Placement("dead", {"ref": "changes.md", "marker": "weekly"}, "Half", "")
        asyncio.run(documents.DocumentSections(Path(sys.argv[1])).place(placement, deadline_s=30))
    """
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", textwrap.dedent(code), str(top)])
    assert done.returncode == -signal.SIGKILL
    assert (top / "changes.md").read_text() == CONTENT
    assert len(names(top)) == 2
    assert await put(top)
    assert names(top) == {"changes.md"}
    assert (await DocumentSections(top).view(ARGUMENTS)).key == "k"


async def test_a_writer_that_slept_past_its_deadline_changes_nothing(top: Path) -> None:
    """Stopped in the middle it keeps the lock, so nobody writes beside it; awake again it is late and writes nothing.

    This is what `refuses_late` rests on: a second attempt can only come before or after the first, never between.
    """
    code = """
        import asyncio, signal, sys, threading
        from pathlib import Path
        from heinzelwerk import errors
        from heinzelwerk.ports import Placement
        from heinzelwerk.publisher import documents
        # To this very thread: sent to the process, another thread could take it and this one run on for a while.
        documents.os.fsync = lambda _: signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        placement = Placement("late", {"ref": "changes.md", "marker": "weekly"}, "Late", "")
        try:
            asyncio.run(documents.DocumentSections(Path(sys.argv[1])).place(placement, deadline_s=0.5))
        except errors.TargetUnavailable:
            sys.exit(7)
    """
    sleeper = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(top)])
    try:
        await asyncio.to_thread(os.waitpid, sleeper.pid, os.WUNTRACED)  # returns when it has stopped itself
        with pytest.raises(errors.TargetUnavailable, match="another writer held"):
            await put(top, "Second", key="second", seconds=0.6)
        assert (top / "changes.md").read_text() == CONTENT
    finally:
        sleeper.send_signal(signal.SIGCONT)
    assert await asyncio.to_thread(sleeper.wait) == 7
    assert (top / "changes.md").read_text() == CONTENT
    assert await put(top, "Second", key="second")
    assert (await DocumentSections(top).view(ARGUMENTS)).key == "second"


async def test_writers_in_many_threads_and_processes_lose_nothing(top: Path) -> None:
    """Twenty effects on twenty sections of one document, from two processes: all twenty stand there afterwards."""
    sections = [f"s{number}" for number in range(20)]
    (top / "many.md").write_text(
        "".join(f"<!-- heinzelwerk:begin {name} -->\n<!-- heinzelwerk:end {name} -->\n" for name in sections)
    )
    code = """
        import asyncio, sys
        from pathlib import Path
        from heinzelwerk.ports import Placement
        from heinzelwerk.publisher.documents import DocumentSections
        async def main():
            publisher = DocumentSections(Path(sys.argv[1]))
            await asyncio.gather(*(
                publisher.place(Placement(name, {"ref": "many.md", "marker": name}, name, ""), deadline_s=120)
                for name in sys.argv[2:]
            ))
        asyncio.run(main())
    """
    argv = [sys.executable, "-c", textwrap.dedent(code), str(top)]
    ends = await asyncio.gather(
        *(
            asyncio.to_thread(subprocess.run, [*argv, *part], capture_output=True)
            for part in (sections[::2], sections[1::2])
        )
    )
    assert [end.returncode for end in ends] == [0, 0], ends
    publisher = DocumentSections(top)
    for name in sections:
        assert (await publisher.view({"ref": "many.md", "marker": name})).key == name
