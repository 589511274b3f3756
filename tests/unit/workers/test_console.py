"""The console over a memory store: what a person sees, what they may change, and what nobody gets it to do."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from config.settings import Console, Settings, Store
from heinzelwerk import errors
from heinzelwerk.advance import advance
from heinzelwerk.effect import Decision, EffectRecord, Which
from heinzelwerk.ids import SessionId
from heinzelwerk.testing import house
from heinzelwerk.testing.house import TEAM, House, ScriptedEngine, finish
from heinzelwerk.turn import TurnState
from tests.unit.path.test_adversity import ask
from workers import root
from workers.console import app, cookies, login, passwords
from workers.console.cookies import NOBODY, Pass, Seals
from workers.console.throttle import WINDOW_S, Throttle

PAGE = SessionId(house.TEAM, "page")
HERE = "http://127.0.0.1:8788"
WORDS = "a long enough password"
_SALT = base64.urlsafe_b64encode(b"0123456789abcdef").decode().rstrip("=")
_DERIVED = hashlib.scrypt(WORDS.encode(), salt=b"0123456789abcdef", n=16_384, r=8, p=1, maxmem=2**26, dklen=32)
HASH = f"scrypt:16384:8:1:{_SALT}:{base64.urlsafe_b64encode(_DERIVED).decode().rstrip('=')}"
"""Cheaper than the ones that `passwords.made` makes: many tests compare it."""
HOSTILE = "# Hello\n\n<script>alert(1)</script> [go](javascript:alert(1)) ![p](https://x.example/p.png) a\u202eb <b onclick=x>"


def browser(home: House, **console: Any) -> httpx.AsyncClient:
    """A browser at the console of these settings."""
    settings = Settings(store=Store(url="redis://127.0.0.1:1/0"), console=Console.model_validate(console))
    runtime = root.build(settings, profile=root.CLIENT, wrap=lambda works: home.works)
    transport = httpx.ASGITransport(app.made(runtime, here="ada"))
    return httpx.AsyncClient(transport=transport, base_url=HERE, headers={"origin": HERE})


def people(**teams: str) -> dict[str, Any]:
    """Settings in which these people see one team each."""
    return {"people": {name: {"teams": [team], "password": HASH} for name, team in teams.items()}, "secret": "s" * 32}


async def drafted(words: str = "The page says hello.") -> tuple[House, EffectRecord]:
    """A house with one draft that waits."""
    home = house.build(engine=ScriptedEngine([finish(words)]))
    await home.load(house.page())
    await home.wake()
    await advance(PAGE, home.works)
    (effect,) = await home.store.effects(TEAM, Which.UNDECIDED)
    return home, effect


async def sent(client: httpx.AsyncClient, page: str, path: str, **fields: str) -> httpx.Response:
    """Fill in the form of a page that posts to `path`, as a browser would: hidden fields and all."""
    shown = (await client.get(page)).text
    form = re.search(rf'<form[^>]*action="{re.escape(path)}">(.*?)</form>', shown, re.DOTALL)
    assert form is not None, f"{page} has no form for {path}"
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form[1]))
    return await client.post(path, data={**hidden, **fields})


async def stored(home: House, effect: EffectRecord) -> EffectRecord:
    record = await home.store.effect(TEAM, effect.id)
    assert record is not None
    return record


def of(effect: EffectRecord) -> str:
    return f"/teams/{TEAM}/drafts/{effect.id}"


async def test_from_the_inbox_to_an_approval() -> None:
    """The draft stands in the inbox, its page shows text and change, and one click approves exactly that."""
    home, effect = await drafted()
    async with browser(home) as client:
        assert of(effect) in (await client.get("/")).text
        page = (await client.get(of(effect))).text
        assert "<p>The page says hello.</p>" in page
        assert '<span class="plus">+The page says hello.</span>' in page
        done = await sent(client, of(effect), f"{of(effect)}/approve")
        assert (done.status_code, done.headers["location"]) == (303, of(effect))
        assert "approved by ada" in (await client.get(of(effect))).text
    record = await stored(home, effect)
    assert (record.decision, record.decided_by) == (Decision.APPROVED, "ada")


async def test_an_edited_text_is_what_is_approved() -> None:
    """A browser's line ends become the text's own; an empty text decides nothing."""
    home, effect = await drafted()
    async with browser(home) as client:
        assert (await sent(client, of(effect), f"{of(effect)}/edit", text=" \r\n")).status_code == 409
        assert (await sent(client, of(effect), f"{of(effect)}/edit", text="One.\r\nTwo.")).status_code == 303
    record = await stored(home, effect)
    assert (record.decision, record.edited) == (Decision.APPROVED, True)
    assert await home.store.effect_text(TEAM, effect.id) == "One.\nTwo."


async def test_declining_says_why_and_the_first_decision_wins() -> None:
    """The second click is told who decided."""
    home, effect = await drafted()
    async with browser(home) as client:
        shown = (await client.get(of(effect))).text
        assert (await sent(client, of(effect), f"{of(effect)}/decline", reason="not now")).status_code == 303
        token = re.search(rf'action="{of(effect)}/approve">.*?value="([^"]*)"', shown, re.DOTALL)
        assert token is not None
        late = await client.post(f"{of(effect)}/approve", data={"token": token[1], "digest": effect.digest})
        assert late.status_code == 409
        assert "already decided by ada: declined (not now)" in late.text
    assert (await stored(home, effect)).reason == "not now"


async def test_a_decision_is_about_what_was_shown() -> None:
    """Whoever saw another text than the ledger's decides nothing."""
    home, effect = await drafted()
    async with browser(home) as client:
        late = await sent(client, of(effect), f"{of(effect)}/approve", digest="sha256:" + "0" * 64)
        assert late.status_code == 409
        assert "changed since it was shown" in late.text
    assert (await stored(home, effect)).decision is Decision.PENDING


