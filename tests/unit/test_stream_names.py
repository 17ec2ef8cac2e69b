"""Named consumers of a stream: their stored offsets, for any acknowledgements and crashes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.storage.recovery import Recovery
from leveret.broker.streams.marks import NAMES_MAX, Marks
from leveret.broker.streams.naming import forget, standings
from leveret.broker.streams.progress import AckProgress
from leveret.broker.streams.stream import Stream
from leveret.wire import grammar

from .support import STREAM, Bench, Client, begun, recovered


@pytest.fixture
def bench() -> Bench:
    return begun()


def stream_of(bench: Bench) -> Stream:
    stream = bench.broker.vhosts["/"].queues["s"]
    assert isinstance(stream, Stream)
    return stream


def reader(bench: Bench, name: str | None = "n", **arguments: object) -> Client:
    """Consume from the stream and sync, so that the name is on disk. Underscores in arguments become hyphens."""
    client = unsynced(bench, name, **arguments)
    bench.sync()
    return client


def unsynced(bench: Bench, name: str | None = "n", **arguments: object) -> Client:
    client = bench.connect()
    client.call(1, grammar.BASIC_QOS, prefetch_count=100)
    table: dict[str, object] = {key.replace("_", "-"): value for key, value in arguments.items()}
    if name is not None:
        table["x-leveret-consumer"] = name
    client.send(1, grammar.BASIC_CONSUME, queue="s", arguments=table)
    return client


def fill(bench: Bench, *bodies: int) -> None:
    client = bench.connect()
    for body in bodies:
        client.publish("s", b"%d" % body)
    bench.sync()
    bench.broker.end_turn(bench.now_us)


def got(client: Client) -> list[int]:
    return [int(body) for body in client.bodies()]


def ack(client: Client, tag: int, multiple: bool = False) -> None:
    client.send(1, grammar.BASIC_ACK, delivery_tag=tag, multiple=multiple)


def offsets(bench: Bench) -> dict[str, object]:
    return dict(stream_of(bench).offsets.table())


def test_a_name_goes_on_behind_what_it_acknowledged(bench: Bench) -> None:
    fill(bench, *range(10))
    client = reader(bench, x_stream_offset="first")
    assert got(client) == list(range(10))
    ack(client, 4, multiple=True)
    client.peer.lost(bench.now_us)
    assert offsets(bench) == {"n": 4}
    assert got(reader(bench)) == [4, 5, 6, 7, 8, 9]


def test_what_was_said_the_first_time_counts_no_more(bench: Bench) -> None:
    fill(bench, *range(5))
    client = reader(bench, x_stream_offset=2)
    got(client)
    ack(client, 1)
    client.peer.lost(bench.now_us)
    for offset in ("first", "next", 0, 4, "5m"):
        again = reader(bench, x_stream_offset=offset)
        assert got(again) == [3, 4]
        again.peer.lost(bench.now_us)


def test_a_name_that_began_misses_nothing(bench: Bench) -> None:
    """Before any acknowledgement: the start offset is stored, and synced before basic.consume-ok."""
    fill(bench, 0, 1)
    client = unsynced(bench)
    assert client.methods() == []
    bench.sync()
    assert [method.spec for method in client.methods()] == [grammar.BASIC_CONSUME_OK]
    client.peer.lost(bench.now_us)
    fill(bench, 2, 3)
    again = recovered(bench.batches)
    assert got(reader(bench)) == [2, 3]
    assert got(reader(again)) == [2, 3]


def test_who_comes_again_waits_for_no_disk(bench: Bench) -> None:
    reader(bench).peer.lost(bench.now_us)
    assert [method.spec for method in unsynced(bench).methods()] == [grammar.BASIC_CONSUME_OK]


def test_one_record_for_each_batch(bench: Bench) -> None:
    fill(bench, *range(50))
    clients = [reader(bench, name, x_stream_offset="first") for name in ("a", "b")]
    for client in clients:
        got(client)
    assert not bench.broker.log.size()
    for tag in range(1, 41):
        for client in clients:
            ack(client, tag)
    assert bench.broker.log.size()
    data = bench.sync()
    assert data.count(b"stream.marks") == 1
    assert len(data) < 150
    assert bench.sync() == b""
    again = recovered(bench.batches)
    assert offsets(again) == {"a": 40, "b": 40}
    assert offsets(recovered([b"".join(again.broker.snapshot())])) == {"a": 40, "b": 40}


def test_an_acknowledgement_in_a_transaction_counts_when_it_is_committed(bench: Bench) -> None:
    fill(bench, *range(4))
    client = reader(bench, x_stream_offset="first")
    client.call(1, grammar.TX_SELECT)
    ack(client, 2, multiple=True)
    assert offsets(bench) == {"n": 0}
    client.send(1, grammar.TX_COMMIT)
    assert client.methods() == []  # it waits for the sync
    bench.sync()
    assert [method.spec for method in client.methods()] == [grammar.TX_COMMIT_OK]
    assert offsets(recovered(bench.batches)) == {"n": 2}


def test_the_latest_consumer_of_a_name_has_its_offset(bench: Bench) -> None:
    """An older consumer's acknowledgements do not pass messages that the newest one has not acknowledged."""
    fill(bench, *range(6))
    older = reader(bench, x_stream_offset="first")
    got(older)
    ack(older, 2, multiple=True)
    newer = reader(bench)
    assert got(newer) == [2, 3, 4, 5]
    ack(older, 6, multiple=True)
    assert offsets(bench) == {"n": 2}
    ack(newer, 1)
    assert offsets(bench) == {"n": 3}


