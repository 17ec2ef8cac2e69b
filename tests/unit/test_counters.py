"""The broker's counters against a model that counts what clients see."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.counters import FIELDS, Counters
from leveret.broker.queues.census import Census
from leveret.broker.queues.queue import Queue
from leveret.broker.totals import Totals
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import decode_method, method_frame
from leveret.wire.properties import Properties, encode_header

from .support import SECOND_US, Bench, Client

# routing key -> the queues that it is bound to
ROUTES = {"one": ["a"], "both": ["a", "b"], "none": []}
QUEUES = ("a", "b", "dead")


class Scene:
    """A publisher, and a consumer with two consumers on each queue except that of dead letters; counts what both
    see."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.publisher = self.bench.connect()
        self.consumer = self.bench.connect()
        self.seen: dict[str, Counter[str]] = {name: Counter() for name in (*QUEUES, "publisher", "consumer", "all")}
        self.passed: Counter[str] = Counter()
        self.tags: dict[str, tuple[str, bool]] = {}  # consumer tag -> queue, whether without acknowledgements
        self.unacked: list[tuple[int, str]] = []
        self.gone = False
        client = self.publisher
        client.call(1, grammar.CONFIRM_SELECT)
        client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type="direct")
        client.queue("a", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}, durable=True)
        client.queue("b", arguments={"x-message-ttl": 1000})
        client.queue("dead")
        for key, queues in ROUTES.items():
            for queue in queues:
                client.call(1, grammar.QUEUE_BIND, queue=queue, exchange="x", routing_key=key)

    def publish(self, key: str, count: int, mandatory: bool, persistent: bool) -> None:
        method = method_frame(1, grammar.BASIC_PUBLISH, exchange="x", routing_key=key, mandatory=mandatory)
        properties = Properties(delivery_mode=2 if persistent else 1)
        content = content_frames(1, encode_header(properties, 3), b"abc", 131072)
        self.publisher.raw((method + content) * count)
        self.bench.sync()
        self.see()
        reached = [queue for queue in ROUTES[key] if not (queue == "b" and self.gone)]
        for who in ("publisher", "all"):
            self.seen[who]["publish"] += count
            self.seen[who]["confirm"] += count
            if not reached:
                self.seen[who]["return_unroutable" if mandatory else "drop_unroutable"] += count
        for queue in reached:
            self.seen[queue]["publish"] += count
        self.passed["in"] += count
        self.passed["out"] += count * len(reached)

    def consume(self, queue: str, no_ack: bool) -> None:
        if queue == "b" and self.gone:
            return
        tag = f"t{len(self.tags)}"
        self.tags[tag] = (queue, no_ack)
        self.consumer.send(1, grammar.BASIC_CONSUME, queue=queue, consumer_tag=tag, no_ack=no_ack)
        self.see()

    def cancel(self, index: int) -> None:
        if self.tags:
            tag = sorted(self.tags)[index % len(self.tags)]
            self.consumer.send(1, grammar.BASIC_CANCEL, consumer_tag=tag)
            self.see()

    def get(self, queue: str, no_ack: bool) -> None:
        if queue == "b" and self.gone:
            return
        self.consumer.send(1, grammar.BASIC_GET, queue=queue, no_ack=no_ack)
        self.see(queue, no_ack)

    def settle(self, how: str, multiple: bool, index: int) -> None:
        if not self.unacked:
            return
        tag = self.unacked[index % len(self.unacked)][0]
        done = [pair for pair in self.unacked if (pair[0] <= tag if multiple else pair[0] == tag)]
        self.unacked = [pair for pair in self.unacked if pair not in done]
        if how == "ack":
            for _, queue in done:
                self.saw("ack", queue)
            self.consumer.send(1, grammar.BASIC_ACK, delivery_tag=tag, multiple=multiple)
        else:
            requeue = how == "requeue"
            self.consumer.send(1, grammar.BASIC_NACK, delivery_tag=tag, multiple=multiple, requeue=requeue)
        self.bench.sync()
        self.see()

    def pass_time(self) -> None:
        self.bench.pass_time(2 * SECOND_US)
        self.see()

    def delete(self) -> None:
        self.publisher.call(1, grammar.QUEUE_DELETE, queue="b")
        self.gone = True
        self.see()

    def see(self, queue: str = "", no_ack: bool = False) -> None:
        """Count what has come to both clients. `queue`, `no_ack`: of the basic.get, if there was one."""
        self.publisher.frames()
        for frame in self.consumer.frames():
            if frame.kind != 1:
                continue
            method = decode_method(frame.payload)
            if method.spec is grammar.BASIC_DELIVER:
                source, is_free = self.tags[method.text("consumer_tag")]
                self.took("deliver_no_ack" if is_free else "deliver", source, method.flag("redelivered"))
                if not is_free:
                    self.unacked.append((method.number("delivery_tag"), source))
            elif method.spec is grammar.BASIC_GET_OK:
                self.took("get_no_ack" if no_ack else "get", queue, method.flag("redelivered"))
                if not no_ack:
                    self.unacked.append((method.number("delivery_tag"), queue))
            elif method.spec is grammar.BASIC_GET_EMPTY:
                self.saw("get_empty", queue)

    def took(self, what: str, queue: str, redelivered: bool) -> None:
        self.saw(what, queue)
        if redelivered:
            self.saw("redeliver", queue)

    def saw(self, what: str, queue: str) -> None:
        for who in (queue, "consumer"):
            self.seen[who][what] += 1
        if not (queue == "b" and self.gone):
            self.seen["all"][what] += 1

    def check(self) -> None:
        vhost = self.bench.broker.vhosts["/"]
        totals = Totals(vhost)
        queues = list(vhost.queues.values())
        totals.add_queues(queues)
        totals.add_channels(list(vhost.channels))
        assert counted(totals.counters) == self.seen["all"]
        assert totals.ready + totals.unacked == sum(queue.count() + queue.unacked for queue in queues)
        for queue in queues:
            assert counted(queue.counters) == self.seen[queue.name]
        for name, client in (("publisher", self.publisher), ("consumer", self.consumer)):
            assert counted(channel_counters(client)) == self.seen[name]
        passage = vhost.exchanges["x"].passage
        assert (passage.publish_in, passage.publish_out) == (self.passed["in"], self.passed["out"])


