"""Operations whose cost must not grow with the number of other objects, measured in steps."""

from __future__ import annotations

import random
from collections.abc import ValuesView

import pytest

from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.ready import ITEM_OCTETS, SHARED_OCTETS_MIN
from leveret.broker.streams.stream import Stream
from leveret.store.disk import MemoryDisk
from leveret.store.journal import Journal
from leveret.wire import grammar

from .rig import Rig
from .support import Client, begun
from .test_runs import alike


class Asked(dict[str, Queue]):
    """Queues that count how often all of them are iterated."""

    times = 0

    def values(self) -> ValuesView[str, Queue]:  # type: ignore[override]
        self.times += 1
        return super().values()


def memory(rig: Rig) -> int:
    """Return the octets of the messages of all queues, added up."""
    vhost = rig.bench.broker.vhosts["/"]
    return sum(int(message_list.ready.octets) for queue in vhost.holders() for message_list in queue.every_list())


def start(rig: Rig, names: str) -> Client:
    """Declare a queue for each letter, bound with it and with "all"; upper case ones are durable."""
    client = rig.bench.connect()
    for name in names:
        client.queue(name, durable=name.isupper())
        for key in (name, "all"):
            client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.topic", routing_key=key)
    rig.write()
    client.frames()
    return client


def test_a_look_at_the_memory_of_messages_does_not_look_at_queues() -> None:
    rig = Rig(MemoryDisk())
    client = start(rig, "abcdefgh")
    client.raw(b"".join(alike("all", 3)))
    vhost = rig.bench.broker.vhosts["/"]
    vhost.queues = asked = Asked(vhost.queues)
    rig.paging.look()
    assert asked.times == 0
    assert rig.pager.octets() == memory(rig) > 0
    assert asked.times == 1  # by the test itself, which shows that the counting works


def test_messages_weigh_nothing_when_they_are_gone() -> None:
    """Equal messages reach a consumer and a queue without consumers, for which their bytes are copied together."""
    rig = Rig(MemoryDisk())
    client = start(rig, "ab")
    client.send(1, grammar.BASIC_CONSUME, queue="a", no_ack=True, consumer_tag="c")
    for _ in range(5):
        client.raw(b"".join(alike("all", 10)))
    queues = rig.bench.broker.vhosts["/"].queues
    assert queues["a"].count() == 0
    assert queues["a"].message_list.ready.octets == 0
    assert rig.pager.octets() == queues["b"].message_list.ready.octets > 0
    client.send(1, grammar.QUEUE_PURGE, queue="b")
    assert rig.pager.octets() == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_sum_is_that_of_all_message_lists_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    rig = Rig(MemoryDisk(), octets_max=3000)
    client = start(rig, "abCD")
    for _ in range(60):
        name = chance.choice("abCD")
        match chance.randrange(8):
            case 0 | 1 | 2:
                client.raw(b"".join(alike(chance.choice([name, "all"]), chance.randrange(1, 12), delivery_mode=2)))
            case 3:
                client.send(1, grammar.BASIC_GET, queue=name, no_ack=chance.random() < 0.5)
            case 4:
                client.send(1, grammar.BASIC_RECOVER, requeue=True)
            case 5:
                client.send(1, grammar.QUEUE_PURGE, queue=name)
            case 6:
                client.send(1, grammar.QUEUE_DELETE, queue=name)
                client.queue(name, durable=name.isupper())
                client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.topic", routing_key=name)
            case _:
                rig.page()
        rig.write()
        client.frames()
        assert rig.pager.octets() == memory(rig)
    for name in "abCD":
        client.send(1, grammar.QUEUE_DELETE, queue=name)
    assert rig.pager.octets() == 0


@pytest.mark.parametrize("declared", [100, 10_000, 1_000_000])
def test_the_journal_never_writes_more_of_what_is_declared_than_of_what_happens(declared: int) -> None:
    journal = Journal(MemoryDisk(), "/data", file_size=50_000)
    list(journal.replay())
    written = 0
    for _ in range(1000):
        if journal.is_full:
            written += declared
            journal.rotate(bytes(declared))
        journal.append(b"x" * 500)
    assert written <= 1000 * 600 + declared


