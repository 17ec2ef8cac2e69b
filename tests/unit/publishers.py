"""What tests of publisher references send to a broker on a bench, and how they look at the answers."""

from __future__ import annotations

import json

from leveret.broker.publishers.references import PublisherReferences
from leveret.wire import grammar

from .support import Bench, Client, recovered

PUBLISHER = "amq.leveret.publisher"


def attach(client: Client, name: str = "P", channel: int = 1, **arguments: object) -> None:
    """Send the methods that attach a channel; the broker's answer waits for a sync. arguments: epoch, first_id."""
    given = {f"x-leveret-{each.replace('_', '-')}": value for each, value in arguments.items()}
    client.send(channel, grammar.CONFIRM_SELECT)
    client.send(
        channel, grammar.BASIC_CONSUME, queue=PUBLISHER, no_ack=True, consumer_tag="publisher",
        arguments={"x-leveret-publisher": name} | given,
    )  # fmt: skip


def attached(client: Client, name: str = "P", channel: int = 1, **arguments: object) -> dict[str, object]:
    """Attach, sync, and return what the broker tells."""
    attach(client, name, channel, **arguments)
    client.bench.sync()
    found: dict[str, object] = json.loads(client.bodies()[-1])
    return found


def opened(bench: Bench, *queues: str, **arguments: object) -> Client:
    """Return a client in confirm mode on channel 1, with these durable queues."""
    client = bench.connect()
    client.send(1, grammar.CONFIRM_SELECT)
    for name in queues:
        client.queue(name, durable=True, **arguments)
    client.frames()
    return client


def state(epoch: int, last_id: int, *refused: int, name: str = "P") -> dict[str, object]:
    return {"publisher": name, "epoch": epoch, "last_id": last_id, "refused": list(refused)}


def asked(client: Client, name: str = "P") -> dict[str, object] | None:
    """Sync, and return what basic.get says about a reference."""
    client.frames()
    client.send(1, grammar.BASIC_GET, queue=f"{PUBLISHER}.{name}", no_ack=True)
    client.bench.sync()
    bodies = client.bodies()
    found: dict[str, object] | None = json.loads(bodies[0]) if bodies else None
    return found


def forget(client: Client, name: str = "P") -> None:
    client.publish(PUBLISHER, json.dumps({"op": "forget", "publisher": name}).encode(), mandatory=True)


def publishers(bench: Bench, vhost: str = "/") -> PublisherReferences:
    return bench.broker.vhosts[vhost].publishers


def restarted(bench: Bench) -> Bench:
    """Return a broker with what is on disk; what was not synced is lost."""
    other = recovered(bench.batches)
    other.batches = [*bench.batches]
    other.now_us = bench.now_us
    return other


def refusal(client: Client) -> tuple[int, str]:
    """Return code and text of the last channel.close."""
    client.bench.sync()
    closed = client.methods()[-1]
    assert closed.name == "channel.close"
    return closed.number("reply_code"), closed.text("reply_text")
