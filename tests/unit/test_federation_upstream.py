"""x-federation-upstream on every way that a message can take to it; tests/conformance compares it with RabbitMQ's."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.exchange_types.federation_upstream import first_hops
from leveret.broker.messages.message_batch import MessageBatch
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, encode_header
from leveret.wire.table import Value

from .support import Bench, Client, recovered


@pytest.fixture
def bench() -> Bench:
    return Bench()


ARGUMENTS: dict[str, Value] = {"x-downstream-name": "hq", "x-downstream-vhost": "/"}


def hop(name: str, vhost: str = "/") -> dict[str, Value]:
    return {"cluster-name": name, "vhost": vhost, "exchange": "x", "redelivered": False}


def headers(*hops: Mapping[str, Value]) -> dict[str, Value]:
    return {"x-received-from": list(hops)}


def upstream(client: Client, max_hops: int = 2, queue: str = "upstream", **values: object) -> None:
    """Declare the exchange "x", with `queue` for what goes downstream, and with "local" for all messages."""
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type="fanout", durable=True)
    # the grammar's encoder would use 32 bits for a small number
    body = method_frame(1, grammar.EXCHANGE_DECLARE, exchange="x B", type="x-federation-upstream", durable=True,
                        internal=True, auto_delete=True, arguments={"x-max-hops": 1 << 40, **ARGUMENTS})  # fmt: skip
    client.raw(body.replace((1 << 40).to_bytes(8, "big"), max_hops.to_bytes(8, "big")))
    client.bench.sync()
    client.queue(queue, durable=True, **values)
    client.queue("local")
    client.call(1, grammar.QUEUE_BIND, exchange="x B", queue=queue)
    client.call(1, grammar.QUEUE_BIND, exchange="x", queue="local")
    client.call(1, grammar.EXCHANGE_BIND, source="x", destination="x B", routing_key="k")


def waiting(client: Client, queue: str) -> list[bytes]:
    found = [entry.content for entry in client.bench.broker.vhosts["/"].queues[queue].in_memory()]
    return [content[content.index(b"\xce\x03") + 8 : -1] for content in found]


def test_only_what_may_go_on_goes_on(bench: Bench) -> None:
    client = bench.connect()
    upstream(client)
    for number, value in enumerate((
        None, {}, headers(), headers(hop("a")), headers(hop("a"), hop("b")), headers(hop("hq")),
        headers(hop("hq", "other")), {"x-received-from": "text"}, {"note": "x-received-from"},
    )):  # fmt: skip
        client.publish("k", str(number).encode(), exchange="x", headers=value)
    assert waiting(client, "upstream") == [b"0", b"1", b"2", b"3", b"6", b"7", b"8"]
    assert waiting(client, "local") == [str(number).encode() for number in range(9)]


def test_what_has_not_come_over_a_link_is_handled_in_runs(bench: Bench) -> None:
    client = bench.connect()
    upstream(client)
    plain = b"".join(message(str(number).encode(), {"a": "b"}) for number in range(3))
    client.raw(plain + message(b"x", headers(hop("hq"))) * 2 + message(b"y", headers(hop("a"))) * 2 + plain)
    assert waiting(client, "upstream") == [b"0", b"1", b"2", b"y", b"y", b"0", b"1", b"2"]
    assert len(waiting(client, "local")) == 10
    message_list = bench.broker.vhosts["/"].queues["upstream"].message_list
    assert [type(item) for item in message_list.ready.items()].count(MessageBatch) == 3


def test_what_has_come_over_one_link_is_handled_in_runs(bench: Bench) -> None:
    client = bench.connect()
    upstream(client)
    near, far = headers(hop("a")), headers(hop("a"), hop("b"))
    here = headers(hop("hq"))
    client.raw(
        b"".join(message(body, values) * 3 for body, values in ((b"1", near), (b"2", far), (b"3", here), (b"4", near)))
    )
    client.raw(message(b"5", {"a": 1, **near}) + message(b"6", {"a": 1, **here}) + message(b"7", {}))
    assert waiting(client, "upstream") == [b"1"] * 3 + [b"4"] * 3 + [b"5", b"7"]
    assert len(waiting(client, "local")) == 15
    message_list = bench.broker.vhosts["/"].queues["upstream"].message_list
    assert [type(item) for item in message_list.ready.items()].count(MessageBatch) == 2
    client.call(1, grammar.QUEUE_UNBIND, exchange="x B", queue="upstream")
    client.raw(message(b"8", near))
    assert len(waiting(client, "upstream")) == 8


@given(st.binary(max_size=40))
def test_hops_are_found_in_headers_or_nothing_is_said(octets: bytes) -> None:
    name = b"\x0fx-received-from"
    for inside in (octets, name + octets, name + b"A" + octets):
        table = len(inside).to_bytes(4, "big") + inside
        found = first_hops(b"abc" + table, 3)
        assert found == b"" or (found[:1] == b"A" and inside.startswith(name + found))
        assert found == b"" or len(found) == 5 + int.from_bytes(found[1:5], "big")


def message(body: bytes, values: dict[str, Value]) -> bytes:
    method = method_frame(1, grammar.BASIC_PUBLISH, exchange="x", routing_key="k")
    return method + content_frames(1, encode_header(Properties(headers=values), len(body)), body, 131072)


def test_what_reaches_nothing_else_comes_back_to_its_publisher(bench: Bench) -> None:
    client = bench.connect()
    upstream(client)
    client.call(1, grammar.QUEUE_DELETE, queue="local")
    for value in (None, headers(hop("hq")), headers(hop("a"))):
        client.publish("k", exchange="x", mandatory=True, headers=value)
    assert [method.spec.name for method in client.methods()] == ["basic.return"]
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="end", type="fanout")
    client.call(1, grammar.EXCHANGE_BIND, source="x B", destination="end")  # or it would be deleted with its last queue
    client.call(1, grammar.QUEUE_DELETE, queue="upstream")
    client.publish("k", exchange="x", mandatory=True)
    assert [method.spec.name for method in client.methods()] == ["basic.return"]
    client.publish("k", exchange="x", mandatory=True, headers=headers(hop("a")))
    assert [method.spec.name for method in client.methods()] == ["basic.return"]


def test_copies_and_transactions_and_dead_letters_are_looked_at(bench: Bench) -> None:
    client = bench.connect()
    upstream(client)
    client.publish("other", b"cc", exchange="x", headers={"CC": ["k"], **headers(hop("hq"))})
    client.publish("other", b"both", exchange="x", headers={"CC": ["k"], **headers(hop("a"))})
    client.publish("other", b"plain", exchange="x", headers={"CC": ["k"]})
    assert waiting(client, "upstream") == [b"both", b"plain"]
    onward: dict[str, Value] = {"x-dead-letter-exchange": "x", "x-dead-letter-routing-key": "k"}
    client.queue("dying", arguments={"x-message-ttl": 0, **onward})
    client.publish("dying", b"dead", headers=headers(hop("hq")))
    client.publish("dying", b"alive", headers=headers(hop("a")))
    bench.pass_time(1)
    assert waiting(client, "upstream") == [b"both", b"plain", b"alive"]
    client.call(1, grammar.TX_SELECT)
    client.publish("k", b"t", exchange="x", headers=headers(hop("hq")))
    client.publish("k", b"u", exchange="x")
    client.publish("k", b"v", exchange="x", headers=headers(hop("a")))
    client.call(1, grammar.TX_COMMIT)
    assert waiting(client, "upstream")[3:] == [b"u", b"v"]


def test_the_firehose_hears_of_each_message(bench: Bench) -> None:
    client = bench.connect()
    upstream(client)
    client.queue("trace")
    client.call(1, grammar.QUEUE_BIND, queue="trace", exchange="amq.rabbitmq.trace", routing_key="publish.#")
    bench.broker.trace("/", True)
    client.raw(message(b"1", {}) * 3 + message(b"2", headers(hop("hq"))))
    assert len(waiting(client, "trace")) == 4
    assert len(waiting(client, "upstream")) == 3


def test_it_comes_back_from_the_journal(bench: Bench) -> None:
    client = bench.connect()
    upstream(client)
    again = recovered([b"".join(bench.broker.snapshot()), *bench.batches]).connect()
    again.queue("local")
    for value in (headers(hop("hq")), headers(hop("a")), headers(hop("a"), hop("b"))):
        again.publish("k", str(len(str(value))).encode(), exchange="x", headers=value)
    assert len(waiting(again, "upstream")) == 1


def test_that_an_exchange_looks_at_hops_is_found_out_once(bench: Bench) -> None:
    """A link may have bound the exchange with 40,000 keys, and each key has a route of its own."""
    client = bench.connect()
    upstream(client)
    vhost = bench.broker.vhosts["/"]
    client.publish("k", exchange="x", headers=headers(hop("hq")))
    assert vhost.hop_bound == {"x"}
    client.call(1, grammar.EXCHANGE_UNBIND, source="x", destination="x B", routing_key="k")
    client.publish("k", exchange="x", headers=headers(hop("hq")))
    assert (vhost.hop_bound, vhost.plain) == (set(), {"x"})
