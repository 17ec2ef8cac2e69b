"""Policies and operator policies: what they match, what they do to queues and exchanges, and when that ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ..waiting import until
from .administration import Administration
from .collect import answers, confirmed, content, exclusive, ready
from .declaring import delivered, refused
from .raw import RawClient

SetPolicy = Callable[..., None]
DECLARED = (50, 10)


def setter(administration: Administration, unique: str, kind: str) -> Iterator[SetPolicy]:
    names: set[str] = set()

    def set_policy(name: str = "", priority: int = 0, apply_to: str = "all", pattern: str = "", **keys: Any) -> None:
        what = {"vhost": "/", "name": unique + name, "pattern": pattern or unique, "priority": priority}
        definition = {key.replace("_", "-"): value for key, value in keys.items()}
        administration.call(f"set_{kind}", definition=definition, apply_to=apply_to, **what)
        names.add(unique + name)

    yield set_policy
    for name in names:
        administration.call(f"clear_{kind}", vhost="/", name=name)


@pytest.fixture
def policy(administration: Administration, unique: str) -> Iterator[SetPolicy]:
    """Sets a policy for names that contain the test's name (keys with underscores for hyphens); deleted afterwards."""
    yield from setter(administration, unique, "policy")


@pytest.fixture
def operator_policy(administration: Administration, unique: str) -> Iterator[SetPolicy]:
    """Sets an operator policy for names that contain the test's name; deleted afterwards."""
    yield from setter(administration, unique, "operator_policy")


@pytest.fixture
def queue(raw: RawClient, unique: str) -> Iterator[str]:
    """A durable queue with the test's name."""
    yield declare(raw, unique)
    raw.call("queue.delete", queue=unique)


def declare(raw: RawClient, name: str, *, durable: bool = True, **arguments: Any) -> str:
    given = {key.replace("_", "-"): item for key, item in arguments.items()}
    raw.call("queue.declare", queue=name, durable=durable, arguments=given)
    return name


def exclusive_named(raw: RawClient, name: str, **arguments: Any) -> str:
    given = {key.replace("_", "-"): item for key, item in arguments.items()}
    raw.call("queue.declare", queue=name, exclusive=True, arguments=given)
    return name


def publish(raw: RawClient, queue: str, *bodies: bytes, **properties: Any) -> None:
    """Publish with confirms on channel 2."""
    raw.call("confirm.select", 2)
    for body in bodies:
        raw.publish(body, routing_key=queue, channel=2, **properties)
    answers(raw, len(bodies))
    raw.call("channel.close", 2)
    raw.call("channel.open", 2)


def kept(raw: RawClient, queue: str, *bodies: bytes) -> list[bytes]:
    """Publish these bodies, and return those that the queue keeps."""
    publish(raw, queue, *bodies)
    return content(raw, queue)


def keeps(raw: RawClient, queue: str, count: int) -> None:
    """Check that a queue finally keeps `count` of three messages. RabbitMQ's queues learn of policies late."""
    until(lambda: len(kept(raw, queue, b"1", b"2", b"3")) == count)


def has(raw: RawClient, queue: str, count: int) -> bool:
    return int(raw.call("queue.declare", queue=queue, passive=True)["message_count"]) == count


def is_there(raw: RawClient, queue: str) -> bool:
    raw.send("queue.declare", queue=queue, passive=True)
    if raw.read("queue.declare-ok", "channel.close").name == "queue.declare-ok":
        return True
    raw.send("channel.close-ok")
    raw.call("channel.open")
    return False


# -- length ------------------------------------------------------------------------------------------------------------


def test_a_length_limit_holds_at_once(raw: RawClient, queue: str, policy: SetPolicy) -> None:
    publish(raw, queue, b"1", b"2", b"3", b"4")
    policy(max_length=2)
    until(lambda: has(raw, queue, 2))
    publish(raw, queue, b"5")
    assert content(raw, queue) == [b"4", b"5"]


