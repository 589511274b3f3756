"""The way out for an agent with its own login: to the provider's hosts on 443, and nowhere else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from heinzelwerk.handoff import HandoffFile, HandoffRequest, Status
from heinzelwerk.runner.adapter import Login, RunnerSettings
from heinzelwerk.runner.connect import ConnectProxy
from heinzelwerk.runner.registry import runner_for
from tests.support.handoff_house import PYTHON, real_house

HOSTS = frozenset({"api.provider.example"})


@dataclass
class Tunnel:
    path: Path
    proxy: ConnectProxy
    asked: list[tuple[str, int]] = field(default_factory=list)
    traffic: list[int] = field(default_factory=list)

    async def send(self, head: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(self.path)
        writer.write(head)
        await writer.drain()
        return reader, writer


@asynccontextmanager
async def tunnel(directory: Path, *, refuse: bool = False) -> AsyncIterator[Tunnel]:
    """A proxy whose provider is a server of this test that answers in capitals."""

    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def connect(host: str, wanted: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        one.asked.append((host, wanted))
        if refuse:
            raise ConnectionRefusedError
        return await asyncio.open_connection("127.0.0.1", port)

    proxy = ConnectProxy(HOSTS, on_traffic=lambda: one.traffic.append(1), connect=connect)
    one = Tunnel(path=directory / "out.sock", proxy=proxy)
    async with server, proxy.serve(one.path):
        yield one


async def test_an_allowed_host_is_reached_both_ways(tmp_path: Path) -> None:
    """Bytes pass both ways, the end of the input too, and they count as signs of life."""
    async with tunnel(tmp_path) as one:
        reader, writer = await one.send(b"CONNECT API.provider.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.write(b"hello\n")
        assert await reader.readline() == b"HELLO\n"
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        assert one.asked == [("api.provider.example", 443)]
        assert len(one.traffic) >= 3


@pytest.mark.parametrize(
    "line",
    [
        "CONNECT elsewhere.example:443 HTTP/1.1",
        "CONNECT api.provider.example:80 HTTP/1.1",
        "CONNECT api.provider.example.evil.example:443 HTTP/1.1",
        "CONNECT 127.0.0.1:443 HTTP/1.1",
        "GET http://api.provider.example:443/ HTTP/1.1",
        "CONNECT api.provider.example HTTP/1.1",
        "nonsense",
    ],
)
async def test_everything_else_is_refused_and_noted(line: str, tmp_path: Path) -> None:
    """Other hosts, ports, methods and no sense at all: 403, nothing is connected, and the result will say it."""
    async with tunnel(tmp_path) as one:
        reader, writer = await one.send(line.encode() + b"\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 403")
        writer.close()
        assert one.asked == []
        assert one.proxy.turned_away == [line]


async def test_a_provider_that_is_not_there_is_502(tmp_path: Path) -> None:
    """The agent is told, and the proxy goes on."""
    async with tunnel(tmp_path, refuse=True) as one:
        reader, writer = await one.send(b"CONNECT api.provider.example:443 HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 502")
        writer.close()


async def test_open_tunnels_end_with_the_run(tmp_path: Path) -> None:
    """Nothing keeps a connection to the provider open beyond the block."""
    async with tunnel(tmp_path) as one:
        reader, writer = await one.send(b"CONNECT api.provider.example:443 HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
    assert await reader.read() == b""
    writer.close()


async def test_a_flood_of_header_is_dropped(tmp_path: Path) -> None:
    """A request without an end is not read for ever."""
    async with tunnel(tmp_path) as one:
        reader, writer = await one.send(b"CONNECT " + b"x" * 100_000)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            assert await reader.readexactly(1)
        writer.close()


async def test_a_login_is_a_copy_and_its_agent_gets_out_to_its_hosts_only(tmp_path: Path) -> None:
    """HOME holds the credentials' copy, what the agent writes there never reaches the original, and the result says
    that the figures are the agent's own."""
    login = tmp_path / "login"
    (login / ".agent").mkdir(parents=True)
    (login / ".agent" / "credentials.json").write_text("the-token")
    script = """
import os, socket
path = os.path.expanduser('~/.agent/credentials.json')
print(open(path).read())
open(path, 'w').write('spoilt')
host, port = os.environ['HTTPS_PROXY'].removeprefix('http://').split(':')
with socket.create_connection((host, int(port))) as s:
    s.sendall(b'CONNECT elsewhere.example:443 HTTP/1.1\\r\\n\\r\\n')
    print(s.recv(100).split(b'\\r\\n')[0].decode())
"""
    settings = RunnerSettings(
        runner="command",
        command=(PYTHON, "-I", "-S", "{working_dir}/agent.py"),
        trust_command=True,
        read_only=(Path(PYTHON).parents[1],),
        login=Login(credentials=login, hosts=HOSTS),
    )
    runner = runner_for("command", settings, real_house(tmp_path))
    files = (HandoffFile(path="agent.py", data=script.encode()),)
    result = await runner.run(HandoffRequest(run_id="r", agent="command", prompt="x", files=files))
    assert (result.status, result.report) == (Status.COMPLETED, "the-token\nHTTP/1.1 403 Forbidden"), result.detail
    assert (login / ".agent" / "credentials.json").read_text() == "the-token"
    assert result.sandbox is not None
    assert result.sandbox.network == "provider-hosts"
    assert (result.usage_source, result.cost_usd) == ("none", None)
    assert any("agent's own account" in warning for warning in result.warnings)
    assert any("elsewhere.example" in warning for warning in result.warnings)