LARGE = 20_000


def accounts(rig: Rig) -> int:
    """Return the octets, with each content and each batch of large messages counted once."""
    found, large = 0, {}
    for queue in rig.bench.broker.vhosts["/"].holders():
        for message_list in queue.every_list():
            for item in message_list.ready._items[message_list.ready._head :]:
                if not isinstance(item, (Entry, MessageBatch)):
                    continue
                is_run = isinstance(item, MessageBatch)
                octets = int(item.buffer.count * item.buffer.size) if is_run else len(item.content)
                found += ITEM_OCTETS
                if octets >= SHARED_OCTETS_MIN:
                    large[id(item.buffer if is_run else item.content)] = octets
                else:
                    found += octets
    return found + sum(large.values())


@pytest.mark.parametrize("seed", range(5))
def test_a_large_content_counts_once_however_many_queues_hold_it(seed: int) -> None:
    chance = random.Random(seed)
    rig = Rig(MemoryDisk(), file_size=1 << 20, octets_max=3 * LARGE)
    client = start(rig, "abCD")
    for _ in range(80):
        name, to = chance.choice("abCD"), chance.choice(["all", "all", *"abCD"])
        match chance.randrange(9):
            case 0 | 1:
                client.publish(to, bytes(LARGE), exchange="amq.topic", delivery_mode=chance.choice([1, 2]))
            case 2:
                client.raw(b"".join(client.encoded(to, bytes(900), exchange="amq.topic") for _ in range(25)))
            case 3:
                client.raw(b"".join(alike(to, chance.randrange(1, 12), delivery_mode=2)))
            case 4 | 5:
                client.send(1, grammar.BASIC_GET, queue=name, no_ack=chance.random() < 0.5)
            case 6:
                client.send(1, grammar.BASIC_RECOVER, requeue=True)
            case 7:
                client.send(1, chance.choice([grammar.QUEUE_PURGE, grammar.QUEUE_DELETE]), queue=name)
                client.queue(name, durable=name.isupper())
                for key in (name, "all"):
                    client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.topic", routing_key=key)
            case _:
                rig.page()
        rig.write()
        client.frames()
        assert rig.pager.octets() == accounts(rig)
    for name in "abCD":
        client.send(1, grammar.QUEUE_DELETE, queue=name)
    assert rig.pager.octets() == 0
    assert rig.bench.broker.log.held == {}


@pytest.mark.parametrize("is_run", [False, True])
def test_what_many_queues_hold_is_in_memory_once_after_a_restart_too(is_run: bool) -> None:
    disk = MemoryDisk()
    rig = Rig(disk, file_size=1 << 20)
    client = rig.bench.connect()
    for name in "ABCDEFGH":
        client.send(1, grammar.QUEUE_DECLARE, queue=name, durable=True)
        client.send(1, grammar.QUEUE_BIND, queue=name, exchange="amq.topic", routing_key="all")
    if is_run:
        client.raw(client.encoded("all", bytes(900), exchange="amq.topic", delivery_mode=2) * 25)
    else:
        client.publish("all", bytes(LARGE), exchange="amq.topic", delivery_mode=2)
    rig.write()
    before = rig.pager.octets()
    assert LARGE < before < 2 * LARGE
    disk.crash()
    again = Rig(disk, file_size=1 << 20)
    assert again.recovered == (200 if is_run else 8)
    assert again.pager.octets() == before == accounts(again)


def test_a_tail_that_was_too_long_before_it_was_on_the_disk_goes_to_the_files() -> None:
    bench = begun()
    bench.connect().publish("s", bytes(2 << 20))
    log = bench.broker.log
    log.long_streams = []  # as if it was checked before anything of it could be written
    stream = bench.broker.vhosts["/"].queues["s"]
    assert isinstance(stream, Stream)
    stream.is_long = False
    bench.sync()
    assert log.long_streams == [stream]
