"""Streams in the core: visibility, tail and files, retention, deletion, damage."""

from __future__ import annotations

import errno

import pytest

from leveret.broker.streams.chunk import ChunkGroup, encode
from leveret.net.disk.archive import CACHE_OCTETS_MAX, Cache
from leveret.store.disk import MemoryDisk
from leveret.store.format import BATCH_HEADER_SIZE, DATA_START
from leveret.store.stream_files import Chunk
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import decode_method, method_frame
from leveret.wire.properties import Properties, decode_header, encode_header

from .stream_rig import HOME, StreamRig
from .support import SECOND_US, Client

Seen = list[tuple[int, bytes]]


class Watcher:
    """A consumer of a stream, on its own connection."""

    def __init__(self, rig: StreamRig, offset: object = "first", prefetch: int = 1000, name: str = "s") -> None:
        self.rig = rig
        self.client: Client = rig.bench.connect()
        self.tag = 0
        qos = method_frame(1, grammar.BASIC_QOS, prefetch_count=prefetch)
        arguments = {"x-stream-offset": offset}
        self.client.raw(qos + method_frame(1, grammar.BASIC_CONSUME, queue=name, consumer_tag="c", arguments=arguments))

    def got(self) -> Seen:
        """Return (offset, body) of the messages since the last call."""
        self.rig.bench.broker.end_turn(self.rig.bench.now_us)
        found: Seen = []
        offset, body, left = -1, b"", 0
        frames = self.client.frames()
        for frame in frames:
            if frame is frames[-1]:  # one turn may not deliver everything
                self.client.peer.drained(self.rig.bench.now_us)
                self.rig.bench.broker.end_turn(self.rig.bench.now_us)
                frames += self.client.frames()
            if frame.kind == 1:
                method = decode_method(frame.payload)
                self.tag = method.number("delivery_tag") if method.name == "basic.deliver" else self.tag
                continue
            if frame.kind == 2:
                properties, left = decode_header(frame.payload)
                shown = (properties.headers or {})["x-stream-offset"]
                assert isinstance(shown, int)
                offset, body = shown, b""
            else:
                body += frame.payload
                left -= len(frame.payload)
            if not left:
                found.append((offset, body))
        return found

    def ack(self) -> None:
        """Acknowledge all deliveries."""
        self.client.send(1, grammar.BASIC_ACK, delivery_tag=self.tag, multiple=True)


@pytest.fixture
def rig() -> StreamRig:
    made = StreamRig()
    made.declare()
    return made


def publish(rig: StreamRig, first: int, count: int, name: str = "s") -> None:
    for number in range(first, first + count):
        rig.client.publish(name, b"%d" % number)


def store(rig: StreamRig, first: int, count: int, name: str = "s") -> None:
    """Publish messages and write them to a file of their own."""
    publish(rig, first, count, name)
    rig.step()
    assert rig.archive(name).write()
    rig.run()


def all_of(rig: StreamRig, offset: object = "first") -> Seen:
    """Read all messages from an offset on, including those that are not in memory."""
    watcher = Watcher(rig, offset)
    found = watcher.got()
    while rig.works:
        rig.run()
        found += watcher.got()
    return found


def messages(first: int, end: int) -> Seen:
    return [(number, b"%d" % number) for number in range(first, end)]


# -- visibility --------------------------------------------------------------------------------------------------------


def test_nothing_is_seen_that_a_crash_could_take_away(rig: StreamRig) -> None:
    watcher = Watcher(rig)
    publish(rig, 0, 3)
    assert watcher.got() == []
    batch = rig.bench.broker.log.batch
    rig.bench.batches.append(b"".join(rig.bench.broker.log.close_batch()))
    publish(rig, 3, 2)  # into the next batch, while this one is being synced
    assert watcher.got() == []
    rig.bench.broker.log.on_disk(batch)
    assert watcher.got() == messages(0, 3)
    after = rig.crash()
    again = Watcher(after)
    assert again.got() == messages(0, 3)
    publish(after, 3, 1)
    after.step()
    assert again.got() == messages(3, 4)


def test_what_is_not_synced_goes_to_no_file(rig: StreamRig) -> None:
    publish(rig, 0, 2)
    rig.step()
    publish(rig, 2, 2)
    assert rig.archive().write()
    rig.run()
    assert (rig.stream().history.end, rig.stream().committed) == (2, 2)


def test_a_transient_message_stays_like_any_other(rig: StreamRig) -> None:
    rig.client.publish("s", b"0", delivery_mode=1)
    rig.client.publish("s", b"1", delivery_mode=2)
    rig.step()
    assert Watcher(rig.crash()).got() == messages(0, 2)


