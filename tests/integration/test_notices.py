"""Notices over the wire: a real HTTP server, a real SMTP conversation, and an upkeep worker that tells."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from heinzelwerk import errors
from heinzelwerk.channel.mail import Mailbox
from heinzelwerk.channel.webhook import Webhook
from heinzelwerk.notice import Notice
from tests.support.deployment import SETTINGS, Deployment

NOTICE = Notice("n1", "docs", "draft", "weekly", 3, "Wöchentlich", "documents:a.md#w", "heinzelwerk approve ab", 1)
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(talk: Talk) -> AsyncIterator[int]:
    """A server of one conversation at a time; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


class Hook:
    """An HTTP endpoint that keeps what was posted, and answers these codes one after the other."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.posted: list[tuple[str, dict[str, object]]] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        length = int({name.lower(): value for name, value in fields.items()}["content-length"])
        body = json.loads(await reader.readexactly(length))
        self.posted.append(({name.lower(): value for name, value in fields.items()}["idempotency-key"], body))
        code = self.codes.pop(0) if self.codes else 204
        writer.write(f"HTTP/1.1 {code} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()


class Post:
    """An SMTP server that takes letters; `refuses` makes it answer MAIL with 451."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.letters: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(line: str) -> None:
            writer.write(line.encode() + b"\r\n")

        say("220 here")
        while line := (await reader.readline()).decode().strip().upper():
            if line.startswith("DATA"):
                say("354 go on")
                letter = await reader.readuntil(b"\r\n.\r\n")
                self.letters.append(letter.decode())
            if line.startswith("QUIT"):
                say("221 bye")
                return
            say("451 not now" if self.refuses and line.startswith("MAIL") else "250 yes")


async def test_a_webhook_gets_the_notice_with_its_id() -> None:
    """One POST of JSON, its id also as idempotency key, a line of text that chats show."""
    hook = Hook()
    async with listening(hook) as port:
        await Webhook(f"http://127.0.0.1:{port}/x").tell(NOTICE)
    ((key, body),) = hook.posted
    assert key == body["id"] == "n1"
    assert str(body["text"]).startswith("Wöchentlich (docs/weekly): a draft waits for approval")


@pytest.mark.parametrize("code", [302, 404, 500])
async def test_a_webhook_that_does_not_take_it_says_so_without_its_address(code: int) -> None:
    """The address is a secret: the error names the code alone; a redirect is not followed with the notice in hand."""
    async with listening(Hook(code)) as port:
        with pytest.raises(errors.TargetUnavailable, match=str(code)) as raised:
            await Webhook(f"http://127.0.0.1:{port}/secret").tell(NOTICE)
    assert "secret" not in str(raised.value)


async def test_a_webhook_that_hangs_is_left() -> None:
    """A server that takes the connection and says nothing costs its time-out and no more."""

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(silence) as port:
        with pytest.raises(errors.TargetUnavailable, match="Timeout"):
            await Webhook(f"http://127.0.0.1:{port}/", timeout_s=0.2).tell(NOTICE)


async def test_mail_is_one_letter_with_the_notices_id() -> None:
    """Subject, recipients and the next command arrive; a repetition is the same letter by its id."""
    post = Post()
    async with listening(post) as port:
        box = Mailbox("127.0.0.1", port, "werk@example.com", ("a@example.com", "b@example.com"))
        await box.tell(NOTICE)
    (letter,) = post.letters
    assert "Message-ID: <n1@heinzelwerk>" in letter
    assert "To: a@example.com, b@example.com" in letter
    assert "heinzelwerk approve ab" in letter


async def test_a_mail_server_that_refuses_or_is_not_there_is_named() -> None:
    """Both are trouble that goes away: the notice is told again later."""
    async with listening(Post(refuses=True)) as port:
        with pytest.raises(errors.TargetUnavailable, match=r"127\.0\.0\.1.*451"):
            await Mailbox("127.0.0.1", port, "w@example.com", ("a@example.com",)).tell(NOTICE)
    with pytest.raises(errors.TargetUnavailable, match=r"127\.0\.0\.1"):
        await Mailbox("127.0.0.1", port, "w@example.com", ("a@example.com",)).tell(NOTICE)


async def test_a_password_is_not_sent_in_the_clear() -> None:
    """A server beyond loopback that offers no TLS gets neither user nor password."""
    post = Post()
    async with listening(post) as port:
        box = Mailbox("0.0.0.0", port, "w@example.com", ("a@example.com",), user="u", password="hunter2")
        with pytest.raises(errors.TargetUnavailable, match="NotSupported"):
            await box.tell(NOTICE)
    assert post.letters == []


async def test_an_upkeep_worker_tells_and_a_dead_webhook_delays_nobody(tmp_path: Path) -> None:
    """A turn that failed is told over HTTP once; while the webhook refuses, turns go on as if there were none."""
    hook = Hook(500)
    async with listening(hook) as port:
        settings = f'{SETTINGS}\n[notices]\nwebhook = "http://127.0.0.1:{port}/h"\nevery = "200ms"\n'
        deployment = Deployment(tmp_path, settings.replace('directory = "documents"', 'directory = "elsewhere"'))
        try:
            async with deployment.client() as (client, runtime):
                deployment.start("all")
                await client.wake("page", key="one")
                await client.wake("page", key="two")
                first, second = await deployment.ended(runtime, [1, 2])

                async def two() -> bool:
                    return len({key for key, _ in hook.posted}) >= 2

                await deployment.eventually(two)
        finally:
            deployment.close()
    assert {first.state.value, second.state.value} == {"failed"}
    assert {str(body["kind"]) for _, body in hook.posted} == {"turn-failed"}
    assert "hooks" not in deployment.logs()
