"""The matchers of the exchange types against naive models, and what the journal restores of exchanges."""

from __future__ import annotations

import functools
import random
import struct
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.recent_history import (
    HISTORY_OCTETS_MAX,
    KEPT_OCTETS,
    SNAPSHOT_OCTETS_MAX,
    RecentHistory,
)
from leveret.broker.exchange_types.topic import Topic, TrieNode
from leveret.broker.exchanges import routing
from leveret.broker.exchanges.binding import Binding, bindings_to
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.queues.queue import Queue
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.properties import Properties, encode_header, replace_property
from leveret.wire.table import Value, encode_value, join_table

from .support import Bench, Client, recovered

NO_ARGUMENTS = b"\0\0\0\0"


QUEUE = Queue(Bench().broker.vhosts["/"], "q", False, False, {})


def exchange(kind: str, arguments: dict[str, Value] | None = None) -> Exchange:
    return Exchange("x", kind, False, False, False, arguments or {}, lambda count: b"\7" * count)


def bind(source: Exchange, name: str, key: str, arguments: bytes = NO_ARGUMENTS) -> Binding:
    vhost = Bench().broker.vhosts["/"]
    binding = Binding(source, Queue(vhost, name, False, False, {}), key, arguments)
    source.add(binding)
    return binding


def found(source: Exchange, *keys: str, content: bytes = b"") -> set[str]:
    return {binding.destination.name for binding in source.matcher.match(Envelope(list(keys), b"", content))}


# -- topic -----------------------------------------------------------------------------------------------------------


