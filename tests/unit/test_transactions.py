"""Transactions in the core: which answers wait for a sync, crashes, and random operations against a model."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leveret.broker.methods.transaction import ARRIVAL_OCTETS, SETTLEMENT_OCTETS, TRANSACTION_OCTETS_MAX
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import decode_method, method_frame

from .support import Bench, Client, recovered


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def client(bench: Bench) -> Client:
    """Channel 1 is transactional, channel 2 is not."""
    return connected(bench)


def connected(bench: Bench) -> Client:
    client = bench.connect()
    client.call(2, grammar.CHANNEL_OPEN)
    client.queue("durable", durable=True)
    client.queue("memory")
    client.call(1, grammar.TX_SELECT)
    return client


def fetch(client: Client, queue: str, count: int = 1) -> None:
    """Get messages for channel 1 to settle."""
    for _ in range(count):
        client.send(1, grammar.BASIC_GET, queue=queue)
    client.frames()


def left(bench: Bench, queue: str) -> list[bytes]:
    """Return the bodies of the ready messages."""
    return [entry.content[-2:-1] for entry in bench.broker.vhosts["/"].queues[queue].in_memory()]


def names(client: Client) -> list[str]:
    return [method.name for method in client.methods()]


# -- commit-ok -------------------------------------------------------------------------------------------------------


def test_commit_ok_comes_after_the_sync_and_not_before(bench: Bench, client: Client) -> None:
    client.publish("durable", delivery_mode=2)
    client.send(1, grammar.TX_COMMIT)
    assert names(client) == []
    bench.sync()
    assert names(client) == ["tx.commit-ok"]


def test_commit_ok_waits_for_its_own_batch(bench: Bench, client: Client) -> None:
    client.publish("durable", delivery_mode=2)
    batch = bench.broker.log.batch
    bench.broker.log.close_batch()
    client.send(1, grammar.TX_COMMIT)
    bench.broker.log.on_disk(batch)
    assert names(client) == []
    bench.sync()
    assert names(client) == ["tx.commit-ok"]


@pytest.mark.parametrize(("queue", "mode"), [("durable", 1), ("memory", 2), ("nowhere", 2)])
def test_commit_ok_comes_at_once_where_nothing_is_durable(
    bench: Bench, client: Client, queue: str, mode: int
) -> None:
    """The journal's batch is not empty, since another client has published."""
    bench.connect().publish("durable", delivery_mode=2)
    client.publish(queue, delivery_mode=mode)
    client.send(1, grammar.TX_COMMIT)
    assert names(client) == ["tx.commit-ok"]


@pytest.mark.parametrize("flags", [None, {"requeue": False}, {"requeue": True}])
def test_a_durable_settlement_waits_too(bench: Bench, client: Client, flags: dict[str, bool] | None) -> None:
    client.publish("durable", delivery_mode=2)
    client.call(1, grammar.TX_COMMIT)
    fetch(client, "durable")
    if flags is None:
        client.send(1, grammar.BASIC_ACK, delivery_tag=1)
    else:
        client.send(1, grammar.BASIC_NACK, delivery_tag=1, **flags)
    client.send(1, grammar.TX_COMMIT)
    is_requeued = flags is not None and flags["requeue"]  # a requeue writes no record
    assert names(client) == (["tx.commit-ok"] if is_requeued else [])
    bench.sync()
    assert names(client) == ([] if is_requeued else ["tx.commit-ok"])


# -- after a crash ---------------------------------------------------------------------------------------------------


def test_a_crash_leaves_all_of_a_transaction_or_nothing(bench: Bench, client: Client) -> None:
    """A turn and a sync for each step: only the commit's own batch contains the transaction."""
    for body in (b"1", b"2", b"3"):
        client.publish("durable", body, delivery_mode=2)
    client.call(1, grammar.TX_COMMIT)
    fetch(client, "durable", 2)
    first = len(bench.batches)
    client.send(1, grammar.BASIC_ACK, delivery_tag=1)
    bench.sync()
    client.publish("durable", b"4", delivery_mode=2)
    bench.sync()
    client.send(1, grammar.BASIC_REJECT, delivery_tag=2, requeue=False)
    bench.sync()
    client.publish("durable", b"5", delivery_mode=2)
    bench.sync()
    client.send(1, grammar.TX_COMMIT)
    last = len(bench.batches)
    for count in range(first, last + 1):
        assert left(recovered(bench.batches[:count]), "durable") == [b"1", b"2", b"3"]
    bench.sync()
    assert left(recovered(bench.batches), "durable") == [b"3", b"4", b"5"]