def test_a_limit_in_octets_holds_at_once(raw: RawClient, queue: str, policy: SetPolicy) -> None:
    publish(raw, queue, b"11", b"22", b"33", b"44")
    policy(max_length_bytes=5)
    until(lambda: has(raw, queue, 2))
    publish(raw, queue, b"5")
    publish(raw, queue, b"6")
    assert content(raw, queue) == [b"44", b"5", b"6"]


def test_what_has_no_room_is_dead_lettered(raw: RawClient, queue: str, policy: SetPolicy) -> None:
    grave = exclusive(raw)
    publish(raw, queue, b"1", b"2", b"3")
    policy(max_length=1, dead_letter_exchange="", dead_letter_routing_key=grave)
    until(lambda: has(raw, grave, 2))
    assert content(raw, grave) == [b"1", b"2"]
    assert content(raw, queue) == [b"3"]


def test_a_limit_goes_with_its_policy(
    raw: RawClient, queue: str, policy: SetPolicy, administration: Administration, unique: str
) -> None:
    policy(max_length=1)
    keeps(raw, queue, 1)
    administration.call("clear_policy", vhost="/", name=unique)
    keeps(raw, queue, 3)
    policy(max_length=1)


def test_a_queue_that_is_declared_later_has_the_limit(raw: RawClient, unique: str, policy: SetPolicy) -> None:
    policy(max_length=1)
    queue = exclusive_named(raw, unique)
    publish(raw, queue, b"1", b"2")
    assert content(raw, queue) == [b"2"]


def test_a_policy_reaches_exclusive_and_server_named_queues(raw: RawClient, policy: SetPolicy) -> None:
    queue = exclusive(raw)
    publish(raw, queue, b"1", b"2")
    policy(max_length=1, pattern=f"^{queue}$")
    until(lambda: has(raw, queue, 1))


def test_publishes_are_refused_by_policy(raw: RawClient, queue: str, policy: SetPolicy) -> None:
    policy(max_length=1, overflow="reject-publish")
    until(lambda: kept(raw, queue, b"1", b"2") == [b"1"])
    raw.call("confirm.select")
    assert confirmed(raw, queue, b"1", b"2", first=1) == "an"
    policy(max_length=1, overflow="drop-head")
    until(lambda: kept(raw, queue, b"3", b"4") == [b"4"])


def test_a_queue_that_is_too_long_and_refuses_from_now_on(
    raw: RawClient, queue: str, policy: SetPolicy, on_rabbitmq: bool
) -> None:
    """RabbitMQ's classic queues check the length before the overflow mode, and drop the oldest messages.

    leveret keeps them, as RabbitMQ's quorum queues do: a user of reject-publish does not want messages to be dropped.
    """
    publish(raw, queue, b"1", b"2", b"3", b"4")
    policy(max_length=2, overflow="reject-publish")
    if on_rabbitmq:
        until(lambda: has(raw, queue, 2))
    raw.call("confirm.select")
    assert confirmed(raw, queue, b"5", first=1) == "n"
    assert content(raw, queue) == ([b"3", b"4"] if on_rabbitmq else [b"1", b"2", b"3", b"4"])


def test_a_queue_that_refuses_already_keeps_what_it_has(raw: RawClient, unique: str, policy: SetPolicy) -> None:
    queue = exclusive_named(raw, unique, x_overflow="reject-publish")
    publish(raw, queue, b"1", b"2", b"3")
    policy(max_length=1)
    raw.call("confirm.select")
    assert confirmed(raw, queue, b"4", first=1) == "n"
    assert content(raw, queue) == [b"1", b"2", b"3"]


# -- times -------------------------------------------------------------------------------------------------------------


