"""Each quota is enforced with its error, and other clients are unaffected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leveret.broker.access.quotas import QUOTAS
from leveret.broker.broker import Broker, Settings
from leveret.net.connections.admission import Admission
from leveret.wire import grammar
from leveret.wire.grammar import MethodSpec

from .support import Bench, Client, recovered


def bench_with(**quotas: int) -> tuple[Bench, Client]:
    bench = Bench(Settings(quotas=quotas))
    return bench, bench.connect()


def refusal(client: Client, spec: MethodSpec, **values: object) -> tuple[str, int, str]:
    """Return name, reply code and reply text of the answer."""
    answer = client.call(1, spec, **values)
    return answer.name, answer.number("reply_code"), answer.text("reply_text")


def test_consumers_of_a_channel() -> None:
    bench, client = bench_with(consumer_max_per_channel=2)
    client.queue("q")
    for _ in range(2):
        assert client.call(1, grammar.BASIC_CONSUME, queue="q").spec is grammar.BASIC_CONSUME_OK
    client.call(2, grammar.CHANNEL_OPEN)
    assert client.call(2, grammar.BASIC_CONSUME, queue="q").spec is grammar.BASIC_CONSUME_OK
    other = bench.connect()
    text = "NOT_ALLOWED - reached maximum (2) of consumers per channel"
    assert refusal(client, grammar.BASIC_CONSUME, queue="q") == ("connection.close", 530, text)
    assert other.call(1, grammar.BASIC_CONSUME, queue="q").spec is grammar.BASIC_CONSUME_OK


def test_who_cancels_may_consume_again() -> None:
    _, client = bench_with(consumer_max_per_channel=1)
    client.queue("q")
    for _ in range(3):
        tag = client.call(1, grammar.BASIC_CONSUME, queue="q").text("consumer_tag")
        client.call(1, grammar.BASIC_CANCEL, consumer_tag=tag)


def test_queues_of_a_virtual_host() -> None:
    bench, client = bench_with(queue_max_per_vhost=2)
    client.queue("one")
    client.queue("two")
    client.queue("two")
    text = "PRECONDITION_FAILED - cannot declare queue 'three': queue limit in vhost '/' (2) is reached"
    assert refusal(client, grammar.QUEUE_DECLARE, queue="three") == ("channel.close", 406, text)
    other = bench.connect()
    other.call(1, grammar.QUEUE_DELETE, queue="one")
    other.queue("three")


@pytest.mark.parametrize(("own", "counts"), [(1, 1), (5, 2)])
def test_the_smaller_limit_of_queues_counts(own: int, counts: int) -> None:
    bench, client = bench_with(queue_max_per_vhost=2)
    bench.broker.vhosts["/"].limit({"max-queues": own})
    for number in range(counts):
        client.queue(f"q{number}")
    assert f"({counts})" in refusal(client, grammar.QUEUE_DECLARE, queue="more")[2]


def test_exchanges_of_a_virtual_host() -> None:
    """The predeclared ones count."""
    bench, client = bench_with(exchange_max_per_vhost=7)
    for _ in range(2):
        client.call(1, grammar.EXCHANGE_DECLARE, exchange="one", type="direct")
    text = "PRECONDITION_FAILED - cannot declare exchange 'two' in vhost '/': exchange limit of 7 is reached"
    assert refusal(client, grammar.EXCHANGE_DECLARE, exchange="two", type="direct") == ("channel.close", 406, text)
    other = bench.connect()
    other.call(1, grammar.EXCHANGE_DELETE, exchange="one")
    other.call(1, grammar.EXCHANGE_DECLARE, exchange="two", type="direct")


def test_bindings_of_a_virtual_host() -> None:
    bench, client = bench_with(binding_max_per_vhost=2)
    client.queue("q", durable=True)
    values: dict[str, object] = {"queue": "q", "exchange": "amq.topic"}
    for key in ("a", "b", "b"):
        client.call(1, grammar.QUEUE_BIND, routing_key=key, **values)
    text = (
        "PRECONDITION_FAILED - cannot bind queue 'q' to exchange 'amq.topic': binding limit in vhost '/' (2) is reached"
    )
    assert refusal(client, grammar.QUEUE_BIND, routing_key="c", **values) == ("channel.close", 406, text)
    other = bench.connect()
    text = text.replace("bind queue 'q'", "bind exchange 'amq.fanout'")
    found = refusal(other, grammar.EXCHANGE_BIND, source="amq.topic", destination="amq.fanout")
    assert found == ("channel.close", 406, text)
    third = bench.connect()
    third.call(1, grammar.QUEUE_UNBIND, routing_key="a", **values)
    third.call(1, grammar.QUEUE_BIND, routing_key="c", **values)
    again = recovered(bench.batches)
    assert again.broker.vhosts["/"].binding_count == bench.broker.vhosts["/"].binding_count == 2
    third.call(1, grammar.QUEUE_DELETE, queue="q")
    assert bench.broker.vhosts["/"].binding_count == 0


def test_words_of_patterns_that_a_routing_key_is_compared_with() -> None:
    bench, client = bench_with(topic_words_max_per_exchange=10)
    client.queue("q", durable=True)
    values: dict[str, object] = {"queue": "q", "exchange": "amq.topic"}
    for number in range(50):
        client.call(1, grammar.QUEUE_BIND, routing_key=f"orders.{number}", **values)  # a routing key matches only one
    for key in ("#.a.#.a.#", "#.a.#.a.#"):
        client.call(1, grammar.QUEUE_BIND, routing_key=key, **values)
    text = (
        "PRECONDITION_FAILED - cannot bind queue 'q' to exchange 'amq.topic': one routing key would be compared with "
        "more than 10 words of its patterns (topic_words_max_per_exchange)"
    )
    found = refusal(client, grammar.QUEUE_BIND, routing_key="#.b.#.a.*", **values)
    assert found == ("channel.close", 406, text)
    other = bench.connect()
    other.call(1, grammar.QUEUE_UNBIND, routing_key="#.a.#.a.#", **values)
    other.call(1, grammar.QUEUE_BIND, routing_key="#.b.#.a.*", **values)
    other.call(1, grammar.QUEUE_BIND, routing_key="orders.x", **values)
    assert recovered(bench.batches).broker.vhosts["/"].binding_count == 52


def test_no_limit_is_minus_one() -> None:
    _, client = bench_with(**dict.fromkeys(QUOTAS, -1))
    client.queue("q")
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type="direct")
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="x", routing_key="k")
    client.call(1, grammar.BASIC_CONSUME, queue="q")
    assert Admission(Broker(Settings(quotas=dict.fromkeys(QUOTAS, -1)), bytes)).admit("10.0.0.1", 0)


def test_the_table_of_limits_is_the_one_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/limits.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| (-?\d+) \|", text, re.MULTILINE))
    assert told == {name: str(default) for name, (default, _) in QUOTAS.items()}
    for what in (what for _, what in QUOTAS.values()):
        assert f"| {what} |" in text
