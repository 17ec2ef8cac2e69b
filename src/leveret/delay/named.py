"""Predefined layouts. Programs that declare the same layout on a broker can exchange delayed messages."""

from __future__ import annotations

from typing import Final

from leveret.delay.layout import Layout

DELAY_HEADER: Final = "NServiceBus.Transport.RabbitMQ.DelayInSeconds"

NSERVICEBUS: Final = Layout(queue_arguments=(("x-queue-mode", "lazy"),), delay_header=DELAY_HEADER)
"""Layout of NServiceBus.RabbitMQ 4.3 to 6: whole seconds, up to 268,435,455 (about 8.5 years)."""

NSERVICEBUS_V2: Final = Layout("nsb.v2", queue_type="quorum", delay_header=DELAY_HEADER)
"""Layout of NServiceBus.RabbitMQ 7 and later: quorum queues, so that RabbitMQ drops no message without a route."""

CELERY: Final = Layout(
    "celery_delayed",
    queue_type="quorum",
    level_names="{prefix}_{level}",
    delivery_name="{prefix}_delivery",
    starts_at_top=True,
)
"""Layout of Celery's native delayed delivery (kombu 5.5 and newer) with its default of quorum queues."""

CELERY_CLASSIC: Final = Layout(
    "celery_delayed",
    queue_type="classic",
    queue_arguments=(("x-overflow", "reject-publish"),),
    level_names="{prefix}_{level}",
    delivery_name="{prefix}_delivery",
    starts_at_top=True,
)
"""Layout of Celery with ``broker_native_delayed_delivery_queue_type = "classic"``."""

MILLISECONDS: Final = Layout("nsb.ms", unit_ms=1)
"""leveret's own layout: milliseconds, up to 268,435,455 (about 3.1 days)."""

LAYOUTS: Final[dict[str, Layout]] = {
    "nservicebus": NSERVICEBUS,
    "nservicebus-v2": NSERVICEBUS_V2,
    "celery": CELERY,
    "celery-classic": CELERY_CLASSIC,
    "milliseconds": MILLISECONDS,
}
"""The layouts by their names on the command line."""