def test_dead_letters_are_part_of_the_commit(bench: Bench, client: Client) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "durable"}
    client.queue("source", durable=True, arguments=arguments)
    for body in (b"1", b"2", b"3"):
        client.publish("source", body, delivery_mode=2)
    client.call(1, grammar.TX_COMMIT)
    fetch(client, "source", 3)
    for tag in (3, 1):
        client.send(1, grammar.BASIC_REJECT, delivery_tag=tag, requeue=False)
    client.publish("durable", b"0", delivery_mode=2)
    client.send(1, grammar.TX_COMMIT)
    assert left(bench, "durable") == [b"0", b"1", b"3"]
    bench.sync()
    before, after = recovered(bench.batches[:-1]), recovered(bench.batches)
    assert (left(before, "source"), left(before, "durable")) == ([b"1", b"2", b"3"], [])
    assert (left(after, "source"), left(after, "durable")) == ([b"2"], [b"0", b"1", b"3"])


def test_a_message_that_cannot_be_dead_lettered_does_not_split_a_commit(bench: Bench, client: Client) -> None:
    """A table in its headers is malformed; older versions accepted such messages, so the journal may have one."""
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "memory"}
    client.queue("source", durable=True, arguments=arguments)
    header = bytes.fromhex("003c0000 0000000000000001 3000 00000009 0161 46 00000002 0562 02")
    content = content_frames(1, header, b"x", 131072)
    bench.broker.vhosts["/"].queues["source"].message_list.enqueue(content, b"\0\6source", 0, 0)
    fetch(client, "source")
    client.publish("durable", b"1", delivery_mode=2)
    client.send(1, grammar.BASIC_REJECT, delivery_tag=1, requeue=False)
    client.publish("durable", b"2", delivery_mode=2)
    client.send(1, grammar.TX_COMMIT)
    bench.sync()
    assert names(client) == ["tx.commit-ok"]
    after = recovered(bench.batches)
    assert (left(after, "source"), left(after, "durable")) == ([], [b"1", b"2"])
    assert bench.broker.vhosts["/"].discards == {"dead letter with malformed headers": 1}


# -- held until commit -------------------------------------------------------------------------------------------------


def test_alike_messages_in_one_read_are_held(bench: Bench, client: Client) -> None:
    """Outside of a transaction they would become a message batch."""
    method = method_frame(1, grammar.BASIC_PUBLISH, exchange="", routing_key="memory")
    client.raw(b"".join(method + content_frames(1, bytes.fromhex("003c0000 0000000000000001 0000"), body, 131072)
                        for body in (b"1", b"2", b"3")))
    assert left(bench, "memory") == []
    client.send(1, grammar.TX_COMMIT)
    assert left(bench, "memory") == [b"1", b"2", b"3"]


def test_queues_are_looked_up_at_commit(bench: Bench, client: Client) -> None:
    client.publish("memory", b"1")
    client.call(2, grammar.QUEUE_DELETE, queue="memory")
    client.queue("memory")
    client.send(1, grammar.TX_COMMIT)
    assert left(bench, "memory") == [b"1"]


def test_headers_are_looked_at_at_publish(bench: Bench, client: Client) -> None:
    for name in ("memory", "durable"):
        client.call(2, grammar.QUEUE_BIND, queue=name, exchange="amq.headers", arguments={"to": name})
    client.publish("", b"1", exchange="amq.headers", headers={"to": "memory"})
    client.publish("", b"2", exchange="amq.headers", headers={"to": "durable"})
    client.send(1, grammar.TX_COMMIT)
    assert (left(bench, "memory"), left(bench, "durable")) == ([b"1"], [b"2"])


