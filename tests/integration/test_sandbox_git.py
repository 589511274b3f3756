"""Git through the one place that runs it, on real repositories, some of them hostile."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from heinzelwerk import errors
from heinzelwerk.sandbox import git

IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")


def plain_git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *IDENTITY, "-C", str(directory), *arguments], capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def commit(directory: Path, name: str, text: str) -> str:
    (directory / name).write_text(text)
    plain_git(directory, "add", "-A")
    plain_git(directory, "commit", "-q", "-m", f"Write {name}")
    return plain_git(directory, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = tmp_path / "repository"
    top.mkdir()
    plain_git(top, "init", "-q", "-b", "main")
    commit(top, "a.txt", "one\n")
    return top


async def run(repository: Path, *arguments: str, timeout_s: float = 60, output_cap: int = 100_000) -> git.GitOutput:
    return await git.run_git(repository, arguments, timeout_s=timeout_s, output_cap=output_cap)


async def test_a_log_is_read(repository: Path) -> None:
    """The output of a reading command comes back whole, with its duration."""
    output = await run(repository, "log", "--format=%s")
    assert output.text == "Write a.txt\n"
    assert output.duration_ms >= 0


async def test_a_bare_repository_is_read(repository: Path, tmp_path: Path) -> None:
    """A mirror without a work tree serves as well."""
    plain_git(tmp_path, "clone", "-q", "--bare", str(repository), "bare.git")
    assert (await run(tmp_path / "bare.git", "log", "--format=%s", "main")).text == "Write a.txt\n"


async def test_a_parent_is_never_discovered(repository: Path) -> None:
    """A directory inside a work tree is no repository of its own."""
    inside = repository / "inside"
    inside.mkdir()
    with pytest.raises(errors.GitNotARepository, match="inside"):
        await run(inside, "log")


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """The error names the path."""
    with pytest.raises(errors.GitMissing, match="gone"):
        await run(tmp_path / "gone", "log")


async def test_an_unknown_revision_fails_with_gits_words(repository: Path) -> None:
    """Git's own reason reaches the reader."""
    with pytest.raises(errors.GitFailed, match="nosuch"):
        await run(repository, "log", "nosuch", "--")


async def test_output_over_the_cap_is_an_error(repository: Path) -> None:
    """More output than asked for is refused, not cut; git does not linger."""
    commit(repository, "big.txt", "x" * 5_000_000)
    for _ in range(20):  # whether the pipe is full at that moment is chance; a full one must not hold the end up
        async with asyncio.timeout(60):
            with pytest.raises(errors.GitOutputTooLarge, match="1000"):
                await run(repository, "show", "HEAD:big.txt", output_cap=1_000)


async def test_time_runs_out(repository: Path) -> None:
    """A command that does not end in time is killed and typed."""
    with pytest.raises(errors.GitTimedOut):
        await run(repository, "log", timeout_s=0.000_001)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("push",),
        ("-c", "alias.log=!touch /tmp/x", "log"),
        ("log", "--output=stolen"),
        ("log", "--outp=stolen"),
        ("diff", "--no-index", "/etc/passwd", "/dev/null"),
        ("diff", "-O/etc/passwd"),
        ("grep", "-Otouch stolen", "one"),
        ("grep", "--open-files-in-pager=touch", "one"),
        ("log", "--ext-diff"),
        ("cat-file", "--textconv", "HEAD:a.txt"),
        ("blame", "--contents", "/etc/passwd", "a.txt"),
        ("log", "--show-signature"),
    ],
)
async def test_arguments_that_act_are_refused(repository: Path, arguments: tuple[str, ...]) -> None:
    """Nothing but reading passes, however the option is spelled."""
    with pytest.raises(errors.Refused):
        await run(repository, *arguments)


async def test_a_hostile_repository_configuration_starts_nothing(repository: Path, tmp_path: Path) -> None:
    """External diff, textconv, fsmonitor and pager of the repository's own configuration run nothing here.

    The same configuration does run its programs under plain git, which shows that the attack is real.
    """
    proof = tmp_path / "ran"
    for key in ("diff.external", "core.fsmonitor", "diff.evil.textconv", "core.pager"):
        plain_git(repository, "config", key, f"sh -c 'echo {key} >> {proof}' --")
    (repository / ".gitattributes").write_text("*.txt diff=evil\n")
    commit(repository, "a.txt", "two\n")
    proof.unlink(missing_ok=True)
    plain_git(repository, "diff", "HEAD~1")
    plain_git(repository, "status")
    assert set(proof.read_text().split()) >= {"diff.external", "core.fsmonitor"}
    proof.unlink()
    for arguments in (("diff", "HEAD~1"), ("log", "-p"), ("show",), ("status",), ("grep", "two")):
        await run(repository, *arguments)
    assert not proof.exists()


