"""Delayed exchanges: which headers are a delay, and where a due message goes."""

from __future__ import annotations

import struct

import pytest

from leveret.broker.delayed.delay import delay_us_of, released
from leveret.wire import grammar
from leveret.wire.errors import ProtocolError
from leveret.wire.frames import content_frames
from leveret.wire.properties import Properties, decode_header, encode_header
from leveret.wire.table import Value, join_table

from .delays import bind, declare, fetch, opened, send
from .support import SECOND_US, Bench

MS = 1000


def content(headers: dict[str, Value] | None, body: bytes = b"body", **values: object) -> bytes:
    return content_frames(1, encode_header(Properties(headers=headers, **values), len(body)), body, 131072)  # type: ignore[arg-type]


def raw_content(value: bytes) -> bytes:
    """Return frames with an x-delay of this encoding."""
    header = encode_header(Properties(headers={}), 0)
    return content_frames(1, header[:14] + join_table([(b"x-delay", value)]), b"", 131072)


def headers_in(data: bytes) -> dict[str, Value]:
    size: int = struct.unpack_from(">I", data, 3)[0]
    return decode_header(data[7 : 7 + size])[0].headers or {}


# -- the header ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "delay_ms"),
    [
        (b"b\x05", 5), (b"B\xff", 255), (b"s\x01\x00", 256), (b"u\xff\xff", 65535), (b"I\x00\x00\x13\x88", 5000),
        (b"i\xff\xff\xff\xff", 4_294_967_295), (b"l" + struct.pack(">q", 315_360_000_000), 315_360_000_000),
        (b"S\x00\x00\x00\x045000", 5000), (b"S\x00\x00\x00\x03+50", 50), (b"d" + struct.pack(">d", 1500.9), 1500),
        (b"f" + struct.pack(">f", 2.5), 2), (b"D\x01" + struct.pack(">i", 125), 12),
        (b"I\x00\x00\x00\x00", 0), (b"I\xff\xff\xff\xff", 0), (b"S\x00\x00\x00\x02-5", 0), (b"d" + bytes(8), 0),
        (b"t\x01", 0), (b"V", 0), (b"T" + bytes(7) + b"\x09", 0), (b"F\x00\x00\x00\x00", 0), (b"A\x00\x00\x00\x00", 0),
        (b"x\x00\x00\x00\x015", 0),
    ],
)  # fmt: skip
def test_the_delay_may_be_any_number(value: bytes, delay_ms: int) -> None:
    assert delay_us_of(raw_content(value)) == delay_ms * MS


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("soon", "invalid x-delay 'soon': no_integer"),
        ("", "invalid x-delay '': no_integer"),
        ("1.5", "invalid x-delay '1.5': no_integer"),
        ("\u0665", "invalid x-delay '\u0665': no_integer"),
        (float("nan"), "invalid x-delay 'nan': no_integer"),
        (float("inf"), "invalid x-delay 'inf': no_integer"),
        (315_360_000_001, "invalid x-delay '315360000001': {value_too_large,315360000001}"),
        ("9" * 30, f"invalid x-delay '{'9' * 30}': {{value_too_large,{'9' * 30}}}"),
    ],
)
def test_a_delay_that_cannot_be_is_refused(value: Value, text: str) -> None:
    with pytest.raises(ProtocolError) as error:
        delay_us_of(content({"x-delay": value}))
    assert (error.value.code, error.value.text) == (406, text)


@pytest.mark.parametrize("headers", [None, {}, {"y-delay": 5}, {"a": "\x07x-delayI\x00\x00\x00\x05"}, {"x-dela": 5}])
def test_without_the_header_nothing_is_held(headers: dict[str, Value] | None) -> None:
    assert delay_us_of(content(headers, content_type="t", content_encoding="e")) == 0
    assert released(content(headers)) == content(headers)


@pytest.mark.parametrize("delay_ms", [5000, "5000", 2**31, 2**31 - 1, 2**31 + 1, 12.7, "+7"])
def test_the_delay_is_negated_when_it_is_over(delay_ms: Value) -> None:
    others: dict[str, Value] = {"a": "b", "x-delay": delay_ms, "z": [1, {"x-delay": 3}]}
    after = released(content(others, content_type="t", content_encoding="e", priority=3))
    assert headers_in(after) == others | {"x-delay": -int(delay_ms)}  # type: ignore[arg-type]
    assert after == content(headers_in(after), content_type="t", content_encoding="e", priority=3)
    assert delay_us_of(after) == 0


# -- routing -------------------------------------------------------------------------------------------------------


def test_a_message_comes_when_it_is_due_and_not_before() -> None:
    bench = Bench()
    client = opened(bench)
    send(client, b"late", 5000)
    send(client, b"soon", 1000)
    send(client, b"now", 0)
    assert fetch(client) == [b"now"]
    bench.pass_time(SECOND_US - 1)
    assert fetch(client) == []
    bench.pass_time(1)
    assert fetch(client) == [b"soon"]
    bench.pass_time(4 * SECOND_US - 1)
    assert fetch(client) == []
    bench.pass_time(1)
    assert fetch(client) == [b"late"]
    assert bench.broker.timers.next_us() == 0


