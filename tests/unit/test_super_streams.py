"""Super streams: all or nothing is declared, and how the command line reads sizes and ages."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.cli.ctl.exits import USAGE, Failed
from leveret.cli.ctl.tables.super_streams import age, octets
from leveret.control.refusal import BAD_REQUEST, CONFLICT, NOT_AUTHORISED, NOT_FOUND
from leveret.wire import grammar
from leveret.wire.table import split_table

from .support import recovered
from .test_object_commands import Operator


@pytest.fixture
def operator() -> Operator:
    return Operator()


def layout(operator: Operator, name: str) -> list[tuple[str, str, list[tuple[bytes, bytes]]]]:
    """Return (queue, key, encoded arguments) of each binding of an exchange."""
    exchange = operator.bench.broker.vhosts["/"].exchanges[name]
    bindings = exchange.every()
    return [(binding.destination.name, binding.key, split_table(binding.arguments)) for binding in bindings]


def order(number: int) -> list[tuple[bytes, bytes]]:
    """Return the binding's arguments as RabbitMQ encodes them."""
    return [(b"x-stream-partition-order", b"l" + number.to_bytes(8, "big"))]


def names(operator: Operator) -> set[str]:
    vhost = operator.bench.broker.vhosts["/"]
    return {name for name in [*vhost.queues, *vhost.exchanges] if not name.startswith("amq.")} - {"q"}


def test_partitions_by_number(operator: Operator) -> None:
    before = [b"".join(operator.bench.broker.snapshot())]
    sizes = {"max_length_bytes": 10**6, "stream_max_segment_size_bytes": 500_000}
    answer = operator.do("add_super_stream", name="inv", partitions=3, max_age="3600s", **sizes)
    assert answer == {"partitions": ["inv-0", "inv-1", "inv-2"]}
    assert layout(operator, "inv") == [
        ("inv-0", "0", order(0)), ("inv-1", "1", order(1)), ("inv-2", "2", order(2)),
    ]  # fmt: skip
    operator.bench.sync()
    again = recovered(before + operator.bench.batches)
    for bench in (operator.bench, again):
        vhost = bench.broker.vhosts["/"]
        exchange, queue = vhost.exchanges["inv"], vhost.queues["inv-2"]
        assert (exchange.kind, exchange.durable, exchange.arguments) == ("direct", True, {"x-super-stream": True})
        given = {"x-max-age": "3600s", "x-max-length-bytes": 10**6, "x-stream-max-segment-size-bytes": 500_000}
        assert (queue.durable, queue.arguments) == (True, {"x-queue-type": "stream"} | given)


def test_partitions_by_keys(operator: Operator) -> None:
    more: dict[str, Any] = {"leader_locator": "client-local", "initial_cluster_size": 1}
    operator.do("add_super_stream", name="keys", routing_keys=["eu", "us", " ap"], **more)
    assert layout(operator, "keys") == [
        ("keys-eu", "eu", order(0)), ("keys-us", "us", order(1)), ("keys-ap", "ap", order(2)),
    ]  # fmt: skip
    given = {"x-queue-type": "stream", "x-initial-cluster-size": 1, "x-queue-leader-locator": "client-local"}
    assert operator.bench.broker.vhosts["/"].queues["keys-ap"].arguments == given
    assert len(operator.do("add_super_stream", name="three")["partitions"]) == 3


def test_deleted_with_its_partitions(operator: Operator) -> None:
    operator.do("add_super_stream", name="inv", partitions=2)
    operator.do("add_super_stream", name="other", partitions=1)
    client = operator.bench.connect()
    client.call(1, grammar.BASIC_QOS, prefetch_count=1)
    client.peer.hears_cancel = True
    client.send(1, grammar.BASIC_CONSUME, queue="inv-1")
    client.frames()
    assert operator.do("delete_super_stream", name="inv") == {"partitions": ["inv-0", "inv-1"]}
    operator.bench.sync()
    assert [method.spec for method in client.methods()] == [grammar.BASIC_CANCEL]
    assert names(operator) == {"other", "other-0"}
    for name in ("inv", "amq.direct", "never"):
        assert operator.refusal("delete_super_stream", name=name) == (NOT_FOUND, "stream_not_found")


