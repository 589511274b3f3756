"""Requests, results and hashes: what is refused before anything starts, and the JSON form of what comes back."""

import json
import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heinzelwerk import handoff
from heinzelwerk.handoff import (
    CONTRACT_BYTES,
    PROMPT_BYTES,
    AgentInfo,
    HandoffFile,
    HandoffRequest,
    HandoffResult,
    Limits,
    OutputFile,
    Refusal,
    Status,
    Usage,
)
from tests.support.patience import patient

KEYS = (
    "status report detail fix warnings agent sandbox model turns tool_calls usage usage_source cost_usd cost_source "
    "started_at duration_ms exit_code signal transcript files hashes"
)


def request(**more: object) -> HandoffRequest:
    return HandoffRequest(**{"run_id": "r", "agent": "pi", "prompt": "task", **more})  # type: ignore[arg-type]


def test_the_json_form_has_every_key_in_order() -> None:
    """The keys of the result are those of the specification, also when nothing is known; dollars are a number."""
    result = HandoffResult(status=Status.FAILED, agent=AgentInfo(name="pi"), cost_usd=Decimal("0.00933"))
    assert " ".join(result.as_json()) == KEYS
    assert json.loads(json.dumps(result.as_json()))["cost_usd"] == 0.00933
    assert result.as_json()["usage"] == {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0, "reasoning": 0}


def test_contents_of_files_are_no_part_of_the_json_form() -> None:
    """Files come back listed with hash and size; their bytes are for whoever stores them."""
    file = OutputFile(path="a.md", bytes=3, sha256="x", data=b"abc")
    result = HandoffResult(status=Status.COMPLETED, agent=AgentInfo(name="pi"), files=(file,))
    assert result.as_json()["files"] == [{"path": "a.md", "bytes": 3, "sha256": "x"}]
    again = HandoffResult.model_validate(result.as_json())
    assert again.files[0].sha256 == "x"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../x",
        "a/../b",
        "a//b",
        "./a",
        "a/",
        "a\nb",
        "a\x00b",
        "out/x",
        "out",
        "/".join("a" * 13),
        "x" * 256,
    ],
)
def test_paths_that_leave_the_directory_are_refused(path: str) -> None:
    """Absolute, upward, empty, control characters, too deep, too long, and the agent's own out/."""
    problem = handoff.check_request(request(files=(HandoffFile(path=path, data=b""),)))
    assert problem is not None
    assert problem.fix


@pytest.mark.parametrize("path", ["a", "a/b.txt", ".claude/settings.json", "-rf", "ü/ö", "outer/x", "a b"])
def test_ordinary_paths_pass(path: str) -> None:
    """Also names that only look dangerous: no shell ever sees them."""
    assert handoff.check_request(request(files=(HandoffFile(path=path, data=b"x"),))) is None


@pytest.mark.parametrize("paths", [("a", "a"), ("a", "a/b"), ("x/y", "x/y/z/w")])
def test_a_path_is_given_once_and_is_file_or_directory(paths: tuple[str, ...]) -> None:
    """Two files of one path, or one below another, cannot both be written."""
    files = tuple(HandoffFile(path=path, data=b"x") for path in paths)
    assert handoff.check_request(request(files=files)) is not None