@pytest.mark.parametrize(
    ("kind", "key", "arguments", "taken"),
    [
        ("direct", "k", {}, True),
        ("direct", "other", {}, False),
        ("topic", "*.#", {}, True),
        ("fanout", "other", {}, True),
        ("headers", "", {"x-match": "any", "colour": "red"}, True),
        ("headers", "", {"x-match": "any", "colour": "blue"}, False),
        ("headers", "", {"x-match": "all-with-x", "x-delay": -1000}, True),
    ],
)
def test_it_routes_by_its_delayed_type(kind: str, key: str, arguments: dict[str, object], taken: bool) -> None:
    bench = Bench()
    client = bench.connect()
    declare(client, kind=kind)
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    client.send(1, grammar.QUEUE_BIND, queue="q", exchange="d", routing_key=key, arguments=arguments)
    for delay_ms in (0, 1000):
        headers: dict[str, Value] = {"x-delay": delay_ms, "colour": "red"}
        client.publish("k", b"%d" % delay_ms, exchange="d", headers=headers)
    at_once = fetch(client)
    bench.pass_time(SECOND_US)
    assert fetch(client) == ([b"1000"] if taken else [])
    assert at_once == ([b"0"] if taken and "x-delay" not in arguments else [])


def test_the_bindings_that_count_are_those_of_the_moment_when_a_message_is_due() -> None:
    bench = Bench()
    client = opened(bench)
    send(client, b"one", 1000)
    send(client, b"two", 1000, key="later")
    client.send(1, grammar.QUEUE_UNBIND, queue="q", exchange="d", routing_key="k")
    bind(client, queue="r", key="later")
    bench.pass_time(SECOND_US)
    assert (fetch(client, "q"), fetch(client, "r")) == ([], [b"two"])


def test_copies_go_along_and_blind_ones_stay_blind() -> None:
    bench = Bench()
    client = opened(bench)
    for name in ("cc", "bcc"):
        bind(client, queue=name, key=name)
    headers: dict[str, Value] = {"x-delay": 1000, "CC": ["cc"], "BCC": ["bcc"]}
    client.publish("k", b"copied", exchange="d", headers=headers)
    assert [fetch(client, name) for name in ("q", "cc", "bcc")] == [[], [], []]
    send(client, b"alone", 1500)
    bench.pass_time(SECOND_US)
    client.frames()
    for name in ("q", "cc", "bcc"):
        client.send(1, grammar.BASIC_GET, queue=name, no_ack=True)
        header, body = [frame.payload for frame in client.frames()][1:]
        assert decode_header(header)[0].headers == {"x-delay": -1000, "CC": ["cc"]}
        assert body == b"copied"
    bench.pass_time(SECOND_US)
    assert [fetch(client, name) for name in ("q", "cc", "bcc")] == [[b"alone"], [], []]


def test_what_is_held_is_not_returned_and_dropped_if_nobody_wants_it_in_the_end() -> None:
    bench = Bench()
    client = opened(bench)
    told: list[str] = []
    bench.broker.on_event = told.append
    send(client, b"x", 1000, key="nobody", mandatory=True)
    assert client.frames() == []
    send(client, b"y", 0, key="nobody", mandatory=True)
    assert [method.name for method in client.methods()] == ["basic.return"]
    send(client, b"z", 1000, key="nobody")
    bench.sync()
    vhost = bench.broker.vhosts["/"]
    assert bench.broker.log.live() == 2
    bench.pass_time(SECOND_US)
    assert vhost.discards == {"delayed message without a route": 2}
    text = "exchange 'd' in vhost '/': delayed message without a route: the message is dropped"
    assert told == [f"{text} (logged once; all are counted)"]
    assert bench.broker.log.live() == 0


def test_the_alternate_exchange_gets_what_no_binding_takes_when_it_is_due() -> None:
    bench = Bench()
    client = bench.connect()
    declare(client, alternate_exchange="amq.fanout")
    bind(client, exchange="amq.fanout")
    send(client, b"x", 1000)
    assert fetch(client) == []
    bench.pass_time(SECOND_US)
    assert fetch(client) == [b"x"]


def test_a_message_that_comes_over_a_binding_is_held_and_one_that_goes_over_one_is_not_held_again() -> None:
    bench = Bench()
    client = opened(bench)
    declare(client, "second")
    bind(client, queue="r", exchange="second")
    bind(client, queue="at once", exchange="amq.direct")
    for source, destination in (("amq.direct", "d"), ("d", "second")):
        client.send(1, grammar.EXCHANGE_BIND, source=source, destination=destination, routing_key="k")
    send(client, b"x", 1000, exchange="amq.direct")
    assert [fetch(client, name) for name in ("at once", "q", "r")] == [[b"x"], [], []]
    bench.pass_time(SECOND_US)
    client.frames()
    for queue in ("q", "r"):
        client.send(1, grammar.BASIC_GET, queue=queue, no_ack=True)
        method, header, body = [frame.payload for frame in client.frames()]
        # as it was published, whichever way it took
        assert b"\x0aamq.direct\x01k" in method
        assert decode_header(header)[0].headers == {"x-delay": -1000}
        assert body == b"x"