def test_a_message_with_a_time_to_live_stays(rig: StreamRig) -> None:
    rig.client.publish("s", b"0", expiration="1")
    rig.step()
    rig.bench.pass_time(10 * SECOND_US)
    assert Watcher(rig).got() == messages(0, 1)


def test_messages_of_a_transaction_come_with_its_commit(rig: StreamRig) -> None:
    watcher = Watcher(rig)
    rig.client.send(1, grammar.TX_SELECT)
    publish(rig, 0, 2)
    rig.step()
    assert watcher.got() == []
    rig.client.send(1, grammar.TX_COMMIT)
    rig.step()
    assert watcher.got() == messages(0, 2)


# -- between tail and files --------------------------------------------------------------------------------------------


def test_a_reader_goes_from_the_files_into_the_tail(rig: StreamRig) -> None:
    store(rig, 0, 5)
    store(rig, 5, 5)
    publish(rig, 10, 5)
    rig.step()
    assert Watcher(rig).got() == messages(0, 15)
    assert Watcher(rig, 7).got() == messages(7, 15)
    assert Watcher(rig, 12).got() == messages(12, 15)


def test_one_message_at_a_time_while_the_tail_moves(rig: StreamRig) -> None:
    """At each step of the move from the tail to the files, no message is duplicated or skipped."""
    slow, fast, late = Watcher(rig, prefetch=1), Watcher(rig), Watcher(rig, "next", 2)
    seen: list[Seen] = [[], [], []]

    def look() -> None:
        for index, watcher in enumerate((slow, fast, late)):
            if new := watcher.got():
                seen[index] += new
                watcher.ack()

    for first in range(0, 40, 4):
        publish(rig, first, 4)
        rig.step()
        look()
        rig.archive().write()
        look()
        publish(rig, first + 4, 0)
        rig.run()
        look()
    for _ in range(60):
        look()
    assert seen == [messages(0, 40)] * 3


def test_readers_at_many_places_at_once(rig: StreamRig) -> None:
    for first in range(0, 30, 10):
        store(rig, first, 10)
    publish(rig, 30, 10)
    rig.step()
    watchers = [Watcher(rig, offset, 7) for offset in range(0, 40, 3)]
    for offset, watcher in zip(range(0, 40, 3), watchers, strict=True):
        assert watcher.got() == messages(offset, min(offset + 7, 40))
        watcher.ack()
        assert watcher.got() == messages(min(offset + 7, 40), min(offset + 14, 40))


class Cold(MemoryDisk):
    """A disk with nothing in the page cache."""

    def read_cached(self, path: str, offset: int, length: int) -> bytes | None:
        return None


def test_a_cold_chunk_comes_when_it_was_read() -> None:
    rig = StreamRig(Cold())
    rig.declare()
    store(rig, 0, 3)
    store(rig, 3, 3)
    watcher = Watcher(rig)
    assert watcher.got() == []
    assert len(rig.works) == 1, "however often it is asked for"
    rig.run()
    assert watcher.got() == messages(0, 3)
    rig.run()
    assert watcher.got() == messages(3, 6)


@pytest.mark.parametrize("refusal", [errno.EMFILE, errno.ENOMEM])
def test_what_the_system_refuses_to_read_for_now_is_read_later(rig: StreamRig, refusal: int) -> None:
    """Too many open files must not cause a message to be skipped."""
    store(rig, 0, 3)
    read = rig.disk.read
    attempts = []

    def refuse(path: str, offset: int = 0, length: int | None = None) -> bytes:
        attempts.append(path)
        raise OSError(refusal, "refused", path)

    rig.disk.read = refuse  # type: ignore[method-assign]
    watcher = Watcher(rig)
    assert watcher.got() == []
    rig.run()
    assert len(attempts) < 5, "it is not asked for again and again"
    rig.disk.read = read  # type: ignore[method-assign]
    rig.look()
    assert watcher.got() == messages(0, 3)


def test_a_damaged_chunk_is_told_and_passed_over(rig: StreamRig, caplog: pytest.LogCaptureFixture) -> None:
    for first in (0, 3, 6):
        store(rig, first, 3)
    path = f"{HOME}/{rig.stream().number}/{3:020d}.lvs"
    rig.disk._find(path).content[DATA_START + BATCH_HEADER_SIZE + 60] ^= 1
    assert Watcher(rig).got() == [*messages(0, 3), *messages(6, 9)]
    assert caplog.text.count("queue 's' in vhost '/': messages 3 to 5 are lost: ") == 1