def test_messages_keep_the_time_to_live_that_they_came_with(
    raw: RawClient, queue: str, policy: SetPolicy, administration: Administration, unique: str
) -> None:
    publish(raw, queue, b"before")
    policy(message_ttl=1)
    keep = exclusive_named(raw, unique + "-other")
    until(lambda: not kept(raw, keep, b"1") and has(raw, keep, 0))  # the policy is in effect, and a ms has passed
    publish(raw, queue, b"with")  # the first message holds it up until it expires
    assert has(raw, queue, 2)
    administration.call("clear_policy", vhost="/", name=unique)
    keeps(raw, keep, 3)
    publish(raw, queue, b"after")
    assert content(raw, queue) == [b"before", b"after"]
    policy(message_ttl=1)


def test_the_time_to_live_of_a_policy(raw: RawClient, queue: str, policy: SetPolicy) -> None:
    policy(message_ttl=1)
    publish(raw, queue, b"1")
    until(lambda: has(raw, queue, 0))


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_goes_by_policy(raw: RawClient, unique: str, policy: SetPolicy, kind: str) -> None:
    declare(raw, unique, x_queue_type=kind)
    policy(expires=1)
    until(lambda: not is_there(raw, unique))


def test_a_queue_stays_when_the_policy_goes(
    raw: RawClient, other: RawClient, queue: str, unique: str, policy: SetPolicy, administration: Administration
) -> None:
    policy(expires=300)
    administration.call("clear_policy", vhost="/", name=unique)
    # another queue with the same time shows when this one would have expired
    exclusive_named(raw, unique + "-other", x_expires=400)
    until(lambda: not is_there(other, unique + "-other"))
    assert is_there(other, unique)
    policy(max_length=1)


def test_consumers_keep_a_queue_that_expires_by_policy(
    raw: RawClient, other: RawClient, queue: str, unique: str, policy: SetPolicy
) -> None:
    raw.call("basic.consume", queue=queue)
    policy(expires=200)
    exclusive_named(raw, unique + "-other", x_expires=300)
    until(lambda: not is_there(other, unique + "-other"))
    assert is_there(other, queue)


# -- arguments and policies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize(("declared", "said", "left"), [(1, 3, 1), (3, 1, 1)])
def test_the_smaller_length_counts(
    raw: RawClient, unique: str, policy: SetPolicy, kind: str, declared: int, said: int, left: int
) -> None:
    declare(raw, unique, x_queue_type=kind, x_max_length=declared)
    policy(max_length=said)
    keeps(raw, unique, left)
    raw.call("queue.delete", queue=unique)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_declared_dead_letter_arguments_count(raw: RawClient, unique: str, policy: SetPolicy, kind: str) -> None:
    mine, others = exclusive(raw), exclusive(raw)
    policy(dead_letter_exchange="", dead_letter_routing_key=others)
    declare(raw, unique, x_queue_type=kind, x_dead_letter_exchange="", x_dead_letter_routing_key=mine)
    publish(raw, unique, b"1")
    dead_letter(raw, unique)
    until(lambda: content(raw, mine) == [b"1"])
    raw.call("queue.delete", queue=unique)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_key_of_a_policy_goes_with_a_declared_exchange(
    raw: RawClient, unique: str, policy: SetPolicy, kind: str
) -> None:
    grave = exclusive(raw)
    policy(dead_letter_routing_key=grave)
    declare(raw, unique, x_queue_type=kind, x_dead_letter_exchange="")
    publish(raw, unique, b"1")
    dead_letter(raw, unique)
    until(lambda: content(raw, grave) == [b"1"])
    raw.call("queue.delete", queue=unique)


def dead_letter(raw: RawClient, queue: str) -> None:
    got = until(lambda: frame if (frame := raw.call("basic.get", queue=queue)).name == "basic.get-ok" else None)
    raw.send("basic.reject", delivery_tag=got["delivery_tag"], requeue=False)