def test_a_dead_letter_is_held_and_is_never_in_two_places() -> None:
    bench = Bench()
    client = opened(bench)
    arguments = {"x-dead-letter-exchange": "d", "x-dead-letter-routing-key": "k"}
    client.queue("work", durable=True, arguments=arguments)
    send(client, b"again", 2000, exchange="", key="work")
    bench.sync()
    client.send(1, grammar.BASIC_GET, queue="work")
    client.send(1, grammar.BASIC_REJECT, delivery_tag=1, requeue=False)
    assert bench.sync()[0] == 7  # HOP
    assert bench.broker.log.live() == 1
    client.frames()
    bench.pass_time(2 * SECOND_US - 1)
    assert fetch(client) == []
    bench.pass_time(1)
    client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    header = [frame.payload for frame in client.frames()][1]
    headers = decode_header(header)[0].headers or {}
    assert headers["x-delay"] == -2000
    assert headers["x-first-death-queue"] == "work"
    bench.sync()
    assert bench.broker.log.live() == 0


def test_an_exchange_with_the_name_of_the_queue_in_which_a_message_died_is_no_circle() -> None:
    bench = Bench()
    client = opened(bench)
    client.queue("d", durable=True, arguments={"x-message-ttl": 100, "x-dead-letter-exchange": "d"})
    client.send(1, grammar.QUEUE_BIND, queue="q", exchange="d", routing_key="d")
    send(client, b"x", 1000, exchange="", key="d")
    bench.pass_time(SECOND_US // 10)
    assert fetch(client) == []
    bench.pass_time(SECOND_US)
    assert fetch(client) == [b"x"]


def test_a_dead_letter_that_goes_to_a_queue_and_to_a_delayed_exchange_leaves_once() -> None:
    bench = Bench()
    client = opened(bench)
    client.send(1, grammar.EXCHANGE_DECLARE, exchange="both", type="fanout", durable=True)
    client.send(1, grammar.EXCHANGE_BIND, source="both", destination="d", routing_key="")
    bind(client, queue="full", exchange="both")
    client.queue("refuses", durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    client.send(1, grammar.QUEUE_BIND, queue="refuses", exchange="both", routing_key="")
    arguments = {"x-dead-letter-exchange": "both", "x-dead-letter-routing-key": "k"}
    client.queue("work", durable=True, arguments=arguments)
    send(client, b"x", 2000, exchange="", key="work")
    client.send(1, grammar.BASIC_GET, queue="work")
    client.send(1, grammar.BASIC_REJECT, delivery_tag=1, requeue=False)
    client.frames()
    assert bench.broker.log.live() == 2
    assert fetch(client, "full") == [b"x"]
    bench.pass_time(2 * SECOND_US)
    assert fetch(client) == [b"x"]
    assert bench.broker.log.live() == 0


def test_a_time_to_live_begins_when_the_message_is_routed() -> None:
    bench = Bench()
    client = opened(bench)
    send(client, b"x", 5000, expiration="1000")
    bench.pass_time(6 * SECOND_US)  # late
    queue = bench.broker.vhosts["/"].queues["q"]
    bench.pass_time(SECOND_US - 1)
    assert queue.count() == 1
    bench.pass_time(1)
    assert queue.count() == 0


# -- confirms and transactions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("delivery_mode", [1, 2])
def test_a_confirm_says_that_the_message_is_held_on_disk_if_the_exchange_is_durable(
    durable: bool, delivery_mode: int
) -> None:
    bench = Bench()
    client = opened(bench, durable=durable)
    client.send(1, grammar.CONFIRM_SELECT)
    client.frames()
    send(client, b"x", 1000, delivery_mode=delivery_mode)
    before = [method.name for method in client.methods()]
    bench.sync()
    after = [method.name for method in client.methods()]
    assert (before, after) == (([], ["basic.ack"]) if durable else (["basic.ack"], []))


def test_in_a_transaction_the_delay_begins_with_the_commit() -> None:
    bench = Bench()
    client = opened(bench)
    client.send(1, grammar.TX_SELECT)
    send(client, b"kept", 1000)
    send(client, b"at once", 0)
    bench.pass_time(10 * SECOND_US)
    client.queue("more")  # changes the routes
    client.queue("d")  # named like the exchange
    client.send(1, grammar.TX_COMMIT)
    bench.sync()
    client.frames()
    assert fetch(client) == [b"at once"]
    bench.pass_time(SECOND_US - 1)
    assert fetch(client) == []
    bench.pass_time(1)
    assert fetch(client) == [b"kept"]
    assert fetch(client, "d") == []


def test_a_transaction_whose_exchange_has_gone_holds_nothing() -> None:
    bench = Bench()
    client = opened(bench)
    client.send(1, grammar.TX_SELECT)
    send(client, b"x", 1000)
    client.send(1, grammar.EXCHANGE_DELETE, exchange="d")
    client.send(1, grammar.TX_COMMIT)
    bench.sync()
    client.frames()
    bench.pass_time(SECOND_US)
    assert fetch(client) == []
    assert bench.broker.log.live() == 0
