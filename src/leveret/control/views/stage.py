"""Views of a query that publishes by stages, and of a stage."""

from __future__ import annotations

from leveret.broker.staging.query import Producer
from leveret.broker.staging.stage import Stage
from leveret.control.node import BrokerNode
from leveret.control.views.view import View


def query_view(node: BrokerNode, vhost: str, query: Producer) -> View:
    """Return an item of list_queries.

    last_batch is None before the first release; stages, messages and octets count what is not released. idle_ms is the
    longest time since a stage received its last message, None without stages.
    """
    stages = list(query.stages.values())
    now_us = node.host.now_us()
    return {
        "vhost": vhost,
        "name": query.name,
        "owner": query.owner,
        "last_batch": query.last_batch if query.last_batch >= 0 else None,
        "stages": len(stages),
        "messages": sum(int(stage.count()) for stage in stages),
        "octets": sum(int(stage.octets) for stage in stages),
        "idle_ms": max((_idle_ms(stage, now_us) for stage in stages), default=None),
    }


def stage_view(node: BrokerNode, stage: Stage) -> View:
    """Return an item of list_stages.

    The state "releasing" means that messages move to their queues. expires_ms is the time until an idle open stage
    expires, None after its release.
    """
    now_us = node.host.now_us()
    return {
        "vhost": stage.vhost.name,
        "query": stage.query,
        "batch": stage.batch,
        "attempt": stage.attempt,
        "state": "open" if stage.is_open else "releasing",
        "messages": int(stage.count()),
        "octets": int(stage.octets),
        "idle_ms": _idle_ms(stage, now_us),
        "expires_ms": max(0, int(stage.ends_us()) - now_us) // 1000 if stage.is_open else None,
        "is_damaged": stage.is_damaged,
    }


def _idle_ms(stage: Stage, now_us: int) -> int:
    return max(0, now_us - int(stage.published_us)) // 1000