@pytest.mark.parametrize(("kind", "word"), [("classic", "a"), ("quorum", "n")])
def test_declared_overflow_counts_for_classic_queues_only(
    raw: RawClient, unique: str, policy: SetPolicy, kind: str, word: str
) -> None:
    declare(raw, unique, x_queue_type=kind, x_max_length=1, x_overflow="drop-head")
    policy(overflow="reject-publish")
    raw.call("confirm.select")
    said = confirmed(raw, unique, b"1", b"2", b"3", b"4", first=1)
    assert said[-1] == word
    raw.call("queue.delete", queue=unique)


def test_what_a_policy_says_is_no_argument_of_the_declaration(
    raw: RawClient, queue: str, policy: SetPolicy
) -> None:
    policy(max_length=5)
    declare(raw, queue)
    got = raw.fail("queue.declare", queue=queue, durable=True, arguments={"x-max-length": 5})
    difference = "received the value '5' of type 'signedint' but current is none"
    assert got == refused(f"inequivalent arg 'x-max-length' for queue '{queue}' in vhost '/': {difference}", DECLARED)


# -- which policy applies ----------------------------------------------------------------------------------------------


def test_the_highest_priority_wins_and_nothing_is_mixed(
    raw: RawClient, queue: str, policy: SetPolicy, administration: Administration, unique: str
) -> None:
    policy("-low", 1, max_length=1)
    policy("-high", 2, message_ttl=600_000)
    keeps(raw, queue, 3)
    administration.call("clear_policy", vhost="/", name=unique + "-high")
    keeps(raw, queue, 1)
    policy("-high", 2, message_ttl=600_000)
    keeps(raw, queue, 3)
    policy("-high", 0, message_ttl=600_000)
    keeps(raw, queue, 1)


@pytest.mark.parametrize(("apply_to", "count"), [("all", 1), ("queues", 1), ("exchanges", 2)])
def test_what_a_policy_applies_to(
    raw: RawClient, queue: str, policy: SetPolicy, apply_to: str, count: int
) -> None:
    policy("-it", 9, apply_to=apply_to, max_length=1)
    policy("-next", max_length=2)
    keeps(raw, queue, count)


@pytest.mark.parametrize(("pattern", "count"), [
    ("{part}", 1), ("^{name}$", 1), ("^{part}", 2), ("{part}x", 2), ("(?i){upper}", 1), ("{upper}", 2),
    ("[{part}]$", 1),
])  # fmt: skip
def test_a_pattern_is_looked_for_anywhere_in_the_name(
    raw: RawClient, unique: str, policy: SetPolicy, pattern: str, count: int
) -> None:
    queue = exclusive_named(raw, unique + "-letters")
    found = pattern.format(name=queue, part=queue[2:], upper=queue.upper())
    policy("-it", 9, pattern=found, max_length=1)
    policy("-next", max_length=2)
    keeps(raw, queue, count)


@pytest.mark.parametrize("keys", [
    {"delivery_limit": 5}, {"dead_letter_strategy": "at-most-once"}, {"queue_leader_locator": "random"},
    {"max_age": "1h"}, {"initial_cluster_size": 1}, {"stream_max_segment_size_bytes": 1000},
])  # fmt: skip
def test_a_policy_with_a_key_that_classic_queues_do_not_know_does_not_match_them(
    raw: RawClient, queue: str, policy: SetPolicy, on_rabbitmq: bool, keys: dict[str, Any]
) -> None:
    if on_rabbitmq and "max_age" in keys:
        keys = {"initial_cluster_size": 1}  # RabbitMQ's policies fail with 500 for any age
    policy("-it", 9, max_length=1, **keys)
    policy("-next", max_length=2)
    keeps(raw, queue, 2)


@pytest.mark.parametrize("keys", [
    {"queue_mode": "lazy"}, {"ha_mode": "all"}, {"queue_master_locator": "random"}, {"initial_cluster_size": 1},
])  # fmt: skip
def test_a_policy_with_a_key_that_quorum_queues_do_not_know_does_not_match_them(
    raw: RawClient, unique: str, policy: SetPolicy, keys: dict[str, Any]
) -> None:
    declare(raw, unique, x_queue_type="quorum")
    policy("-it", 9, max_length=1, **keys)
    policy("-next", max_length=2)
    keeps(raw, unique, 2)
    raw.call("queue.delete", queue=unique)


