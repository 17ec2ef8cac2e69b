"""What delay levels need from a broker: long TTLs, comparing declarations, level queues inspected and read (raw).

NServiceBus and Celery each declare 28 level queues at every start, in one order, with their own arguments; their tools
count and read them. On leveret, level queues of named layouts keep undeliverable dead letters: tested elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ..waiting import until
from .administration import Administration
from .collect import answers, content, take
from .raw import RawClient, Typed

TTL_MS_MAX = 315_360_000_000
QUORUM = {"x-queue-type": "quorum"}
SURE = {**QUORUM, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
DECLARE = (50, 10)


@pytest.fixture
def declared(raw: RawClient, url: str) -> Iterator[Callable[..., None]]:
    """Declares a durable queue on channel 1, which is deleted at the end."""
    names = set()

    def make(name: str, **arguments: Any) -> None:
        names.add(name)
        given = {key.replace("_", "-"): item for key, item in arguments.items()}
        raw.call("queue.declare", queue=name, durable=True, arguments=given)

    yield make
    with RawClient.open(url) as last:
        for name in names:
            last.call("queue.delete", queue=name)


def refused(raw: RawClient, name: str, arguments: dict[str, Any]) -> tuple[int, str, int, int]:
    """Return the error that closes channel 2."""
    raw.send("queue.declare", 2, queue=name, durable=True, arguments=arguments)
    error = raw.read("channel.close").error
    raw.send("channel.close-ok", 2)
    raw.call("channel.open", 2)
    return error


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_ten_years_and_no_longer(
    raw: RawClient, unique: str, declared: Callable[..., None], queue_type: str
) -> None:
    declared(unique, x_queue_type=queue_type, x_message_ttl=TTL_MS_MAX)
    longer = {"x-queue-type": queue_type, "x-message-ttl": TTL_MS_MAX + 1}
    assert refused(raw, f"{unique}-2", longer) == (
        406,
        f"PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue '{unique}-2' in vhost '/': "
        f"{{value_too_large,{TTL_MS_MAX + 1}}}",
        *DECLARE,
    )


def test_a_message_of_the_top_level_waits(raw: RawClient, unique: str, declared: Callable[..., None]) -> None:
    """2^27 seconds in milliseconds do not fit into 32 bits; truncated, the TTL would end at once."""
    declared(unique, **SURE, x_message_ttl=2**27 * 1000, x_dead_letter_exchange=unique)
    raw.call("confirm.select")
    raw.publish(b"x", routing_key=unique, delivery_mode=2)
    assert answers(raw, 1) == "a"
    assert content(raw, unique) == [b"x"]


LEVEL = {"x-message-ttl": 4000, "x-dead-letter-exchange": "down"}
THEIR_OVERFLOW = "received the value 'reject-publish' of type 'longstr' but current is none"
NO_STRATEGY = "received none but current is the value 'at-least-once' of type 'longstr'"
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "lazy": (LEVEL, LEVEL | {"x-queue-mode": "lazy"}, "x-queue-mode",
             "received the value 'lazy' of type 'longstr' but current is none"),
    "not lazy": (LEVEL | {"x-queue-mode": "lazy"}, LEVEL, "x-queue-mode",
                 "received none but current is the value 'lazy' of type 'longstr'"),
    "another unit": (LEVEL, LEVEL | {"x-message-ttl": 4}, "x-message-ttl", "received '4' but current is '4000'"),
    "another exchange": (LEVEL, LEVEL | {"x-dead-letter-exchange": "up"}, "x-dead-letter-exchange",
                         "received 'up' but current is 'down'"),
    "with a key": (LEVEL, LEVEL | {"x-dead-letter-routing-key": "k"}, "x-dead-letter-routing-key",
                   "received the value 'k' of type 'longstr' but current is none"),
    "overflow": (LEVEL, LEVEL | {"x-overflow": "reject-publish"}, "x-overflow", THEIR_OVERFLOW),
    "quorum over classic": (LEVEL, LEVEL | SURE, "x-overflow", THEIR_OVERFLOW),
    "classic over quorum": (LEVEL | SURE, LEVEL, "x-dead-letter-strategy", NO_STRATEGY),
    "no strategy": (
        LEVEL | SURE, LEVEL | QUORUM | {"x-overflow": "reject-publish"}, "x-dead-letter-strategy", NO_STRATEGY),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_other_levels_under_the_same_name(
    raw: RawClient, unique: str, declared: Callable[..., None], what: str
) -> None:
    """A client that meets another layout is told the first different argument, in the order of the queue type."""
    first, second, argument, text = OTHERS[what]
    declared(unique, **first)
    expected = f"PRECONDITION_FAILED - inequivalent arg '{argument}' for queue '{unique}' in vhost '/': {text}"
    assert refused(raw, unique, second) == (406, expected, *DECLARE)


COMPARED = {
    "classic": {
        "x-expires": (60_000, 60_001), "x-message-ttl": (1000, 1001), "x-dead-letter-exchange": ("a", "b"),
        "x-dead-letter-routing-key": ("a", "b"), "x-max-length": (5, 6), "x-max-length-bytes": (500, 501),
        "x-max-priority": (5, 6), "x-overflow": ("drop-head", "reject-publish"), "x-queue-mode": ("lazy", "default"),
        "x-queue-version": (1, 2), "x-single-active-consumer": (True, False),
        "x-queue-master-locator": ("min-masters", "client-local"),
    },
    "quorum": {
        "x-dead-letter-exchange": ("a", "b"), "x-dead-letter-routing-key": ("a", "b"),
        "x-dead-letter-strategy": ("at-least-once", "at-most-once"), "x-expires": (60_000, 60_001),
        "x-max-length": (5, 6), "x-max-length-bytes": (500, 501), "x-max-in-memory-length": (5, 6),
        "x-max-in-memory-bytes": (50, 51), "x-overflow": ("reject-publish", "drop-head"),
        "x-single-active-consumer": (True, False), "x-quorum-initial-group-size": (1, 2), "x-delivery-limit": (5, 6),
        "x-message-ttl": (1000, 1001), "x-queue-leader-locator": ("client-local", "balanced"),
    },
}  # fmt: skip


@pytest.mark.parametrize("queue_type", COMPARED)
def test_each_type_compares_in_an_order_of_its_own(
    raw: RawClient, unique: str, declared: Callable[..., None], queue_type: str
) -> None:
    """The first of several differences is reported; as each is corrected, the next one is."""
    values = COMPARED[queue_type]
    kind: dict[str, Any] = {"x-queue-type": queue_type}
    declared(unique, **kind | {name: one for name, (one, _) in values.items()})
    given = kind | {name: other for name, (_, other) in values.items()}
    for name, (one, _) in values.items():
        assert f"inequivalent arg '{name}' for" in refused(raw, unique, given)[1]
        given[name] = one
    declared(unique, **given)


@pytest.mark.parametrize("kind", ["I", "l", "s"])
def test_numbers_of_any_width_are_the_same(
    raw: RawClient, unique: str, declared: Callable[..., None], kind: str
) -> None:
    """.NET sends 64 bits, Python's clients as few as possible."""
    declared(unique, **LEVEL | {"x-message-ttl": Typed("l", 4000)})
    declared(unique, **LEVEL | {"x-message-ttl": Typed(kind, 4000)})


