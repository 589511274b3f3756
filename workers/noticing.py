"""The loop that tells people what waits for them, beside an upkeep worker's tasks and never before them."""

from __future__ import annotations

import asyncio

import structlog

from config.settings import Settings
from heinzelwerk import telling
from heinzelwerk.channel.mail import Mailbox
from heinzelwerk.channel.webhook import Webhook
from heinzelwerk.errors import HeinzelwerkError
from heinzelwerk.ports import Messenger
from heinzelwerk.telling import Memory
from workers.root import Runtime

log = structlog.get_logger("heinzelwerk.noticing")

SHARE = 20
"""A look at all teams takes at most one part of so many of this loop's time: ten thousand sleepers cost no more."""


def messengers(settings: Settings) -> tuple[Messenger, ...]:
    """Who tells, as the settings say; empty where nothing is set."""
    notices = settings.notices
    found: list[Messenger] = []
    if notices.webhook is not None:
        found.append(Webhook(notices.webhook.get_secret_value()))
    if notices.smtp_host is not None and notices.sender is not None:
        found.append(
            Mailbox(
                host=notices.smtp_host,
                port=notices.smtp_port,
                sender=notices.sender,
                recipients=notices.recipients,
                user=notices.smtp_user,
                password=notices.smtp_password.get_secret_value() if notices.smtp_password else None,
            )
        )
    return tuple(found)


async def go_on(runtime: Runtime) -> None:
    """Look and tell until the process ends; ends at once where nobody is set up to tell."""
    found = messengers(runtime.settings)
    memories: dict[str, Memory] = {}
    while found and not runtime.leaving:
        begun = runtime.works.clock.monotonic()
        await look(runtime, found, memories)
        took = runtime.works.clock.monotonic() - begun
        await asyncio.sleep(max(runtime.settings.notices.every, SHARE * took))


async def look(runtime: Runtime, found: tuple[Messenger, ...], memories: dict[str, Memory]) -> None:
    """One look at every team; trouble with one, or with the store, waits for the next."""
    try:
        teams = await runtime.works.store.teams()
        for team in teams:
            memory = memories.setdefault(team, Memory())
            await telling.tell(team, found, runtime.works_of(team), memory, link=runtime.settings.notices.link)
    except HeinzelwerkError as error:
        log.warning("notices not told", reason=str(error))
    except Exception:  # a notice must not end the loop that tells the others
        log.exception("notices failed")
