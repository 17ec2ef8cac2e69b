"""Super streams: partitioned streams behind an exchange, laid out as by RabbitMQ's rabbitmq-streams (3.10.8).

The exchange is a direct one with the argument x-super-stream. Its partitions are streams NAME-KEY, each bound by its
routing key and with x-stream-partition-order, a long; with a number of partitions the keys are 0, 1, ….
"""

from __future__ import annotations

from typing import Final

from leveret.broker.exchanges.binding import Binding
from leveret.broker.streams.stream import Stream
from leveret.broker.vhost import VHost
from leveret.control.command import Command
from leveret.control.commands.objects import vhost_of
from leveret.control.direct import DirectChannel
from leveret.control.node import BrokerNode
from leveret.control.refusal import CONFLICT, Refused, bad_request, not_found
from leveret.control.tables import encoded_table, table_of
from leveret.wire import grammar

PARTITIONS: Final = 3
"""Default number of partitions."""
PARTITIONS_MAX: Final = 1000


class AddSuperStream(Command):
    """Declare an exchange and its partitions, all or nothing; answers with the names of the partitions."""

    name: str
    vhost: str = "/"
    partitions: int | None = None  # not together with routing_keys
    routing_keys: tuple[str, ...] | None = None
    max_length_bytes: int | None = None
    max_age: str | None = None  # as x-max-age
    stream_max_segment_size_bytes: int | None = None
    leader_locator: str | None = None
    initial_cluster_size: int | None = None
    user: str | None = None  # whose permissions count, None = no check

    def run(self, node: BrokerNode) -> object:
        keys = self._keys()
        streams = [f"{self.name}-{key}" for key in keys]
        _check_free(vhost_of(node, self.vhost), self.name, streams)
        arguments = encoded_table(self._arguments())
        exchange = {"type": "direct", "durable": True, "arguments": encoded_table({"x-super-stream": True})}
        with DirectChannel(node, self.vhost, self.user) as channel:
            try:
                channel.ask(grammar.EXCHANGE_DECLARE, exchange=self.name, **exchange)  # type: ignore[arg-type]
                for order, (key, stream) in enumerate(zip(keys, streams, strict=True)):
                    channel.ask(grammar.QUEUE_DECLARE, queue=stream, durable=True, arguments=arguments)
                    place = {"routing_key": key, "arguments": encoded_table({"x-stream-partition-order": order})}
                    channel.ask(grammar.QUEUE_BIND, queue=stream, exchange=self.name, **place)  # type: ignore[arg-type]
            except Refused:
                _remove(channel.vhost, self.name, streams)
                raise
        return {"partitions": streams}

    def _keys(self) -> list[str]:
        if self.partitions is not None and self.routing_keys is not None:
            raise bad_request("Specify --partitions or routing-keys, not both.")
        if self.routing_keys is not None:
            keys = [key.strip() for key in self.routing_keys]
            if not keys or "" in keys or len(set(keys)) < len(keys):
                raise bad_request("routing keys must be distinct strings")
        else:
            count = PARTITIONS if self.partitions is None else self.partitions
            if count < 1:
                raise bad_request("The partition number must be greater than 0")
            keys = [str(order) for order in range(min(count, PARTITIONS_MAX + 1))]
        if len(keys) > PARTITIONS_MAX:
            raise bad_request(f"a super stream has at most {PARTITIONS_MAX} partitions")
        return keys

    def _arguments(self) -> dict[str, object]:
        given: dict[str, object] = {
            "x-queue-type": "stream",
            "x-max-length-bytes": self.max_length_bytes,
            "x-max-age": self.max_age,
            "x-stream-max-segment-size-bytes": self.stream_max_segment_size_bytes,
            "x-queue-leader-locator": self.leader_locator,
            "x-initial-cluster-size": self.initial_cluster_size,
        }
        return {name: value for name, value in given.items() if value is not None}


class DeleteSuperStream(Command):
    """Delete a super stream with its partitions and their messages; answers with the partitions' names."""

    name: str
    vhost: str = "/"
    user: str | None = None  # whose permissions count, None = no check

    def run(self, node: BrokerNode) -> object:
        vhost = vhost_of(node, self.vhost)
        streams = partitions(vhost, self.name)
        if streams is None:
            raise not_found("stream_not_found")
        if self.user is None:
            _remove(vhost, self.name, streams)
        else:
            with DirectChannel(node, self.vhost, self.user) as channel:
                for stream in streams:
                    channel.ask(grammar.QUEUE_DELETE, queue=stream)
                channel.ask(grammar.EXCHANGE_DELETE, exchange=self.name)
        return {"partitions": streams}


def partitions(vhost: VHost, name: str) -> list[str] | None:
    """Return the streams of a super stream in order; None if there is no super stream of this name."""
    exchange = vhost.exchanges.get(name)
    if exchange is None or exchange.arguments.get("x-super-stream") is not True:
        return None
    bound = [binding for binding in exchange.every() if isinstance(binding.destination, Stream)]
    return list(dict.fromkeys(binding.destination.name for binding in sorted(bound, key=_order)))


def _order(binding: Binding) -> int:
    order = table_of(binding.arguments).get("x-stream-partition-order")
    return order if isinstance(order, int) else PARTITIONS_MAX


def _check_free(vhost: VHost, name: str, streams: list[str]) -> None:
    if name in vhost.exchanges:
        raise Refused(CONFLICT, f"{{:reference_already_exists, 'there is already an exchange named {name}'}}")
    for stream in streams:
        if stream in vhost.queues:
            raise Refused(CONFLICT, f"{{:reference_already_exists, 'there is already a queue named {stream}'}}")


def _remove(vhost: VHost, name: str, streams: list[str]) -> None:
    for stream in streams:
        queue = vhost.queues.get(stream)
        if queue is not None:
            consumers = queue.consumers.all()
            vhost.delete_queue(queue)
            for consumer in consumers:
                consumer.tell_cancelled()
    exchange = vhost.exchanges.get(name)
    if exchange is not None:
        vhost.delete_exchange(exchange)
