"""The synchronous methods of AMQP as values: what to send and which answers are allowed. Both APIs use these."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from leveret.client.protocol.arguments import table
from leveret.client.protocol.model import Delivery, QueueInfo
from leveret.wire import grammar
from leveret.wire.grammar import MethodSpec
from leveret.wire.method import Method
from leveret.wire.table import Value

REPLY_TO: Final = "amq.rabbitmq.reply-to"
STREAM_FACTS: Final = "amq.leveret.stream."
"""Prefix of the pseudo-queues of leveret that return the state of a stream; the stream's name follows."""

Arguments = Mapping[str, Value] | None


class Request(NamedTuple):
    """A method to send, its fields, and the keys of the methods that answer it."""

    spec: MethodSpec
    values: dict[str, object]
    replies: tuple[int, ...]


def _request(spec: MethodSpec, reply: MethodSpec, **values: object) -> Request:
    return Request(spec, values, (reply.key,))


def open_channel() -> Request:
    """Request channel.open."""
    return _request(grammar.CHANNEL_OPEN, grammar.CHANNEL_OPEN_OK)


def declare_exchange(
    name: str, kind: str, durable: bool, auto_delete: bool, internal: bool, passive: bool, arguments: Arguments
) -> Request:
    """Request exchange.declare. kind: the exchange type, such as "topic"; passive: only check that it exists."""
    return _request(
        grammar.EXCHANGE_DECLARE,
        grammar.EXCHANGE_DECLARE_OK,
        exchange=name,
        type=kind,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        passive=passive,
        arguments=table(arguments),
    )


def delete_exchange(name: str, if_unused: bool) -> Request:
    """Request exchange.delete."""
    return _request(grammar.EXCHANGE_DELETE, grammar.EXCHANGE_DELETE_OK, exchange=name, if_unused=if_unused)


def bind_exchange(destination: str, source: str, routing_key: str, arguments: Arguments) -> Request:
    """Request exchange.bind, an extension of RabbitMQ: messages flow from source to destination."""
    return _request(
        grammar.EXCHANGE_BIND,
        grammar.EXCHANGE_BIND_OK,
        destination=destination,
        source=source,
        routing_key=routing_key,
        arguments=table(arguments),
    )


def unbind_exchange(destination: str, source: str, routing_key: str, arguments: Arguments) -> Request:
    """Request exchange.unbind, the reverse of bind_exchange."""
    return _request(
        grammar.EXCHANGE_UNBIND,
        grammar.EXCHANGE_UNBIND_OK,
        destination=destination,
        source=source,
        routing_key=routing_key,
        arguments=table(arguments),
    )


def declare_queue(
    name: str, durable: bool, exclusive: bool, auto_delete: bool, passive: bool, arguments: Arguments
) -> Request:
    """Request queue.declare; queue_info() reads its answer."""
    return _request(
        grammar.QUEUE_DECLARE,
        grammar.QUEUE_DECLARE_OK,
        queue=name,
        durable=durable,
        exclusive=exclusive,
        auto_delete=auto_delete,
        passive=passive,
        arguments=table(arguments),
    )


def bind_queue(queue: str, exchange: str, routing_key: str, arguments: Arguments) -> Request:
    """Request queue.bind."""
    return _request(
        grammar.QUEUE_BIND,
        grammar.QUEUE_BIND_OK,
        queue=queue,
        exchange=exchange,
        routing_key=routing_key,
        arguments=table(arguments),
    )


def unbind_queue(queue: str, exchange: str, routing_key: str, arguments: Arguments) -> Request:
    """Request queue.unbind."""
    return _request(
        grammar.QUEUE_UNBIND,
        grammar.QUEUE_UNBIND_OK,
        queue=queue,
        exchange=exchange,
        routing_key=routing_key,
        arguments=table(arguments),
    )


def delete_queue(name: str, if_unused: bool, if_empty: bool) -> Request:
    """Request queue.delete; the answer has message_count."""
    return _request(grammar.QUEUE_DELETE, grammar.QUEUE_DELETE_OK, queue=name, if_unused=if_unused, if_empty=if_empty)


def purge_queue(name: str) -> Request:
    """Request queue.purge; the answer has message_count."""
    return _request(grammar.QUEUE_PURGE, grammar.QUEUE_PURGE_OK, queue=name)


def qos(prefetch_count: int, shared: bool) -> Request:
    """Request basic.qos. shared: the limit is for the whole channel, as RabbitMQ interprets the field `global`."""
    return _request(grammar.BASIC_QOS, grammar.BASIC_QOS_OK, prefetch_count=prefetch_count, **{"global": shared})


def consume(queue: str, tag: str, no_ack: bool, exclusive: bool, arguments: Arguments) -> Request:
    """Request basic.consume."""
    return _request(
        grammar.BASIC_CONSUME,
        grammar.BASIC_CONSUME_OK,
        queue=queue,
        consumer_tag=tag,
        no_ack=no_ack,
        exclusive=exclusive,
        arguments=table(arguments),
    )


def cancel(tag: str) -> Request:
    """Request basic.cancel."""
    return _request(grammar.BASIC_CANCEL, grammar.BASIC_CANCEL_OK, consumer_tag=tag)


def get(queue: str, no_ack: bool) -> Request:
    """Request basic.get; the answer is a delivery or basic.get-empty."""
    replies = (grammar.BASIC_GET_OK.key, grammar.BASIC_GET_EMPTY.key)
    return Request(grammar.BASIC_GET, {"queue": queue, "no_ack": no_ack}, replies)


def stream_facts(answer: Delivery | None) -> dict[str, Any]:
    """Decode the answer of the pseudo-queue STREAM_FACTS, which is never empty."""
    assert answer is not None
    facts: dict[str, Any] = json.loads(answer.body)
    return facts


def recover(requeue: bool) -> Request:
    """Request basic.recover."""
    return _request(grammar.BASIC_RECOVER, grammar.BASIC_RECOVER_OK, requeue=requeue)


def confirm_select() -> Request:
    """Request confirm.select."""
    return _request(grammar.CONFIRM_SELECT, grammar.CONFIRM_SELECT_OK)


def tx_select() -> Request:
    """Request tx.select."""
    return _request(grammar.TX_SELECT, grammar.TX_SELECT_OK)


def tx_commit() -> Request:
    """Request tx.commit."""
    return _request(grammar.TX_COMMIT, grammar.TX_COMMIT_OK)


def tx_rollback() -> Request:
    """Request tx.rollback."""
    return _request(grammar.TX_ROLLBACK, grammar.TX_ROLLBACK_OK)


def queue_info(answer: Method) -> QueueInfo:
    """Return the fields of queue.declare-ok."""
    return QueueInfo(answer.text("queue"), answer.number("message_count"), answer.number("consumer_count"))
