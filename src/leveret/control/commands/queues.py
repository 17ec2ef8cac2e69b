"""Commands that declare, purge and delete queues."""

from __future__ import annotations

from typing import Any

import msgspec

from leveret.broker.queues.queue import Queue
from leveret.control.command import Command
from leveret.control.direct import DirectChannel
from leveret.control.node import BrokerNode
from leveret.control.refusal import CONFLICT, Refused, bad_request, not_found
from leveret.control.tables import encoded_table
from leveret.control.validation.checks import vhost_named
from leveret.wire import grammar


class DeclareQueue(Command):
    """Do queue.declare."""

    vhost: str
    name: str
    durable: bool = False
    auto_delete: bool = False
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    user: str | None = None  # whose permissions count, None = no check

    def run(self, node: BrokerNode) -> None:
        with DirectChannel(node, self.vhost, self.user) as channel:
            channel.ask(
                grammar.QUEUE_DECLARE, queue=self.name, durable=self.durable, auto_delete=self.auto_delete,
                arguments=encoded_table(self.arguments),
            )  # fmt: skip


class PurgeQueue(Command):
    """Drop all ready messages; answers how many."""

    name: str
    vhost: str = "/"
    user: str | None = None  # whose permissions count, None = no check

    def run(self, node: BrokerNode) -> object:
        queue = _queue(node, self.vhost, self.name)
        if self.user is not None:
            return _count(node, self.vhost, self.user, grammar.QUEUE_PURGE, queue=self.name)
        if queue.is_stream:
            raise bad_request("not_supported")  # rabbitmqctl's text
        return {"message_count": int(queue.vhost.purge(queue))}


class DeleteQueue(Command):
    """Delete a queue; answers how many messages it had. Refused if a condition does not hold."""

    name: str
    vhost: str = "/"
    if_empty: bool = False
    if_unused: bool = False
    user: str | None = None  # whose permissions count, None = no check

    def run(self, node: BrokerNode) -> object:
        queue = _queue(node, self.vhost, self.name)
        if self.user is not None:
            conditions = {"if_empty": self.if_empty, "if_unused": self.if_unused}
            return _count(node, self.vhost, self.user, grammar.QUEUE_DELETE, queue=self.name, **conditions)
        if queue.is_quorum and (self.if_empty or self.if_unused):
            # RabbitMQ does not support these conditions for quorum queues, over AMQP either
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


def _count(node: BrokerNode, vhost: str, user: str, spec: grammar.MethodSpec, **fields: str | bool) -> object:
    """Call the method as an AMQP client with this user; return its message count."""
    with DirectChannel(node, vhost, user) as channel:
        return {"message_count": channel.ask(spec, **fields).number("message_count")}


def _queue(node: BrokerNode, vhost: str, name: str) -> Queue:
    """Return the queue. Raises Refused if it does not exist. Operators may use exclusive queues, too."""
    queue = vhost_named(node, vhost).queues.get(name)
    if queue is None:
        raise not_found(f"no queue '{name}' in vhost '{vhost}'")
    return queue