def test_a_cancelled_consumer_may_still_acknowledge(bench: Bench) -> None:
    fill(bench, *range(3))
    client = reader(bench, x_stream_offset="first")
    tag = next(method for method in client.methods() if method.spec is grammar.BASIC_DELIVER).text("consumer_tag")
    client.send(1, grammar.BASIC_CANCEL, consumer_tag=tag)
    ack(client, 3, multiple=True)
    assert offsets(bench) == {"n": 3}


def test_names_are_forgotten(bench: Bench) -> None:
    fill(bench, 0, 1)
    client = reader(bench, x_stream_offset="first")
    got(client)
    stream = stream_of(bench)
    assert [vars_of(each) for each in standings(stream)] == [("n", 0, 2, True)]
    assert forget(stream, "n")
    assert not forget(stream, "n")
    bench.sync()
    assert offsets(recovered(bench.batches)) == {}
    ack(client, 2, multiple=True)
    client.peer.lost(bench.now_us)
    assert [vars_of(each) for each in standings(stream)] == [("n", 2, 0, False)]
    assert forget(stream, "n")
    assert got(reader(bench)) == []


def vars_of(standing: object) -> tuple[object, ...]:
    return tuple(getattr(standing, name) for name in ("name", "offset", "lag", "is_consuming"))


def test_a_stream_of_the_same_name_knows_nobody(bench: Bench) -> None:
    fill(bench, 0, 1)
    client = reader(bench, x_stream_offset="first")
    got(client)
    ack(client, 1)
    other = bench.connect()
    other.send(1, grammar.QUEUE_DELETE, queue="s")
    ack(client, 2)
    other.send(1, grammar.QUEUE_DECLARE, queue="s", durable=True, arguments=STREAM)
    bench.sync()
    for each in (bench, recovered(bench.batches)):
        assert offsets(each) == {}


def test_the_name_used_longest_ago_goes() -> None:
    marks, replayed = Marks(), Marks()
    for number in range(NAMES_MAX):
        marks.put(str(number), number)
    marks.put("0", 7)
    replayed.restore(marks.changes())
    marks.put("one more", 1)
    marks.put("another", 1)
    replayed.restore(marks.changes())
    for each in (marks, replayed):
        assert len(each.table()) == NAMES_MAX
        assert each.get("1") is None
        assert each.get("2") is None
        zero = each.get("0")
        assert zero is not None
        assert zero.value == 7
    assert marks.table() == replayed.table()


refused = [
    ({"x-leveret-consumer": 1}, "'x-leveret-consumer' for queue 's' in vhost '/': {unacceptable_type,signedint}"),
    ({"x-leveret-consumer": ""}, "'x-leveret-consumer' for queue 's' in vhost '/': {unacceptable_length,<<>>}"),
    ({"x-leveret-consumer": "a" * 256}, "unacceptable_length"),
    ({"x-single-active-consumer": True}, "needs a name"),
    ({"x-single-active-consumer": "yes", "x-leveret-consumer": "n"}, "{unacceptable_type,longstr}"),
    ({"x-leveret-consumer": "other", "x-single-active-consumer": True}, "'other' are not single active ones"),
    ({"x-leveret-consumer": "single"}, "'single' are single active ones"),
]


@pytest.mark.parametrize(("arguments", "text"), refused)
def test_arguments_that_are_none(bench: Bench, arguments: dict[str, object], text: str) -> None:
    reader(bench, "other")
    reader(bench, "single", x_single_active_consumer=True)
    client = reader(bench, None, **arguments)
    ((method),) = [method for method in client.methods() if method.spec is grammar.CHANNEL_CLOSE]
    assert method.number("reply_code") == 406
    assert text in method.text("reply_text")
    assert set(offsets(bench)) == {"other", "single"}


# -- single active consumers -------------------------------------------------------------------------------------------


def single(bench: Bench, name: str = "n", **arguments: object) -> Client:
    return reader(bench, name, x_single_active_consumer=True, **arguments)


