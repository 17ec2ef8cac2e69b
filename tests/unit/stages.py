"""What tests of stages send to a broker on a bench, and how they look at the result."""

from __future__ import annotations

import json

from leveret.broker.staging.queries import Producers
from leveret.wire import grammar
from leveret.wire.method import Method

from .support import Bench, Client

STAGE = "amq.leveret.stage"
MILLISECOND_US = 1000


def attach(client: Client, batch: int, attempt: str, query: str = "Q", **arguments: object) -> None:
    """Attach channel 1; the broker's answer waits for a sync."""
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
    """Send the messages of one attempt, from attaching to detaching."""
    attach(client, batch, attempt, query)
    for body in bodies:
        client.publish(key, body, delivery_mode=2)
    detach(client)


def opened(bench: Bench, *queues: str) -> Client:
    """Return a client in confirm mode on channel 1, with these durable queues."""
    client = bench.connect()
    client.send(1, grammar.CONFIRM_SELECT)
    for name in queues:
        client.queue(name, durable=True)
    client.frames()
    return client


def settle(bench: Bench) -> None:
    """Let released messages move to their queues."""
    bench.sync()
    while queries(bench).releases.is_busy:
        bench.pass_time(MILLISECOND_US)
        bench.sync()


def queries(bench: Bench, vhost: str = "/") -> Producers:
    return bench.broker.vhosts[vhost].queries


def fetch(client: Client, queue: str = "q") -> list[bytes]:
    """Settle, then consume all messages of a queue."""
    client.bench.sync()
    return drain(client, queue)


def drain(client: Client, queue: str) -> list[bytes]:
    """Consume all messages of a queue; the caller syncs."""
    client.frames()
    client.send(1, grammar.BASIC_CONSUME, queue=queue, no_ack=True, consumer_tag=queue)
    bodies = client.bodies()
    client.send(1, grammar.BASIC_CANCEL, consumer_tag=queue)
    client.frames()
    return bodies


def staged(client: Client, query: str = "Q") -> dict[str, object] | None:
    """Settle, then return what basic.get says about a producer."""
    settle(client.bench)
    return asked(client, query)


def asked(client: Client, query: str = "Q") -> dict[str, object] | None:
    """Return what basic.get says about a producer; the caller syncs."""
    client.frames()
    client.send(1, grammar.BASIC_GET, queue=f"amq.leveret.query.{query}", no_ack=True)
    bodies = client.bodies()
    found: dict[str, object] | None = json.loads(bodies[0]) if bodies else None
    return found


def refusal(client: Client) -> tuple[int, str, int, int]:
    """Return code, text, class and method of the last channel.close; open channel 1 again."""
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