@functools.cache
def takes(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Match a topic literally as the specification says."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return takes(pattern[1:], words) or (bool(words) and takes(pattern, words[1:]))
    is_alike = bool(words) and (pattern[0] == "*" or pattern[0] == words[0])
    return is_alike and takes(pattern[1:], words[1:])


def split(key: str) -> tuple[str, ...]:
    return tuple(key.split(".")) if key else ()


patterns = st.lists(st.sampled_from(["a", "b", "", "*", "#", "#", "a*", "é"]), max_size=6).map(".".join)
keys = st.lists(st.sampled_from(["a", "b", "", "é", "a*", "c"]), max_size=6).map(".".join)


@given(st.lists(patterns, max_size=12, unique=True), st.lists(keys, max_size=6), st.data())
@settings(deadline=None, max_examples=300)
def test_topics_match_as_the_model_does(bound: list[str], sent: list[str], data: st.DataObject) -> None:
    topic = exchange("topic")
    bindings = {pattern: bind(topic, pattern, pattern) for pattern in bound}
    gone = data.draw(st.lists(st.sampled_from(bound), unique=True)) if bound else []
    for pattern in gone:
        topic.remove(bindings.pop(pattern))
    for key in sent:
        assert found(topic, key) == {pattern for pattern in bindings if takes(split(pattern), split(key))}
    if sent:
        assert found(topic, *sent) == {p for p in bindings if any(takes(split(p), split(key)) for key in sent)}
    for binding in bindings.values():
        topic.remove(binding)
    assert found(topic, "") == set()


def test_a_pattern_full_of_wildcards_costs_little() -> None:
    """255 octets of # and words: every path through the pattern is followed once, however many paths lead to it."""
    topic = exchange("topic")
    bind(topic, "short", "#.a." * 4 + "#")
    assert len(topic.matcher.match(Envelope(["a." * 8 + "c"], b"", b""))) == 1
    bind(topic, "yes", "#.a." * 63 + "#")
    bind(topic, "no", "#.a." * 63 + "b")
    assert found(topic, "a." * 127 + "c") == {"short", "yes"}


def nodes_of(node: TrieNode) -> list[TrieNode]:
    return [node] + [each for child in node.children.values() for each in nodes_of(child)]


def visited(node: TrieNode, words: tuple[str, ...], places: set[int]) -> int:
    """Count the pattern words that a key is compared with from this node on, when it has come to it at these places."""
    count = 0
    for wanted in node.words:
        count += 1
        if wanted == "#":
            places = set(range(min(places), len(words) + 1))
        else:
            places = {at + 1 for at in places if at < len(words) and wanted in ("*", words[at])}
        if not places:
            return count
    following = {"*", "#", *(words[at] for at in places if at < len(words))}
    return count + sum(visited(child, words, places) for word, child in node.children.items() if word in following)


def measured_anew(node: TrieNode, is_loose: bool) -> TrieNode:
    """Return the same node, measured from scratch."""
    fresh = TrieNode(node.words, is_loose)
    for child in node.children.values():
        fresh.put(measured_anew(child, fresh.is_loose))
    fresh.measure(None)
    return fresh


@given(st.lists(patterns, min_size=1, max_size=12, unique=True), keys, st.data())
@settings(deadline=None, max_examples=200)
def test_the_cost_of_a_topic_is_what_a_key_is_compared_with(bound: list[str], key: str, data: st.DataObject) -> None:
    """After any additions and removals, the figures are those of the remaining patterns, and no key costs more."""
    topic = exchange("topic")
    bindings = {pattern: Binding(topic, QUEUE, pattern, NO_ARGUMENTS) for pattern in bound}
    for binding in bindings.values():
        topic.add(binding)
    for pattern in data.draw(st.lists(st.sampled_from(bound), unique=True)):
        topic.remove(bindings.pop(pattern))
    matcher = topic.matcher
    assert isinstance(matcher, Topic)
    for node in nodes_of(matcher._root):
        fresh = measured_anew(node, node.is_loose)
        figures = (node.cost, node.literals, node.sum, node.peak, node.peak_count)
        assert figures == (fresh.cost, fresh.literals, fresh.sum, fresh.peak, fresh.peak_count)
        assert node is matcher._root or node.bindings is not None or len(node.children) > 1
    words = split(key)
    assert visited(matcher._root, words, {0}) <= matcher.cost


def test_patterns_of_wildcards_are_bounded_in_work_and_in_nodes() -> None:
    """Patterns of 122 words of #, * and a: places on several paths count once, and words without branches share a node.

    Beyond the limit, a further pattern is refused; cheap patterns never are.
    """
    chance = random.Random(1)
    topic = exchange("topic")
    matcher = topic.matcher
    assert isinstance(matcher, Topic)
    evil = [Binding(topic, QUEUE, ".".join(chance.choices("#*a", k=122)), NO_ARGUMENTS) for _ in range(900)]
    taken = 0
    for binding in evil:
        if not matcher.admits(binding, 65_536):
            break
        topic.add(binding)
        taken += 1
    assert 65_536 - 4 * 122 < matcher.cost <= 65_536
    assert 400 < taken < 800
    assert len(nodes_of(matcher._root)) < 3 * taken
    for number in range(2000):
        binding = Binding(exchange("topic"), QUEUE, f"*.orders.{number}", NO_ARGUMENTS)
        topic.add(binding)
    assert matcher.cost <= 65_536 + 3
    assert matcher.admits(Binding(topic, QUEUE, "a.b.c", NO_ARGUMENTS), matcher.cost)
    for binding in evil[:taken]:
        topic.remove(binding)
    assert matcher.cost == 3


# -- headers ---------------------------------------------------------------------------------------------------------

# encoded value -> what RabbitMQ compares
HEADER_VALUES: dict[bytes, object] = {
    encode_value(1): 1, b"l" + struct.pack(">q", 1): 1, encode_value(1.0): 1, b"b\1": 1, encode_value(2): 2,
    encode_value(True): "true", b"t\2": "true", encode_value("1"): b"1", encode_value(b"1"): b"1",
    encode_value("x"): b"x", encode_value([]): (), encode_value({}): (), encode_value([1]): "[I1]",
    b"A\0\0\0\2b\1": "[b1]", encode_value({"a": 1}): "{aI1}", encode_value(None): "void",
}  # fmt: skip
tables = st.dictionaries(st.sampled_from([b"a", b"b", b"c", b"x-d"]), st.sampled_from(list(HEADER_VALUES)), max_size=4)
modes = st.sampled_from(["", "all", "any", "all-with-x", "any-with-x"])


def content_of(headers: dict[bytes, bytes] | None) -> bytes:
    header = encode_header(Properties(), 1)
    if headers is not None:
        header = replace_property(header, "headers", join_table(list(headers.items())))
    return content_frames(1, header, b"x", 4096)


@given(st.lists(st.tuples(modes, tables), max_size=5), st.none() | tables)
@settings(deadline=None, max_examples=300)
def test_headers_match_as_the_model_does(
    bound: list[tuple[str, dict[bytes, bytes]]], headers: dict[bytes, bytes] | None
) -> None:
    source = exchange("headers")
    expected = set()
    for number, (mode, wanted) in enumerate(bound):
        x_match = {b"x-match": encode_value(mode)} if mode else {}
        bind(source, str(number), "", join_table([*x_match.items(), *wanted.items()]))
        hits = [
            name in (headers or {})
            and HEADER_VALUES[value] in ("void", HEADER_VALUES[(headers or {})[name]])
            for name, value in wanted.items()
            if mode.endswith("-x") or not name.startswith(b"x-")
        ]
        if any(hits) if mode.startswith("any") else all(hits):
            expected.add(str(number))
    assert found(source, "", content=content_of(headers)) == expected


# -- consistent hash ---------------------------------------------------------------------------------------------------


def owners(source: Exchange, count: int = 6000) -> list[str]:
    return [next(iter(found(source, f"key {number}"))) for number in range(count)]


def test_shares_are_as_the_weights_say() -> None:
    source = exchange("x-consistent-hash")
    weights = {"a": 1, "b": 1, "c": 2, "d": 4, "e": 7}
    for name, weight in weights.items():
        bind(source, name, str(weight))
    shares = Counter(owners(source))
    for name, weight in weights.items():
        assert abs(shares[name] / 6000 - weight / 15) < 0.03, shares


@pytest.mark.parametrize("gone", ["a", "b", "c"])
def test_whichever_goes_takes_only_its_own_share_along(gone: str) -> None:
    source = exchange("x-consistent-hash")
    bindings = {name: bind(source, name, weight) for name, weight in (("a", "3"), ("b", "1"), ("c", "2"))}
    before = owners(source)
    source.remove(bindings[gone])
    after = owners(source)
    assert all(old in (new, gone) for old, new in zip(before, after, strict=True))
    assert gone not in after
    # the other queues share what is left over
    assert len({new for old, new in zip(before, after, strict=True) if old == gone}) == 2


def test_the_order_of_bindings_and_huge_weights_change_nothing() -> None:
    first, second = exchange("x-consistent-hash"), exchange("x-consistent-hash")
    for name in ("a", "b", "c"):
        bind(first, name, "1")
    for name in ("c", "a", "b"):
        bind(second, name, "9" * 255)
    assert owners(first, 500) == owners(second, 500)
    # known values: the result must not depend on the restart, process or core
    assert "".join(owners(first, 24)) == "ababbacababacbacbbccccba"


def test_modulus_hash_does_not_know_the_order_of_bindings() -> None:
    first, second = exchange("x-modulus-hash"), exchange("x-modulus-hash")
    for name in ("a", "b", "c"):
        bind(first, name, "")
    for name in ("c", "a", "b"):
        bind(second, name, "")
    assert owners(first, 100) == owners(second, 100)
    assert set(owners(first, 100)) == {"a", "b", "c"}


def test_history_has_a_limit_in_octets() -> None:
    source = exchange("x-recent-history", {"x-recent-history-length": 1 << 40})
    matcher = source.matcher
    assert isinstance(matcher, RecentHistory)
    content = content_of(None) + b"\0" * (HISTORY_OCTETS_MAX // 4)
    for number in range(6):
        matcher.match(Envelope([str(number)], b"", content))
    assert [envelope.keys for envelope in matcher.history] == [["3"], ["4"], ["5"]]


# -- the journal -------------------------------------------------------------------------------------------------------


def both_ways(bench: Bench) -> list[Bench]:
    """Return what the journal's records restore, and what the snapshot at the start of its next file restores."""
    return [recovered(bench.batches), recovered([b"".join(bench.broker.snapshot())])]


def declare(client: Client, name: str, kind: str, **more: Value) -> None:
    client.call(1, grammar.EXCHANGE_DECLARE, **{"exchange": name, "type": kind, "durable": True} | more)


def bodies(client: Client, queue: str) -> list[bytes]:
    seen: list[bytes] = []
    while True:
        client.send(1, grammar.BASIC_GET, queue=queue, no_ack=True)
        got = client.bodies()
        if not got:
            return seen
        seen.extend(got)


def test_a_consistent_hash_is_the_same_after_a_restart() -> None:
    bench = Bench()
    client = bench.connect()
    declare(client, "hash", "x-consistent-hash", arguments={"hash-header": "h"})
    for name in ("one", "two", "three"):
        client.queue(name, durable=True)
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="hash", routing_key="7")

    def spread(client: Client) -> list[list[bytes]]:
        for number in range(60):
            client.publish("", str(number).encode(), exchange="hash", headers={"h": number})
        return [bodies(client, name) for name in ("one", "two", "three")]

    before = spread(client)
    assert min(len(each) for each in before) > 5
    for again in both_ways(bench):
        assert spread(again.connect()) == before


def test_the_types_of_a_bindings_arguments_outlive_a_restart() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q", durable=True)
    binding = Binding(
        bench.broker.vhosts["/"].exchanges["amq.headers"], bench.broker.vhosts["/"].queues["q"], "",
        join_table([(b"b", b"l" + struct.pack(">q", 1)), (b"a", b"x\0\0\0\1z")]),
    )  # fmt: skip
    bench.broker.vhosts["/"].bind(binding)
    bench.sync()
    for again in both_ways(bench):
        (found,) = bindings_to(again.broker.vhosts["/"].queues["q"])
        assert found.identity == binding.identity
        assert found.arguments == join_table([(b"a", b"x\0\0\0\1z"), (b"b", b"l" + struct.pack(">q", 1))])


def test_an_exchange_that_a_transient_binding_kept_is_there_after_a_restart() -> None:
    """The journal does not know that binding, and still must not take the exchange for unused."""
    bench = Bench()
    client = bench.connect()
    declare(client, "kept", "fanout", auto_delete=True)
    for name, durable in (("durable", True), ("transient", False), ("deleted", True)):
        client.queue(name, durable=durable)
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="kept")
    client.call(1, grammar.QUEUE_UNBIND, queue="durable", exchange="kept")
    client.call(1, grammar.QUEUE_DELETE, queue="deleted")
    assert "kept" in bench.broker.vhosts["/"].exchanges
    for again in both_ways(bench):
        assert "kept" in again.broker.vhosts["/"].exchanges


