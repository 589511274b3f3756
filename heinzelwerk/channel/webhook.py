"""Notices as HTTP requests: one POST of JSON each, which Slack, Mattermost and the like show as it is."""

from __future__ import annotations

import httpx

from heinzelwerk.errors import TargetUnavailable
from heinzelwerk.notice import Notice

TIMEOUT_S = 10.0


class Webhook:
    """Posts to one address. The address is a secret: it stands in no error and no log."""

    name = "webhook"

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._url = url
        self._timeout_s = timeout_s

    async def tell(self, notice: Notice) -> None:
        """Deliver one notice, its id as idempotency key. TargetUnavailable for every answer but 2xx."""
        try:
            async with httpx.AsyncClient(timeout=self._timeout_s, follow_redirects=False) as client:
                answer = await client.post(
                    self._url, json=notice.data(), headers={"Idempotency-Key": notice.id, "User-Agent": "heinzelwerk"}
                )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise TargetUnavailable(f"the webhook was not reached: {type(error).__name__}") from None
        if not answer.is_success:
            raise TargetUnavailable(
                f"the webhook answered {answer.status_code}", fix="correct [notices] webhook, or what listens there"
            )
