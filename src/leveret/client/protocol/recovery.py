"""What a channel remembers so that it is as it was after a reconnect: consumers, prefetch limits, transaction, outbox.

RabbitMQ's Java client does the same ("Automatic Recovery From Network Failures"). A delivery tag names a message of one
connection only, so tags of later connections are shifted: an acknowledgement that comes too late is recognized and not
taken for one of another message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from leveret.client.protocol import requests
from leveret.client.protocol.errors import OutboxFull, TransactionLost
from leveret.client.protocol.model import Delivery, DeliverySink
from leveret.client.protocol.reconnect import Reconnect
from leveret.client.protocol.requests import Arguments, Request
from leveret.client.protocol.topology import RecordedTopology
from leveret.wire import grammar
from leveret.wire.errors import ProtocolError
from leveret.wire.method import Method
from leveret.wire.table import Value, encode_short

TAGS: Final = 1 << 48
"""Distance between the delivery tags of one connection and those of the next."""
STREAM_OFFSET: Final = "x-stream-offset"


class ConsumerSpec(NamedTuple):
    """The arguments of a basic.consume."""

    queue: str
    no_ack: bool
    exclusive: bool
    arguments: Mapping[str, Value]

    def after(self, last: Delivery | None) -> Arguments:
        """Return the arguments with which the consumer goes on after a delivery: in a stream, at the next offset."""
        if last is None:
            return self.arguments
        try:
            offset = (last.properties.headers or {}).get(STREAM_OFFSET)
        except (ProtocolError, struct.error, IndexError):
            return self.arguments
        return {**self.arguments, STREAM_OFFSET: offset + 1} if isinstance(offset, int) else self.arguments


class RecordedConsumer:
    """A consumer of the channel.

    Attributes:
        prefetch: The channel's limit for each consumer when this one began; 0 = none.
        last: The last delivery that its user had taken when the connection was lost, None = unknown.
    """

    def __init__(self, spec: ConsumerSpec, sink: DeliverySink, prefetch: int) -> None:
        self.spec = spec
        self.sink = sink
        self.prefetch = prefetch
        self.last: Delivery | None = None

    def request(self) -> Request:
        """Return the request that starts the consumer again."""
        spec = self.spec
        return requests.consume(spec.queue, self.sink.tag, spec.no_ack, spec.exclusive, spec.after(self.last))


class ChannelRecovery:
    """The memory of one channel of a connection that reconnects.

    Attributes:
        topology: What was declared over the whole connection.
        policy: The limits of the outbox.
        is_in_tx: The channel is transactional.
        is_tx_used: Something was published or acknowledged since the last commit or rollback.
        is_tx_lost: The connection was lost within the transaction, and its user does not know it yet.
    """

    def __init__(self, policy: Reconnect, topology: RecordedTopology) -> None:
        self.is_in_tx: bool = False
        self.is_tx_used: bool = False
        self.is_tx_lost: bool = False
        self.topology = topology
        self.policy = policy
        self._consumers: dict[str, RecordedConsumer] = {}  # by consumer tag
        self._prefetch = 0
        self._shared_prefetch = 0
        self._held: list[bytes] = []
        self._held_octets = 0

    def record(self, request: Request, answer: Method) -> None:
        """Record what a request has changed that the broker has answered."""
        key, values = request.spec.key, request.values
        if key == grammar.BASIC_QOS.key:
            if values["global"]:
                self._shared_prefetch = int(str(values["prefetch_count"]))
            else:
                self._prefetch = int(str(values["prefetch_count"]))
        elif key == grammar.TX_SELECT.key:
            self.is_in_tx = True
        elif key in (grammar.TX_COMMIT.key, grammar.TX_ROLLBACK.key):
            self.is_tx_used = False
        else:
            self.topology.record(request, answer)

    def prepare(self, request: Request) -> None:
        """Raise TransactionLost if the request ends a transaction that the connection's loss has ended before."""
        if request.spec in (grammar.TX_COMMIT, grammar.TX_ROLLBACK):
            is_lost, self.is_tx_lost = self.is_tx_lost, False
            if is_lost and request.spec is grammar.TX_COMMIT:
                raise TransactionLost(is_unknown=False)

    def consumer_began(self, spec: ConsumerSpec, sink: DeliverySink) -> None:
        """Record a consumer, with the prefetch limit that is in force."""
        self._consumers[sink.tag] = RecordedConsumer(spec, sink, self._prefetch)
        self.topology.consumer_began(spec.queue)

    def consumer_ended(self, tag: str) -> None:
        """Forget a consumer that was cancelled by either side."""
        consumer = self._consumers.pop(tag, None)
        if consumer is not None:
            self.topology.consumer_ended(consumer.spec.queue)

    def end(self) -> dict[bytes, DeliverySink]:
        """Forget all consumers, as the channel has ended, and return their sinks by consumer tag."""
        sinks = {encode_short(tag): consumer.sink for tag, consumer in self._consumers.items()}
        for tag in list(self._consumers):
            self.consumer_ended(tag)
        return sinks

    def interrupt(self) -> None:
        """Learn that the connection is lost."""
        if self.is_in_tx and self.is_tx_used:
            self.is_tx_lost = True
            self.release()  # what was held is part of that transaction
        self.is_tx_used = False
        for consumer in list(self._consumers.values()):
            consumer.last = consumer.sink.interrupted() or consumer.last

    def requests(self, confirms: bool) -> Iterator[tuple[Request, DeliverySink | None]]:
        """Yield the requests that restore the channel, with the sink of those that start a consumer."""
        if confirms:
            yield requests.confirm_select(), None
        if self.is_in_tx:
            yield requests.tx_select(), None
        if self._shared_prefetch:
            yield requests.qos(self._shared_prefetch, shared=True), None
        prefetch = 0
        for consumer in self._consumers.values():
            if consumer.prefetch != prefetch:
                prefetch = consumer.prefetch
                yield requests.qos(prefetch, shared=False), None
            yield consumer.request(), consumer.sink
        if self._prefetch != prefetch:
            yield requests.qos(self._prefetch, shared=False), None

    # the outbox

    @property
    def is_full(self) -> bool:
        """Whether hold() would raise OutboxFull."""
        return self.policy.is_full(len(self._held), self._held_octets)

    def hold(self, frames: bytes) -> None:
        """Keep a message that is published without confirms until the connection is restored. Raises OutboxFull."""
        if self.is_full:
            raise OutboxFull(len(self._held), self._held_octets)
        self._held.append(frames)
        self._held_octets += len(frames)

    def release(self) -> list[bytes]:
        """Return the messages held, to be sent now."""
        held, self._held, self._held_octets = self._held, [], 0
        return held
