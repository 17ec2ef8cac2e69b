"""Dead letters: what x-death lists after many hops, where they go, and whose x-death the broker trusts.

The history belongs to the broker, as in RabbitMQ from 4.0 on ("AMQP 0.9.1 x-death header" in its release notes); the
headers x-last-death-* came with 3.13. Where 3.10 differs, the test says what it does there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from ..waiting import until
from .collect import content, exclusive, fanout, ready, take
from .raw import Frame, RawClient

DEATH = ("count", "reason", "queue", "exchange", "routing-keys")


@pytest.fixture
def grave(raw: RawClient) -> str:
    """A queue for dead letters."""
    return exclusive(raw)


def mortal(client: RawClient, grave: str, **arguments: object) -> str:
    """Declare a queue whose dead letters go to `grave` through the default exchange."""
    return exclusive(client, x_dead_letter_exchange="", x_dead_letter_routing_key=grave, **arguments)


def named(client: RawClient, name: str, target: str | None, **arguments: object) -> str:
    """Declare a named queue; without a target, its dead letters come back to it."""
    given: dict[str, object] = {"x-dead-letter-exchange": ""}
    if target is not None:
        given["x-dead-letter-routing-key"] = target
    given.update({key.replace("_", "-"): item for key, item in arguments.items()})
    return str(client.call("queue.declare", queue=name, exclusive=True, arguments=given)["queue"])


def reject(client: RawClient, queue: str) -> Frame:
    got = take(client, queue, no_ack=False)
    client.send("basic.reject", delivery_tag=got["delivery_tag"], requeue=False)
    return got


def headers_of(got: Frame) -> dict[str, Any]:
    headers = got.properties["headers"]
    assert isinstance(headers, dict)
    return headers


def history(got: Frame) -> list[tuple[str, str, int]]:
    """Return x-death as (queue, reason, count), newest first."""
    return [(death["queue"], death["reason"], death["count"]) for death in headers_of(got)["x-death"]]


def milestones(got: Frame, which: str) -> tuple[str, str, str]:
    """Return x-first-death-* or x-last-death-* as (queue, reason, exchange)."""
    headers = headers_of(got)
    return tuple(headers[f"x-{which}-death-{name}"] for name in ("queue", "reason", "exchange"))  # type: ignore[return-value]


# -- history -----------------------------------------------------------------------------------------------------------


def test_a_retry_loop_is_counted_for_each_queue(raw: RawClient, unique: str) -> None:
    """Rejected in one queue, expired in another, and back: two entries with counts, the newest death first."""
    wait = named(raw, f"{unique}-wait", f"{unique}-work", x_message_ttl=5)
    work = named(raw, f"{unique}-work", wait)
    raw.publish(b"x", routing_key=work, expiration="60000", headers={"mine": 1})
    for count in (1, 2, 3):
        reject(raw, work)
        got = take(raw, work, no_ack=False)
        raw.send("basic.reject", delivery_tag=got["delivery_tag"], requeue=True)
        assert history(got) == [(wait, "expired", count), (work, "rejected", count)]
        newest, oldest = headers_of(got)["x-death"]
        assert "original-expiration" not in newest
        assert oldest["original-expiration"] == "60000"
        assert (newest["routing-keys"], oldest["routing-keys"]) == ([wait], [work])
        assert milestones(got, "first") == (work, "rejected", "")
        assert "expiration" not in got.properties
        assert headers_of(got)["mine"] == 1


def test_the_time_is_that_of_the_first(raw: RawClient, unique: str) -> None:
    queue = named(raw, unique, None)
    raw.publish(b"x", routing_key=queue)
    reject(raw, queue)
    (first,) = headers_of(reject(raw, queue))["x-death"]
    (second,) = headers_of(take(raw, queue))["x-death"]
    assert (first["time"], first["count"], second["count"]) == (second["time"], 1, 2)


def test_the_expiration_is_told_as_it_was_written(raw: RawClient, grave: str) -> None:
    queue = mortal(raw, grave)
    raw.publish(b"x", routing_key=queue, expiration="+060000")
    reject(raw, queue)
    (death,) = headers_of(take(raw, grave))["x-death"]
    assert death["original-expiration"] == "+060000"


def test_a_chain_of_thirty_queues(raw: RawClient, unique: str, on_rabbitmq: bool) -> None:
    """The newest death is first, as RabbitMQ documents; 3.10 reverses the order of the others at each death."""
    names = [f"{unique}-{number}" for number in range(31)]
    for name, target in pairwise(names):
        named(raw, name, target, x_message_ttl=0)
    raw.call("queue.declare", queue=names[-1], exclusive=True)
    raw.publish(b"x", routing_key=names[0])
    got = take(raw, names[-1])
    expected = [(name, "expired", 1) for name in reversed(names[:-1])]
    found = history(got)
    assert found[0] == expected[0]
    assert (sorted(found) if on_rabbitmq else found) == (sorted(expected) if on_rabbitmq else expected)
    assert all(death["routing-keys"] == [death["queue"]] for death in headers_of(got)["x-death"])
    assert milestones(got, "first") == (names[0], "expired", "")


def test_every_reason(raw: RawClient, grave: str, unique: str) -> None:
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 0, "x-dead-letter-exchange": "",
                 "x-dead-letter-routing-key": grave}
    raw.call("queue.declare", queue=unique, durable=True, arguments=arguments)
    queues = {
        "rejected": mortal(raw, grave), "expired": mortal(raw, grave, x_message_ttl=0),
        "maxlen": mortal(raw, grave, x_max_length=0), "delivery_limit": unique,
    }
    for reason, queue in queues.items():
        raw.publish(b"x", routing_key=queue)
        if reason in ("rejected", "delivery_limit"):
            tag = take(raw, queue, no_ack=False)["delivery_tag"]
            raw.send("basic.reject", delivery_tag=tag, requeue=reason == "delivery_limit")
        got = take(raw, grave)
        (death,) = headers_of(got)["x-death"]
        assert {name: death[name] for name in DEATH} == {
            "count": 1, "reason": reason, "queue": queue, "exchange": "", "routing-keys": [queue]}
    raw.call("queue.delete", queue=unique)


def test_the_last_death_has_headers_too(raw: RawClient, unique: str, on_rabbitmq: bool) -> None:
    """As in RabbitMQ from 3.13 on, also at the first death; 3.10 has headers for the first death only."""
    grave = exclusive(raw)
    second = named(raw, f"{unique}-2", grave, x_message_ttl=0)
    raw.call("exchange.declare", exchange=unique, type="fanout", auto_delete=True)
    raw.call("queue.bind", queue=second, exchange=unique)
    first = named(raw, f"{unique}-1", None, x_dead_letter_exchange=unique)
    raw.publish(b"x", routing_key=first)
    reject(raw, first)
    got = take(raw, grave)
    assert milestones(got, "first") == (first, "rejected", "")
    if on_rabbitmq:
        assert "x-last-death-reason" not in headers_of(got)
        return
    assert milestones(got, "last") == (second, "expired", unique)
    third = mortal(raw, grave)
    raw.publish(b"x", routing_key=third)
    reject(raw, third)
    got = take(raw, grave)
    assert milestones(got, "first") == milestones(got, "last") == (third, "rejected", "")


# -- whose history is trusted ------------------------------------------------------------------------------------------

CLAIMS = [
    [], "text", 7, None, True, {"a": 1}, [1, 2], [{}], [{"queue": 1}],
    [{"queue": "other", "reason": "rejected", "count": 5}],
]


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_a_publishers_x_death_is_a_header_like_others(raw: RawClient, claim: object) -> None:
    """This is so as long as the message has not died."""
    queue = exclusive(raw)
    headers = {"x-death": claim, "x-first-death-queue": "mine", "x-last-death-reason": 3, "x-deaths": 1}
    raw.publish(b"x", routing_key=queue, headers=headers)
    assert take(raw, queue).properties["headers"] == headers


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_a_publishers_x_death_is_gone_when_the_message_dies(
    raw: RawClient, grave: str, claim: object, on_rabbitmq: bool
) -> None:
    """RabbitMQ 3.10 extends the publisher's x-death, and fails with some of these values."""
    if on_rabbitmq and claim not in CLAIMS[-1:]:
        return
    queue = mortal(raw, grave)
    headers = {"x-death": claim, "x-first-death-queue": "mine", "x-last-death-reason": 3, "mine": 1}
    raw.publish(b"x", routing_key=queue, headers=headers)
    reject(raw, queue)
    got = take(raw, grave)
    if on_rabbitmq:
        assert history(got)[0] == (queue, "rejected", 1)
        assert headers_of(got)["x-death"][1:] == claim
        return
    assert history(got) == [(queue, "rejected", 1)]
    assert milestones(got, "first") == milestones(got, "last") == (queue, "rejected", "")
    assert headers_of(got)["mine"] == 1


