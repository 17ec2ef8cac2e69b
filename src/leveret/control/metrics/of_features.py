"""Rows of metrics that RabbitMQ does not have or does not count: discards, delays, links, stages, streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from leveret.broker.dead_letters.deaths import REASONS, TYPES
from leveret.broker.streams.naming import standings
from leveret.control.metrics.metric import Row
from leveret.control.metrics.scope import Scope
from leveret.control.sliced import CHUNK
from leveret.control.tables import sayable
from leveret.control.views.stage import query_lag, query_names
from leveret.control.views.stream import largest_lag
from leveret.federation.status import ERROR, PAUSED, REFUSED, RUNNING, STARTING
from leveret.net.disk.archive import Archive

# None is a pause
RowsWithPauses = Callable[[Scope], Iterator[Row | None]]


def _discarded(scope: Scope) -> Iterator[Row]:
    for vhost in scope.vhosts:
        name, tally = sayable(vhost.name), vhost.tally
        found: Counter[str] = Counter({reason.replace(" ", "_"): count for reason, count in vhost.discards.items()})
        for kind in TYPES:
            found.update(dict(zip(REASONS, tally.deaths.of(kind, "disabled"), strict=True)))
        found["unroutable_dropped"] = int(tally.counters.drop_unroutable)
        for reason, count in sorted(found.items()):
            yield (name, reason), (count,)


def _replies(scope: Scope) -> Iterator[Row | None]:
    for vhost in scope.vhosts:
        delivered, dropped = int(vhost.tally.replies_delivered), int(vhost.tally.replies_dropped)
        for index, channel in enumerate(list(vhost.channels)):
            if not channel.is_closed:  # a closed channel has added its counts to the virtual host's
                delivered += int(channel.reply_to_delivered)
                dropped += int(channel.reply_to_dropped)
            if index % CHUNK == CHUNK - 1:
                yield None
        yield (sayable(vhost.name),), (delivered, dropped)


def _delayed(scope: Scope) -> Iterator[Row | None]:
    for vhost in scope.vhosts:
        name = sayable(vhost.name)
        layouts: dict[str, list[int]] = {}
        for index, queue in enumerate(list(vhost.queues.values())):
            if index % CHUNK == CHUNK - 1:
                yield None
            if queue.level is not None:
                counts = layouts.setdefault(queue.level.prefix, [0, 0])
                undeliverable = int(queue.undeliverable_count())
                counts[0] += int(queue.count()) + undeliverable
                counts[1] += undeliverable
        for layout, (count, undeliverable) in layouts.items():
            yield (name, sayable(layout), "levels"), (count, undeliverable)
        for schedule in vhost.schedules.values():
            yield (name, sayable(schedule.name), "exchange"), (int(schedule.count()), 0)


def _link_states(scope: Scope) -> Iterator[Row]:
    statuses = scope.node.host.federator.statuses()
    for state in (STARTING, RUNNING, ERROR, PAUSED, REFUSED):
        yield (state,), (sum(status.status == state for status in statuses),)


def _links(scope: Scope) -> Iterator[Row]:
    for link in scope.node.host.federator.statuses():
        if link.id:
            labels = (sayable(link.vhost), sayable(link.exchange), sayable(link.upstream), link.id)
            yield labels, (
                int(link.status == RUNNING), link.messages, link.looped, link.known, link.rejected, link.reconnects,
                link.unacknowledged, link.lag, link.bindings, link.unbound,
            )  # fmt: skip


def _stages(scope: Scope) -> Iterator[Row]:
    """Yield a row for each virtual host with queries that publish by stages."""
    for vhost in scope.vhosts:
        stages = vhost.queries.stages()
        if vhost.queries.by_name or stages:
            octets = sum(int(stage.octets) for stage in stages)
            yield (sayable(vhost.name),), (sum(int(stage.count()) for stage in stages), octets)


def _queries(scope: Scope) -> Iterator[Row]:
    for vhost in scope.vhosts:
        queries = vhost.queries
        for name in query_names(vhost):
            query, report = queries.by_name.get(name), queries.reports.get(name)
            yield (sayable(vhost.name), sayable(name), sayable(report.title) if report is not None else ""), (
                query.last_batch if query is not None and query.last_batch >= 0 else None,
                None if query is None else query.messages,
                None if query is None else query.octets,
                report.batch if report is not None and report.batch >= 0 else None,
                query_lag(vhost, name),
                None if report is None else max(0, scope.node.host.now_us() - int(report.reported_us)) / 1_000_000,
            )


def _archives(scope: Scope) -> list[Archive]:
    archives = scope.node.host.streams.archives.values()
    return [each for each in archives if not each.stream.is_deleted and each.stream.vhost in scope.vhosts]


def _streams(scope: Scope) -> Iterator[Row]:
    for archive in _archives(scope):
        stream, files = archive.stream, archive.files
        yield (sayable(stream.vhost.name), sayable(stream.name)), (
            int(stream.count()), int(stream.next_offset), int(stream.committed), files.octets, int(stream.tail_octets),
            len(files.segments), int(stream.consumers.count), largest_lag(stream), archive.errors,
        )  # fmt: skip


def _stream_names(scope: Scope) -> Iterator[Row]:
    for archive in _archives(scope):
        stream = archive.stream
        for standing in standings(stream):
            yield (sayable(stream.vhost.name), sayable(stream.name), sayable(standing.name)), (standing.lag,)


FEATURE_ROWS: Final[dict[str, RowsWithPauses]] = {
    "leveret_discarded": _discarded,
    "leveret_replies": _replies,
    "leveret_delayed": _delayed,
    "leveret_federation_states": _link_states,
    "leveret_federation": _links,
    "leveret_stages": _stages,
    "leveret_queries": _queries,
    "leveret_streams": _streams,
    "leveret_stream_names": _stream_names,
}
