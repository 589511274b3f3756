"""The server of `up`, `demo` and the tests: durable, alone in its directory, never left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import redis

from heinzelwerk import errors
from workers import server
from workers.server import EmbeddedServer

STARTER = """
import pathlib, sys, time
from workers.server import EmbeddedServer
print(EmbeddedServer.start(pathlib.Path(sys.argv[1])).pid, flush=True)
time.sleep(600)
"""


def test_it_is_durable_and_forgets_nothing_over_a_crash(tmp_path):
    """AOF with fsync always, no eviction; what was acknowledged is there after SIGKILL, at the same address."""
    with EmbeddedServer.start(tmp_path) as embedded:
        with redis.Redis.from_url(embedded.url) as client:
            settings = client.config_get("*")
            client.set("kept", "yes")
        address = embedded.url
        embedded.kill()
        embedded.restart()
        with redis.Redis.from_url(address) as client:
            assert client.get("kept") == b"yes"
    assert (settings["appendonly"], settings["appendfsync"]) == ("yes", "always")
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["bind"] == "127.0.0.1"


def test_a_directory_has_one_server(tmp_path):
    """A second one is refused with a reason; once the first is gone it may start, and finds the data."""
    with EmbeddedServer.start(tmp_path) as first:
        assert server.running_url(tmp_path) == first.url
        with redis.Redis.from_url(first.url) as client:
            client.set("kept", "yes")
        with pytest.raises(errors.Refused, match="in use by another `heinzelwerk up`"):
            EmbeddedServer.start(tmp_path, lock_wait_s=0.1)
    assert server.running_url(tmp_path) is None
    with EmbeddedServer.start(tmp_path) as second, redis.Redis.from_url(second.url) as client:
        assert client.get("kept") == b"yes"


def test_it_goes_with_its_starter(tmp_path):
    """SIGKILL of the process that started it ends it and frees its directory."""
    starter = subprocess.Popen(
        [
            sys.executable,
            "-c",
            STARTER,
            str(tmp_path),
        ],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    pid = int(starter.stdout.readline())
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    until = time.monotonic() + 30.0
    while (psutil.pid_exists(pid) or server.running_url(tmp_path)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)
    assert server.running_url(tmp_path) is None
    EmbeddedServer.start(tmp_path).stop()


def test_a_port_that_somebody_took_is_no_end(tmp_path, monkeypatch):
    """When another server answers at the chosen port, ours tries the next one instead of using a stranger's."""
    with EmbeddedServer.start(tmp_path / "stranger") as stranger:
        offers = iter([stranger.port, stranger.port])
        free = server._free_port
        monkeypatch.setattr(server, "_free_port", lambda: next(offers, None) or free())
        with EmbeddedServer.start(tmp_path / "ours") as ours:
            assert ours.port != stranger.port
            assert ours.pid != stranger.pid


def test_a_server_that_cannot_start_says_why(tmp_path):
    """A bad option is an error that carries the server's own last words."""
    with pytest.raises(errors.ConfigurationError, match="did not start in"):
        EmbeddedServer.start(tmp_path, options={"no-such-option": "1"})
    EmbeddedServer.start(tmp_path).stop()
