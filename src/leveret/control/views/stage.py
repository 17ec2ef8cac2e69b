"""What is said of a query that publishes by stages, and of a stage."""

from __future__ import annotations

from leveret.broker.query import Query
from leveret.broker.stage import Stage
from leveret.control.node import Node
from leveret.control.views.view import View


def query_view(node: Node, vhost: str, query: Query) -> View:
    """last_batch: None = none was released yet; stages, messages, octets: what is not released. idle_ms: for how long
    nothing has come to the stage that waits longest, None = there is no stage."""
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


def stage_view(node: Node, stage: Stage) -> View:
    """state: open, or releasing: what it has is on its way to its queues. expires_ms: in so many milliseconds, if
    nothing comes until then; None once it is released."""
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
