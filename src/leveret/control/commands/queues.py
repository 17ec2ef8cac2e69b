"""Queues: what operators do to them."""

from __future__ import annotations

from typing import Any

import msgspec

from leveret.broker.queue import Queue
from leveret.control.checks import vhost_named
from leveret.control.command import Command
from leveret.control.direct import DirectChannel
from leveret.control.node import Node
from leveret.control.refusal import CONFLICT, Refused, bad_request, not_found
from leveret.control.tables import encoded_table
from leveret.wire import grammar


class DeclareQueue(Command):
    """queue.declare. user: whose permissions count, here and below; None = nobody is asked."""

    vhost: str
    name: str
    durable: bool = False
    auto_delete: bool = False
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    user: str | None = None

    def run(self, node: Node) -> object:
        with DirectChannel(node, self.vhost, self.user) as channel:
            channel.ask(
                grammar.QUEUE_DECLARE, queue=self.name, durable=self.durable, auto_delete=self.auto_delete,
                arguments=encoded_table(self.arguments),
            )  # fmt: skip
        return None


class PurgeQueue(Command):
    """Drop all messages that wait; answers how many there were."""

    name: str
    vhost: str = "/"
    user: str | None = None

    def run(self, node: Node) -> object:
        queue = _queue(node, self.vhost, self.name)
        if self.user is not None:
            return _count(node, self.vhost, self.user, grammar.QUEUE_PURGE, queue=self.name)
        if queue.is_stream:
            raise bad_request("not_supported")  # in rabbitmqctl's word
        return {"message_count": int(queue.vhost.purge(queue))}


class DeleteQueue(Command):
    """Delete a queue; answers how many messages went with it. Refused on a condition that does not hold."""

    name: str
    vhost: str = "/"
    if_empty: bool = False
    if_unused: bool = False
    user: str | None = None

    def run(self, node: Node) -> object:
        queue = _queue(node, self.vhost, self.name)
        if self.user is not None:
            conditions = {"if_empty": self.if_empty, "if_unused": self.if_unused}
            return _count(node, self.vhost, self.user, grammar.QUEUE_DELETE, queue=self.name, **conditions)
        if queue.is_quorum and (self.if_empty or self.if_unused):
            # RabbitMQ has no such condition for them, over AMQP neither
            raise bad_request(f"queue '{self.name}' is a quorum queue: it can't be deleted on a condition")
        if self.if_empty and queue.count():
            raise Refused(CONFLICT, "Queue is not empty")
        if self.if_unused and queue.consumers.count > 0:
            raise Refused(CONFLICT, "Queue is in use")
        consumers = queue.consumers.all()
        count = int(queue.vhost.delete_queue(queue))
        for consumer in consumers:
            consumer.tell_cancelled()
        return {"message_count": count}


def _count(node: Node, vhost: str, user: str, spec: grammar.MethodSpec, **fields: str | bool) -> object:
    """What an AMQP client hears that asks for the same."""
    with DirectChannel(node, vhost, user) as channel:
        return {"message_count": channel.ask(spec, **fields).number("message_count")}


def _queue(node: Node, vhost: str, name: str) -> Queue:
    """The queue, or Refused. One that is exclusive to a connection is its operator's as well."""
    queue = vhost_named(node, vhost).queues.get(name)
    if queue is None:
        raise not_found(f"no queue '{name}' in vhost '{vhost}'")
    return queue
