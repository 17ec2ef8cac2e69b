"""What a stream keeps by name: how far its named consumers have come, and the last numbers of its publishers.

Names and columns are those of RabbitMQ's list_stream_tracking (rabbitmq-streams 3.11); lag and is_consuming are ours.
"""

from __future__ import annotations

from leveret.broker.streams.naming import forget, standings
from leveret.broker.streams.stream import Stream
from leveret.control.command import Command, Query
from leveret.control.commands.objects import vhost_of
from leveret.control.node import Node
from leveret.control.refusal import bad_request, not_found
from leveret.control.views.view import View


class ListStreamTracking(Query):
    """offset: only consumers' offsets, where they go on; writer: only publishers' numbers. Neither: both."""

    stream: str
    vhost: str = "/"
    offset: bool = False
    writer: bool = False

    def run(self, node: Node) -> object:
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
    """A consumer's name begins anew where its next consumer says; writer: any number of this publisher is new."""

    stream: str
    name: str
    vhost: str = "/"
    writer: bool = False

    def run(self, node: Node) -> object:
        stream = stream_named(node, self.vhost, self.stream)
        if not forget(stream, self.name, self.writer):
            kind = "publisher" if self.writer else "consumer"
            raise not_found(f"no {kind} '{self.name}' is known to {stream.what()}")
        return None


def stream_named(node: Node, vhost: str, name: str) -> Stream:
    """The stream. Refused if there is none of this name, or a queue that is no stream."""
    queue = vhost_of(node, vhost).queues.get(name)
    if queue is None:
        raise not_found(f"no stream '{name}' in vhost '{vhost}'")
    if not isinstance(queue, Stream):
        raise bad_request(f"{queue.what()} is no stream")
    return queue