async def test_a_target_that_moved_on_is_said_before_anybody_approves() -> None:
    """What stands there now is not what the draft was written over."""
    home, effect = await drafted()
    home.wall.held["wall"] = ("Somebody's words.", "")
    async with browser(home) as client:
        page = (await client.get(of(effect))).text
    assert "has changed since this draft" in page
    assert "/decline" in page
    assert "/approve" not in page
    assert "/edit" not in page
    assert '<span class="minus">-Somebody&#39;s words.</span>' in page


async def test_what_a_reader_would_not_see_is_shown_too() -> None:
    """A link's address, a definition that nothing uses: what is approved is the whole text."""
    words = 'Read [this](https://x.example/y).\n\n[unused]: https://evil.example "hidden words"\n'
    home, effect = await drafted(words)
    home.works.publishers.pop("notes.place")  # type: ignore[attr-defined] # nothing to compare with
    async with browser(home) as client:
        page = (await client.get(of(effect))).text
    assert "<details open>" in page
    assert "hidden words" in page.split("<h2 id=")[0]


async def test_hostile_words_stay_words() -> None:
    """No tag, no script link, no image and no hidden order reaches the page; the browser is told to run nothing anyway."""
    home, effect = await drafted(HOSTILE)
    async with browser(home) as client:
        for path in (of(effect), "/", f"/teams/{TEAM}/heinzel/page/turns/1"):
            answer = await client.get(path)
            assert answer.status_code == 200
            for bad in ("<script", "<b ", "<img", 'href="javascript', "\u202e"):
                assert bad not in answer.text, (path, bad)
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("headers", "fields", "status"),
    [
        ({}, {"token": "x"}, 403),
        ({"content-type": "application/x-www-form-urlencoded"}, {}, 403),
        ({"origin": "https://elsewhere.example"}, None, 403),
        ({"origin": "null"}, None, 403),
        ({"host": "elsewhere.example"}, None, 421),
        ({"x-forwarded-for": "10.0.0.1"}, None, 421),
        ({"content-type": "application/json"}, None, 415),
    ],
)
async def test_forms_that_are_not_ours_change_nothing(
    headers: Mapping[str, str], fields: Mapping[str, str] | None, status: int
) -> None:
    """No token, another browser's, another site's page, another host's name, a proxy where nobody logs in."""
    home, effect = await drafted()
    async with browser(home) as client:
        shown = (await client.get(of(effect))).text
        token = re.search(rf'action="{of(effect)}/approve">.*?value="([^"]*)"', shown, re.DOTALL)
        assert token is not None
        ours = {"token": token[1], "digest": effect.digest}
        answer = await client.post(f"{of(effect)}/approve", data=ours if fields is None else fields, headers=headers)
        assert answer.status_code == status
    assert (await stored(home, effect)).decision is Decision.PENDING