def test_a_copied_history_begins_anew(raw: RawClient, grave: str, on_rabbitmq: bool) -> None:
    """A client publishes what it got, with its headers; RabbitMQ 3.10 continues the counts."""
    queue = mortal(raw, grave)
    raw.publish(b"x", routing_key=queue)
    for count in (1, 2, 3):
        reject(raw, queue)
        got = take(raw, grave)
        assert history(got) == [(queue, "rejected", count if on_rabbitmq else 1)]
        raw.publish(b"x", routing_key=queue, headers=headers_of(got))


def test_a_copied_history_is_no_circle(raw: RawClient, grave: str, unique: str, on_rabbitmq: bool) -> None:
    """A task that is delayed and retried with its headers passes the same levels again. RabbitMQ 3.10 drops it."""
    low = named(raw, f"{unique}-low", grave, x_message_ttl=0)
    high = named(raw, f"{unique}-high", low, x_message_ttl=0)
    raw.publish(b"x", routing_key=high)
    got = take(raw, grave)
    levels = [(low, "expired", 1), (high, "expired", 1)]
    assert history(got) == levels
    raw.publish(b"x", routing_key=high, headers=headers_of(got))
    if on_rabbitmq:
        raw.publish(b"marker", routing_key=high)
        assert take(raw, grave).body == b"marker"
        return
    assert history(take(raw, grave)) == levels