# -- credit ------------------------------------------------------------------------------------------------------------


def test_an_acknowledgement_is_credit_and_takes_nothing_away(rig: StreamRig) -> None:
    publish(rig, 0, 6)
    rig.step()
    watcher = Watcher(rig, prefetch=2)
    for first in (0, 2, 4):
        assert watcher.got() == messages(first, first + 2)
        assert watcher.got() == []
        assert rig.stream().unacked == 2
        watcher.ack()
    assert rig.stream().unacked == 0
    assert rig.stream().count() == 6
    assert Watcher(rig).got() == messages(0, 6)


def test_a_channel_that_ends_gives_back_what_it_had(rig: StreamRig) -> None:
    publish(rig, 0, 3)
    rig.step()
    watcher = Watcher(rig)
    watcher.got()
    assert rig.stream().unacked == 3
    watcher.client.peer.lost(rig.bench.now_us)
    assert (rig.stream().unacked, rig.stream().consumers.count) == (0, 0)
    assert Watcher(rig).got() == messages(0, 3)


# -- retention and deletion --------------------------------------------------------------------------------------------


def test_retention_under_a_reader(rig: StreamRig) -> None:
    """The reader continues with the oldest message left; messages it already got do not matter."""
    rig = StreamRig()
    rig.declare(**{"x-max-length-bytes": 2 * (DATA_START + 400)})
    store(rig, 0, 2)
    watcher = Watcher(rig, prefetch=1)
    assert watcher.got() == messages(0, 1)
    for first in range(2, 14, 2):
        store(rig, first, 2)
    assert rig.natives() == [10, 12]
    watcher.ack()
    found: Seen = []
    while new := watcher.got():
        found += new
        watcher.ack()
    assert found[-4:] == messages(10, 14)
    assert [offset for offset, _ in found] in ([1, 10, 11, 12, 13], [10, 11, 12, 13])
    assert (rig.stream().first, rig.stream().count()) == (10, 4)
    assert Watcher(rig, 0).got() == messages(10, 14)


def test_retention_keeps_the_newest_file_however_small_the_limit(rig: StreamRig) -> None:
    rig.declare("tiny", **{"x-max-length-bytes": 1})
    for first in range(0, 6, 2):
        store(rig, first, 2, "tiny")
    assert rig.natives("tiny") == [4]
    assert Watcher(rig, name="tiny").got() == messages(4, 6)


def test_retention_takes_no_more_than_it_must(rig: StreamRig) -> None:
    rig.declare("long", **{"x-max-length-bytes": 1 << 20})
    for first in range(0, 20, 2):
        store(rig, first, 2, "long")
    assert rig.natives("long") == list(range(0, 20, 2))


def test_what_is_too_old_goes_and_the_rest_stays(rig: StreamRig) -> None:
    rig.declare("aged", **{"x-max-age": "10s"})
    for first in range(0, 8, 2):
        store(rig, first, 2, "aged")
        rig.bench.pass_time(4 * SECOND_US)
    rig.look()
    assert rig.natives("aged") == [4, 6], "the others are 16 and 12 s old"
    rig.look(3_600_000)
    assert rig.natives("aged") == [6]


def test_offsets_go_on_after_all_but_the_newest_has_gone(rig: StreamRig) -> None:
    rig.declare("tiny", **{"x-max-length-bytes": 1})
    for first in range(0, 6, 2):
        store(rig, first, 2, "tiny")
    after = rig.crash()
    publish(after, 6, 1, "tiny")
    after.step()
    assert Watcher(after, name="tiny").got() == messages(4, 7)


def test_a_deleted_stream_leaves_nothing_behind(rig: StreamRig) -> None:
    store(rig, 0, 3)
    publish(rig, 3, 3)
    rig.step()
    number, watcher = int(rig.stream().number), Watcher(rig)
    watcher.got()
    rig.delete()
    rig.run()
    assert rig.disk.list_names(f"{HOME}/{number}") == []
    assert number not in rig.streams.archives
    assert rig.bench.broker.log.tail_octets == 0
    watcher.ack()  # acknowledges deliveries of the deleted stream
    rig.declare()
    assert rig.stream().count() == 0
    publish(rig, 7, 1)
    rig.step()
    assert Watcher(rig).got() == [(0, b"7")]