async def test_each_person_sees_their_own_teams() -> None:
    """Before the login nothing, after it one's own; another team's pages sound like those of none. Logging out ends it."""
    home, effect = await drafted()
    async with browser(home, **people(ada=TEAM, bob="other")) as client:
        asked = await client.get(of(effect))
        assert (asked.status_code, asked.headers["location"]) == (303, f"/login?next={quote(of(effect), safe='')}")
        wrong = await sent(client, "/login", "/login", name="ada", password="no")
        nobody = await sent(client, "/login", "/login", name="eve", password="no")
        assert (wrong.status_code, nobody.status_code) == (403, 403)
        assert "do not fit together" in wrong.text
        assert "do not fit together" in nobody.text
        done = await sent(client, f"/login?next={of(effect)}", "/login", name="Ada", password=WORDS)
        assert (done.status_code, done.headers["location"]) == (303, of(effect))
        assert (await sent(client, of(effect), f"{of(effect)}/approve")).status_code == 303
        kept = dict(client.cookies)
        assert (await sent(client, "/", "/logout")).status_code == 303
        client.cookies = httpx.Cookies(kept)
        assert (await client.get("/")).status_code == 303, "a cookie from before the logout counts"
    async with browser(home, **people(ada=TEAM, bob="other")) as client:
        await sent(client, "/login", "/login", name="bob", password=WORDS)
        strange = await client.get(of(effect))
        assert strange.status_code == (await client.get("/teams/nobody")).status_code == 404
    assert (await stored(home, effect)).decided_by == "ada"


async def test_who_guesses_passwords_waits() -> None:
    """Ten failures from one address, then not even the right one is tried for a while."""
    home, _ = await drafted()
    async with browser(home, **people(ada=TEAM)) as client:
        for _ in range(10):
            assert (await sent(client, "/login", "/login", name="ada", password="no")).status_code == 403
        late = await sent(client, "/login", "/login", name="ada", password=WORDS)
        assert (late.status_code, int(late.headers["retry-after"]) > 0) == (429, True)
        home.clock.pass_(WINDOW_S + 1)
        assert (await sent(client, "/login", "/login", name="ada", password=WORDS)).status_code == 303


async def test_a_question_is_answered_and_a_turn_is_stopped() -> None:
    """The page of the turn has the form; what is said goes the way of the shell's mail."""
    home = house.build(engine=ScriptedEngine([ask, ask, finish()]))
    await home.load(house.page())
    await home.wake()
    await advance(PAGE, home.works)
    turn = f"/teams/{TEAM}/heinzel/page/turns/1"
    async with browser(home) as client:
        assert turn in (await client.get("/")).text
        assert (await sent(client, turn, f"{turn}/answer", text="  ")).status_code == 409
        assert (await sent(client, turn, f"{turn}/answer", text="Blue.")).status_code == 303
        await advance(PAGE, home.works)
        assert (await sent(client, turn, f"{turn}/stop")).status_code == 303
        await advance(PAGE, home.works)
        record = await home.store.turn(PAGE, 1)
        assert record is not None
        assert (record.state, record.reason) == (TurnState.CANCELLED, "stopped by ada")
        assert "stopped by ada" in (await client.get(turn)).text


async def test_waking_pausing_and_letting_go_on() -> None:
    """The three verbs of a Heinzelmännchen's page; an unknown verb is no page of ours."""
    home, _ = await drafted()
    path = f"/teams/{TEAM}/heinzel/page"
    async with browser(home) as client:
        assert (await sent(client, path, f"{path}/wake", text="Look again.")).status_code == 303
        assert (await sent(client, path, f"{path}/pause")).status_code == 303
        seen = await home.store.overview(PAGE)
        assert seen is not None
        assert ([entry.wake.text for entry in seen.inbox], seen.inbox[0].wake.by, seen.paused) == (
            ["Look again."],
            "ada",
            True,
        )
        assert (await sent(client, path, f"{path}/resume")).status_code == 303
        assert (await client.post(f"{path}/burn", data={"token": ""})).status_code == 403
    seen = await home.store.overview(PAGE)
    assert seen is not None
    assert not seen.paused


@pytest.mark.parametrize(
    "path",
    ["/", "/costs", "/costs?day=2026-01-01", f"/teams/{TEAM}", f"/teams/{TEAM}/drafts", f"/teams/{TEAM}/heinzel/page"],
)
async def test_every_page_is_there(path: str) -> None:
    """And each names the draft's Heinzelmännchen or says plainly that there is nothing."""
    home, _ = await drafted()
    async with browser(home) as client:
        answer = await client.get(path)
    assert answer.status_code == 200
    assert "page" in answer.text or "All of core" in answer.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/costs?day=soon", 409),
        (f"/teams/{TEAM}/drafts/nothing", 409),
        (f"/teams/{TEAM}/heinzel/nobody", 404),
        (f"/teams/{TEAM}/heinzel/NO%20NAME", 404),
        (f"/teams/{TEAM}/heinzel/page/turns/99", 404),
        ("/teams/nobody", 404),
        ("/nothing", 404),
    ],
)
async def test_what_is_not_there_is_a_page_that_says_so(path: str, status: int) -> None:
    """With a way back."""
    home, _ = await drafted()
    async with browser(home) as client:
        answer = await client.get(path)
    assert answer.status_code == status
    assert 'href="/"' in answer.text


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/teams/a", "/teams/a"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)
def test_a_login_leads_nowhere_else(given: str, path: str) -> None:
    """Where a login goes on to is a path of ours."""
    assert login.within(given) == path