def counted(counters: Counters) -> Counter[str]:
    return Counter({name: count for name, count in zip(FIELDS, counters.values(), strict=True) if count})


def channel_counters(client: Client) -> Counters:
    channel = client.peer.channels[1]
    counters = Counters()
    counters.add(channel.counters)
    if channel.confirms is not None:
        counters.confirm = channel.confirms.confirmed()
    return counters


FLAG = st.booleans()
STEP = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(sorted(ROUTES)), st.integers(1, 4), FLAG, FLAG),
    st.tuples(st.just("consume"), st.sampled_from(QUEUES), FLAG),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("get"), st.sampled_from(QUEUES), FLAG),
    st.tuples(st.just("settle"), st.sampled_from(("ack", "reject", "requeue")), FLAG, st.integers(0, 9)),
    st.tuples(st.just("pass_time")),
    st.tuples(st.just("check")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=25), st.lists(STEP, max_size=5))
def test_counters_are_what_clients_have_seen(before: list[tuple], after: list[tuple]) -> None:  # type: ignore[type-arg]
    scene = Scene()
    for step in before:
        getattr(scene, step[0])(*step[1:])
    scene.check()
    scene.delete()  # a virtual host keeps the counts of its deleted queues
    for step in after:
        getattr(scene, step[0])(*step[1:])
    scene.check()


