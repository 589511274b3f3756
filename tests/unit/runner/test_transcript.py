"""What is kept of an agent's output, and in which form."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heinzelwerk.handoff import sha256
from heinzelwerk.runner.transcript import (
    LINE_BYTES,
    Transcript,
    assemble,
    clear,
    lean_pi,
    left_behind,
    scrubber,
    short_line,
)
from tests.support.patience import patient

CAP = 8192
AS_IT_IS = scrubber(secrets=(), paths={})


def test_a_short_run_is_kept_whole(tmp_path: Path) -> None:
    """Below the cap the transcript is what was printed, and its hash is that of the kept bytes."""
    transcript = Transcript(tmp_path, cap=CAP, scrub=AS_IT_IS)
    for line in (b'{"type":"a"}', b"plain text"):
        transcript.add(line)
    info = transcript.close()
    assert info.data == b'{"type":"a"}\nplain text\n'
    assert (info.bytes, info.kept, info.truncated) == (len(info.data), len(info.data), False)
    assert info.sha256 == sha256(info.data)
    assert info.path is not None
    assert Path(info.path).read_bytes() == info.data


def test_a_long_run_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    """Of a run over the cap the middle goes, the last line never does, and a mark stands where it is missing."""
    transcript = Transcript(tmp_path, cap=CAP, scrub=AS_IT_IS)
    for number in range(3000):
        transcript.add(b'{"type":"line","n":%d}' % number)
    info = transcript.close()
    kept = [json.loads(line) for line in info.data.splitlines()]
    assert info.truncated
    assert info.kept <= CAP + 100 < info.bytes
    assert kept[0]["n"] == 0
    assert kept[-1]["n"] == 2999
    numbers = [event.get("n") for event in kept]
    gap = numbers.index(None)
    assert numbers[:gap] == list(range(gap))
    assert numbers[gap + 1 :] == list(range(numbers[gap + 1], 3000))
    assert len(numbers) - gap > 50


def test_an_interrupted_run_keeps_what_was_printed(tmp_path: Path) -> None:
    """Without a close (the worker was killed) the files hold every line so far."""
    transcript = Transcript(tmp_path, cap=CAP, scrub=AS_IT_IS)
    transcript.add(b'{"type":"a"}')
    assert assemble(tmp_path, half=CAP // 2) == (b'{"type":"a"}\n', False)
    for number in range(3000):
        transcript.add(b"%d" % number)
    data, lost = assemble(tmp_path, half=CAP // 2)
    assert lost
    assert data.endswith(b"\n2999\n")
    assert transcript.close().data == data


def test_keys_and_host_paths_are_scrubbed(tmp_path: Path) -> None:
    """Known secrets, anything shaped like a vendor's key, and the host's paths do not reach the stored transcript."""
    shaped = "sk-ant-" + "a1" * 20
    scrub = scrubber(secrets=["operator-secret"], paths={"/srv/runs/7": "/work", "/srv": "[host]"})
    transcript = Transcript(tmp_path, cap=CAP, scrub=scrub)
    transcript.add(f'{{"type":"x","t":"operator-secret {shaped} /srv/runs/7/notes.txt /srv/other"}}'.encode())
    transcript.add(b"error: operator-secret", stderr=True)
    data = transcript.close().data
    assert b"operator-secret" not in data
    assert shaped.encode() not in data
    assert b"[redacted] [redacted] /work/notes.txt [host]/other" in data


def test_stderr_is_kept_up_to_its_own_cap(tmp_path: Path) -> None:
    """A chatty stderr does not push the events out."""
    transcript = Transcript(tmp_path, cap=1 << 20, scrub=AS_IT_IS)
    for _ in range(100):
        transcript.add(b"e" * 1023, stderr=True)
    transcript.add(b'{"type":"result"}')
    info = transcript.close()
    assert info.data.count(b'"stderr"') == 64
    assert info.data.endswith(b'{"type":"result"}\n')
    assert info.truncated


def test_long_lines_are_cut_inside_their_strings() -> None:
    """A line over its cap stays an event of the same shape, marked, with the start of its long text."""
    line = json.dumps({"type": "result", "result": "r" * (2 * LINE_BYTES), "n": 7}).encode()
    kept = short_line(line)
    assert kept is not None
    event = json.loads(kept)
    assert len(kept) <= LINE_BYTES
    assert (event["type"], event["n"], event["truncated"]) == ("result", 7, True)
    assert event["result"].startswith("rrr")
    assert "more characters]" in event["result"]


def test_a_line_of_endless_parts_is_named_only() -> None:
    """Where cutting strings does not help, type and size are what is kept."""
    line = json.dumps({"type": "x", "parts": list(range(LINE_BYTES))}).encode()
    assert json.loads(short_line(line) or b"") == {"type": "x", "truncated": True, "bytes": len(line)}


def test_pi_repeats_are_dropped() -> None:
    """Of the three times that pi says each message one is kept; tool schemas and whole conversations are not."""
    assert short_line(b'{"type":"message_update"}', lean_pi) is None
    assert short_line(b'{"type":"turn_end"}', lean_pi) is None
    end = short_line(b'{"type":"agent_end","willRetry":false,"messages":[1]}', lean_pi)
    assert json.loads(end or b"") == {"type": "agent_end", "willRetry": False}
    system = short_line(b'{"type":"message_end","message":{"role":"system","toolsAdded":[1]}}', lean_pi)
    assert json.loads(system or b"") == {"type": "message_end", "message": {"role": "system"}}


@patient
@given(st.lists(st.binary(max_size=300).filter(lambda line: b"\n" not in line), max_size=60))
def test_any_bytes_are_kept_within_the_cap(tmp_path_factory: pytest.TempPathFactory, printed: list[bytes]) -> None:
    """Whatever is printed, the cap holds and the last line is there."""
    transcript = Transcript(tmp_path_factory.mktemp("t"), cap=4096, scrub=AS_IT_IS)
    for line in printed:
        transcript.add(line)
    info = transcript.close()
    assert info.kept <= 4096 + 100
    if printed:
        assert info.data.endswith(printed[-1] + b"\n")


def test_what_a_dead_worker_left_is_found_and_later_cleared(tmp_path: Path) -> None:
    """An unfinished transcript is readable as far as it was written; old ones go, living and young ones stay."""
    for run_id in ("old", "young", "living"):
        one = Transcript(tmp_path / run_id, cap=64, scrub=lambda line: line)
        for number in range(20):
            one.add(b"line %02d" % number)
        one.stop()
    left = left_behind(tmp_path / "old")
    assert left.startswith(b"line 00\n")
    assert left.endswith(b"line 19\n")
    assert b"truncated" in left
    assert left_behind(tmp_path / "none") == b""
    for run_id in ("old", "living"):
        os.utime(tmp_path / run_id, (1_000, 1_000))
    os.utime(tmp_path / "young", (9_000, 9_000))
    assert clear(tmp_path, keep=["living"], older_than_s=5_000, now_s=10_000) == ("old",)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["living", "young"]
    assert clear(tmp_path / "none", keep=[], older_than_s=0, now_s=0) == ()