def test_files_stay_until_the_deletion_is_on_disk(rig: StreamRig) -> None:
    store(rig, 0, 3)
    rig.bench.batches = [b"".join(rig.bench.broker.snapshot())]  # the journal no longer has these messages
    rig.bench.broker.vhosts["/"].delete_queue(rig.stream())
    rig.streams.step()
    rig.run()
    assert Watcher(rig.crash()).got() == messages(0, 3)


def test_a_crash_after_a_deletion_leaves_no_files(rig: StreamRig) -> None:
    store(rig, 0, 3)
    number = int(rig.stream().number)
    rig.bench.broker.vhosts["/"].delete_queue(rig.stream())
    rig.bench.sync()
    after = rig.crash()
    assert after.disk.list_names(f"{HOME}/{number}") == []


def test_a_deletion_while_the_tail_is_being_written(rig: StreamRig) -> None:
    publish(rig, 0, 3)
    rig.step()
    number = int(rig.stream().number)
    rig.archive().write()
    rig.delete()
    rig.run()
    assert rig.disk.list_names(f"{HOME}/{number}") == []


def test_a_deletion_in_the_journal_gives_up_no_file_of_it(rig: StreamRig) -> None:
    """Messages of a deleted stream are not counted as live after a restart; those of other queues are."""
    rig.client.queue("q", durable=True)
    rig.client.publish("q", b"kept", delivery_mode=2)
    publish(rig, 0, 5)
    rig.step()
    rig.delete()
    log = rig.crash().bench.broker.log
    log.recovered(1, 1)
    assert log.live() == 1


# -- messages that enter a stream --------------------------------------------------------------------------------------


def test_dead_letters_come_with_offsets_and_stay(rig: StreamRig) -> None:
    """From a durable and a transient queue, persistent and transient messages."""
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "s", "x-message-ttl": 1000}
    number = 0
    for durable in (True, False):
        rig.client.queue("q", durable=durable, exclusive=not durable, arguments=arguments)
        for mode in (1, 2):
            rig.client.publish("q", b"%d" % number, delivery_mode=mode)
            rig.bench.pass_time(SECOND_US + 1)
            number += 1
        rig.bench.sync()
        rig.client.call(1, grammar.QUEUE_DELETE, queue="q")
    rig.step()
    assert Watcher(rig).got() == messages(0, 4)
    assert Watcher(rig.crash()).got() == messages(0, 4)


def test_dead_letters_at_least_once_wait_for_a_stream(rig: StreamRig) -> None:
    rig.client.queue("sure", durable=True, arguments={
        "x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "later",
        "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
    })  # fmt: skip
    publish(rig, 0, 3, "sure")
    rig.bench.sync()
    client = rig.bench.connect()
    client.send(1, grammar.BASIC_CONSUME, queue="sure", consumer_tag="c")
    assert len(client.bodies()) == 3
    client.send(1, grammar.BASIC_NACK, delivery_tag=3, multiple=True, requeue=False)
    rig.bench.sync()
    rig.declare("later")
    for _ in range(3):
        rig.bench.pass_time(60 * SECOND_US)
        rig.step()
    assert sorted(body for _, body in Watcher(rig, name="later").got()) == [b"0", b"1", b"2"]
    after = Watcher(rig.crash(), name="later").got()
    assert sorted(after) == sorted(Watcher(rig, name="later").got())


def test_a_stream_as_an_alternate(rig: StreamRig) -> None:
    rig.client.call(1, grammar.EXCHANGE_DECLARE, exchange="unrouted", type="fanout", durable=True)
    rig.client.call(1, grammar.QUEUE_BIND, queue="s", exchange="unrouted", routing_key="")
    arguments = {"alternate-exchange": "unrouted"}
    rig.client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type="direct", durable=True, arguments=arguments)
    for number in range(3):
        rig.client.publish("nowhere", b"%d" % number, exchange="x")
    rig.step()
    assert Watcher(rig.crash()).got() == messages(0, 3)


def test_delayed_messages_come_when_they_are_due(rig: StreamRig) -> None:
    kind = "x-delayed-message"
    arguments = {"x-delayed-type": "fanout"}
    rig.client.call(1, grammar.EXCHANGE_DECLARE, exchange="d", type=kind, durable=True, arguments=arguments)
    rig.client.call(1, grammar.QUEUE_BIND, queue="s", exchange="d", routing_key="")
    for number in (2, 1, 0):
        headers = {"x-delay": 1000 * (number + 1)}
        rig.client.publish("", b"%d" % number, exchange="d", headers=headers, delivery_mode=1 + number % 2)
    rig.bench.sync()
    watcher = Watcher(rig)
    assert watcher.got() == []
    for number in range(3):
        rig.bench.pass_time(SECOND_US)
        rig.step()
        assert watcher.got() == messages(number, number + 1)
    assert Watcher(rig.crash()).got() == messages(0, 3)