def test_refused_publishes_are_not_confirmed_ones() -> None:
    bench = Bench()
    client = bench.connect()
    client.call(1, grammar.CONFIRM_SELECT)
    client.queue("q", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    for _ in range(5):
        client.publish("q")
    counters = channel_counters(client)
    assert (counters.publish, counters.confirm) == (5, 2)
    client.call(1, grammar.CHANNEL_CLOSE, reply_code=200, reply_text="", class_id=0, method_id=0)
    assert bench.broker.vhosts["/"].tally.counters.confirm == 2


def test_a_transaction_counts_when_it_is_committed() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q")
    client.call(1, grammar.TX_SELECT)
    client.publish("q")
    client.publish("nowhere")
    assert channel_counters(client).values() == (0,) * len(FIELDS)
    client.call(1, grammar.TX_ROLLBACK)
    client.publish("q")
    client.publish("nowhere")
    client.call(1, grammar.TX_COMMIT)
    counters = channel_counters(client)
    assert (counters.publish, counters.drop_unroutable) == (2, 1)


def test_routes_that_are_looked_up_for_each_message_count_for_the_queues_they_went_to() -> None:
    bench = Bench()
    client = bench.connect()
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="h", type="headers")
    for name in ("one", "two"):
        client.queue(name)
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="h", arguments={"to": name})
    for name in ("one", "two", "one"):
        client.publish("", exchange="h", headers={"to": name})
    vhost = bench.broker.vhosts["/"]
    vhost.tally.count_publishes()
    assert [vhost.queues[name].counters.publish for name in ("one", "two")] == [2, 1]
    assert (vhost.exchanges["h"].passage.publish_in, vhost.exchanges["h"].passage.publish_out) == (3, 3)


def test_copies_by_cc_count_for_each_queue() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("one")
    client.queue("two")
    client.publish("one", headers={"CC": ["two"]})
    vhost = bench.broker.vhosts["/"]
    vhost.tally.count_publishes()
    assert [vhost.queues[name].counters.publish for name in ("one", "two")] == [1, 1]
    assert (vhost.tally.passage.publish_in, vhost.tally.passage.publish_out) == (1, 2)


def test_comings_and_goings() -> None:
    bench = Bench()
    client, other = bench.connect(), bench.connect()
    client.queue("q")
    client.queue("q")
    client.queue("q", passive=True)
    client.call(1, grammar.QUEUE_DELETE, queue="q")
    other.queue("mine", exclusive=True)
    other.peer.lost(bench.now_us)
    # connections, channels: created, closed; queues: declared, created, deleted
    assert bench.broker.churn.values() == (2, 1, 2, 1, 3, 2, 2)


def census(bench: Bench, name: str) -> tuple[Census, Queue]:
    queue = bench.broker.vhosts["/"].queues[name]
    return Census(queue), queue


def test_a_census_knows_a_short_queue_exactly() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q", durable=True)
    client.call(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="t")
    client.send(1, grammar.BASIC_QOS, prefetch_count=1)
    client.publish("q", b"x" * 10, delivery_mode=2)
    client.publish("q", b"x" * 5)
    client.call(1, grammar.BASIC_CANCEL, consumer_tag="t")
    client.publish("q", b"x" * 7)
    client.publish("q", b"x" * 8, delivery_mode=2)
    found, queue = census(bench, "q")
    assert queue.unacked == 2
    assert (found.octets, found.persistent, found.on_disk) == (15, 1, 0)


def test_a_census_of_unacknowledged_messages() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q", durable=True)
    client.call(1, grammar.BASIC_CONSUME, queue="q")
    client.publish("q", b"x" * 10, delivery_mode=2)
    client.publish("q", b"x" * 5)
    found, _ = census(bench, "q")
    assert (found.octets_unacked, found.persistent_unacked) == (15, 1)


def test_a_census_looks_at_some_and_takes_the_others_to_be_like_them() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q")
    for size in range(3000):
        client.publish("q", b"x" * (10 + size % 2))
    found, _ = census(bench, "q")
    assert found.octets == 31500


def test_what_comes_again_is_counted_as_such() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q")
    client.publish("q")
    client.call(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="t")
    client.send(1, grammar.BASIC_NACK, delivery_tag=1, requeue=True)
    client.call(1, grammar.BASIC_CANCEL, consumer_tag="t")
    client.send(1, grammar.BASIC_NACK, delivery_tag=2, requeue=True)
    client.call(1, grammar.BASIC_GET, queue="q")
    for counters in (channel_counters(client), bench.broker.vhosts["/"].queues["q"].counters):
        assert (counters.deliver, counters.get, counters.redeliver) == (2, 1, 2)
