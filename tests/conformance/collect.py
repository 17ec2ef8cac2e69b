"""Reads what the broker answers to a raw client: confirms tag by tag, and the contents of queues."""

from __future__ import annotations

from typing import Any

from ..waiting import until
from .raw import Frame, RawClient


def exclusive(client: RawClient, **arguments: object) -> str:
    """Declare a server-named exclusive queue; underscores in the names of x-arguments stand for hyphens."""
    given = {key.replace("_", "-"): item for key, item in arguments.items()}
    return str(client.call("queue.declare", exclusive=True, arguments=given)["queue"])


def fanout(client: RawClient, name: str, *queues: str) -> str:
    """Declare a fanout exchange with these queues; it is deleted with the last of them."""
    client.call("exchange.declare", exchange=name, type="fanout", auto_delete=True)
    for queue in queues:
        client.call("queue.bind", queue=queue, exchange=name)
    return name


def answers(client: RawClient, count: int, first: int = 1) -> str:
    """Return the confirms of `count` publishes from tag `first` on as letters: a for ack, n for nack.

    Each tag must be answered once: a cumulative frame covers only unconfirmed tags. (RabbitMQ's may also cover tags
    that were answered the other way before; leveret's do not, see tests/unit/test_confirms.py.)
    """
    words: dict[int, str] = {}
    while len(words) < count:
        got = client.read("basic.ack", "basic.nack")
        word, tag = got.name[6], got["delivery_tag"]
        assert tag not in words
        for each in range(first, tag + 1) if got["multiple"] else [tag]:
            words.setdefault(each, word)
    assert set(words) == set(range(first, first + count))
    return "".join(words[tag] for tag in sorted(words))


def confirmed(client: RawClient, queue: str, *bodies: bytes, first: int, **properties: Any) -> str:
    """Publish to a queue one by one, wait for each confirm, and return the answers."""
    said = ""
    for tag, body in enumerate(bodies, first):
        client.publish(body, routing_key=queue, **properties)
        said += answers(client, 1, tag)
    return said


def content(client: RawClient, queue: str) -> list[bytes]:
    """Take all messages out of a queue and return their bodies."""
    found = []
    while (got := client.call("basic.get", queue=queue, no_ack=True)).name == "basic.get-ok":
        found.append(got.body)
    return found


def take(client: RawClient, queue: str, *, no_ack: bool = True) -> Frame:
    """Wait for the next message of a queue."""

    def ask() -> Frame | None:
        got = client.call("basic.get", queue=queue, no_ack=no_ack)
        return got if got.name == "basic.get-ok" else None

    return until(ask)


def deaths(client: RawClient, grave: str, count: int) -> list[tuple[bytes, str]]:
    """Wait for the next dead letters of a queue; return body and reason of the last death of each."""
    found = [take(client, grave) for _ in range(count)]
    return [(each.body, each.properties["headers"]["x-death"][0]["reason"]) for each in found]


def ready(client: RawClient, queue: str) -> int:
    return int(client.call("queue.declare", 2, queue=queue, passive=True)["message_count"])