def test_a_stream_beside_queues_with_limits(rig: StreamRig) -> None:
    """One record for all queues; each message is in all of them or in none."""
    rig.client.call(1, grammar.EXCHANGE_DECLARE, exchange="f", type="fanout", durable=True)
    limited = {"x-max-length": 2, "x-overflow": "drop-head"}
    rig.client.queue("q", durable=True, arguments=limited)
    for name in ("q", "s"):
        rig.client.call(1, grammar.QUEUE_BIND, queue=name, exchange="f", routing_key="")
    for number in range(5):
        rig.client.publish("", b"%d" % number, exchange="f", delivery_mode=2)
    rig.step()
    after = rig.crash()
    assert Watcher(after).got() == messages(0, 5)
    assert after.bench.broker.vhosts["/"].queues["q"].count() == 2


@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 200_000, 1_500_000])
def test_bodies_of_every_size_through_file_and_tail(rig: StreamRig, size: int) -> None:
    """Empty, longer than a frame, longer than a chunk, longer than the tail's limit."""
    body = bytes(index % 251 for index in range(size))
    for _ in range(2):
        method = method_frame(1, grammar.BASIC_PUBLISH, routing_key="s")
        rig.client.raw(method + content_frames(1, encode_header(Properties(), size), body, 4096))
        rig.step()
        rig.archive().write()
    rig.client.publish("s", body)
    rig.step()
    assert Watcher(rig).got() == [(offset, body) for offset in range(3)]
    rig.run()
    assert Watcher(rig).got() == [(offset, body) for offset in range(3)]
    assert Watcher(rig.crash()).got() == [(offset, body) for offset in range(3)]


def test_many_routes_in_one_chunk_and_keys_of_every_length(rig: StreamRig) -> None:
    rig.client.call(1, grammar.EXCHANGE_DECLARE, exchange="t", type="topic", durable=True)
    rig.client.call(1, grammar.QUEUE_BIND, queue="s", exchange="t", routing_key="#")
    keys = ["", "a", "a", "b" * 255, "c.d", "a"]
    for number, key in enumerate(keys):
        rig.client.publish(key, b"%d" % number, exchange="t")
    rig.step()
    rig.archive().write()
    rig.run()
    watcher = Watcher(rig)
    rig.bench.broker.end_turn(rig.bench.now_us)
    methods = [method for method in watcher.client.methods() if method.name == "basic.deliver"]
    assert [(method.text("exchange"), method.text("routing_key")) for method in methods] == [("t", key) for key in keys]


# -- between journal and files -----------------------------------------------------------------------------------------


def test_a_start_finds_in_the_journal_what_the_files_have_too(rig: StreamRig) -> None:
    """The journal is read from its beginning: nothing is duplicated, and messages only in the journal are restored."""
    store(rig, 0, 3)
    store(rig, 3, 3)
    publish(rig, 6, 3)
    rig.step()
    after = rig.crash()
    assert (after.stream().history.end, after.stream().tail[0].offset) == (6, 6)
    assert all_of(after) == messages(0, 9)
    publish(after, 9, 1)
    after.step()
    assert all_of(after.crash()) == messages(0, 10)


def test_a_run_of_which_a_part_is_in_the_files(rig: StreamRig) -> None:
    """Messages published in one read, and a chunk of them that a crash has torn."""
    frame = method_frame(1, grammar.BASIC_PUBLISH, routing_key="s")
    run = b"".join(
        frame + content_frames(1, encode_header(Properties(), 1), b"%d" % number, 131072) for number in range(6)
    )
    rig.client.raw(run)
    rig.step()
    *before, last = rig.stream().tail
    assert last.count > 3
    end = int(last.offset) + 2
    part = ChunkGroup(last.offset, last.time_us, last.key, last.data[: 2 * last.size], last.size, 2, last.id)
    rig.archive().files.append([Chunk(0, end, 0, 0, encode([*before, part]))])
    after = rig.crash()
    assert (after.stream().history.end, after.stream().tail[0].offset) == (end, end)
    assert all_of(after) == messages(0, 6)
    after.archive().write()
    after.run()
    assert after.stream().tail == []
    assert all_of(after.crash()) == messages(0, 6)


