"""Logs: one line per transition, JSON outside a terminal, secrets redacted wherever they stand, tracebacks included."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

REDACTED = "[redacted]"
_QUIET = {
    "celery.worker.strategy": logging.WARNING,  # a line per message received
    "celery.app.trace": logging.WARNING,  # a line per task that succeeded: our own say more
    "celery.worker.consumer.connection": logging.WARNING,
    "celery.apps.worker": logging.WARNING,
    "celery.beat": logging.WARNING,
    "kombu": logging.WARNING,
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    "asyncio": logging.WARNING,
    "uvicorn.access": logging.WARNING,
}


class Redactor:
    """Replaces secret values in everything that is logged, also inside nested data and tracebacks."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets

    def __call__(self, _: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """The processor that structlog calls with each line."""
        return {key: self._clean(value) for key, value in event.items()} if self._secrets else event

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            for secret in self._secrets:
                value = value.replace(secret, REDACTED)
            return value
        if isinstance(value, Mapping):
            return {self._clean(key): self._clean(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._clean(inner) for inner in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        return self._clean(str(value))


def set_up(
    *,
    log_format: str,
    level: str,
    secrets: tuple[str, ...] = (),
    context: Mapping[str, str] | None = None,
    stream: TextIO | None = None,
) -> None:
    """Send the logs of this process (ours, Celery's, everybody's) to `stream` (None: stderr), each line with `context` in it.

    `log_format`: `json`, `text`, or `auto` (text on a terminal, else JSON).
    """
    out = stream or sys.stderr
    as_text = log_format == "text" or (log_format == "auto" and out.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        _with(dict(context or {})),
    ]
    last: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        Redactor(secrets),
        structlog.dev.ConsoleRenderer(colors=out.isatty())
        if as_text
        else structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
    ]
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared, structlog.stdlib.add_logger_name],
            processors=last,
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    logging.captureWarnings(True)
    root.setLevel(level.upper())
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(max(quiet, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _with(context: Mapping[str, str]) -> Processor:
    def add(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        for key, value in context.items():
            event.setdefault(key, value)
        return event

    return add