def test_a_pass_counts_for_one_person_for_its_time_under_their_password() -> None:
    """Changed, ended, from the future, of somebody unknown, or from before a new password: it is none."""
    seals = Seals(b"s" * 32, {"ada": "hash"}, lasts_s=100)
    given = Pass("ada", "nonce", 1_000)
    cookie = seals.written(given)
    assert seals.read(cookie, now_s=1_050) == given
    assert seals.read(seals.written(Pass(NOBODY, "n", 1_000)), now_s=1_000) == Pass(NOBODY, "n", 1_000)
    for at in (1_100, 900):
        assert seals.read(cookie, now_s=at) is None
    for wrong in (cookie[:-1], cookie.replace("ada", "bob"), "", "a.b.c", "\u2603.x.y", "x" * 600):
        assert seals.read(wrong, now_s=1_050) is None
    for other in (
        Seals(b"t" * 32, {"ada": "hash"}, lasts_s=100),
        Seals(b"s" * 32, {"ada": "new"}, lasts_s=100),
        Seals(b"s" * 32, {}, lasts_s=100),
    ):
        assert other.read(cookie, now_s=1_050) is None


def test_a_forms_token_is_for_one_browser_and_one_path() -> None:
    """Nothing of a page can be used for another page, or by another browser."""
    seals = Seals(b"s" * 32, {"ada": "hash"}, lasts_s=100)
    mine = Pass("ada", "nonce", 1_000)
    token = seals.token(mine, "/x")
    assert seals.token_fits(token, mine, "/x")
    assert not seals.token_fits(token, mine, "/y")
    assert not seals.token_fits(token, Pass("ada", "other", 1_000), "/x")
    assert not seals.token_fits("\u2603", mine, "/x")
    assert cookies.NOBODY == ""


def test_a_password_is_kept_as_a_hash() -> None:
    """Salted, slow, and never as it is: the settings refuse one."""
    assert passwords.fits(WORDS, HASH)
    assert not passwords.fits(WORDS + " ", HASH)
    assert passwords.made(WORDS) != HASH
    assert not passwords.fits(WORDS, passwords.NOBODY)
    with pytest.raises(ValueError, match="heinzelwerk console --password"):
        Console.model_validate({"people": {"ada": {"teams": [TEAM], "password": WORDS}}})


def test_attempts_count_from_their_beginning_and_pass() -> None:
    """A hundred at once are not let through; what did not fail is forgiven; each key has a window of its own."""
    now = [0.0]
    throttle = Throttle(lambda: now[0])
    assert [throttle.begin([("a", 2)]) for _ in range(3)] == [None, None, WINDOW_S]
    throttle.forgive(["a"])
    assert throttle.begin([("a", 2), ("b", 1)]) is None
    assert throttle.begin([("b", 1)]) == WINDOW_S
    now[0] = WINDOW_S + 1
    assert throttle.begin([("a", 2), ("b", 1)]) is None


@pytest.mark.parametrize(
    ("console", "says"),
    [
        ({"address": "0.0.0.0"}, "nobody would have to log in"),
        ({"url": "https://h.example"}, "nobody would have to log in"),
        ({"address": "0.0.0.0", **people(ada=TEAM)}, "the address that people type is not known"),
    ],
)
def test_beyond_this_machine_people_log_in(console: dict[str, Any], says: str) -> None:
    """Refused before anything is opened, with the fix."""
    with pytest.raises(errors.ConfigurationError, match=says):
        app.listening(Console.model_validate(console))


@pytest.mark.parametrize("url", ["http://h.example", "https://h.example/path", "h.example", "https://u@h.example"])
def test_the_address_that_people_type_is_a_site_with_tls(url: str) -> None:
    """Passwords do not travel in the clear."""
    with pytest.raises(ValueError, match="https://"):
        Console.model_validate({"url": url})
