"""The applications for ``celery -A``; LEVERET_CELERY_APP names the one to use.

The broker's URL comes from CELERY_BROKER_URL, which is Celery's own variable. LEVERET_CELERY_TRANSPORT is the scheme of
all URLs: amqp for py-amqp, leveret for leveret's transport.
"""

from __future__ import annotations

import os

from celery import Celery
from kombu import Exchange, Queue
from kombu.common import Broadcast

from leveret.frameworks import kombu_alias  # noqa: F401  what the entry point of an installed leveret does

from . import tasks

__all__ = ["APPLICATIONS", "DELAYED_QUEUES", "app", "on_transport", "tasks"]

DELAYED_QUEUES = {"by-topic": "topic", "by-fanout": "fanout", "by-key": "direct"}
"""The queues of the application `delayed`, each with an exchange of the same name and of this type."""


def on_transport(broker_url: str) -> str:
    """Return the URL with the scheme of the transport under test."""
    return broker_url.replace("amqp://", f"{os.environ['LEVERET_CELERY_TRANSPORT']}://", 1)


def stock(broker_url: str | None = None) -> Celery:
    """Celery with default settings, and results by rpc://."""
    broker = None if broker_url is None else on_transport(broker_url)
    return Celery("leveret", broker=broker, backend="rpc://", set_as_current=False)


def routed(broker_url: str | None = None) -> Celery:
    """Queues of several kinds, and rules that route tasks to them."""
    app = stock(broker_url)
    kinds = Exchange("kinds", "topic")
    app.conf.update(
        task_queues=[
            Queue("feeds", kinds, routing_key="feed.#"),
            Queue("videos", Exchange("videos"), routing_key="video"),
            Queue("urgent", Exchange("urgent"), routing_key="urgent", queue_arguments={"x-max-priority": 10}),
            Broadcast("everybody"),
        ],
        task_default_queue="feeds",
        task_default_exchange="kinds",
        task_default_exchange_type="topic",
        task_routes={"visit_late": {"queue": "videos"}, "add": {"routing_key": "feed.sums", "exchange": "kinds"}},
        task_inherit_parent_priority=True,
        worker_prefetch_multiplier=1,
    )
    return app


def quorum(broker_url: str | None = None) -> Celery:
    """Quorum queues, as the Celery manual sets them up; the broker keeps countdowns then."""
    app = stock(broker_url)
    app.conf.update(
        task_default_queue="tasks-quorum",
        task_default_queue_type="quorum",
        task_default_exchange_type="topic",
        broker_transport_options={"confirm_publish": True},
    )
    return app


def delayed(broker_url: str | None = None, levels: str = "quorum") -> Celery:
    """Quorum queues behind exchanges of each type, all bound to the level queues, which are of the type `levels`."""
    app = stock(broker_url)
    app.conf.update(
        task_queues=[
            Queue(name, Exchange(name, kind), routing_key=name, queue_arguments={"x-queue-type": "quorum"})
            for name, kind in DELAYED_QUEUES.items()
        ]
        + [Broadcast("to-all")],
        task_default_queue="by-topic",
        task_default_exchange="by-topic",
        task_default_exchange_type="topic",
        task_default_routing_key="by-topic",
        broker_native_delayed_delivery_queue_type=levels,
        broker_transport_options={"confirm_publish": True},
    )
    return app


def delayed_classic(broker_url: str | None = None) -> Celery:
    """The application `delayed` with classic level queues."""
    return delayed(broker_url, "classic")


def ticking(broker_url: str | None = None) -> Celery:
    """A schedule for beat, which sends tasks with the address in LEVERET_CELERY_DESK."""
    app = stock(broker_url)
    desk = os.environ.get("LEVERET_CELERY_DESK", "")
    app.conf.beat_schedule = {"tick": {"task": "visit", "schedule": 0.5, "args": (desk, "tick")}}
    return app


APPLICATIONS = {each.__name__: each for each in (stock, routed, quorum, delayed, delayed_classic, ticking)}
app = APPLICATIONS[os.environ.get("LEVERET_CELERY_APP", "stock")]()
