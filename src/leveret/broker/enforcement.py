"""Policies that have changed take effect on the queues and exchanges that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.policies import EXCHANGE
from leveret.broker.queue_settings import reconfigure
from leveret.broker.queue_types import queue_type

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost


def enforce(vhost: VHost, now_us: i64) -> None:
    """Look at each object once, however many policies came and went; who is told the same as before is left alone."""
    policies = vhost.policies
    policies.is_changed = False
    is_different = False
    for exchange in vhost.exchanges.values():
        effect = policies.effect(EXCHANGE, exchange.name)
        if effect is not exchange.effect:
            exchange.govern(effect)
            is_different = True
    for queue in vhost.queues.values():
        effect = policies.effect(queue_type(queue.arguments), queue.name)
        if effect is not queue.effect:
            reconfigure(queue, effect, now_us)
            is_different = True
    if is_different:
        vhost.changed()
