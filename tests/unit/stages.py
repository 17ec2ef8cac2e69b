"""What tests of stages say to a broker on a bench, and how they look at what becomes of it."""

from __future__ import annotations

import json

from leveret.broker.staging.queries import Producers
from leveret.wire import grammar
from leveret.wire.method import Method

from .support import Bench, Client

STAGE = "amq.leveret.stage"
MILLISECOND_US = 1000


def attach(client: Client, batch: int, attempt: str, query: str = "Q", **arguments: object) -> None:
    """Attach channel 1; what the broker answers is on disk."""
    named = {"x-leveret-query": query, "x-leveret-batch": batch, "x-leveret-attempt": attempt}
    given = {f"x-leveret-{name.replace('_', '-')}": value for name, value in arguments.items()}
    client.send(1, grammar.BASIC_CONSUME, queue=STAGE, no_ack=True, consumer_tag="stage", arguments=named | given)


def detach(client: Client) -> None:
    client.send(1, grammar.BASIC_CANCEL, consumer_tag="stage")


def say(client: Client, **fields: object) -> None:
    client.publish(STAGE, json.dumps(fields).encode(), mandatory=True)


def release(client: Client, batch: int, *attempts: str, query: str = "Q") -> None:
    say(client, op="release", query=query, batch=batch, attempts=list(attempts))


def abort(client: Client, batch: int, query: str = "Q") -> None:
    say(client, op="abort", query=query, batch=batch)


def stage(client: Client, batch: int, attempt: str, *bodies: bytes, key: str = "q", query: str = "Q") -> None:
    """One attempt's messages, from its attachment to its end."""
    attach(client, batch, attempt, query)
    for body in bodies:
        client.publish(key, body, delivery_mode=2)
    detach(client)


def opened(bench: Bench, *queues: str) -> Client:
    """A client with confirms on channel 1, and these durable queues."""
    client = bench.connect()
    client.send(1, grammar.CONFIRM_SELECT)
    for name in queues:
        client.queue(name, durable=True)
    client.frames()
    return client


def settle(bench: Bench) -> None:
    """Let what is released move to its queues."""
    bench.sync()
    while queries(bench).unstaging.is_busy:
        bench.pass_time(MILLISECOND_US)
        bench.sync()


def queries(bench: Bench, vhost: str = "/") -> Producers:
    return bench.broker.vhosts[vhost].queries


def fetch(client: Client, queue: str = "q") -> list[bytes]:
    """All that is in a queue, on a bench of its own."""
    client.bench.sync()
    return drain(client, queue)


def drain(client: Client, queue: str) -> list[bytes]:
    """All that is in a queue; the caller syncs."""
    client.frames()
    client.send(1, grammar.BASIC_CONSUME, queue=queue, no_ack=True, consumer_tag=queue)
    bodies = client.bodies()
    client.send(1, grammar.BASIC_CANCEL, consumer_tag=queue)
    client.frames()
    return bodies


def staged(client: Client, query: str = "Q") -> dict[str, object] | None:
    """What basic.get tells of a query, on a bench of its own."""
    settle(client.bench)
    return asked(client, query)


def asked(client: Client, query: str = "Q") -> dict[str, object] | None:
    """The same, when all is synced."""
    client.frames()
    client.send(1, grammar.BASIC_GET, queue=f"amq.leveret.query.{query}", no_ack=True)
    bodies = client.bodies()
    found: dict[str, object] | None = json.loads(bodies[0]) if bodies else None
    return found


def refusal(client: Client) -> tuple[int, str, int, int]:
    """Of the channel.close that comes last: code, text, class and method; channel 1 is open again."""
    client.bench.sync()
    closed = client.methods()[-1]
    assert closed.name == "channel.close"
    client.send(1, grammar.CHANNEL_CLOSE_OK)
    client.call(1, grammar.CHANNEL_OPEN)
    client.send(1, grammar.CONFIRM_SELECT)
    client.frames()
    return closed.number("reply_code"), closed.text("reply_text"), *_objected(closed)


def _objected(closed: Method) -> tuple[int, int]:
    return closed.number("class_id"), closed.number("method_id")
