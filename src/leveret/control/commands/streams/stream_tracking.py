"""Tracking data of a stream: the offsets of its named consumers, and the last publishing ids of its publishers.

Names and columns are those of RabbitMQ's list_stream_tracking (rabbitmq-streams 3.11); lag and is_consuming are
leveret's.
"""

from __future__ import annotations

from leveret.broker.streams.naming import forget, standings
from leveret.broker.streams.stream import Stream
from leveret.control.command import Command, Query
from leveret.control.commands.objects import vhost_of
from leveret.control.node import BrokerNode
from leveret.control.refusal import bad_request, not_found
from leveret.control.views.view import View


class ListStreamTracking(Query):
    """List the tracking data of a stream; without a choice, of both types."""

    stream: str
    vhost: str = "/"
    offset: bool = False  # only offsets at which consumers continue
    writer: bool = False  # only publishers' last publishing ids

    def run(self, node: BrokerNode) -> object:
        stream = stream_named(node, self.vhost, self.stream)
        found: list[View] = []
        if self.offset or not self.writer:
            found += [
                {"type": "offset", "name": each.name, "tracking_value": each.offset, "lag": each.lag,
                 "is_consuming": each.is_consuming}
                for each in standings(stream)
            ]  # fmt: skip
        if self.writer or not self.offset:
            numbers = sorted(stream.sequences.table().items())
            found += [
                {"type": "writer", "name": name, "tracking_value": value, "lag": None, "is_consuming": None}
                for name, value in numbers
            ]
        return found


class ForgetStreamTracking(Command):
    """Forget a consumer's offset, so that its next consumer chooses it, or a publisher's last publishing id."""

    stream: str
    name: str
    vhost: str = "/"
    writer: bool = False  # `name` is that of a publisher

    def run(self, node: BrokerNode) -> None:
        stream = stream_named(node, self.vhost, self.stream)
        if not forget(stream, self.name, self.writer):
            kind = "publisher" if self.writer else "consumer"
            raise not_found(f"{stream.what()} has no {kind} '{self.name}'")


def stream_named(node: BrokerNode, vhost: str, name: str) -> Stream:
    """Return the stream. Raises Refused if it does not exist or the queue is not a stream."""
    queue = vhost_of(node, vhost).queues.get(name)
    if queue is None:
        raise not_found(f"no stream '{name}' in vhost '{vhost}'")
    if not isinstance(queue, Stream):
        raise bad_request(f"{queue.what()} is not a stream")
    return queue
