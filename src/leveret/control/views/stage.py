"""Views of a query that publishes by stages or reports its progress, and of a stage."""

from __future__ import annotations

from leveret.broker.staging.stage import Stage
from leveret.broker.streams.stream import Stream
from leveret.broker.vhost import VHost
from leveret.control.node import BrokerNode
from leveret.control.tables import sayable
from leveret.control.views.view import View


def query_view(node: BrokerNode, vhost: VHost, name: str) -> View | None:
    """Return an item of list_queries; None if the broker knows no such query.

    last_batch is None before the first release; stages, messages and octets count what is not released;
    released_messages and released_octets count since the broker started. idle_ms is the longest time since a stage
    received its last message, None without stages. The fields from title on are what the query has reported (op
    "report"), None without a report: rows are those of reported_batch, lag is the number of messages that it has not
    read yet, now, in all its streams that exist.
    """
    query, report = vhost.queries.by_name.get(name), vhost.queries.reports.get(name)
    if query is None and report is None:
        return None
    stages = [] if query is None else list(query.stages.values())
    now_us = node.host.now_us()
    streams = None if report is None else [_read_stream(vhost, *each) for each in report.streams.items()]
    return {
        "vhost": sayable(vhost.name),
        "name": sayable(name),
        "owner": sayable(query.owner if query is not None else report.owner if report is not None else ""),
        "last_batch": query.last_batch if query is not None and query.last_batch >= 0 else None,
        "stages": len(stages),
        "messages": sum(int(stage.count()) for stage in stages),
        "octets": sum(int(stage.octets) for stage in stages),
        "released_messages": 0 if query is None else query.messages,
        "released_octets": 0 if query is None else query.octets,
        "idle_ms": max((_idle_ms(stage, now_us) for stage in stages), default=None),
        "title": None if report is None else sayable(report.title),
        "checkpoint": None if report is None else sayable(report.checkpoint),
        "reported_batch": report.batch if report is not None and report.batch >= 0 else None,
        "rows": report.rows if report is not None and report.rows >= 0 else None,
        "streams": streams,
        "lag": query_lag(vhost, name),
        "reported_ms": None if report is None else max(0, now_us - int(report.reported_us)) // 1000,
    }


def query_names(vhost: VHost) -> list[str]:
    """Return the names of all queries that stage or report, in order."""
    return sorted({*vhost.queries.by_name, *vhost.queries.reports})


def query_lag(vhost: VHost, name: str) -> int | None:
    """Return how many messages a query has not read yet, in all streams that it has reported and that exist."""
    report = vhost.queries.reports.get(name)
    if report is None:
        return None
    lags = [_lag(vhost, stream, offset) for stream, offset in report.streams.items()]
    return sum(lag for lag in lags if lag is not None)


def _read_stream(vhost: VHost, name: str, next_offset: int) -> View:
    return {"name": sayable(name), "next_offset": next_offset, "lag": _lag(vhost, name, next_offset)}


def _lag(vhost: VHost, name: str, next_offset: int) -> int | None:
    stream = vhost.queues.get(name)
    return max(0, int(stream.committed) - next_offset) if isinstance(stream, Stream) else None


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