def test_held_deliveries_count_against_the_channels_prefetch(client: Client) -> None:
    for number in range(5):
        client.publish("memory", b"%d" % number)
    client.call(1, grammar.TX_COMMIT)
    client.call(1, grammar.BASIC_QOS, prefetch_count=2, **{"global": True})
    client.send(1, grammar.BASIC_CONSUME, queue="memory")
    assert client.bodies() == [b"0", b"1"]
    client.send(1, grammar.BASIC_ACK, delivery_tag=2, multiple=True)
    assert client.bodies() == []
    client.send(1, grammar.TX_ROLLBACK)
    assert client.bodies() == []
    client.send(1, grammar.BASIC_ACK, delivery_tag=1)
    assert client.bodies() == []
    client.send(1, grammar.TX_COMMIT)
    assert client.bodies() == [b"2"]


def test_a_transaction_has_a_limit(bench: Bench, client: Client) -> None:
    """A transaction must fit into a batch of the journal, so the publish that exceeds the limit is refused."""
    body = bytes(TRANSACTION_OCTETS_MAX // 4 - 10_000)
    for _ in range(2):  # a rollback frees its room
        client.send(1, grammar.TX_ROLLBACK)
        for _ in range(4):
            client.publish("memory", body)
        assert names(client) == ["tx.rollback-ok"]
    client.publish("memory", bytes(50_000))
    (close,) = client.methods()
    assert (close.name, close.number("reply_code"), close.number("method_id")) == ("channel.close", 406, 40)
    assert close.text("reply_text").startswith("PRECONDITION_FAILED - transaction size 2684")
    assert close.text("reply_text").endswith(f"is larger than max size {TRANSACTION_OCTETS_MAX}")
    client.send(1, grammar.CHANNEL_CLOSE_OK)
    assert left(bench, "memory") == []


def test_a_transaction_has_no_more_messages_than_a_turn_may_handle(bench: Bench, client: Client) -> None:
    most = TRANSACTION_OCTETS_MAX // ARRIVAL_OCTETS
    client.raw(client.encoded("memory", b"") * (most - 1) + client.encoded("memory", b"") * 2)
    while client.peer.has_more:
        client.raw(b"")
    (close,) = client.methods()
    assert (close.number("reply_code"), close.number("method_id")) == (406, 40)
    assert left(bench, "memory") == []


@pytest.mark.parametrize("method", [grammar.BASIC_ACK, grammar.BASIC_NACK])
def test_a_transaction_settles_no_more_than_a_turn_may_handle(
    bench: Bench, client: Client, method: grammar.MethodSpec
) -> None:
    count = TRANSACTION_OCTETS_MAX // SETTLEMENT_OCTETS + 1
    other = bench.connect()
    other.raw(other.encoded("memory", b"") * count)
    while other.peer.has_more:
        other.raw(b"")
    client.send(1, grammar.BASIC_CONSUME, queue="memory")
    while client.peer.is_full:
        client.frames()
        client.peer.drained(bench.now_us)
    client.frames()
    assert bench.broker.vhosts["/"].queues["memory"].unacked == count
    client.send(1, method, delivery_tag=count, multiple=True)
    (close,) = client.methods()
    assert (close.number("reply_code"), close.number("method_id")) == (406, method.method_id)
    while bench.broker.is_busy:
        bench.broker.requeue_step(bench.now_us)
    assert bench.broker.vhosts["/"].queues["memory"].count() == count


# -- against a model -------------------------------------------------------------------------------------------------

Answer = tuple[object, ...]


@dataclass
class Message:
    """A message in one queue of the model."""

    place: int
    body: bytes
    is_kept: bool  # in the journal
    redelivered: bool = False


@dataclass
class Model:
    """Model of a transactional and a plain channel on two queues, and of the batch that each answer waits for."""

    queues: dict[str, list[Message]] = field(default_factory=lambda: {"durable": [], "memory": []})
    unacked: dict[int, tuple[str, Message]] = field(default_factory=dict)
    published: list[tuple[list[str], bytes, bool]] = field(default_factory=list)
    settled: list[tuple[str, int, str, Message]] = field(default_factory=list)
    next_tag: int = 1
    count: int = 0
    batch: int = 0
    answers: list[tuple[Answer, int]] = field(default_factory=list)

    def answer(self, *answer: object, needs: int = 0) -> None:
        """Add an answer, which waits for its batch and for all answers before it."""
        self.answers.append((answer, max(needs, self.answers[-1][1] if self.answers else 0)))

    def enqueue(self, queues: list[str], body: bytes, persistent: bool) -> bool:
        self.count += 1
        for queue in queues:
            self.queues[queue].append(Message(self.count, body, persistent and queue == "durable"))
        return persistent and "durable" in queues

    def put_back(self, queue: str, message: Message) -> None:
        message.redelivered = True
        self.queues[queue].append(message)
        self.queues[queue].sort(key=lambda each: each.place)

    def get(self, queue: str, no_ack: bool) -> None:
        if not self.queues[queue]:
            self.answer("basic.get-empty")
            return
        message = self.queues[queue].pop(0)
        self.answer("basic.get-ok", self.next_tag, message.redelivered, message.body)
        if not no_ack:
            self.unacked[self.next_tag] = (queue, message)
        self.next_tag += 1

    def settle(self, kind: str, tag: int, multiple: bool) -> None:
        if tag not in self.unacked and not (multiple and tag == 0):
            self.close()
            self.answer("channel.close")
            return
        for each in sorted(self.unacked):
            if each == tag or (multiple and (tag == 0 or each < tag)):
                queue, message = self.unacked.pop(each)
                self.settled.append((kind, each, queue, message))

    def commit(self) -> None:
        kept = [self.enqueue(*publish) for publish in self.published]
        for kind, _, queue, message in self.settled:
            if kind == "requeue":
                self.put_back(queue, message)
            else:
                kept.append(message.is_kept)
        self.published, self.settled = [], []
        self.answer("tx.commit-ok", needs=self.batch + 1 if any(kept) else 0)

    def forget(self) -> None:
        self.published = []
        self.unacked |= {tag: (queue, message) for _, tag, queue, message in self.settled}
        self.settled = []

    def close(self) -> None:
        self.forget()
        for queue, message in self.unacked.values():
            self.put_back(queue, message)
        self.unacked = {}
        self.next_tag = 1

    def kept(self) -> list[bytes]:
        """Return the bodies that must be on disk after a sync: all messages not settled by a commit."""
        held = [message for _, _, _, message in self.settled]
        outstanding = [message for _, message in self.unacked.values()]
        all_of_it = self.queues["durable"] + outstanding + held
        return [each.body for each in sorted(all_of_it, key=lambda each: each.place) if each.is_kept]


BODIES = [b"%c" % code for code in range(33, 127)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(["durable", "memory", "both"]), st.booleans(), st.booleans()),
        st.tuples(st.just("get"), st.sampled_from(["durable", "memory"]), st.booleans()),
        st.tuples(st.just("settle"), st.sampled_from(["ack", "reject", "requeue"]), st.integers(0, 5), st.booleans()),
        st.tuples(st.sampled_from(["commit", "commit", "rollback", "close", "sync"])),
    ),
    max_size=60,
)


