"""The Celery app: messages are doorbells, JSON only, no result backend; the settings were chosen by measurement.

`task_acks_late` with multiplier 1: an early acknowledgement with prefetching switched off stalls the threads pool. The
short visibility timeout redelivers what a dead worker held within about a minute; recovery never depends on it.
"""

from __future__ import annotations

from celery import Celery
from kombu.entity import Queue

from config.settings import Settings
from tasks import doorbell

BROKER_PREFIX = "mq:"
"""In front of all of Celery's keys, after the store's own prefix, when both share a server."""
SWEEP_EXPIRES_S = 60.0


def make_app(settings: Settings, url: str) -> Celery:
    """The app over the broker of these settings; `url` is the store's server, used where no broker of its own is set."""
    app = Celery("heinzelwerk", set_as_current=False)
    app.conf.update(
        broker_url=settings.store.broker_url or url,
        broker_transport_options={
            "visibility_timeout": 60,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "unacked_mutex_expire": 30,
            "socket_timeout": 10,  # publishing to a frozen server would hang for ever without
            "socket_connect_timeout": 2,
            "socket_keepalive": True,
            "health_check_interval": 25,
            "global_keyprefix": f"{settings.store.prefix}{BROKER_PREFIX}",
        },
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,  # a server that is full refuses writes for a while: no reason to end a worker
        result_backend=None,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        event_serializer="json",
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        task_default_queue="turns",
        task_queues=[Queue(name) for name in doorbell.QUEUES],  # type: ignore[no-untyped-call] # kombu's
        task_create_missing_queues=False,
        task_routes=doorbell.ROUTES,
        task_publish_retry_policy={"max_retries": 1, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.2},
        worker_send_task_events=True,  # Flower
        task_send_sent_event=False,  # "sent" says nothing that "received" does not, and costs one more publishing per doorbell
        worker_consumer="workers.consumer:Consumer",
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        enable_utc=True,
        timezone="UTC",
        beat_schedule={
            "sweep": {
                "task": doorbell.SWEEP,
                "schedule": settings.workers.sweep_every,
                "options": {"expires": SWEEP_EXPIRES_S, "queue": doorbell.ROUTES[doorbell.SWEEP]},
            }
        },
        beat_max_loop_interval=1,
    )
    return app
