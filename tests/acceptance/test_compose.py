"""The deployment of docker-compose.yml, without Docker: its shape, and every command and health check of our own image.

No image is built here. What runs in it is run by this Python instead, with the files that the containers would see.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
import redis
import yaml

from tests.acceptance.shell import CHECKOUT, environment, history, wait_for
from workers import server, supervisor
from workers.supervisor import Leashed

COMPOSE = yaml.safe_load((CHECKOUT / "docker-compose.yml").read_text())
SCHEMA = json.loads((CHECKOUT / "tests" / "data" / "compose" / "compose-spec.json").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name: one for name, one in SERVICES.items() if one["image"].startswith("heinzelwerk:")}


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def image_environment() -> dict[str, str]:
    """What the Dockerfile sets for every process, of our own variables."""
    return dict(re.findall(r"(HEINZELWERK_\w+)=(\S+)", (CHECKOUT / "Dockerfile").read_text()))


@dataclass
class Machine:
    """A directory that stands for the containers' file systems, and the address of its store."""

    directory: Path
    store_port: int = 0
    flower_port: int = field(default_factory=free_port)
    receiver_port: int = field(default_factory=free_port)
    exporter_port: int = field(default_factory=free_port)
    running: dict[str, Leashed] = field(default_factory=dict)

    @property
    def secrets(self) -> Path:
        return self.directory / "secrets"

    def put(self) -> None:
        """The files: secrets as the script makes them, the settings with this machine's paths."""
        script = CHECKOUT / "deploy" / "make_secrets.sh"
        subprocess.run([script, self.secrets], check=True, capture_output=True)
        self.secrets.chmod(0o700)
        url = self.secrets / "redis_url"
        url.chmod(0o600)
        url.write_text(url.read_text().replace("store:6379", f"127.0.0.1:{self.store_port}"))
        example = CHECKOUT / "examples" / "team"
        for name in ("workflows", "skills"):
            shutil.copytree(example / name, self.directory / "srv" / "team" / name)
        shutil.copytree(example / "documents", self.directory / "srv" / "documents")
        made = history(self.directory / "product")
        shutil.copytree(made / ".git", self.directory / "srv" / "repositories" / "this")  # as the file mounts it
        settings = (CHECKOUT / "deploy" / "heinzelwerk.toml").read_text()
        (self.directory / "heinzelwerk.toml").write_text(settings.replace("/srv/", f"{self.directory}/srv/"))

    def variables(self, name: str) -> dict[str, str]:
        """The environment of a service's container, its paths on this machine."""
        data = self.directory / "data" / name
        data.mkdir(parents=True, exist_ok=True)
        given = {**image_environment(), **SERVICES[name].get("environment", {})}
        given |= {
            "HEINZELWERK_CONFIG": str(self.directory / "heinzelwerk.toml"),
            "HEINZELWERK_WORKERS__DATA": str(data),
            "HEINZELWERK_WORKERS__HEARTBEAT_EVERY": "1s",
        }
        if name == "receive":
            given["HEINZELWERK_EVENTS__PORT"] = str(self.receiver_port)
        if name == "metrics":
            given["HEINZELWERK_METRICS__PORT"] = str(self.exporter_port)
        secrets = self.directory / "secrets-of" / name  # a container sees those that its service names
        if not secrets.exists():
            secrets.mkdir(parents=True)
            for secret in SERVICES[name]["secrets"]:
                shutil.copy(self.secrets / secret, secrets)
        given["HEINZELWERK_SECRETS"] = str(secrets)
        return environment(self.directory, given)

    def words(self, given: list[str]) -> tuple[str, ...]:
        """A command of ours as this machine runs it."""
        ours = [word.replace("/run/secrets", str(self.secrets)) for word in given]
        if "flower" in ours:
            ours = [str(self.flower_port) if word == "5555" else word for word in ours]
        return (sys.executable, "-P", "-m", "workers", *ours)

    def start(self, name: str) -> None:
        """Start a service's command."""
        self.running[name] = supervisor.start(
            self.words(SERVICES[name]["command"]),
            environment=self.variables(name),
            log=self.directory / f"{name}.log",
        )

    def health(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run a service's health check once."""
        kind, program, *words = SERVICES[name]["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "heinzelwerk")
        more = ["--port", str(self.flower_port)] if name == "flower" else []
        return subprocess.run(
            self.words([*words, *more]), env=self.variables(name), capture_output=True, text=True, check=False
        )


def start_store(machine: Machine) -> Leashed:
    """The store's own command, with the embedded server's program for the image's."""
    program, *words = SERVICES["store"]["command"]
    assert program == "valkey-server"
    data = machine.directory / "store"
    data.mkdir()
    mapped = [word.replace("/run/secrets", str(machine.secrets)).replace("/data", str(data)) for word in words]
    return supervisor.start(
        [server.binary(), *mapped, "--port", str(machine.store_port), "--bind", "127.0.0.1"],
        environment=environment(machine.directory),
        log=machine.directory / "store.log",
    )


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Every service of ours started by its command, over the store's."""
    made = Machine(tmp_path_factory.mktemp("machine"), store_port=free_port())
    made.put()
    with ExitStack() as ends:
        store = start_store(made)
        ends.callback(store.stop, 5.0)
        for name in OURS:
            made.start(name)
            ends.callback(made.running[name].stop, 0.0)
        yield made


def test_the_file_is_a_compose_file() -> None:
    """It is valid by the compose specification's own schema."""
    jsonschema.Draft7Validator(SCHEMA).validate(COMPOSE)


def test_what_it_promises_stands_in_it() -> None:
    """Every service restarts and has a health check; the store syncs always and evicts nothing; only loopback is open."""
    for name, one in SERVICES.items():
        assert one["restart"] == "unless-stopped", name
        assert one["healthcheck"]["test"], name
        for port in one.get("ports", ()):
            assert str(port).startswith("127.0.0.1:"), name
    words = SERVICES["store"]["command"]
    assert words[words.index("--appendfsync") + 1] == "always"
    assert words[words.index("--appendonly") + 1] == "yes"
    assert words[words.index("--maxmemory-policy") + 1] == "noeviction"
    assert set(OURS) == {"turns", "solo", "upkeep", "handoffs", "receive", "metrics", "beat", "flower"}
    assert COMPOSE["secrets"].keys() >= {name for one in SERVICES.values() for name in one["secrets"]}


def test_secrets_are_files_and_stand_nowhere_else(machine: Machine) -> None:
    """No command line and no variable of the file holds a secret; a second run of the script changes none."""
    values = {path.name: path.read_text().split()[-1] for path in machine.secrets.iterdir()}
    text = (CHECKOUT / "docker-compose.yml").read_text() + (CHECKOUT / "Dockerfile").read_text()
    assert not [name for name, value in values.items() if value in text]
    subprocess.run([CHECKOUT / "deploy" / "make_secrets.sh", machine.secrets], check=True, capture_output=True)
    assert values == {path.name: path.read_text().split()[-1] for path in machine.secrets.iterdir()}
    assert "PASSWORD" not in text.upper().replace("THE PASSWORD STANDS", "")


@pytest.mark.parametrize("name", OURS)
def test_a_service_starts_and_becomes_healthy(machine: Machine, name: str) -> None:
    """The service's command runs, and its health check, which failed before it was there, ends with 0."""
    wait_for(lambda: machine.health(name).returncode == 0, f"{name} to be healthy")
    assert machine.running[name].poll() is None, (machine.directory / f"{name}.log").read_text()


def test_the_store_asks_for_its_password(machine: Machine) -> None:
    """Who has no secret reads nothing."""
    with redis.Redis(port=machine.store_port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_a_service_that_is_gone_is_unhealthy(machine: Machine) -> None:
    """A worker that ended in peace is missed as soon as its last heartbeat has expired; the reason is on stderr."""
    machine.running["solo"].stop(30.0)
    wait_for(lambda: machine.health("solo").returncode == 1, "the last heartbeat to expire")
    assert "no worker solo on" in machine.health("solo").stderr


def types(machine: Machine, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of ours, as in the container of the upkeep worker."""
    return subprocess.run(
        machine.words(list(words)), env=machine.variables("upkeep"), capture_output=True, text=True, check=False
    )


def test_a_wake_goes_through(machine: Machine) -> None:
    """Over these very processes: load by upkeep, a wake, a draft that waits in the inbox."""
    wait_for(lambda: "changelog" in types(machine, "list").stdout, "upkeep to load the team's contracts")
    woken = types(machine, "wake", "changelog", "--wait", "--json")
    assert woken.returncode == 0, woken.stderr
    assert json.loads(types(machine, "inbox", "--json").stdout)


def test_flower_asks_for_its_login_and_shows_ids_alone(machine: Machine) -> None:
    """Without the login nothing is shown; with it, tasks by name with team and Heinzelmännchen, and no secret and no word."""
    address = f"http://127.0.0.1:{machine.flower_port}"
    user, _, password = (machine.secrets / "flower_login").read_text().strip().partition(":")
    wait_for(lambda: machine.health("flower").returncode == 0, "flower to answer")
    types(machine, "wake", "changelog", "--text", "The merger is on Friday.")
    with httpx.Client(base_url=address, auth=(user, password), timeout=30) as flower:
        assert httpx.get(f"{address}/api/tasks").status_code == 401
        wait_for(lambda: "heinzelwerk.turn" in flower.get("/api/tasks").text, "flower to see a turn")
        shown = flower.get("/api/tasks").text + flower.get("/workers?json=1").text
    assert "session=docs/changelog" in shown
    assert "merger" not in shown
    assert not [path.name for path in machine.secrets.iterdir() if path.read_text().split()[-1] in shown]
