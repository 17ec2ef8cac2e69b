"""Rows of queues, exchanges, channels and connections: one for each object, or sums if no details are requested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from leveret.broker.channel import BrokerChannel
from leveret.broker.counters import Counters
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.peer import Peer
from leveret.broker.queues.queue import Queue
from leveret.broker.vhost import VHost
from leveret.control.metrics.metric import Row, Value
from leveret.control.metrics.scope import MetricSums, Scope
from leveret.control.node import BrokerNode
from leveret.control.pid import pid_of
from leveret.control.tables import sayable
from leveret.control.views.connection import is_open
from leveret.control.views.queue import figures

Rows = Callable[[Scope], Iterator[Row]]
QUEUE_FIGURES: Final = (
    "memory", "messages_ram", "message_bytes_ram", "messages_ready_ram", "messages_unacknowledged_ram",
    "messages_persistent", "message_bytes_persistent", "message_bytes", "message_bytes_ready",
    "message_bytes_unacknowledged", "messages_paged_out", "message_bytes_paged_out",
)  # fmt: skip


def _of_queues(values_of: Callable[[Queue], tuple[Value, ...]]) -> Rows:
    def rows(scope: Scope) -> Iterator[Row]:
        for vhost in scope.vhosts:
            name = sayable(vhost.name)
            for queue in list(vhost.queues.values()):
                if not queue.is_deleted:
                    yield (name, sayable(queue.name)), values_of(queue)

    return rows


def _of_channels(values_of: Callable[[BrokerChannel], tuple[Value, ...]], has_vhost: bool) -> Rows:
    def rows(scope: Scope) -> Iterator[Row]:
        for peer in _peers(scope):
            for number, channel in list(peer.channels.items()):
                if not channel.is_closed:
                    pid = pid_of(scope.node, peer.number, int(number))
                    labels = (pid, sayable(peer.vhost.name)) if has_vhost else (pid,)
                    yield labels, values_of(channel)

    return rows


def _of_connections(values_of: Callable[[BrokerNode, Peer], tuple[Value, ...]]) -> Rows:
    def rows(scope: Scope) -> Iterator[Row]:
        for peer in _peers(scope):
            yield (pid_of(scope.node, peer.number),), values_of(scope.node, peer)

    return rows


def _peers(scope: Scope) -> Iterator[Peer]:
    return (peer for peer in scope.node.host.peers() if is_open(peer) and peer.vhost in scope.vhosts)


def _coarse(queue: Queue) -> tuple[Value, ...]:
    ready, unacked = int(queue.count()), int(queue.outstanding())
    return (ready, unacked, ready + unacked)


def _consumers(queue: Queue) -> tuple[Value, ...]:
    return (int(queue.consumers.count),)


def _details(queue: Queue) -> tuple[Value, ...]:
    ready = int(queue.count())
    capacity = float(queue.consumers.count > 0 and ready == 0)
    found = figures(queue, ready, int(queue.outstanding()))
    return (capacity, capacity, *[found[name] for name in QUEUE_FIGURES])


def _published(queue: Queue) -> tuple[Value, ...]:
    queue.vhost.tally.count_publishes()
    return (int(queue.counters.publish),)


def _delivered_from(queue: Queue) -> tuple[Value, ...]:
    queue.consumers.count_deliveries()
    return _outgoing(queue.counters)


def _outgoing(counters: Counters) -> tuple[Value, ...]:
    return (
        int(counters.get), int(counters.get_no_ack), int(counters.deliver), int(counters.deliver_no_ack),
        int(counters.redeliver), int(counters.ack), int(counters.get_empty),
    )  # fmt: skip


def _channel(channel: BrokerChannel) -> tuple[Value, ...]:
    confirms, held = channel.confirms, channel.tx
    return (
        len(channel.consumers),
        int(channel.unacked.count),
        int(confirms.published - confirms.answered) if confirms is not None else 0,
        len(held.publishes) if held is not None else 0,
        len(held.held()) if held is not None else 0,
        channel.default_limit,
        int(channel.limit),
    )


def _published_on(channel: BrokerChannel) -> tuple[Value, ...]:
    if channel.confirms is not None:
        channel.counters.confirm = channel.confirms.confirmed()
    return _incoming(channel.counters)


def _incoming(counters: Counters) -> tuple[Value, ...]:
    return (
        int(counters.publish), int(counters.confirm), int(counters.return_unroutable), int(counters.drop_unroutable)
    )  # fmt: skip


def _delivered_on(channel: BrokerChannel) -> tuple[Value, ...]:
    for consumer in channel.consumers.values():
        consumer.count()
    return _outgoing(channel.counters)


def _octets(node: BrokerNode, peer: Peer) -> tuple[Value, ...]:
    return peer.octets.values()


def _packets(node: BrokerNode, peer: Peer) -> tuple[Value, ...]:
    octets = peer.octets
    return (int(octets.reads), int(octets.writes), node.host.unsent_octets(peer), len(peer.channels))


def _exchanges(scope: Scope) -> Iterator[Row]:
    for vhost in scope.vhosts:
        vhost.tally.count_publishes()
        name = sayable(vhost.name)
        yield (name, ""), vhost.tally.passage.values()
        for exchange in list(vhost.exchanges.values()):
            yield (name, sayable(exchange.name)), exchange.passage.values()
        if not scope.is_detailed:
            yield (name, ""), vhost.tally.gone_passage.values()


def _bindings(scope: Scope) -> Iterator[Row]:
    def row(vhost: VHost, exchange: Exchange) -> Row:
        return (sayable(vhost.name), sayable(exchange.name), exchange.kind), (int(exchange.binding_count),)

    for vhost in scope.vhosts:
        yield from (row(vhost, exchange) for exchange in list(vhost.exchanges.values()))


OBJECT_ROWS: Final[dict[str, Rows]] = {
    "queue_coarse_metrics": _of_queues(_coarse),
    "queue_consumer_count": _of_queues(_consumers),
    "queue_metrics": _of_queues(_details),
    "channel_queue_exchange_metrics": _of_queues(_published),
    "queue_delivery_metrics": _of_queues(_delivered_from),
    "channel_metrics": _of_channels(_channel, has_vhost=False),
    "channel_exchange_metrics": _of_channels(_published_on, has_vhost=True),
    "channel_queue_metrics": _of_channels(_delivered_on, has_vhost=True),
    "connection_coarse_metrics": _of_connections(_octets),
    "connection_metrics": _of_connections(_packets),
    "leveret_exchange": _exchanges,
    "exchange_bindings": _bindings,
}
# groups whose sums include deleted objects, so that counters do not fall, for example when a channel closes
SUMMED: Final[dict[str, Callable[[MetricSums], tuple[Value, ...]]]] = {
    "channel_queue_exchange_metrics": lambda sums: (sums.routed,),
    "queue_delivery_metrics": lambda sums: _outgoing(sums.outgoing),
    "channel_exchange_metrics": lambda sums: _incoming(sums.published),
    "channel_queue_metrics": lambda sums: _outgoing(sums.outgoing),
    "connection_coarse_metrics": lambda sums: sums.octets.values(),
}
