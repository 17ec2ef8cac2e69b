"""Publishers that number their messages: repetitions are confirmed but not stored again, after any crash."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.streams.marks import NAMES_MAX
from leveret.broker.streams.stream import Stream
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, encode_header

from .support import STREAM, Bench, Client, begun, recovered


@pytest.fixture
def bench() -> Bench:
    return begun()


def publisher(bench: Bench) -> Client:
    client = bench.connect()
    client.call(1, grammar.CONFIRM_SELECT)
    return client


def headers(sequence: object, name: object = "p") -> dict[str, object]:
    return {"x-leveret-publisher": name, "x-leveret-sequence": sequence}


def say(client: Client, sequence: int, body: bytes | None = None, key: str = "s", **values: object) -> None:
    text = str(sequence).encode() if body is None else body
    client.publish(key, text, headers=headers(sequence), **values)


def confirmed(client: Client) -> list[tuple[str, int, bool]]:
    """Return (method, tag, multiple) of the confirms since the last call."""
    answers = [method for method in client.methods() if method.spec in (grammar.BASIC_ACK, grammar.BASIC_NACK)]
    return [(method.spec.name, method.number("delivery_tag"), method.flag("multiple")) for method in answers]


def stored(bench: Bench, queue: str = "s") -> list[bytes]:
    """Return the bodies that a consumer of the stream gets."""
    client = bench.connect()
    client.call(1, grammar.BASIC_QOS, prefetch_count=1000)
    client.send(1, grammar.BASIC_CONSUME, queue=queue, arguments={"x-stream-offset": "first"})
    return client.bodies()


def sequences(bench: Bench) -> dict[str, object]:
    stream = bench.broker.vhosts["/"].queues["s"]
    assert isinstance(stream, Stream)
    return dict(stream.sequences.table())


def test_what_comes_again_is_confirmed_and_not_stored(bench: Bench) -> None:
    client = publisher(bench)
    for sequence in (5, 7, 7, 6, 5, 8):
        say(client, sequence)
    bench.sync()
    assert confirmed(client) == [("basic.ack", 6, True)]
    assert stored(bench) == [b"5", b"7", b"8"]
    assert bench.broker.log.size() == 0
    say(client, 8)
    assert confirmed(client) == [("basic.ack", 7, False)]
    assert bench.broker.log.size() == 0


def test_the_confirm_of_a_repetition_waits_for_the_message(bench: Bench) -> None:
    """The repetition itself writes nothing, so it must not wait for the next batch, which may never be written."""
    client, other, late = publisher(bench), publisher(bench), publisher(bench)
    say(client, 1)
    say(client, 1)
    say(other, 1)
    assert confirmed(client) == confirmed(other) == []
    log = bench.broker.log
    batch = log.batch
    log.close_batch()
    say(client, 1)
    say(other, 1)
    say(late, 1)
    assert confirmed(client) == confirmed(other) == confirmed(late) == []
    assert log.size() == 0
    log.on_disk(batch)
    assert confirmed(client) == [("basic.ack", 3, True)]
    assert confirmed(other) == [("basic.ack", 2, True)]
    assert confirmed(late) == [("basic.ack", 1, False)]


def test_other_publishers_and_other_streams_count_for_themselves(bench: Bench) -> None:
    client = publisher(bench)
    client.queue("t", durable=True, arguments=STREAM)
    client.publish("s", b"a", headers=headers(3, "a"))
    client.publish("s", b"b", headers=headers(3, "b"))
    client.publish("t", b"c", headers=headers(3, "a"))
    client.publish("s", b"d", headers=headers(3, "a"))
    bench.sync()
    assert (stored(bench), stored(bench, "t")) == ([b"a", b"b"], [b"c"])


def test_other_queues_get_it_as_ever(bench: Bench) -> None:
    client = publisher(bench)
    client.queue("plain", durable=True)
    client.queue("t", durable=True, arguments=STREAM)
    for name in ("s", "plain"):
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
    say(client, 1, exchange="amq.fanout")
    client.send(1, grammar.QUEUE_BIND, queue="t", exchange="amq.fanout")
    for _ in range(2):
        say(client, 1, exchange="amq.fanout", mandatory=True)
    bench.sync()
    assert confirmed(client) == [("basic.ack", 3, True)]
    client.send(1, grammar.BASIC_CONSUME, queue="plain", no_ack=True)
    assert client.bodies() == [b"1"] * 3
    assert (stored(bench), stored(bench, "t")) == ([b"1"], [b"1"])
    counts = [int(bench.broker.vhosts["/"].queues[name].count()) for name in ("s", "t")]
    assert counts == [1, 1]


def test_a_repetition_is_not_returned(bench: Bench) -> None:
    client = publisher(bench)
    say(client, 1, mandatory=True)
    say(client, 1, mandatory=True)
    bench.sync()
    assert confirmed(client) == [("basic.ack", 2, True)]


def test_a_queue_that_refuses_is_told_of_and_may_have_it_later(bench: Bench) -> None:
    client = publisher(bench)
    client.queue("full", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    for name in ("s", "full"):
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
    client.publish("full")
    bench.sync()
    confirmed(client)
    say(client, 1, exchange="amq.fanout")
    say(client, 1, exchange="amq.fanout")
    assert confirmed(client) == [("basic.nack", 2, False), ("basic.nack", 3, False)]
    client.call(1, grammar.QUEUE_PURGE, queue="full")
    say(client, 1, exchange="amq.fanout")
    bench.sync()
    assert confirmed(client) == [("basic.ack", 4, False)]
    assert stored(bench) == [b"1"]


def test_messages_that_are_alike_are_not_taken_for_one(bench: Bench) -> None:
    """Published in one read with one header: all but the first are repetitions."""
    client = publisher(bench)
    properties = encode_header(Properties(headers=headers(1)), 1)  # type: ignore[arg-type]
    one = method_frame(1, grammar.BASIC_PUBLISH, routing_key="s") + content_frames(1, properties, b"x", 131072)
    client.raw(one * 5)
    plain = encode_header(Properties(headers={"x-leveret-sequence": 1}), 1)
    two = method_frame(1, grammar.BASIC_PUBLISH, routing_key="s") + content_frames(1, plain, b"y", 131072)
    client.raw(two * 5)
    bench.sync()
    assert stored(bench) == [b"x"] + [b"y"] * 5
    assert confirmed(client) == [("basic.ack", 10, True)]


def test_transactions(bench: Bench) -> None:
    client, other = bench.connect(), bench.connect()
    for each in (client, other):
        each.call(1, grammar.TX_SELECT)
    for sequence in (1, 2, 2):
        say(client, sequence)
    client.send(1, grammar.TX_ROLLBACK)
    say(client, 2)
    say(client, 2)
    client.send(1, grammar.TX_COMMIT)
    assert [method.spec for method in client.methods()] == [grammar.TX_ROLLBACK_OK]
    log = bench.broker.log
    batch, data = log.batch, b"".join(log.close_batch())
    say(other, 2)
    other.send(1, grammar.TX_COMMIT)
    assert client.methods() == other.methods() == []  # the second commit waits for the messages of the first
    log.on_disk(batch)
    bench.batches.append(data)
    assert [method.spec for method in [*client.methods(), *other.methods()]] == [grammar.TX_COMMIT_OK] * 2
    assert stored(bench) == stored(recovered(bench.batches)) == [b"2"]


def test_dead_letters_come_in_their_own_order(bench: Bench) -> None:
    """They are stored in order of death; only the numbers of messages published to the stream itself count."""
    client = publisher(bench)
    dying = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "s"}
    client.queue("q", durable=True, arguments=dying)
    for sequence in (1, 2, 3):
        say(client, sequence, key="q", delivery_mode=2)
    client.call(1, grammar.BASIC_QOS, prefetch_count=10)
    client.send(1, grammar.BASIC_CONSUME, queue="q")
    for tag in (3, 1, 2):
        client.send(1, grammar.BASIC_NACK, delivery_tag=tag, requeue=False)
    bench.sync()
    assert stored(bench) == [b"3", b"1", b"2"]
    again = recovered(bench.batches)
    for each in (bench, again, recovered([b"".join(again.broker.snapshot())])):
        assert sequences(each) == {}


def test_by_an_alternate_exchange(bench: Bench) -> None:
    client = publisher(bench)
    client.call(
        1, grammar.EXCHANGE_DECLARE, exchange="x", type="direct", arguments={"alternate-exchange": "amq.fanout"}
    )
    client.call(1, grammar.QUEUE_BIND, queue="s", exchange="amq.fanout")
    say(client, 1, exchange="x", key="nowhere")
    say(client, 1, exchange="x", key="nowhere")
    bench.sync()
    assert stored(bench) == [b"1"]


malformed = [
    (headers("1"), 'unacceptable_type_in_header,"x-leveret-sequence",longstr'),
    (headers(True), 'unacceptable_type_in_header,"x-leveret-sequence",bool'),
    (headers(1, 2), 'unacceptable_type_in_header,"x-leveret-publisher",signedint'),
    (headers(1, ""), 'unacceptable_length_in_header,"x-leveret-publisher",longstr'),
    (headers(1, "p" * 256), 'unacceptable_length_in_header,"x-leveret-publisher",longstr'),
]


@pytest.mark.parametrize(("values", "text"), malformed)
def test_headers_that_are_none(bench: Bench, values: dict[str, object], text: str) -> None:
    client = bench.connect()
    client.queue("q")
    client.publish("q", headers=values)  # only streams check these headers
    client.publish("s", headers=values)
    (closed,) = client.methods()
    assert closed.number("reply_code") == 406
    assert closed.text("reply_text") == f"PRECONDITION_FAILED - invalid message: {{{text}}}"
    bench.sync()
    assert stored(bench) == []


@pytest.mark.parametrize("values", [{"x-leveret-publisher": "p"}, {"x-leveret-sequence": 1}, {"other": {"a": [1]}}])
def test_messages_without_both_are_stored_as_ever(bench: Bench, values: dict[str, object]) -> None:
    client = publisher(bench)
    for _ in range(2):
        client.publish("s", headers=values)
    bench.sync()
    assert len(stored(bench)) == 2


def test_negative_and_large_numbers(bench: Bench) -> None:
    client = publisher(bench)
    for sequence in (-5, -6, -4, (1 << 63) - 1, 0):
        say(client, sequence)
    bench.sync()
    assert stored(bench) == [b"-5", b"-4", b"%d" % ((1 << 63) - 1)]
    for each in (recovered(bench.batches), recovered([b"".join(bench.broker.snapshot())])):
        assert sequences(each) == {"p": (1 << 63) - 1}


def test_the_publishers_heard_last_are_remembered(bench: Bench) -> None:
    client = publisher(bench)
    for name in range(NAMES_MAX + 1):
        client.publish("s", headers=headers(1, str(name)))
        client.publish("s", headers=headers(name, "0"))
    bench.sync()
    for each in (bench, recovered(bench.batches)):
        assert len(sequences(each)) == NAMES_MAX
        assert "1" not in sequences(each)
        assert sequences(each)["0"] == NAMES_MAX


acts = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.sampled_from("ab"), st.integers(0, 8)),
        st.tuples(st.just("sync"), st.just(""), st.just(0)),
        st.tuples(st.just("file"), st.just(""), st.just(0)),
    ),
    max_size=20,
)


@settings(max_examples=40)
@given(acts)
def test_no_crash_stores_anything_twice(acts: list[tuple[str, str, int]]) -> None:
    """After a crash behind any batch, repeating all publishes stores each message once: those stored before keep their
    offsets, and each publisher's numbers ascend."""
    bench = begun()
    client = publisher(bench)
    declared = len(bench.batches)
    sent: list[tuple[str, int]] = []
    last: dict[str, int] = {}
    expected: list[bytes] = []
    for act, name, sequence in acts:
        if act == "say":
            client.publish("s", f"{name}{sequence}".encode(), headers=headers(sequence, name))
            sent.append((name, sequence))
            if sequence > last.get(name, -1):
                last[name] = sequence
                expected.append(f"{name}{sequence}".encode())
        else:
            bench.sync()
            if act == "file":
                bench.batches.append(b"".join(bench.broker.snapshot()))
    bench.sync()
    assert stored(bench) == expected
    for crash in range(declared, len(bench.batches) + 1):
        again = recovered(bench.batches[:crash])
        before = stored(again)
        assert before == expected[: len(before)]
        repeating = publisher(again)
        for name, sequence in sent:
            repeating.publish("s", f"{name}{sequence}".encode(), headers=headers(sequence, name))
        again.sync()
        after = stored(again)
        assert sorted(after) == sorted(expected)
        assert after[: len(before)] == before
