"""How pages are made: templates with everything escaped, Markdown without HTML, and what every answer's head says.

Words of drafts, models, documents and people are hostile until shown otherwise: they are cleaned of what hides or
reorders text, escaped, and the browser is told to run nothing and to keep nothing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heinzelwerk.text import clean_text
from workers.show import figures
from workers.show.screen import plain

_PAGES = Path(__file__).with_name("pages")
STYLE = (_PAGES / "style.css").read_text("utf-8")
MOST_RENDERED = 30_000
"""Characters of Markdown that are also shown as a reader would see them; a longer text is shown as text alone."""

POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",  # with no-referrer browsers would send `Origin: null` with our own forms
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_LINK = re.compile(r"(?i)(?:https?://|mailto:)")


def link(*parts: object) -> str:
    """A path of ours; each part is one step, whatever stands in it."""
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


def _shown(value: object) -> object:
    """What a template prints: text without what hides or reorders it; half a character pair becomes a question mark."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return plain(value)
    return value


@jinja2.pass_context
def _hidden(context: jinja2.runtime.Context, path: str) -> Markup:
    """The field that makes a form one of ours, for the path that it posts to."""
    return Markup('<input type="hidden" name="token" value="{}">').format(context["visit"].token(path))


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PAGES),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"link": link, "token": _hidden}
    made.filters |= {
        "away": figures.away,
        "counted": figures.counted,
        "duration": figures.duration,
        "instant": figures.instant,
        "moment": figures.moment,
        "money": figures.money,
        "tokens": figures.tokens,
    }
    return made


_ENVIRONMENT = _environment()


def page(name: str, *, status: int = 200, headers: dict[str, str] | None = None, **words: Any) -> HTMLResponse:
    """A page of a template."""
    return HTMLResponse(_ENVIRONMENT.get_template(name).render(words), status, headers=headers)


def _markdown() -> MarkdownIt:
    reader = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    reader.validateLink = lambda url: _LINK.match(url) is not None  # type: ignore[method-assign] # its documented hook
    return reader


def rendered(text: str) -> Markup | None:
    """Markdown as a reader sees it: no HTML, no images, links that lead out only. None where it is too long for that."""
    if len(text) > MOST_RENDERED:
        return None
    return Markup(_markdown().render(clean_text(text)))  # noqa: S704 - made by a renderer that escapes all text


class Headed:
    """The application with the head of every answer; also of those that the framework makes."""

    def __init__(self, app: ASGIApp, more: dict[str, str]) -> None:
        self._app = app
        self._headers = [(name.encode(), value.encode()) for name, value in (HEADERS | more).items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
            await send(message)

        await self._app(scope, receive, headed)