def test_exchanges_that_went_with_a_queue_do_not_come_back() -> None:
    """The journal does not record the unbinding of a queue's bindings: the queue's deletion implies it."""
    bench = Bench()
    client = bench.connect()
    for name in ("a", "b"):
        declare(client, name, "fanout", auto_delete=True)
    client.call(1, grammar.EXCHANGE_BIND, destination="b", source="a")
    client.queue("q", durable=True)
    for key in ("1", "2", "3"):
        client.call(1, grammar.QUEUE_BIND, queue="q", exchange="b", routing_key=key)
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="amq.topic", routing_key="#")
    client.call(1, grammar.QUEUE_DELETE, queue="q")
    assert bench.batches[-1].count(b"unbind") == 0
    for each in [bench, *both_ways(bench)]:
        exchanges = each.broker.vhosts["/"].exchanges
        assert "a" not in exchanges
        assert "b" not in exchanges
        assert not exchanges["amq.topic"].outgoing


def test_a_long_chain_of_exchanges_is_looked_through_and_goes_at_once() -> None:
    """The chain is longer than any call stack."""
    bench = Bench()
    client = bench.connect()
    vhost = bench.broker.vhosts["/"]
    for number in range(5000):
        vhost.add_exchange(str(number), "fanout", False, True, False, {})
    for number in range(4999):
        vhost.bind(Binding(vhost.exchanges[str(number)], vhost.exchanges[str(number + 1)], "", NO_ARGUMENTS))
    client.queue("q")
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="4999")
    client.publish("", b"through", exchange="0")
    assert bodies(client, "q") == [b"through"]
    client.call(1, grammar.QUEUE_DELETE, queue="q")
    assert [name for name in vhost.exchanges if not name.startswith("amq.")] == []


