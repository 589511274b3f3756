"""Webhooks: who may post, what is answered, and that nothing is stored of what is refused."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from config.settings import Events, Settings, Store
from heinzelwerk import announcing, errors
from heinzelwerk.client import Client
from heinzelwerk.store.memory import MemoryStore
from heinzelwerk.store.options import StoreOptions
from heinzelwerk.testing import house
from heinzelwerk.testing.house import TEAM, HandClock, House
from tests.unit.wakes import world
from workers import profiles, receiver, root, signatures
from workers.receiver import Receiver
from workers.signatures import Sender

SECRET = "a secret of sixteen characters"
LISTENS = "  on: [event.push, event.merge-request]\n"
SOURCES = {
    "github": {"scheme": "github", "secret": SECRET},
    "slack": {"scheme": "slack", "secret": SECRET + " more", "team": TEAM},
}


def app(home: House, sources: Mapping[str, Any] = SOURCES, **events: object) -> httpx.AsyncClient:
    settings = Settings(
        store=Store(url="redis://127.0.0.1:1/0"), events=Events.model_validate({"sources": sources, **events})
    )
    runtime = root.build(settings, profile=root.CLIENT, wrap=lambda works: home.works)
    return httpx.AsyncClient(transport=httpx.ASGITransport(Receiver(runtime).app), base_url="http://127.0.0.1:8787")


def github(body: bytes, *, delivery: str = "d-1", secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "x-hub-signature-256": f"sha256={digest}",
        "x-github-delivery": delivery,
        "content-type": "application/json",
    }


def slack(body: bytes, *, at: float, secret: str = SECRET + " more") -> dict[str, str]:
    digest = hmac.new(secret.encode(), b"v0:%d:" % at + body, hashlib.sha256).hexdigest()
    return {"x-slack-signature": f"v0={digest}", "x-slack-request-timestamp": str(int(at))}


@pytest.fixture
async def home() -> House:
    """Two that listen to `push`, one of them alone to nothing else."""
    built = house.build()
    await world.load(built, house.page(extra=LISTENS), house.page("other", "  on: [event.push]\n"), house.page("deaf"))
    return built


async def stored(home: House) -> dict[str, int]:
    """How many wakes wait, by name."""
    found = {}
    for name in await home.store.sessions(TEAM):
        seen = await home.store.overview(world.SessionId(TEAM, name))
        found[name] = len(seen.inbox) if seen else 0
    return found


async def test_one_delivery_wakes_all_that_listen_and_each_once(home: House) -> None:
    """The same delivery after 1 s, 1 min and 1 h, before and after its turn: one turn each, its data in the turn."""
    body = json.dumps({"ref": "main"}).encode()
    async with app(home) as client:
        first = await client.post("/events/push", content=body, headers=github(body))
        assert first.status_code == 202
        assert [wake["session"] for wake in first.json()["wakes"]] == ["core/other", "core/page"]
        assert first.json()["key"] == "event/github/d-1"
        for seconds in (1, 60, 3_600):
            home.clock.pass_(seconds)
            again = await client.post("/events/push", content=body, headers=github(body))
            assert (again.status_code, again.json()["disposition"]) == (202, "duplicate")
            await world.work(home)
            await world.work(home, "other")
    assert await world.ends(home) == {"event/github/d-1": "turn"}
    assert await world.ends(home, "other") == {"event/github/d-1": "turn"}
    assert [opening.data for opening in home.engine.openings] == [{"ref": "main"}] * 2  # type: ignore[attr-defined]
    assert "deaf" not in await stored(home)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-github-delivery": "d-1"},
        github(b"{}", secret="another secret of that length"),
        github(b"{} "),
        {**github(b"{}"), "x-hub-signature-256": "sha256="},
        {**github(b"{}"), "x-hub-signature-256": "sha1=" + "0" * 40},
        {**github(b"{}"), "x-hub-signature-256": "sha256=\xff"},
        slack(b"{}", at=1_800_000_000, secret=SECRET),
        slack(b"{}", at=1_799_999_000),
        slack(b"{}", at=1_800_001_000),
        {**slack(b"{}", at=1_800_000_000), "x-slack-request-timestamp": "1800000001"},
        {**slack(b"{}", at=1_800_000_000), "x-slack-request-timestamp": "soon"},
    ],
)
async def test_a_wrong_signature_is_401_and_nothing_is_stored(home: House, headers: dict[str, str]) -> None:
    """Unsigned, of another secret, over other bytes, of another scheme, or with a time that is long gone."""
    async with app(home) as client:
        raw = {name: value.encode("latin-1") for name, value in headers.items()}
        answer = await client.post("/events/push", content=b"{}", headers=raw)
    assert answer.status_code == 401
    assert answer.json()["fix"]
    assert await stored(home) == {}


async def test_slacks_scheme_takes_its_own_ids_and_answers_its_challenge(home: House) -> None:
    """`event_id` makes a repeated delivery one, however it is signed anew; the question whether we are there is answered."""
    async with app(home) as client:
        challenge = json.dumps({"type": "url_verification", "challenge": "3eZbrw1aB"}).encode()
        answer = await client.post("/events/push", content=challenge, headers=slack(challenge, at=1_800_000_000))
        assert (answer.status_code, answer.text) == (200, "3eZbrw1aB")
        body = json.dumps({"event_id": "Ev1", "event": {"type": "message"}}).encode()
        for seconds, disposition in ((0, "accepted"), (3_600, "duplicate")):
            home.clock.pass_(seconds)
            headers = slack(body, at=home.clock.seconds)
            answer = await client.post("/events/push", content=body, headers=headers)
            assert (answer.status_code, answer.json()["disposition"]) == (202, disposition)
    assert await stored(home) == {"page": 1, "other": 1}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b'{"a": NaN}', 400),
        (b'{"a": 1e400}', 400),
        (b'"\\ud800"', 400),
        (b"[" * 100_000, 400),
        (b"[" * 65 + b"]" * 65, 400),
        (b'"' + b"x" * 300_000 + b'"', 413),
        (b"7" * 5_000, 400),
        (b"null", 202),
        (b'{"deep": ' + b"[" * 60 + b"]" * 60 + b"}", 202),
    ],
)
async def test_signed_nonsense_is_400_and_too_much_is_413(home: House, body: bytes, status: int) -> None:
    """Whatever a sender signs: a sentence back, nothing stored, and the next delivery is taken."""
    async with app(home) as client:
        answer = await client.post("/events/push", content=body, headers=github(body))
        assert answer.status_code == status, answer.text
        if status != 202:
            assert answer.json()["error"]
            assert await stored(home) == {}
        good = await client.post("/events/push", content=b"1", headers=github(b"1", delivery="d-2"))
        assert good.status_code == 202


async def test_a_form_with_a_payload_is_read_as_the_senders_can_be_told_to_send_it(home: House) -> None:
    """`application/x-www-form-urlencoded` with the field `payload`; any other form is refused."""
    async with app(home) as client:
        for body, status in ((b"payload=%7B%22n%22%3A1%7D", 202), (b"other=1", 400), (b"\xff=", 400)):
            headers = github(body) | {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
            assert (await client.post("/events/push", content=body, headers=headers)).status_code == status
    await world.work(home)
    assert home.engine.openings[0].data == {"n": 1}  # type: ignore[attr-defined]


@pytest.mark.parametrize("delivery", ["", "x" * 201, "a\tb"])
async def test_a_delivery_without_a_usable_id_is_400(home: House, delivery: str) -> None:
    """The id is what makes a repeated delivery one; without it nothing is taken."""
    async with app(home) as client:
        answer = await client.post("/events/push", content=b"1", headers=github(b"1", delivery=delivery))
    assert answer.status_code == 400
    assert await stored(home) == {}


async def test_an_event_that_nobody_listens_to_is_404_and_names_those_that_are(home: House) -> None:
    """Also where a contract is called so: a sender reaches only who declared it."""
    async with app(home) as client:
        for name in ("pull", "deaf", "page"):
            answer = await client.post(f"/events/{name}", content=b"1", headers=github(b"1"))
            assert answer.status_code == 404
            assert "merge-request, push" in answer.json()["fix"]
    assert await stored(home) == {}


async def test_a_full_inbox_is_503_and_the_repeated_delivery_goes_through() -> None:
    """2xx is said only when it is stored for all; who had taken it is told once."""
    clock = HandClock()
    home = house.build(clock=clock, store=MemoryStore(clock.ms, StoreOptions(inbox_cap=1)))
    await world.load(home, house.page(extra=LISTENS), house.page("other", LISTENS))
    await home.wake(key="manual/1")
    async with app(home) as client:
        answer = await client.post("/events/push", content=b"1", headers=github(b"1"))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
        assert "inbox is full" in answer.json()["error"]
        await world.work(home)
        again = await client.post("/events/push", content=b"1", headers=github(b"1"))
        assert again.status_code == 202
        assert {wake["session"]: wake["disposition"] for wake in again.json()["wakes"]} == {
            "core/other": "duplicate",
            "core/page": "accepted",
        }


async def test_a_store_that_is_away_is_503(home: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender is told to repeat it, and the health check says why."""

    async def away(*_: object) -> None:
        raise errors.StoreUnavailable("no answer")

    monkeypatch.setattr(home.store, "entries", away)
    monkeypatch.setattr(home.store, "now_ms", away)
    async with app(home) as client:
        answer = await client.post("/events/push", content=b"1", headers=github(b"1"))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
        assert (await client.get("/health")).status_code == 503