def test_a_copied_history_with_copies(raw: RawClient, unique: str, on_rabbitmq: bool) -> None:
    """x-death beside CC and BCC: the dead letter goes to all the keys again, and has only the broker's history."""
    raw.call("exchange.declare", exchange=unique, type="direct", auto_delete=True)
    source = exclusive(raw, x_dead_letter_exchange=unique)
    graves = {key: exclusive(raw) for key in (source, "carbon", "blind")}
    for key, queue in graves.items():
        raw.call("queue.bind", queue=queue, exchange=unique, routing_key=key)
    claim = [{"queue": source, "reason": "expired", "count": 3}]
    raw.publish(b"x", routing_key=source, headers={"x-death": claim, "CC": ["carbon"], "BCC": ["blind"]})
    reject(raw, source)
    for queue in graves.values():
        got = take(raw, queue)
        assert history(got)[0] == (source, "rejected", 1)
        assert headers_of(got)["x-death"][0]["routing-keys"] == [source, "carbon"]
        assert len(history(got)) == (2 if on_rabbitmq else 1)


# -- cycles ------------------------------------------------------------------------------------------------------------


def test_a_rejection_on_the_way_breaks_the_circle(raw: RawClient, unique: str) -> None:
    """An earlier rejection counts, too: expired here, rejected there, expired here again."""
    wait = named(raw, f"{unique}-wait", f"{unique}-work", x_message_ttl=0)
    work = named(raw, f"{unique}-work", wait)
    raw.publish(b"x", routing_key=wait)
    for count in (1, 2, 3):
        got = take(raw, work, no_ack=False)
        expected = [(wait, "expired", count)] + ([(work, "rejected", count - 1)] if count > 1 else [])
        assert history(got) == expected
        raw.send("basic.reject", delivery_tag=got["delivery_tag"], requeue=False)