def test_the_history_of_a_durable_exchange_outlives_a_restart_once() -> None:
    """With keys and copies. The snapshot at the start of a journal file repeats what earlier files have."""
    bench = Bench()
    client = bench.connect()
    declare(client, "history", "x-recent-history", arguments={"x-recent-history-length": 10})
    declare(client, "transient", "x-recent-history", durable=False)
    declare(client, "topic", "topic")
    for number in range(5):
        headers: dict[str, Value] = {"CC": [f"cc.{number}"], "BCC": [f"bcc.{number}"]}
        client.publish("key", str(number).encode(), exchange="history", headers=headers)
        client.publish("key", b"lost", exchange="transient")
    bench.sync()
    expected = [b"%d" % number for number in range(5)]
    repeated = recovered([*bench.batches, b"".join(bench.broker.snapshot())])
    for again in [*both_ways(bench), repeated, *both_ways(repeated)[1:]]:
        reader = again.connect()
        reader.queue("q")
        reader.call(1, grammar.QUEUE_BIND, queue="q", exchange="history")
        assert bodies(reader, "q") == expected
        assert "transient" not in again.broker.vhosts["/"].exchanges
        for key in ("key", "cc.2", "bcc.3"):
            reader.call(1, grammar.QUEUE_BIND, queue="q", exchange="topic", routing_key=key)
            reader.call(1, grammar.EXCHANGE_BIND, destination="topic", source="history", routing_key=key)
            found = {"key": expected[::-1], "cc.2": [b"2"], "bcc.3": [b"3"]}[key]
            assert bodies(reader, "q") == found
            reader.call(1, grammar.QUEUE_UNBIND, queue="q", exchange="topic", routing_key=key)
        client_after = again.connect()
        client_after.publish("new", b"5", exchange="history")
        again.sync()
        history = recovered([b"".join(again.broker.snapshot())]).broker.vhosts["/"].exchanges["history"].history
        assert history is not None
        assert [kept.number for kept in history.history] == [1, 2, 3, 4, 5, 6]


