"""Applies changed policies to existing queues and exchanges, some of them in each turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchange_types.exchange_arguments import EXCHANGE
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.queue_settings import reconfigure
from leveret.broker.queues.queue_types import queue_type

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost

# how many are checked in one turn, as there may be many thousands
STEP: Final = 128


def enforce(vhost: VHost, now_us: i64) -> bool:
    """Check the next few queues and exchanges; return True if some are left for another turn.

    Each is checked once, however many policies have changed, and left alone if the effect is the same as before.
    """
    policies = vhost.policies
    if policies.is_changed:
        policies.is_changed = False
        vhost.ungoverned = [*vhost.queues.values(), *vhost.exchanges.values()]
    is_different = False
    for _ in range(min(STEP, len(vhost.ungoverned))):
        each = vhost.ungoverned.pop()
        kind = queue_type(each.arguments) if isinstance(each, Queue) else EXCHANGE
        effect = policies.effect(kind, each.name)
        if effect is each.effect:
            continue
        is_different = True
        if not isinstance(each, Queue):
            if vhost.exchanges.get(each.name) is each:
                each.govern(effect)
                vhost.watcher.exchange_changed(vhost, each)
        elif not each.is_deleted:
            reconfigure(each, effect, now_us)
    if is_different:
        vhost.changed()
    return len(vhost.ungoverned) > 0
