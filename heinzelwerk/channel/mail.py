"""Notices as mail, one message each, over SMTP."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from dataclasses import dataclass, field
from email.message import EmailMessage

from heinzelwerk.errors import TargetUnavailable
from heinzelwerk.notice import Notice

TIMEOUT_S = 15.0
TLS_PORT = 465
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(slots=True)
class Mailbox:
    """Sends to `recipients` through one server. TLS from the start on port 465, else STARTTLS where the server offers it;
    a password leaves this machine only under TLS."""

    host: str
    port: int
    sender: str
    recipients: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    timeout_s: float = TIMEOUT_S
    name: str = "mail"

    async def tell(self, notice: Notice) -> None:
        """Deliver one notice. TargetUnavailable where the server took it for nobody."""
        try:
            await asyncio.to_thread(self._send, _message(notice, self.sender, self.recipients))
        except (OSError, smtplib.SMTPException) as error:
            code = getattr(error, "smtp_code", None)
            raise TargetUnavailable(
                f"the mail server {self.host}:{self.port} did not take it: {type(error).__name__}"
                + (f" {code}" if code else ""),
                fix="correct [notices] smtp_host, smtp_port, smtp_user or smtp_password",
            ) from None

    def _send(self, message: EmailMessage) -> None:
        tls = ssl.create_default_context()
        connect = (
            smtplib.SMTP_SSL(self.host, self.port, timeout=self.timeout_s, context=tls)
            if self.port == TLS_PORT
            else smtplib.SMTP(self.host, self.port, timeout=self.timeout_s)
        )
        with connect as server:
            server.ehlo()
            if self.port != TLS_PORT and server.has_extn("starttls"):
                server.starttls(context=tls)
                server.ehlo()
            if self.user is not None:
                if not isinstance(server.sock, ssl.SSLSocket) and self.host not in _LOOPBACK:
                    raise smtplib.SMTPNotSupportedError("no TLS, so no password is sent")
                server.login(self.user, self.password or "")
            server.send_message(message)


def _message(notice: Notice, sender: str, recipients: tuple[str, ...]) -> EmailMessage:
    message = EmailMessage()
    message["From"] = sender
    message["To"] = ", ".join(recipients)
    message["Subject"] = notice.headline
    message["Message-ID"] = f"<{notice.id}@heinzelwerk>"  # the same for a repetition: mail programs show it once
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(notice.text)
    return message