def test_caps_are_said() -> None:
    """Task, contract, number and size of files each have a cap that the refusal names."""
    assert handoff.check_request(request(prompt=" \n")) is not None
    for given_request in (
        request(prompt="p" * (PROMPT_BYTES + 1)),
        request(contract="ü" * (CONTRACT_BYTES // 2 + 1)),
        request(files=(HandoffFile(path="a", data=b"x" * (10 * 1024 * 1024 + 1)),)),
        request(files=tuple(HandoffFile(path=str(n), data=b"") for n in range(501))),
    ):
        problem = handoff.check_request(given_request)
        assert isinstance(problem, Refusal)
        assert any(character.isdigit() for character in problem.detail)


SHAPES = {
    "Anthropic key": "sk-ant-api03-" + "aB3_" * 12,
    "OpenAI key": "sk-proj-" + "aB3_" * 12,
    "GitHub token": "ghp_" + "a1B2" * 9,
    "GitLab token": "glpat-" + "a1B2-" * 5,
    "Slack token": "xoxb-1234567890-abcdef",
    "AWS access key": "AKIA" + "ABCD1234" * 2,
    "AWS secret key": "aws_secret_access_key = " + "aB3/" * 10,
    "Google API key": "AIza" + "aB3_x" * 7,
    "private key": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "npm token": "npm_" + "a1B2" * 9,
}


@pytest.mark.parametrize("kind", SHAPES)
def test_files_with_keys_are_refused_by_place_and_kind(kind: str) -> None:
    """The refusal names file, line and kind, and never the key."""
    data = f"first line\nTOKEN={SHAPES[kind]}\n".encode()
    problem = handoff.check_request(request(files=(HandoffFile(path="conf/.env", data=data),)))
    assert problem is not None
    assert f"conf/.env:2 ({kind})" in problem.detail
    assert SHAPES[kind][-12:] not in problem.detail.replace("PRIVATE KEY", "")


@pytest.mark.parametrize(
    "text",
    [
        "risk-free disk-anthropic",
        "task-" + "a" * 50,
        "the sk-ant- prefix",
        "sk-a-long-hyphenated-class-name-of-a-page",
        "AKIA",
        "-----BEGIN PUBLIC KEY-----",
    ],
)
def test_prose_about_keys_is_no_key(text: str) -> None:
    """Words that contain a prefix, and prefixes without a key, pass."""
    assert handoff.find_keys([HandoffFile(path="a", data=text.encode())]) == ()


@pytest.mark.parametrize(
    "piece", [b"sk-", b"sk-ant-", b"a-", b"-----BEGIN ", b"aws_secret_access_key ", b"ghp_a", b"xoxb-1"]
)
def test_the_scan_is_linear(piece: bytes) -> None:
    """A hostile file 32 times as large takes about 32 times the work (of the processor, not of the clock), where a
    pattern that runs back over what it has read would take a thousand times."""

    def seconds(size: int) -> float:
        file = HandoffFile(path="a", data=piece * (size // len(piece)))
        started = time.thread_time()
        handoff.find_keys([file])
        return time.thread_time() - started

    small = min(seconds(1 << 16) for _ in range(5))
    assert min(seconds(1 << 21) for _ in range(2)) < 250 * max(small, 0.0005)


def test_equal_requests_have_equal_hashes_and_other_ones_do_not() -> None:
    """`request` covers what was asked for, whatever order the files came in; the run's id and limits are not in it."""
    a, b = HandoffFile(path="a", data=b"1"), HandoffFile(path="b", data=b"2")
    one = handoff.input_hashes(request(files=(a, b)))
    assert one["request"] == handoff.input_hashes(request(files=(b, a), run_id="other"))["request"]
    assert one["files"] == handoff.input_hashes(request(files=(b, a)))["files"]
    for other in (
        request(files=(a,)),
        request(files=(a, b), prompt="another"),
        request(files=(a, b), contract="c"),
        request(files=(a, b), model="m"),
        request(files=(a, b), tools=("t",)),
    ):
        assert handoff.input_hashes(other)["request"] != one["request"]
    assert handoff.input_hashes(request(files=(a, b)), launch={"argv": "x"})["request"] != one["request"]


def test_a_refused_result_says_why_and_what_would_help() -> None:
    """A refusal is a result like others, with nothing run and nothing spent."""
    result = handoff.refused(request(), Refusal(detail="no sandbox", fix="install bubblewrap"))
    assert (result.status, result.detail, result.fix) == (Status.REFUSED, "no sandbox", "install bubblewrap")
    assert (result.usage, result.cost_usd, result.started_at) == (Usage(), None, None)
    assert "request" in result.hashes


@pytest.mark.parametrize(
    "bad", [{"timeout_s": 0}, {"idle_s": -1}, {"max_usd": Decimal(-1)}, {"max_turns": 0}, {"strange": 1}]
)
def test_limits_that_make_no_sense_are_errors(bad: dict[str, object]) -> None:
    """A limit of zero seconds or a misspelt one is an error where it is written."""
    with pytest.raises(ValueError, match=next(iter(bad))):
        Limits(**bad)  # type: ignore[arg-type]


@patient
@given(
    st.text(max_size=300),
    st.text(max_size=300),
    st.lists(st.tuples(st.text(max_size=30), st.binary(max_size=300)), max_size=4),
)
def test_any_request_is_checked_and_hashed(prompt: str, contract: str, files: list[tuple[str, bytes]]) -> None:
    """Whatever is asked for gets an answer and a hash, lone surrogates included."""
    asked = request(prompt=prompt, contract=contract, files=tuple(HandoffFile(path=p, data=d) for p, d in files))
    handoff.check_request(asked)
    assert len(handoff.input_hashes(asked)["request"]) == 64
