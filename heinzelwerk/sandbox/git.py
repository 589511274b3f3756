"""Git, run the one way this project runs it: fixed options, clean environment, bounded time and output.

A repository that is read here may have been written by anybody who can push to it, and its `.git/config` by
whoever owns the machine's directory. So nothing in either may start a program (hooks, pagers, external diffs,
textconv, fsmonitor, signature checks), ask a question, or reach the network from a read.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heinzelwerk.errors import (
    GitFailed,
    GitMissing,
    GitNotARepository,
    GitOutputTooLarge,
    GitTimedOut,
    Refused,
)

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin"
REMOTE_PROTOCOLS = ("https", "ssh", "file")

READING = frozenset(
    {
        *("blame", "cat-file", "describe", "diff", "diff-tree", "for-each-ref", "grep", "log", "ls-files", "ls-tree"),
        *("merge-base", "name-rev", "rev-list", "rev-parse", "shortlog", "show", "show-ref", "status"),
    }
)
"""The subcommands that `run_git` runs. None of them writes, and none of them needs the network."""

_SHOWING_DIFFS = frozenset({"diff", "diff-tree", "log", "show"})

_DENIED_OPTIONS = (
    *("--output", "--ext-diff", "--textconv", "--filters", "--open-files-in-pager", "--no-index", "--contents"),
    *("--exec", "--upload-pack", "--show-signature", "--git-path", "--index-info", "--stdin", "--batch-command"),
)
_SHORT_DENIED = {"grep": ("-O", "-f"), "diff": ("-O",), "log": ("-O",), "show": ("-O",), "blame": ("-S",)}

_HARDENING = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.pager=cat", "core.askPass=", "core.editor=false"),
    *("core.sshCommand=false", "core.gitProxy=", "credential.helper=", "log.showSignature=false", "gpg.program=false"),
    *("protocol.allow=never", "submodule.recurse=false", "fetch.recurseSubmodules=false", "core.untrackedCache=false"),
    *("gc.auto=0", "maintenance.auto=false", "core.quotePath=false", "color.ui=false", "advice.detachedHead=false"),
)


@dataclass(frozen=True, slots=True)
class GitOutput:
    """What one git command printed.

    `stdout` is the whole output (never cut: more than the cap is an error), `stderr` cleaned text of at most 2,000
    characters.
    """

    stdout: bytes
    stderr: str
    duration_ms: int

    @property
    def text(self) -> str:
        """The output as text; bytes that are no UTF-8 become replacement characters."""
        return self.stdout.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class GitAccess:
    """How a remote is entered: a token over https, or a key file over ssh with its known hosts file."""

    token: str | None = None
    username: str = "x-access-token"
    ssh_key: Path | None = None
    known_hosts: Path | None = None

    def __repr__(self) -> str:
        return f"GitAccess(token={'set' if self.token else None}, ssh_key={self.ssh_key})"


async def run_git(repository: Path, arguments: Sequence[str], *, timeout_s: float, output_cap: int) -> GitOutput:
    """Run one reading git command in a repository and return its output.

    `repository` is the top of a work tree or a bare repository; a parent is never discovered. `arguments` begin with
    one of `READING`. Raises Refused (argument not allowed), GitMissing (no git, no such directory),
    GitNotARepository, GitTimedOut, GitOutputTooLarge (more than `output_cap` bytes) and GitFailed (with git's words).
    """
    top = _existing(repository)
    argv = (*_command(safe=str(top)), "-C", str(top), *_checked(arguments))
    environment = {**_environment(), "GIT_CEILING_DIRECTORIES": str(top.parent), "GIT_ALLOW_PROTOCOL": ""}
    return await _run(argv, environment=environment, place=str(repository), timeout_s=timeout_s, output_cap=output_cap)


async def fetch_branch(
    url: str,
    branch: str,
    directory: Path,
    *,
    timeout_s: float,
    output_cap: int = 1 << 20,
    depth: int | None = None,
    access: GitAccess | None = None,
    protocols: Sequence[str] = REMOTE_PROTOCOLS,
) -> str:
    """Bring one branch of a remote into `directory`, which then holds exactly that commit's files; returns its id.

    The first call makes the clone, later ones fetch and move on; edits in the directory are overwritten, extra files
    removed. Symbolic links arrive as plain files, submodules and hooks not at all. `depth` limits the history.
    `url` is https, ssh (also `user@host:path`), file or an absolute path. Raises as `run_git` does.
    """
    protocol = _protocol_of(url)
    if protocol not in protocols:
        raise Refused(f"{_without_login(url)}: protocol {protocol!r} is not allowed, use {', '.join(protocols)}")
    if not branch or branch.startswith("-") or ".." in branch or re.search(r"[\x00-\x20\x7f~^:?*\[\\]", branch):
        raise Refused(f"{branch!r} is no branch name")
    deadline = time.monotonic() + timeout_s
    top, new = _made(directory)
    with tempfile.TemporaryDirectory(prefix="hw-git-") as private:
        environment = _remote_environment(url, protocol, access=access, private=Path(private))
        place = f"{_without_login(url)} branch {branch}"

        async def step(*arguments: str) -> GitOutput:
            argv = (*_command(safe=str(top), remote=protocol), "-C", str(top), *arguments)
            left = max(deadline - time.monotonic(), 0.01)
            return await _run(argv, environment=environment, place=place, timeout_s=left, output_cap=output_cap)

        if new:
            await step("init", "--quiet", "--template=")
        reference = f"refs/remotes/origin/{branch}"
        limited = () if depth is None else (f"--depth={depth}",)
        fetching = ("fetch", "--quiet", "--force", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")
        await step(*fetching, *limited, "--end-of-options", url, f"+refs/heads/{branch}:{reference}")
        await step("checkout", "--quiet", "--force", "--detach", reference)
        await step("clean", "-ffdx", "--quiet")
        return (await step("rev-parse", "--verify", f"{reference}^{{commit}}")).text.strip()


def _existing(repository: Path) -> Path:
    top = repository.resolve()
    if not top.is_dir():
        raise GitMissing(f"no directory {repository}: check the path of the repository in the settings")
    return top


def _made(directory: Path) -> tuple[Path, bool]:
    """The directory, made where it was missing, and whether it still needs `git init`."""
    directory.mkdir(parents=True, exist_ok=True)
    return directory.resolve(), not (directory / ".git").is_dir()


def _command(*, safe: str, remote: str | None = None) -> tuple[str, ...]:
    git = shutil.which("git", path=SEARCH_PATH)
    if git is None:
        raise GitMissing(f"git was not found in {SEARCH_PATH}: install git")
    settings = [*_HARDENING, f"safe.directory={safe}"]
    if remote is not None:
        settings += [f"protocol.{remote}.allow=always", "core.symlinks=false", "core.autocrlf=false"]
        settings = [line for line in settings if not line.startswith("core.sshCommand=")]
    options = [part for line in settings for part in ("-c", line)]
    return (git, "--no-optional-locks", "--no-pager", "--no-replace-objects", *options)


def _checked(arguments: Sequence[str]) -> tuple[str, ...]:
    if not arguments or arguments[0] not in READING:
        named = arguments[0] if arguments else "(nothing)"
        raise Refused(f"git {named} is not one of the reading commands: {', '.join(sorted(READING))}")
    verb, rest = arguments[0], arguments[1:]
    for argument in rest:
        if argument == "--":
            break
        if _is_denied(verb, argument):
            raise Refused(f"git {verb}: option {argument!r} can write, start a program or read outside")
    if any("\x00" in argument for argument in rest):
        raise Refused(f"git {verb}: an argument holds a zero byte")
    quiet = ("--no-ext-diff", "--no-textconv") if verb in _SHOWING_DIFFS else ()
    return (verb, *quiet, *rest)


def _is_denied(verb: str, argument: str) -> bool:
    """Git takes any unambiguous beginning of a long option, so the beginnings are denied too."""
    if argument.startswith("--"):
        name = argument.partition("=")[0]
        return len(name) > 2 and name != "--text" and any(denied.startswith(name) for denied in _DENIED_OPTIONS)
    return argument.startswith(_SHORT_DENIED.get(verb, ())) if verb in _SHORT_DENIED else False


def _environment() -> dict[str, str]:
    return {
        "PATH": SEARCH_PATH,
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "LANGUAGE": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "false",
    }


def _remote_environment(url: str, protocol: str, *, access: GitAccess | None, private: Path) -> dict[str, str]:
    """The environment of a fetch; what is secret or long goes through it or a private file, never over argv."""
    environment = {**_environment(), "GIT_ALLOW_PROTOCOL": protocol}
    if protocol == "file":
        # The serving side refuses a repository of another account and does not see our -c options.
        source = url.removeprefix("file://")
        allowed = (source, f"{source.rstrip('/')}/.git")
        lines = "".join(f'\tdirectory = "{_quoted(path)}"\n' for path in allowed)
        (private / "config").write_text(f"[safe]\n{lines}", encoding="utf-8")
        environment["GIT_CONFIG_GLOBAL"] = str(private / "config")
    if protocol == "ssh":
        environment["GIT_SSH_COMMAND"] = _ssh_command(access)
    if access is not None and access.token is not None and protocol == "https":
        login = base64.b64encode(f"{access.username}:{access.token}".encode()).decode()
        environment |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "http.extraHeader"}
        environment["GIT_CONFIG_VALUE_0"] = f"Authorization: Basic {login}"
    return environment


def _ssh_command(access: GitAccess | None) -> str:
    parts = ["ssh", "-F", "/dev/null", "-oBatchMode=yes", "-oStrictHostKeyChecking=yes", "-oForwardAgent=no"]
    if access is not None and access.ssh_key is not None:
        parts += ["-oIdentitiesOnly=yes", "-i", _shell_quoted(str(access.ssh_key))]
    if access is not None and access.known_hosts is not None:
        parts.append(_shell_quoted(f"-oUserKnownHostsFile={access.known_hosts}"))
    return " ".join(parts)


def _shell_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _protocol_of(url: str) -> str:
    if url.startswith("/"):
        return "file"
    named = re.match(r"([a-z][a-z0-9+.-]*)://", url)
    if named is not None:
        return named.group(1)
    if re.match(r"[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+:(?!:)", url):
        return "ssh"
    raise Refused(f"{_without_login(url)}: give an https or ssh address, user@host:path, or an absolute path")


async def _run(
    argv: Sequence[str], *, environment: Mapping[str, str], place: str, timeout_s: float, output_cap: int
) -> GitOutput:
    started = time.monotonic()
    child = await asyncio.create_subprocess_exec(
        *argv,
        env=dict(environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None  # noqa: S101 - asked for above; tells the type checker
    assert child.stderr is not None  # noqa: S101
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await asyncio.gather(
                _read(child.stdout, cap=output_cap, place=place), _read_tail(child.stderr, cap=16_384)
            )
            code = await child.wait()
    except TimeoutError:
        raise GitTimedOut(f"{place}: git did not end within {timeout_s:g} s") from None
    finally:
        # Also on cancellation and over the cap: helpers of git (ssh, index-pack) live in its process group.
        await asyncio.shield(_end(child))
    words = _clean(err)
    if code != 0:
        _raise_for(code, words, place)
    return GitOutput(out, words, round((time.monotonic() - started) * 1000))


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # ended between the look and the signal
    transport = getattr(child, "_transport", None)
    for number in (1, 2):
        pipe = transport.get_pipe_transport(number) if transport is not None else None
        if pipe is not None:
            # asyncio's wait ends only when every pipe has, and one whose buffer is full is not read any more: over the cap
            # the wait would never end.
            pipe.close()
    await child.wait()
    if transport is not None:
        transport.close()


async def _read(stream: asyncio.StreamReader, *, cap: int, place: str) -> bytes:
    kept = bytearray()
    while chunk := await stream.read(65_536):
        kept += chunk
        if len(kept) > cap:
            raise GitOutputTooLarge(f"{place}: git printed more than {cap} bytes: narrow the window or the paths")
    return bytes(kept)


async def _read_tail(stream: asyncio.StreamReader, *, cap: int) -> bytes:
    """All of it is read, so that git never blocks on a full pipe; the last `cap` bytes are kept."""
    kept = b""
    while chunk := await stream.read(65_536):
        kept = (kept + chunk)[-cap:]
    return kept


def _raise_for(code: int, words: str, place: str) -> None:
    if "not a git repository" in words:
        raise GitNotARepository(f"{place} is not a git repository: clone one there or correct the path")
    raise GitFailed(f"{place}: git ended with {code}: {words or 'it gave no reason'}")


def _clean(raw: bytes) -> str:
    text = _without_login(raw.decode("utf-8", "replace"))
    printable = "".join(letter if letter == "\n" or letter.isprintable() else " " for letter in text)
    return printable.strip()[-2_000:]


def _without_login(text: str) -> str:
    return re.sub(r"(?<=://)[^/\s@]+@", "", text)