async def test_the_callers_environment_does_not_leak(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that would redirect git (GIT_DIR) has no effect, so nothing of the worker's environment is passed."""
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert (await run(repository, "rev-parse", "--is-inside-work-tree")).text == "true\n"


async def test_a_branch_is_cloned_and_follows(repository: Path, tmp_path: Path) -> None:
    """The directory holds exactly the branch's commit, at first and after each move; local edits do not survive."""
    there = tmp_path / "clone"
    first = plain_git(repository, "rev-parse", "HEAD")
    assert await git.fetch_branch(str(repository), "main", there, timeout_s=60) == first
    (there / "a.txt").write_text("edited\n")
    (there / "extra").write_text("x")
    (repository / "a.txt").unlink()
    second = commit(repository, "b.txt", "new\n")
    assert await git.fetch_branch(f"file://{repository}", "main", there, timeout_s=60, depth=1) == second
    assert sorted(entry.name for entry in there.iterdir()) == [".git", "b.txt"]


async def test_a_rewritten_branch_is_followed(repository: Path, tmp_path: Path) -> None:
    """A force push moves the directory too."""
    there = tmp_path / "clone"
    commit(repository, "b.txt", "x")
    await git.fetch_branch(str(repository), "main", there, timeout_s=60)
    plain_git(repository, "reset", "-q", "--hard", "HEAD~1")
    third = commit(repository, "c.txt", "y")
    assert await git.fetch_branch(str(repository), "main", there, timeout_s=60) == third
    assert not (there / "b.txt").exists()


async def test_links_in_a_clone_point_nowhere(repository: Path, tmp_path: Path) -> None:
    """A symbolic link of the remote arrives as a plain file with the target's name in it."""
    (repository / "link").symlink_to("/etc/passwd")
    plain_git(repository, "add", "-A")
    plain_git(repository, "commit", "-q", "-m", "Link")
    there = tmp_path / "clone"
    await git.fetch_branch(str(repository), "main", there, timeout_s=60)
    assert not (there / "link").is_symlink()
    assert (there / "link").read_text() == "/etc/passwd"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a repository of somebody else")
async def test_a_repository_of_another_account_is_read(repository: Path, tmp_path: Path) -> None:
    """Git's own refusal of foreign owners is answered for the one repository that was asked for."""
    for path in (repository, *repository.rglob("*")):
        os.chown(path, 65534, 65534)
    with pytest.raises(subprocess.CalledProcessError):
        plain_git(repository, "log")
    assert (await run(repository, "log", "--format=%s")).text == "Write a.txt\n"
    assert len(await git.fetch_branch(str(repository), "main", tmp_path / "clone", timeout_s=60)) == 40


async def test_a_missing_branch_is_named(repository: Path, tmp_path: Path) -> None:
    """The error names the remote and the branch."""
    with pytest.raises(errors.GitFailed, match="branch nosuch"):
        await git.fetch_branch(str(repository), "nosuch", tmp_path / "clone", timeout_s=60)


@pytest.mark.parametrize("url", ["ext::sh -c touch% /tmp/x", "http://example.org/x", "git://h/x", "-oProxyCommand=x"])
async def test_other_protocols_are_refused(tmp_path: Path, url: str) -> None:
    """A remote that would start a program or be read unprotected is refused before git runs."""
    with pytest.raises(errors.Refused):
        await git.fetch_branch(url, "main", tmp_path / "clone", timeout_s=60)


async def test_a_login_in_an_address_is_not_repeated(tmp_path: Path) -> None:
    """A token written into the address stays out of the error."""
    with pytest.raises(errors.Refused) as caught:
        await git.fetch_branch("http://me:s3cret@example.org/x", "main", tmp_path / "clone", timeout_s=60)
    assert "s3cret" not in str(caught.value)