@pytest.mark.parametrize("keys", [
    {"queue_mode": "lazy"}, {"queue_version": 2}, {"ha_mode": "exactly", "ha_params": 2, "ha_sync_mode": "automatic"},
    {"queue_master_locator": "min-masters"}, {"max_in_memory_length": 1}, {"max_in_memory_bytes": 1},
    {"federation_upstream_set": "all"}, {"alternate_exchange": "nowhere"}, {"expires": 1 << 40},
    {"message_ttl": 1 << 62},
])  # fmt: skip
def test_keys_that_do_nothing_here_do_not_disturb_the_others(
    raw: RawClient, queue: str, policy: SetPolicy, on_rabbitmq: bool, keys: dict[str, Any]
) -> None:
    if on_rabbitmq and set(keys) & {"expires", "message_ttl"}:
        keys = {}  # RabbitMQ's timers do not accept such numbers, and the queue crashes
    policy(max_length=1, **keys)
    keeps(raw, queue, 1)


# -- operator policies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("said", "operators"), [(1, 3), (3, 1)])
def test_of_policy_and_operator_policy_the_smaller_number_counts(
    raw: RawClient, queue: str, policy: SetPolicy, operator_policy: SetPolicy, said: int, operators: int
) -> None:
    policy(max_length=said)
    operator_policy(max_length=operators)
    keeps(raw, queue, 1)


def test_an_operator_policy_limits_what_was_declared(
    raw: RawClient, unique: str, operator_policy: SetPolicy, policy: SetPolicy
) -> None:
    operator_policy(max_length=1)
    policy(overflow="reject-publish")
    queue = exclusive_named(raw, unique, x_max_length=10)
    raw.call("confirm.select")
    assert confirmed(raw, queue, b"1", b"2", first=1) == "an"


def test_an_operator_policy_goes_with_its_effect(
    raw: RawClient, queue: str, unique: str, operator_policy: SetPolicy, administration: Administration
) -> None:
    operator_policy(max_length=1)
    keeps(raw, queue, 1)
    administration.call("clear_operator_policy", vhost="/", name=unique)
    keeps(raw, queue, 3)
    operator_policy(max_length=1)


# -- quorum queues -----------------------------------------------------------------------------------------------------


def test_the_delivery_limit_of_a_policy(raw: RawClient, unique: str, policy: SetPolicy) -> None:
    declare(raw, unique, x_queue_type="quorum")
    policy(delivery_limit=1)
    publish(raw, unique, b"1")
    for _ in range(2):
        got = until(lambda: frame if (frame := raw.call("basic.get", queue=unique)).name == "basic.get-ok" else None)
        raw.send("basic.reject", delivery_tag=got["delivery_tag"], requeue=True)
    until(lambda: has(raw, unique, 0))
    raw.call("queue.delete", queue=unique)


def test_dead_letters_at_least_once_by_policy(raw: RawClient, unique: str, policy: SetPolicy) -> None:
    declare(raw, unique, x_queue_type="quorum")
    grave = unique + "-grave"
    policy(
        pattern=f"^{unique}$", dead_letter_strategy="at-least-once", overflow="reject-publish",
        dead_letter_exchange="", dead_letter_routing_key=grave,
    )  # fmt: skip
    exclusive_named(raw, grave)
    publish(raw, unique, b"1", delivery_mode=2)
    dead_letter(raw, unique)
    until(lambda: content(raw, grave) == [b"1"])
    raw.call("queue.delete", queue=unique)


# -- exchanges ---------------------------------------------------------------------------------------------------------