def step(bench: Bench, client: Client, model: Model, number: int, operation: tuple[object, ...]) -> None:
    """Run one operation on both the broker and the model."""
    match operation:
        case "publish", str(key), bool(persistent), bool(in_transaction):
            queues = ["durable", "memory"] if key == "both" else [key]
            body = BODIES[number]
            if in_transaction:
                model.published.append((queues, body, persistent))
            else:
                model.enqueue(queues, body, persistent)
            publish(client, 1 if in_transaction else 2, key, body, 2 if persistent else 1)
        case "get", str(queue), bool(no_ack):
            model.get(queue, no_ack)
            client.send(1, grammar.BASIC_GET, queue=queue, no_ack=no_ack)
        case "settle", str(kind), int(back), bool(multiple):
            tag = max(0, model.next_tag - back)
            model.settle(kind, tag, multiple)
            spec = grammar.BASIC_ACK if kind == "ack" else grammar.BASIC_NACK
            more = {} if kind == "ack" else {"requeue": kind == "requeue"}
            client.send(1, spec, delivery_tag=tag, multiple=multiple, **more)
            if client.peer.channels[1].state != 0:
                client.send(1, grammar.CHANNEL_CLOSE_OK)
                reopen(client, model)
        case ("commit",):
            model.commit()
            client.send(1, grammar.TX_COMMIT)
        case ("rollback",):
            model.forget()
            model.answer("tx.rollback-ok")
            client.send(1, grammar.TX_ROLLBACK)
        case ("close",):
            model.close()
            model.answer("channel.close-ok")
            client.send(1, grammar.CHANNEL_CLOSE)
            reopen(client, model)
        case ("sync",):
            model.batch += 1
            bench.sync()