def test_a_deleted_exchange_takes_its_history_along() -> None:
    bench = Bench()
    client = bench.connect()
    declare(client, "history", "x-recent-history")
    for _ in range(3):
        client.publish("", b"old", exchange="history")
    client.call(1, grammar.EXCHANGE_DELETE, exchange="history")
    declare(client, "history", "x-recent-history")
    client.publish("", b"new", exchange="history")
    bench.sync()
    for again in both_ways(bench):
        reader = again.connect()
        reader.queue("q")
        reader.call(1, grammar.QUEUE_BIND, queue="q", exchange="history")
        assert bodies(reader, "q") == [b"new"]


def test_a_confirm_waits_for_the_history() -> None:
    """The message is kept nowhere else. Without a stored history the confirm does not wait."""
    bench = Bench()
    client = bench.connect()
    declare(client, "history", "x-recent-history")
    declare(client, "transient", "x-recent-history", durable=False)
    client.queue("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    client.call(1, grammar.CONFIRM_SELECT)
    client.publish("", exchange="transient")
    client.publish("", exchange="history", headers={"x-recent-history-no-store": True})
    assert [method.number("delivery_tag") for method in client.methods()] == [1, 2]
    client.publish("", exchange="history")
    assert client.methods() == []
    bench.sync()
    assert [method.number("delivery_tag") for method in client.methods()] == [3]
    client.call(1, grammar.QUEUE_BIND, queue="full", exchange="history")
    client.publish("", exchange="history")
    bench.sync()
    assert [method.name for method in client.methods()] == ["basic.nack"]


def test_a_journal_file_begins_with_what_it_has_room_for_of_all_histories() -> None:
    bench = Bench()
    vhost = bench.broker.vhosts["/"]
    content = content_of(None) + b"\0" * (SNAPSHOT_OCTETS_MAX // 8)
    for name in ("one", "two"):
        vhost.add_exchange(name, "x-recent-history", True, False, False, {})
        for number in range(6):
            routing.targets(vhost, vhost.exchanges[name], Envelope([str(number)], b"\1x\1k", content))
    assert SNAPSHOT_OCTETS_MAX // 2 < len(b"".join(bench.broker.snapshot())) < SNAPSHOT_OCTETS_MAX + 5000
    again = recovered([b"".join(bench.broker.snapshot())]).broker.vhosts["/"]
    for name in ("one", "two"):
        history = again.exchanges[name].history
        assert history is not None
        assert [kept.number for kept in history.history] == [4, 5, 6]


def test_exchanges_are_asked_for_each_message_only_while_a_headers_exchange_is_behind_them() -> None:
    bench = Bench()
    client = bench.connect()
    vhost = bench.broker.vhosts["/"]
    declare(client, "source", "fanout")
    for _ in range(2):
        declare(client, "behind", "headers")
        client.call(1, grammar.EXCHANGE_BIND, destination="behind", source="source")
        assert routing.find(vhost, vhost.exchanges["source"], b"", ["key"]).is_per_message
        client.call(1, grammar.EXCHANGE_DELETE, exchange="behind")
        assert not routing.find(vhost, vhost.exchanges["source"], b"", ["key"]).is_per_message


def test_a_history_of_small_messages_keeps_within_its_limit_in_memory() -> None:
    history = RecentHistory({}, {"x-recent-history-length": 1 << 40}, bytes)
    envelope = Envelope(["k"], b"\0\1k", content_frames(1, encode_header(Properties(), 1), b"x", 131072))
    most = HISTORY_OCTETS_MAX // (KEPT_OCTETS + len(envelope.content))
    for _ in range(int(most) + 100):
        history.match(envelope)
    assert len(history.history) == most