def test_only_the_queues_of_a_circle_are_left_out(raw: RawClient, unique: str) -> None:
    witness = exclusive(raw)
    exchange = f"{unique}-x"
    queue = named(raw, unique, None, x_dead_letter_exchange=exchange, x_message_ttl=0)
    fanout(raw, exchange, queue, witness)
    raw.publish(b"x", routing_key=queue)
    assert history(take(raw, witness)) == [(queue, "expired", 1)]
    raw.publish(b"y", routing_key=queue)
    assert take(raw, witness).body == b"y"
    assert (content(raw, queue), content(raw, witness)) == ([], [])


def test_a_circle_behind_a_rejection_is_one(raw: RawClient, unique: str) -> None:
    """Rejected once, then only expired: the second time the message reaches a queue it is dropped."""
    one = named(raw, f"{unique}-1", f"{unique}-2", x_message_ttl=0)
    named(raw, f"{unique}-2", one, x_message_ttl=0)
    start = named(raw, f"{unique}-0", one)
    raw.publish(b"x", routing_key=start)
    reject(raw, start)
    marker = exclusive(raw)
    clock = mortal(raw, marker, x_message_ttl=100)
    raw.publish(b"tick", routing_key=clock)
    assert take(raw, marker).body == b"tick"
    assert [content(raw, f"{unique}-{number}") for number in range(3)] == [[], [], []]


# -- where they go -----------------------------------------------------------------------------------------------------


def test_fan_out(raw: RawClient, unique: str) -> None:
    """Each queue gets its own copy, and each copy has its own history from there on."""
    last = exclusive(raw)
    graves = [mortal(raw, last) for _ in range(3)]
    queue = exclusive(raw, x_dead_letter_exchange=fanout(raw, unique, *graves))
    raw.publish(b"x", routing_key=queue)
    reject(raw, queue)
    for grave in graves:
        got = reject(raw, grave)
        assert (got["exchange"], got["routing_key"], history(got)) == (unique, queue, [(queue, "rejected", 1)])
        got = take(raw, last)
        assert history(got) == [(grave, "rejected", 1), (queue, "rejected", 1)]
        assert headers_of(got)["x-death"][0]["exchange"] == unique


def test_a_headers_exchange_sees_the_first_death(raw: RawClient, unique: str) -> None:
    raw.call("exchange.declare", exchange=unique, type="headers", auto_delete=True)
    graves = {reason: exclusive(raw) for reason in ("rejected", "expired")}
    for reason, grave in graves.items():
        arguments = {"x-match": "all-with-x", "x-first-death-reason": reason}
        raw.call("queue.bind", queue=grave, exchange=unique, arguments=arguments)
    queue = exclusive(raw, x_dead_letter_exchange=unique)
    raw.publish(b"rejected", routing_key=queue)
    reject(raw, queue)
    raw.publish(b"expired", routing_key=queue, expiration="0")
    for reason, grave in graves.items():
        assert take(raw, grave).body == reason.encode()
    assert [content(raw, grave) for grave in graves.values()] == [[], []]


def test_an_exchange_that_comes_later(raw: RawClient, unique: str, grave: str) -> None:
    """Messages that die before it exists are dropped."""
    queue = exclusive(raw, x_dead_letter_exchange=unique)
    raw.publish(b"early", routing_key=queue)
    reject(raw, queue)
    fanout(raw, unique, grave)
    raw.publish(b"late", routing_key=queue)
    reject(raw, queue)
    assert take(raw, grave).body == b"late"
    assert content(raw, grave) == []


