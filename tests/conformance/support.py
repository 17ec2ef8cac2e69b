"""Waiting and collecting for tests that use pika; these helpers ask the broker and never sleep."""

from __future__ import annotations

from dataclasses import dataclass

from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic

from ..waiting import until


@dataclass(slots=True)
class Got:
    """A message from a delivery or a get."""

    method: Basic.Deliver | Basic.GetOk
    properties: BasicProperties
    body: bytes


def declare(channel: BlockingChannel, **arguments: object) -> str:
    """Declare a server-named exclusive queue with these x-arguments (underscores stand for hyphens)."""
    given = {key.replace("_", "-"): item for key, item in arguments.items()}
    return str(channel.queue_declare("", exclusive=True, arguments=given).method.queue)


def get(channel: BlockingChannel, queue: str, auto_ack: bool = True) -> Got:
    """Wait for the next message of a queue."""

    def ask() -> Got | None:
        method, properties, body = channel.basic_get(queue, auto_ack=auto_ack)
        return None if method is None else Got(method, properties, body)

    return until(ask)


def empty(channel: BlockingChannel, queue: str) -> bool:
    return channel.basic_get(queue, auto_ack=True)[0] is None


def ready(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def drain(channel: BlockingChannel, queue: str) -> list[bytes]:
    """Take all ready messages out of a queue. Publish with confirms before, or the last ones may be missed."""
    found = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append(body)


def listen(channel: BlockingChannel, queue: str, auto_ack: bool = False, **more: object) -> list[Got]:
    """Consume a queue; deliveries are added to the returned list while the connection is served."""
    seen: list[Got] = []
    channel.basic_consume(
        queue, lambda _, method, properties, body: seen.append(Got(method, properties, body)), auto_ack, **more)
    return seen


def serve(channel: BlockingChannel, seen: list[Got], count: int) -> list[Got]:
    """Serve the connection until `count` messages have arrived; more than that is an error."""

    def enough() -> bool:
        channel.connection.process_data_events(0.05)
        return len(seen) >= count

    until(enough)
    settle(channel)
    assert len(seen) == count, [each.body for each in seen]
    return seen


def settle(channel: BlockingChannel) -> None:
    """Make sure that everything the broker sent before it answers a request has arrived."""
    channel.queue_declare("amq.rabbitmq.reply-to", passive=True)
    channel.connection.process_data_events(0)