taken = "{:reference_already_exists, 'there is already "


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"partitions": 2, "routing_keys": ["a"]}, (BAD_REQUEST, "Specify --partitions or routing-keys, not both.")),
        ({"partitions": 0}, (BAD_REQUEST, "The partition number must be greater than 0")),
        ({"partitions": 1001}, (BAD_REQUEST, "a super stream has at most 1000 partitions")),
        ({"routing_keys": []}, (BAD_REQUEST, "routing keys must be distinct strings")),
        ({"routing_keys": ["a", " a"]}, (BAD_REQUEST, "routing keys must be distinct strings")),
        ({"routing_keys": ["a", ""]}, (BAD_REQUEST, "routing keys must be distinct strings")),
        ({"name": "amq.direct"}, (CONFLICT, taken + "an exchange named amq.direct'}")),
        ({"routing_keys": ["x", "taken"]}, (CONFLICT, taken + "a queue named inv-taken'}")),
        ({"vhost": "none"}, (NOT_FOUND, "no virtual host 'none'")),
    ],
)
def test_what_is_refused_leaves_nothing(
    operator: Operator, fields: dict[str, object], refusal: tuple[str, str]
) -> None:
    operator.do("declare_queue", name="inv-taken", durable=True)
    assert operator.refusal("add_super_stream", **{"name": "inv", **fields}) == refusal
    assert names(operator) == {"inv-taken"}


def test_what_fails_midway_leaves_nothing(operator: Operator) -> None:
    """This includes the journal."""
    before = [b"".join(operator.bench.broker.snapshot())]
    vhost = operator.bench.broker.vhosts["/"]
    vhost.limit({"max-queues": 3})
    for fields in ({"partitions": 5}, {"partitions": 2, "max_age": "bla"}, {"partitions": 1, "user": "u"}):
        with pytest.raises(Exception, match=r"limit|x-max-age|Access refused"):
            operator.do("add_super_stream", name="inv", **fields)
        assert names(operator) == set()
    operator.bench.sync()
    assert set(recovered(before + operator.bench.batches).broker.vhosts["/"].queues) == {"q"}


def test_permissions_are_asked_for(operator: Operator) -> None:
    assert operator.do("add_super_stream", name="u", partitions=1, user="u") == {"partitions": ["u-0"]}
    operator.do("add_super_stream", name="inv", partitions=1)
    assert operator.refusal("delete_super_stream", name="inv", user="u")[0] == NOT_AUTHORISED
    assert operator.do("delete_super_stream", name="u", user="u") == {"partitions": ["u-0"]}
    assert names(operator) == {"inv", "inv-0"}


@pytest.mark.parametrize(
    ("text", "count"),
    [("500", 500), ("1gb", 10**9), ("50MB", 50 * 10**6), ("2kib", 2048), ("1g", 1 << 30), ("3k", 3072), ("0", 0)],
)
def test_sizes(text: str, count: int) -> None:
    assert octets(text, "max-length-bytes") == count


@pytest.mark.parametrize("text", ["-5", "", "gb", "1xb", "1ib", "1.5gb", "1 gb"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(Failed, match="for --max-length-bytes, valid example values: 100gb, 50mb") as failed:
        octets(text, "max-length-bytes")
    assert failed.value.code == USAGE


@pytest.mark.parametrize(
    ("text", "value"),
    [("PT1H", "3600s"), ("P1DT2H", "93600s"), ("PT10M30S", "630s"), ("P1Y", "31536000s"), ("P1W", "604800s"),
     ("7D", "7D")],
)
def test_ages(text: str, value: str) -> None:
    assert age(text) == value


@pytest.mark.parametrize("text", ["bla", "P", "PT", "1H", "P1H", "PT0S", "0D", ""])
def test_no_ages(text: str) -> None:
    with pytest.raises(Failed, match="ISO 8601"):
        age(text)