def test_the_order_is_kept(raw: RawClient, grave: str) -> None:
    """The order is the same for messages that are rejected singly or together, dropped by a full queue, or expired."""
    queue = mortal(raw, grave, x_max_length=50)
    for number in range(80):
        raw.publish(b"%d" % number, routing_key=queue)
    until(lambda: ready(raw, grave) == 30)
    tags = [take(raw, queue, no_ack=False)["delivery_tag"] for _ in range(20)]
    for tag in tags[:10]:
        raw.send("basic.reject", delivery_tag=tag, requeue=False)
    raw.send("basic.nack", delivery_tag=tags[-1], multiple=True, requeue=False)
    for number in range(20):
        raw.publish(b"%d" % (80 + number), routing_key=queue, expiration="1")
    for _ in range(30):
        take(raw, queue)
    until(lambda: ready(raw, queue) == 0 and ready(raw, grave) == 70)
    assert content(raw, grave) == [b"%d" % number for number in [*range(50), *range(80, 100)]]


def test_the_next_queue_gives_a_time_of_its_own(raw: RawClient, unique: str, grave: str) -> None:
    """The first death removes the message's own TTL; otherwise it would expire again."""
    second = named(raw, f"{unique}-2", grave, x_message_ttl=60_000)
    first = named(raw, f"{unique}-1", second)
    raw.publish(b"x", routing_key=first, expiration="0")
    got = take(raw, second)
    assert "expiration" not in got.properties
    assert content(raw, grave) == []


@pytest.mark.parametrize("mode", [1, 2])
def test_properties_stay(raw: RawClient, grave: str, mode: int) -> None:
    queue = mortal(raw, grave)
    given = {"content_type": "a/b", "content_encoding": "c", "delivery_mode": mode, "priority": 7,
             "correlation_id": "d", "reply_to": "e", "message_id": "f", "timestamp": 1_700_000_000, "type": "g",
             "app_id": "h"}
    raw.publish(b"x" * 300_000, routing_key=queue, expiration="60000", **given)
    reject(raw, queue)
    got = take(raw, grave)
    got.properties.pop("headers")
    assert (got.properties, got.body, got["redelivered"]) == (given, b"x" * 300_000, False)


def test_through_an_internal_exchange_and_its_alternate(raw: RawClient, unique: str, grave: str) -> None:
    """Clients cannot publish to an internal exchange, but dead letters reach it."""
    raw.call("exchange.declare", exchange=f"{unique}-alt", type="fanout", auto_delete=True)
    raw.call("queue.bind", queue=grave, exchange=f"{unique}-alt")
    arguments = {"alternate-exchange": f"{unique}-alt"}
    raw.call("exchange.declare", exchange=unique, type="direct", internal=True, arguments=arguments)
    queue = exclusive(raw, x_dead_letter_exchange=unique)
    raw.publish(b"x", routing_key=queue)
    reject(raw, queue)
    got = take(raw, grave)
    assert (got["exchange"], got["routing_key"], history(got)) == (unique, queue, [(queue, "rejected", 1)])
    raw.call("exchange.delete", exchange=unique)


def test_no_dead_letter_is_returned(raw: RawClient, unique: str) -> None:
    """A dead letter is not returned although its message was published as mandatory, and confirmed."""
    raw.call("exchange.declare", exchange=unique, type="direct", auto_delete=True)
    queue = exclusive(raw, x_dead_letter_exchange=unique)
    raw.publish(b"x", routing_key=queue, mandatory=True)
    reject(raw, queue)
    assert content(raw, queue) == []
    raw.quiet()


def test_what_dies_unseen_is_not_redelivered(raw: RawClient, grave: str) -> None:
    """A message that was delivered is not redelivered in its next queue, either."""
    queue = mortal(raw, grave)
    raw.publish(b"x", routing_key=queue)
    got = take(raw, queue, no_ack=False)
    raw.send("basic.reject", delivery_tag=got["delivery_tag"], requeue=True)
    assert reject(raw, queue)["redelivered"]
    assert not take(raw, grave)["redelivered"]


def test_a_priority_goes_along(raw: RawClient, unique: str) -> None:
    grave = exclusive(raw, x_max_priority=5)
    queue = mortal(raw, grave, x_max_length=0)
    for number in range(4):
        raw.publish(b"%d" % number, routing_key=queue, priority=number)
    until(lambda: ready(raw, grave) == 4)
    assert content(raw, grave) == [b"3", b"2", b"1", b"0"]