async def test_without_a_source_only_this_machine_may_post_unsigned(home: House) -> None:
    """A name that was pointed here, a web page without the header, and any other address are refused."""
    async with app(home, {}) as client:
        good = {"x-event-id": "e-1"}
        assert (await client.post("/events/push", content=b"1", headers=good)).status_code == 202
        assert (await client.post("/events/push", content=b"1")).status_code == 400
        answer = await client.post("/events/push", content=b"1", headers=good | {"host": "evil.example"})
        assert answer.status_code == 401
    with pytest.raises(errors.ConfigurationError, match="nobody would have to sign"):
        receiver.listening(Events(address="0.0.0.0"))


def test_the_socket_of_the_settings() -> None:
    """Loopback by default; a port that is taken is a mistake in the settings."""
    with receiver.listening(Events(port=0)) as taken:
        address, port = taken.getsockname()
        assert address == "127.0.0.1"
        with pytest.raises(errors.ConfigurationError, match=f"cannot listen on 127.0.0.1 port {port}"):
            receiver.listening(Events(port=port))


async def test_other_methods_and_paths_are_not_there(home: House) -> None:
    """One door."""
    async with app(home) as client:
        assert (await client.get("/events/push")).status_code == 405
        assert (await client.post("/")).status_code == 404
        assert (await client.get("/health")).json() == {"state": "up"}