def test_reading_a_level(raw: RawClient, unique: str, declared: Callable[..., None], grave: str) -> None:
    """A tool that moves delayed messages counts and fetches them; requeueing does not change when they are due."""
    declared(unique, **SURE, x_message_ttl=700, x_dead_letter_exchange="", x_dead_letter_routing_key=grave)
    raw.call("confirm.select")
    for body in (b"1", b"2", b"3"):
        raw.publish(body, routing_key=unique, delivery_mode=2)
    assert answers(raw, 3) == "aaa"
    count = raw.call("queue.declare", queue=unique, passive=True)["message_count"]
    assert count == 3
    tags = [raw.call("basic.get", queue=unique)["delivery_tag"] for _ in range(count)]
    assert raw.call("basic.get", queue=unique).name == "basic.get-empty"
    raw.send("basic.ack", delivery_tag=tags[0])
    raw.send("basic.nack", delivery_tag=tags[2], multiple=True, requeue=True)
    died = [take(raw, grave) for _ in range(2)]
    assert [got.body for got in died] == [b"2", b"3"]
    assert [got.properties["headers"]["x-first-death-reason"] for got in died] == ["expired"] * 2


@pytest.fixture
def grave(raw: RawClient) -> str:
    """The queue for the level's dead letters."""
    return str(raw.call("queue.declare", exclusive=True)["queue"])


def test_a_policy_makes_a_level(
    raw: RawClient, unique: str, declared: Callable[..., None], grave: str, administration: Administration
) -> None:
    """The shorter of two TTLs applies; the policy's dead letter exchange is used if the queue declares none."""
    declared(unique, x_message_ttl=2**27 * 1000)
    definition = {"message-ttl": 0, "dead-letter-exchange": "", "dead-letter-routing-key": grave}
    administration.call(
        "set_policy", vhost="/", name=unique, pattern=f"^{unique}$", definition=definition, apply_to="queues")
    raw.call("confirm.select")

    def died() -> bool:
        # RabbitMQ's queues learn of a policy a little later, and messages that they have by then keep their TTL
        raw.call("queue.purge", queue=unique)
        raw.publish(b"x", routing_key=unique)
        raw.read("basic.ack")
        return b"x" in content(raw, grave)

    until(died)
    administration.call("clear_policy", vhost="/", name=unique)