def publish(client: Client, channel: int, key: str, body: bytes, mode: int) -> None:
    exchange = "amq.fanout" if key == "both" else ""
    method = method_frame(channel, grammar.BASIC_PUBLISH, exchange=exchange, routing_key=key)
    header = bytes.fromhex("003c0000 0000000000000001 1000") + bytes([mode])
    client.raw(method + content_frames(channel, header, body, 131072))


def reopen(client: Client, model: Model) -> None:
    client.send(1, grammar.CHANNEL_OPEN)
    client.send(1, grammar.TX_SELECT)
    model.answer("channel.open-ok")
    model.answer("tx.select-ok")


def seen(client: Client) -> list[Answer]:
    """Return the answers since the last call."""
    found: list[Answer] = []
    for frame in client.frames():
        if frame.kind == 1:
            method = decode_method(frame.payload)
            is_message = method.name == "basic.get-ok"
            more = (method.number("delivery_tag"), method.flag("redelivered")) if is_message else ()
            found.append((method.name, *more))
        elif frame.kind == 3:
            found[-1] += (frame.payload,)
    return found


@example([
    ("publish", "durable", True, False), ("publish", "durable", True, False), ("get", "durable", True),
    ("get", "durable", False), ("settle", "ack", 1, False), ("commit",),
])  # the acknowledgement only extends an earlier record
@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_any_order_of_operations_against_the_model(operations: list[tuple[object, ...]]) -> None:
    """Answers are sent once their batch is synced, not earlier; after a crash the state is the model's at some sync."""
    bench = Bench()
    client = connected(bench)
    for name in ("durable", "memory"):
        client.call(2, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
    model = Model()
    done = 0
    for number, operation in enumerate([*operations, ("sync",)]):
        step(bench, client, model, number, operation)
        due = [answer for answer, batch in model.answers[done:] if batch <= model.batch]
        assert seen(client) == due
        done += len(due)
        if operation == ("sync",):
            assert left(recovered(bench.batches), "durable") == model.kept()
    assert done == len(model.answers)
    assert int(client.peer.channels[1].unacked.count) == len(model.unacked) + len(model.settled)
    for name, messages in model.queues.items():
        queue = bench.broker.vhosts["/"].queues[name]
        outstanding = [each for each in [*model.unacked.values(), *((q, m) for _, _, q, m in model.settled)]
                       if each[0] == name]
        assert int(queue.unacked) == len(outstanding)
        found = [(entry.content[-2:-1], entry.redelivered) for entry in queue.in_memory()]
        assert found == [(message.body, message.redelivered) for message in messages]


def test_what_a_closed_channel_had_settled_but_not_committed_is_ready_again() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q")
    client.publish("q", b"1")
    client.call(1, grammar.TX_SELECT)
    client.send(1, grammar.BASIC_GET, queue="q")
    client.send(1, grammar.BASIC_ACK, delivery_tag=1)
    client.send(1, grammar.CHANNEL_CLOSE)
    queue = bench.broker.vhosts["/"].queues["q"]
    assert (int(queue.count()), int(queue.unacked)) == (1, 0)