def test_the_next_one_goes_on_where_nothing_was_acknowledged(bench: Bench) -> None:
    fill(bench, *range(4))
    first = single(bench, x_stream_offset="first")
    second, third = single(bench), single(bench)
    other, plain = single(bench, "other", x_stream_offset=3), reader(bench, None, x_stream_offset=2)
    clients = first, second, third, other, plain
    assert [got(client) for client in clients] == [[0, 1, 2, 3], [], [], [3], [2, 3]]
    ack(first, 2, multiple=True)
    ack(first, 4)
    fill(bench, 4)
    assert [got(client) for client in clients] == [[4], [], [], [4], [4]]
    first.peer.lost(bench.now_us)
    fill(bench, 5)
    assert [got(client) for client in clients[1:]] == [[2, 3, 4, 5], [], [5], [5]]
    ack(second, 4, multiple=True)
    second.send(1, grammar.CHANNEL_CLOSE, reply_code=200)
    assert got(third) == []
    fill(bench, 6)
    assert got(third) == [6]


def test_the_next_one_begins_where_the_name_did(bench: Bench) -> None:
    first, second = single(bench), single(bench)
    fill(bench, 0, 1)
    assert got(first) == [0, 1]
    first.peer.lost(bench.now_us)
    assert got(second) == [0, 1]


def test_one_that_has_gone_moves_nothing(bench: Bench) -> None:
    fill(bench, *range(3))
    first, second = single(bench, x_stream_offset="first"), single(bench)
    tag = next(method for method in first.methods() if method.spec is grammar.BASIC_DELIVER).text("consumer_tag")
    first.send(1, grammar.BASIC_CANCEL, consumer_tag=tag)
    assert got(second) == [0, 1, 2]
    ack(first, 3, multiple=True)
    assert offsets(bench) == {"n": 0}
    ack(second, 1)
    assert offsets(bench) == {"n": 1}


# -- random operations -------------------------------------------------------------------------------------------------


@given(st.data())
def test_progress_is_what_is_acknowledged_without_a_gap(data: st.DataObject) -> None:
    progress = AckProgress()
    given: list[int] = []
    acknowledged: set[int] = set()
    offset = 0
    for _ in range(data.draw(st.integers(1, 30))):
        left = [each for each in given if each not in acknowledged]
        if left and data.draw(st.booleans()):
            chosen = data.draw(st.sampled_from(left))
            acknowledged.add(chosen)
            before = int(progress.reached)
            assert progress.acknowledged(chosen) == (chosen == left[0])
            passed = next((index for index, each in enumerate(given) if each not in acknowledged), len(given))
            assert progress.reached == (given[passed - 1] + 1 if passed else -1)
            assert progress.reached >= before
        else:
            offset += data.draw(st.integers(0, 2))
            count = data.draw(st.integers(1, 4))
            progress.delivered(offset, count)
            given += range(offset, offset + count)
            offset += count


acts = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 4)),
        st.tuples(st.just("sync"), st.just(0)),
        st.tuples(st.just("ack"), st.integers(0, 9)),
        st.tuples(st.just("multiple"), st.integers(0, 9)),
        st.tuples(st.just("again"), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=40)
@given(acts, st.booleans())
def test_no_crash_makes_a_name_miss_what_it_has_not_acknowledged(acts: list[tuple[str, int]], is_single: bool) -> None:
    """After a crash behind any batch a name gets all unacknowledged messages, in order and without gaps; of
    acknowledged messages only those whose acknowledgement is not in a batch yet."""
    bench = begun()
    kind = {"x_single_active_consumer": True} if is_single else {}
    client = reader(bench, x_stream_offset="first", **kind)
    count = 0
    floors = {len(bench.batches): 0}  # by number of batches: the first unacknowledged offset when it was written
    tags: list[tuple[int, int]] = []  # (tag, offset) of each unacknowledged message
    next_tag = 1
    floor = 0
    for act, number in acts:
        if act == "publish":
            fill(bench, *range(count, count + number))
            count += number
        elif act == "sync":
            bench.sync()
        elif act == "again":
            client.peer.lost(bench.now_us)
            client = reader(bench, x_stream_offset="next", **kind)
            tags, next_tag = [], 1
        elif tags:
            at = number % len(tags)
            ack(client, tags[at][0], act == "multiple")
            del tags[0 if act == "multiple" else at : at + 1]
        found = got(client)
        if act == "again":
            assert found == list(range(floor, count))
        for offset in found:
            tags.append((next_tag, offset))
            next_tag += 1
        floor = tags[0][1] if tags else count
        floors.setdefault(len(bench.batches), floor)
    for crash, acknowledged in floors.items():
        again = recovered(bench.batches[:crash])
        there = int(stream_of(again).committed)
        stored = offsets(again)["n"]
        assert isinstance(stored, int)
        assert stored <= acknowledged
        assert got(reader(again)) == list(range(stored, there))


def test_recovery_of_a_mark_whose_stream_is_gone() -> None:
    """The stream's declaration was in a damaged file."""
    bench = begun()
    fill(bench, 0)
    unsynced(bench, x_stream_offset="first")
    data = bench.sync()
    empty = Bench()
    recovery = Recovery(empty.broker, empty.now_us)
    recovery.batch(data)
    recovery.finish()
    assert empty.broker.vhosts["/"].queues == {}