def test_secrets_do_not_show() -> None:
    """Not in a repr, and the settings' list of what is redacted holds them."""
    settings = Settings(events=Events.model_validate({"sources": SOURCES}))
    assert SECRET in settings.secrets()
    assert SECRET not in repr(settings) + repr(receiver.senders(settings.events))


def test_published_examples_verify() -> None:
    """GitHub's and Slack's own documented examples of a signature."""
    sender = Sender("github", "github", b"It's a Secret to Everybody")
    headers = {"x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}
    assert signatures.verified(headers, b"Hello, World!", [sender], now_s=0, replay_s=300) is sender
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&"
        b"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&"
        b"response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&"
        b"trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    sender = Sender("slack", "slack", b"8f742231b10e8888abcd99yyyzzz85a5")
    headers = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    assert signatures.verified(headers, body, [sender], now_s=1531420700, replay_s=300) is sender


def test_listeners_are_those_that_declare_the_event_and_act() -> None:
    """A broken contract sleeps; one that listens to another event is not asked."""
    entry = house.entry_of(house.page(extra=LISTENS), "page")
    entries = {"page": entry, "broken": entry.model_copy(update={"broken": ("it is",)})}
    assert announcing.listeners("push", entries) == ("page",)
    assert announcing.listeners("pus", entries) == ()


@pytest.mark.parametrize(("source", "delivery"), [("", "1"), ("x" * 201, "1"), ("Ä", "1"), ("cli", "\n")])
async def test_what_cannot_be_a_key_is_refused_in_a_sentence(home: House, source: str, delivery: str) -> None:
    """Also from a shell, where people name the source themselves."""
    with pytest.raises(errors.Refused, match="printable ASCII"):
        await announcing.announce(Client(home.works, TEAM), "push", ["page"], source=source, delivery=delivery)
    assert await stored(home) == {}


def test_up_runs_the_receiver_where_a_source_is_set_up() -> None:
    """Nobody who posts nothing gets a port opened."""
    for sources, there in (({}, False), (SOURCES, True)):
        settings = Settings(events=Events.model_validate({"sources": sources}))
        names = [program.name for program in profiles.fleet(settings, config=None, environment={})]
        assert ("receive" in names) == there
