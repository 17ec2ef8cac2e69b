"""Which messages cross a link, and how they arrive: the same for every pair of brokers."""

from __future__ import annotations

from typing import Any

import pytest

from .inbox import Inbox
from .site import Site, X

Pair = tuple[Site, Site]

# type of both exchanges; bindings downstream; published messages: key, headers, whether it crosses
KINDS: list[tuple[str, list[tuple[str, dict[str, Any]]], list[tuple[str, dict[str, Any], bool]]]] = [
    ("direct", [("a", {}), ("b", {})], [("a", {}, True), ("c", {}, False), ("b", {}, True)]),
    ("fanout", [("", {})], [("a", {}, True), ("", {}, True)]),
    ("topic", [("a.*", {}), ("#.z", {})], [("a.b", {}, True), ("a.b.c", {}, False), ("x.y.z", {}, True)]),
    (
        "headers",
        [("", {"x-match": "all", "n": 1, "s": "t"}), ("", {"x-match": "any", "other": True})],
        [
            ("k", {"n": 1, "s": "t"}, True),
            ("k", {"n": 1}, False),
            ("k", {"other": True, "n": 2}, True),
            ("k", {}, False),
        ],
    ),
]


@pytest.mark.parametrize(("kind", "bindings", "messages"), KINDS, ids=[each[0] for each in KINDS])
def test_what_is_bound_downstream_crosses_and_nothing_else(
    pair: Pair, kind: str, bindings: list[tuple[str, dict[str, Any]]], messages: list[tuple[str, dict[str, Any], bool]]
) -> None:
    up, down = pair
    for each in pair:
        each.exchange(kind=kind)
    inbox = down.inbox()
    for key, arguments in bindings:
        inbox.bind(key, exchange=X, arguments=arguments)
    down.federate(up)
    down.running()
    up.bound(*(key for key, _ in bindings))
    for number, (key, headers, _) in enumerate(messages):
        up.publish(key, str(number), headers=headers)
    inbox.expect(*(str(number) for number, (_, _, crosses) in enumerate(messages) if crosses))
    assert [each.method.routing_key for each in inbox.got] == [key for key, _, crosses in messages if crosses]


def linked(pair: Pair) -> tuple[Site, Inbox]:
    """Return the upstream, and a queue downstream that gets every message that crosses."""
    up, down = pair
    for each in pair:
        each.exchange()
    inbox = down.inbox("#")
    down.federate(up)
    down.running()
    up.bound("#")
    return up, inbox


def test_a_message_arrives_as_it_was_published(pair: Pair) -> None:
    up, inbox = linked(pair)
    headers = {"n": 1, "text": "ü", "list": [1, {"x": None}], "CC": ["other"]}
    given = {
        "content_type": "text/x", "content_encoding": "utf-8", "delivery_mode": 2, "priority": 7, "correlation_id": "c",
        "reply_to": "r", "expiration": "600000", "message_id": "m", "timestamp": 1234567890, "type": "t", "app_id": "a",
        "cluster_id": "l",
    }  # fmt: skip
    up.publish("k.1", "body", headers=headers, **given)
    got = inbox.next()
    found = dict(got.properties.headers)
    received = found.pop("x-received-from")
    assert found == headers
    assert {name: getattr(got.properties, name) for name in given} == given
    assert (got.body, got.method.routing_key, got.method.exchange) == (b"body", "k.1", X)
    assert not got.method.redelivered
    expected = {
        "uri": up.uri().replace("guest:guest@", ""), "exchange": X, "redelivered": False,
        "cluster-name": up.node.cluster, "vhost": up.name,
    }  # fmt: skip
    assert received == [expected]


def test_a_large_message_crosses(pair: Pair) -> None:
    up, inbox = linked(pair)
    body = "0123456789abcdef" * 65536
    up.publish("k", body, headers={"h": "x" * 3000})
    up.publish("k", "")
    inbox.expect(body, "")


@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_user_id_crosses_only_where_it_is_trusted(pair: Pair, is_trusted: bool) -> None:
    up, down = pair
    for each in pair:
        each.exchange()
    inbox = down.inbox("#")
    down.federate(up, trust_user_id=is_trusted)
    down.running()
    up.bound("#")
    up.publish("k", "m", user_id="guest")
    assert inbox.next().properties.user_id == ("guest" if is_trusted else None)


def test_what_is_published_downstream_does_not_go_upstream(pair: Pair) -> None:
    up, down = pair
    for each in pair:
        each.exchange()
    above, below = up.inbox("#"), down.inbox("#")
    down.federate(up)
    down.running()
    up.bound("#")
    down.publish("k", "below")
    below.expect("below")
    up.publish("k", "above")
    above.expect("above")
    below.expect("below", "above")
    above.expect("above")


@pytest.mark.parametrize("ack_mode", ["on-confirm", "on-publish", "no-ack"])
def test_each_way_to_acknowledge(pair: Pair, ack_mode: str) -> None:
    up, down = pair
    for each in pair:
        each.exchange()
    inbox = down.inbox("#")
    down.federate(up, ack_mode=ack_mode, prefetch_count=3)
    down.running()
    up.bound("#")
    bodies = [str(number) for number in range(50)]
    for body in bodies:
        up.publish("k", body)
    inbox.expect(*bodies)
    assert [each.body.decode() for each in inbox.got] == bodies


@pytest.mark.parametrize(
    "bad", ["text", 5, [], {"cluster-name": "c", "vhost": "v"}, None], ids=["text", "number", "empty", "table", "void"]
)
def test_a_history_that_is_none_is_no_reason_to_stop(pair: Pair, bad: Any) -> None:
    """x-received-from with an invalid value, set by a publisher."""
    up, inbox = linked(pair)
    up.publish("k", "bad", headers={"x-received-from": bad})
    up.publish("k", "good")
    inbox.expect("bad", "good")
    received = inbox.got[0].properties.headers["x-received-from"]
    assert [each["vhost"] for each in received] == [up.name]


def test_a_history_counts_as_hops(pair: Pair) -> None:
    """Items that are not tables count, too."""
    up, down = pair
    for each in pair:
        each.exchange()
    inbox = down.inbox("#")
    down.federate(up, max_hops=3)
    down.running()
    up.bound("#")
    hop = {"cluster-name": "elsewhere", "vhost": "v"}
    own = {"cluster-name": down.node.cluster, "vhost": down.name}
    up.publish("k", "two hops", headers={"x-received-from": [hop, hop]})
    up.publish("k", "three hops", headers={"x-received-from": [hop, hop, hop]})
    up.publish("k", "three words", headers={"x-received-from": ["a", "b", "c"]})
    up.publish("k", "was here", headers={"x-received-from": [hop, own]})
    up.publish("k", "was at home", headers={"x-received-from": [own | {"vhost": "other"}]})
    up.publish("k", "last")
    inbox.expect("two hops", "was at home", "last")
    histories = [each.properties.headers["x-received-from"] for each in inbox.got]
    assert [[each["vhost"] for each in history] for history in histories] == [
        [up.name, "v", "v"], [up.name, "other"], [up.name],
    ]  # fmt: skip