def test_the_files_know_more_than_a_journal_that_was_lost(rig: StreamRig) -> None:
    """An older journal was restored: offsets continue behind the files, and each names one message only."""
    declared = len(rig.bench.batches)
    store(rig, 0, 3)
    del rig.bench.batches[declared:]
    after = rig.crash()
    publish(after, 3, 1)
    after.step()
    assert all_of(after) == messages(0, 4)


def test_the_journal_lets_go_of_what_is_in_the_files_and_of_nothing_else(rig: StreamRig) -> None:
    log = rig.bench.broker.log
    publish(rig, 0, 3)
    rig.step()
    publish(rig, 3, 2)
    assert log.live() == 5
    rig.archive().write()
    rig.run()
    assert (log.live(), len(rig.stream().tail)) == (2, 2)
    rig.delete()
    assert log.live() == 0


def test_a_new_journal_file_knows_the_offset_of_what_follows(rig: StreamRig) -> None:
    store(rig, 0, 3)
    rig.bench.batches = [b"".join(rig.bench.broker.snapshot())]
    publish(rig, 3, 2)
    rig.step()
    after = rig.crash()
    assert all_of(after) == messages(0, 5)
    assert after.stream().creation == rig.stream().creation


def test_a_gap_in_the_tail_shifts_no_offset(rig: StreamRig) -> None:
    """A part of the journal is lost: later messages keep their offsets, in the tail and in the files."""
    publish(rig, 0, 3)
    rig.step()
    rig.bench.batches.append(b"".join(rig.bench.broker.snapshot()))
    del rig.bench.batches[-2]
    publish(rig, 3, 3)
    rig.step()
    lost = rig.crash()
    store(lost, 6, 1)
    assert all_of(lost) == messages(3, 7)
    stream = lost.stream()
    publish(lost, 7, 2)
    lost.step()
    stream.tail.append(ChunkGroup(20, 1, stream.tail[0].key, stream.tail[0].data, stream.tail[0].size, 1, 0))
    stream.next_offset = stream.committed = 21
    assert [[int(group.offset) for group in chunk] for chunk in stream.chunks(1 << 20)] == [[7, 8], [20]]
    watcher = Watcher(lost, 9)
    assert watcher.got() == [(20, b"7")]


def test_a_tail_is_not_written_twice_at_once(rig: StreamRig) -> None:
    publish(rig, 0, 3)
    rig.step()
    assert rig.archive().write()
    assert not rig.archive().write()
    publish(rig, 3, 2)
    rig.step()
    rig.run()
    assert rig.archive().write()
    rig.run()
    assert rig.natives() == [0, 3]


def test_a_reader_is_told_when_its_chunk_was_read() -> None:
    rig = StreamRig(Cold())
    rig.declare()
    store(rig, 0, 3)
    Watcher(rig).got()
    vhost = rig.bench.broker.vhosts["/"]
    assert not vhost.touched
    rig.run()
    assert vhost.touched == [rig.stream()]


def test_the_cache_is_bounded_by_octets() -> None:
    cache = Cache()
    for first in range(20):
        cache.put(1, first, bytes(CACHE_OCTETS_MAX // 4))
    kept = [first for first in range(20) if cache.get(1, first) is not None]
    assert kept == [16, 17, 18, 19]
    cache.put(1, 99, bytes(2 * CACHE_OCTETS_MAX))
    assert [first for first in (16, 17, 18, 19, 99) if cache.get(1, first) is not None] == [99], "one is always there"
    for first in range(1000):
        cache.put(2, first, b"x" * 100)
    assert cache.get(2, 0) is not None, "small ones are not counted by number"


@pytest.mark.parametrize("how", ["cancel", "lost", "delete"])
def test_a_consumer_that_is_gone_keeps_nothing_of_what_it_read(rig: StreamRig, how: str) -> None:
    """The consumer and its reader refer to each other, and the garbage collector is off."""
    rig.fill(20)
    watcher = Watcher(rig)
    assert len(watcher.got()) == 20
    (consumer,) = rig.bench.broker.vhosts["/"].queues["s"].consumers.all()
    reader = consumer.reader
    assert reader is not None
    assert reader._cursor.data
    if how == "cancel":
        watcher.client.send(1, grammar.BASIC_CANCEL, consumer_tag="c")
    elif how == "lost":
        watcher.client.peer.lost(rig.bench.now_us)
    else:
        rig.client.send(1, grammar.QUEUE_DELETE, queue="s")
    assert (reader._cursor.data, reader._groups, consumer.reader) == (b"", [], None)