def test_an_alternate_exchange_by_policy(
    raw: RawClient, unique: str, policy: SetPolicy, administration: Administration
) -> None:
    queue = exclusive(raw)
    raw.call("exchange.declare", exchange=unique, type="direct", auto_delete=True)
    raw.call("queue.bind", queue=queue, exchange="amq.fanout")
    assert delivered(raw, unique, "k", queue) == []
    policy(pattern=f"^{unique}$", alternate_exchange="amq.fanout")
    assert delivered(raw, unique, "k", queue) == [b"x"]
    administration.call("clear_policy", vhost="/", name=unique)
    assert delivered(raw, unique, "k", queue) == []
    policy(pattern=f"^{unique}$", alternate_exchange="amq.fanout")
    raw.call("exchange.delete", exchange=unique)


def test_a_declared_alternate_exchange_counts(raw: RawClient, unique: str, policy: SetPolicy) -> None:
    queue = exclusive(raw)
    arguments = {"alternate-exchange": "amq.direct"}
    raw.call("exchange.declare", exchange=unique, type="direct", arguments=arguments)
    raw.call("queue.bind", queue=queue, exchange="amq.fanout")
    policy(alternate_exchange="amq.fanout")
    assert delivered(raw, unique, "k", queue) == []
    raw.call("exchange.declare", exchange=unique, type="direct", arguments=arguments)
    raw.call("exchange.delete", exchange=unique)


def test_an_alternate_exchange_of_a_policy_is_no_argument_of_the_declaration(
    raw: RawClient, unique: str, policy: SetPolicy
) -> None:
    policy(alternate_exchange="amq.fanout")
    raw.call("exchange.declare", exchange=unique, type="direct")
    raw.call("exchange.declare", exchange=unique, type="direct")
    raw.call("exchange.delete", exchange=unique)


def test_a_policy_reaches_the_exchanges_that_are_always_there(
    raw: RawClient, unique: str, policy: SetPolicy
) -> None:
    queue = exclusive(raw)
    raw.call("exchange.declare", exchange=unique, type="fanout", auto_delete=True)
    raw.call("queue.bind", queue=queue, exchange=unique)
    policy(pattern="^amq.headers$", alternate_exchange=unique)
    assert delivered(raw, "amq.headers", "k", queue) == [b"x"]


def test_a_message_that_an_alternate_exchange_of_a_policy_takes_is_not_returned(
    raw: RawClient, unique: str, policy: SetPolicy
) -> None:
    queue = exclusive(raw)
    raw.call("exchange.declare", exchange=unique, type="direct")
    raw.call("queue.bind", queue=queue, exchange="amq.fanout")
    raw.call("confirm.select")
    raw.publish(b"x", unique, "k", mandatory=True)
    raw.read("basic.return")
    assert answers(raw, 1) == "a"
    policy(alternate_exchange="amq.fanout")
    raw.publish(b"x", unique, "k", mandatory=True)
    assert answers(raw, 1, 2) == "a"
    until(lambda: ready(raw, queue) == 1)
    raw.call("exchange.delete", exchange=unique)


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_queues_and_exchanges_show_their_policies(
    raw: RawClient, queue: str, unique: str, administration: Administration, policy: SetPolicy,
    operator_policy: SetPolicy,
) -> None:  # fmt: skip
    def shown(kind: str) -> dict[str, Any]:
        found = administration.call(f"get_{kind}", vhost="/", name=unique)
        return {key: value for key, value in found.items() if "policy" in key}

    raw.call("exchange.declare", exchange=unique, type="direct")
    assert "policy" not in shown("exchange")
    policy("-p", message_ttl=600_000, max_length=5)
    operator_policy("-o", max_length=3, expires=600_000)
    until(lambda: shown("exchange") == {"policy": unique + "-p"})
    settings = {"message-ttl": 600_000, "max-length": 3, "expires": 600_000}
    # RabbitMQ's statistics of queues are some seconds old
    until(lambda: shown("queue") == {
        "policy": unique + "-p", "operator_policy": unique + "-o", "effective_policy_definition": settings,
    })  # fmt: skip
    raw.call("exchange.delete", exchange=unique)
