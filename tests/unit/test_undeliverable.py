"""Delayed messages that are due without a destination: kept in their level, and delivered once there is one."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leveret.broker.dead_letters.undeliverable import LISTS_MAX
from leveret.broker.dead_letters.undeliverable_retry import (
    NEXT_US,
    PAUSE_MAX_US,
    PAUSE_MIN_US,
    SOON_US,
    TRIES_MAX,
    VAIN_US,
)
from leveret.broker.messages.contents import body_of
from leveret.broker.queues.queue import Queue
from leveret.delay import LAYOUTS, MILLISECONDS, Layout
from leveret.store.disk import MemoryDisk
from leveret.wire import grammar
from leveret.wire.method import Method
from leveret.wire.properties import Properties
from leveret.wire.table import Value

from .house import House
from .support import SECOND_US, Bench
from .test_dead_letters import history
from .test_levels import declare

SHORT = Layout(levels=3)
KOMBU = Layout("shop_celery_delayed", queue_type="quorum", level_names="{prefix}_{level}",
               delivery_name="{prefix}_delivery", starts_at_top=True)  # fmt: skip
FOREVER_US = 3600 * SECOND_US


class Yard:
    """A broker with its disk, a delay layout and a clock that survives restarts; every timer fires on time."""

    def __init__(self, layout: Layout = SHORT, octets_max: int = 1 << 30) -> None:
        self.layout = layout
        self.disk = MemoryDisk()
        self.octets_max = octets_max
        self.house = House(self.disk, octets_max=octets_max)
        self.client = self.house.bench.connect()
        declare(self.client, layout)
        self.house.write()

    @property
    def bench(self) -> Bench:
        return self.house.bench

    @property
    def now_us(self) -> int:
        return self.bench.now_us

    def call(self, spec: grammar.MethodSpec, **values: object) -> Method:
        """Send a method, sync, and return the last method received."""
        self.client.send(1, spec, **values)
        self.house.write()
        return self.client.methods()[-1]

    def queue(self, name: str) -> Queue:
        return self.bench.broker.vhosts["/"].queues[name]

    def level(self, number: int) -> Queue:
        return self.queue(self.layout.level_name(number))

    def undeliverable(self) -> int:
        """Return the number of undeliverable messages in all levels."""
        return sum(int(self.level(number).undeliverable_count()) for number in range(self.layout.levels))

    def send(self, body: bytes, destination: str, seconds: float, **values: object) -> None:
        properties = Properties(delivery_mode=2, **values)  # type: ignore[arg-type]
        exchange, key, sent = self.layout.message(destination, seconds, properties)
        self.client.publish(key, body, exchange=exchange, delivery_mode=2, headers=sent.headers)

    def bind(self, destination: str, **arguments: Value) -> None:
        given = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        self.call(grammar.QUEUE_DECLARE, queue=destination, durable=True, arguments=given)
        one = self.layout.destination_binding(destination)
        self.call(grammar.QUEUE_BIND, queue=one.queue, exchange=one.exchange, routing_key=one.routing_key)

    def unbind(self, destination: str) -> None:
        one = self.layout.destination_binding(destination)
        self.call(grammar.QUEUE_UNBIND, queue=one.queue, exchange=one.exchange, routing_key=one.routing_key)

    def bodies(self, name: str) -> list[bytes]:
        """Return the bodies of the messages in a queue without consuming them."""
        return [body_of(entry.content) for entry in self.queue(name).in_memory()]

    def fetch(self, name: str) -> list[bytes]:
        self.house.write()
        self.client.frames()
        self.client.send(1, grammar.BASIC_CONSUME, queue=name, no_ack=True, consumer_tag=name)
        found: list[bytes] = []
        while bodies := self.client.bodies():  # one turn delivers a part of many
            found += bodies
            self.client.raw(b"")
        self.client.send(1, grammar.BASIC_CANCEL, consumer_tag=name)
        self.house.write()
        self.client.frames()
        return found

    def pass_time(self, us: int, *, page: bool = False) -> None:
        end_us = self.now_us + us
        while 0 < (next_us := self.bench.broker.timers.next_us()) <= end_us:
            self.bench.now_us = max(self.now_us, next_us)
            self.bench.broker.run_timers(self.now_us)
            self.house.write()
            if page:
                self.house.page()
        self.bench.now_us = end_us

    def restart(self, *, is_orderly: bool = False) -> None:
        now_us = self.now_us
        if is_orderly:
            self.client.peer.lost(self.now_us)
            self.bench.broker.stop()
        self.house.write()
        self.disk.crash()
        self.house = House(self.disk, octets_max=self.octets_max)
        self.bench.now_us = now_us
        self.bench.broker.run_timers(now_us)
        self.house.write()  # sync what is released at once, since connecting a client writes to no disk
        self.client = self.bench.connect()


# -- undeliverable messages --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [*LAYOUTS.values(), KOMBU], ids=[*LAYOUTS, "kombu with a prefix"])
def test_what_is_due_in_a_named_layout_waits_for_its_destination(layout: Layout) -> None:
    """For any queue type and strategy; the message is not ready, and one event is reported."""
    yard = Yard(layout)
    told: list[str] = []
    yard.bench.broker.on_event = told.append
    units = [3, 2, 3, 4]
    for number, count in enumerate(units):
        yard.send(b"%d" % number, "sales", count * layout.unit_ms / 1000)
    yard.pass_time(5 * layout.unit_ms * 1000)
    assert (yard.undeliverable(), yard.bench.broker.vhosts["/"].discards) == (4, {})
    assert all(yard.level(number).count() == 0 for number in range(layout.levels))
    name = layout.level_name(1)
    text = f"queue '{name}' in vhost '/': dead letter without a route: the message for 'sales' is kept until a"
    assert [line for line in told if f"'{name}'" in line] == [f"{text} queue accepts it (logged once; all are counted)"]
    yard.bind("sales")
    yard.pass_time(int(SOON_US))
    assert (yard.bodies("sales"), yard.undeliverable()) == ([b"1", b"0", b"2", b"3"], 0)
    waits = [[layout.level_name(level) for level in (0, 1, 2) if count >> level & 1] for count in units]
    assert [[death[0] for death in history(entry)] for entry in yard.queue("sales").in_memory()] == [
        waits[1], waits[0], waits[2], waits[3],
    ]  # fmt: skip


def test_other_queues_of_that_kind_drop_theirs_as_rabbitmq_does() -> None:
    yard = Yard()
    arguments = {**SHORT.level_arguments(0), "x-dead-letter-exchange": "another"}
    for name, dying in (("nsb.delay-level-99", SHORT.level_arguments(0)), ("other", arguments)):
        yard.call(grammar.QUEUE_DECLARE, queue=name, durable=True, arguments=dying)
        yard.client.publish(name, b"x", delivery_mode=2)
    yard.pass_time(2 * SECOND_US)
    discards = yard.bench.broker.vhosts["/"].discards
    assert discards == {"dead letter without a route": 1, "dead letter exchange missing": 1}


def test_who_waits_in_vain_delays_nobody() -> None:
    """With NServiceBus on RabbitMQ, one removed endpoint stops the delays of all (its issue 1407)."""
    yard = Yard()
    yard.bind("here")
    for _ in range(100):
        yard.send(b"gone", "gone", 1)
    for number in range(100):
        yard.send(b"%d" % number, "here", 1)
    yard.pass_time(SECOND_US)
    assert (yard.undeliverable(), yard.bodies("here")) == (100, [b"%d" % number for number in range(100)])


def test_a_wait_goes_on_where_a_level_was_missing() -> None:
    """Without the next level's exchange the message is undeliverable on its way; the time lost there is made up for."""
    yard = Yard()
    yard.bind("sales")
    sent_us = yard.now_us
    yard.send(b"long", "sales", 7)
    yard.call(grammar.EXCHANGE_DELETE, exchange=SHORT.level_name(1))
    yard.pass_time(8 * SECOND_US)
    assert [int(yard.level(number).undeliverable_count()) for number in range(3)] == [0, 0, 1]
    declare(yard.client, SHORT)
    yard.pass_time(int(SOON_US))
    assert yard.bodies("sales") == [b"long"]
    assert yard.now_us - sent_us < 9 * SECOND_US


def test_a_time_to_live_begins_with_the_release() -> None:
    yard = Yard()
    yard.send(b"x", "sales", 1)
    yard.pass_time(FOREVER_US)
    yard.bind("sales", message_ttl=5000)
    yard.pass_time(int(SOON_US) + 4 * SECOND_US)
    assert yard.bodies("sales") == [b"x"]
    yard.pass_time(SECOND_US)
    assert yard.bodies("sales") == []


def test_purging_a_level_leaves_them_and_it_is_not_empty() -> None:
    """As RabbitMQ's purge leaves the dead letters that a quorum queue keeps."""
    yard = Yard()
    yard.send(b"x", "sales", 1)
    yard.pass_time(SECOND_US)
    name = SHORT.level_name(0)
    assert yard.call(grammar.QUEUE_PURGE, queue=name).number("message_count") == 0
    assert yard.undeliverable() == 1
    other = yard.bench.connect()
    other.send(1, grammar.QUEUE_DELETE, queue=name, if_empty=True)
    (close,) = other.methods()
    assert close.text("reply_text") == f"PRECONDITION_FAILED - queue '{name}' in vhost '/' not empty"
    assert yard.undeliverable() == 1
    yard.call(grammar.QUEUE_DELETE, queue=name)
    assert yard.bench.broker.log.live() == 0


# -- release -----------------------------------------------------------------------------------------------------------


def test_they_go_in_due_order_whatever_level_they_came_from() -> None:
    yard = Yard()
    for seconds in (7, 3, 6, 1, 5, 2, 4):
        yard.send(b"%d" % seconds, "sales", seconds)
    yard.pass_time(10 * SECOND_US)
    assert [int(yard.level(number).undeliverable_count()) for number in range(3)] == [4, 2, 1]
    yard.bind("sales")
    yard.pass_time(int(SOON_US))
    assert yard.bodies("sales") == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]


def test_only_those_go_that_somebody_waits_for() -> None:
    """For the others nothing is written or read, and only a timer for the next try is left."""
    yard = Yard(octets_max=20_000)
    for number in range(300):
        yard.send(b"%d" % number, "gone", 1)
        yard.send(b"%d" % number, "back", 1)
    yard.pass_time(SECOND_US, page=True)
    yard.house.page()
    yard.restart()
    reads: list[int] = []
    log = yard.bench.broker.log
    read = log.read_page
    log.read_page = lambda segment, offset, size: (reads.append(size), read(segment, offset, size))[1]
    yard.bind("back")
    gone = [page for message_list in yard.level(0).every_list() for page in message_list.pages]
    yard.pass_time(2 * SECOND_US)
    assert (yard.undeliverable(), yard.fetch("back")) == (300, [b"%d" % number for number in range(300)])
    # one read of a page of the others, besides each page of the released ones
    assert len(reads) <= len(gone) // 2 + 5
    reads.clear()
    events = log.events
    yard.bind("another")
    for _ in range(20):
        yard.pass_time(int(PAUSE_MAX_US))
    assert (reads, log.events - events) == ([], 2)
    assert yard.bench.broker.timers.next_us() > yard.now_us + SECOND_US


def test_new_ones_do_not_overtake_those_that_are_being_released() -> None:
    yard = Yard()
    count = 600
    for number in range(count):
        yard.send(b"%d" % number, "sales", 1)
    yard.pass_time(SECOND_US)
    yard.send(b"new", "sales", 1)
    yard.pass_time(SECOND_US - int(SOON_US) - int(NEXT_US))
    yard.bind("sales")
    yard.pass_time(SECOND_US)
    assert yard.bodies("sales") == [*[b"%d" % number for number in range(count)], b"new"]


def test_a_full_queue_gets_them_when_it_has_room() -> None:
    yard = Yard()
    yard.bind("small", max_length=2, overflow="reject-publish")
    for number in range(6):
        yard.send(b"%d" % number, "small", 1)
    yard.pass_time(SECOND_US)
    found: list[bytes] = []
    for _ in range(3):
        assert yard.undeliverable() == 4 - len(found)
        found += yard.fetch("small")
        yard.pass_time(2 * int(PAUSE_MIN_US))
    assert (found, yard.undeliverable()) == ([b"%d" % number for number in range(6)], 0)


def test_destinations_that_hash_alike_are_not_mistaken_for_each_other() -> None:
    seen: dict[int, str] = {}
    number = 0
    while True:
        here = f"endpoint.{(number := number + 1)}"
        gone = seen.setdefault(crc32(here.encode()) & 0xFFFFFF, here)
        if gone != here:
            break
    yard = Yard()
    yard.send(b"gone", gone, 1)
    yard.send(b"here", here, 1)
    yard.pass_time(SECOND_US)
    yard.bind(here)
    yard.pass_time(SECOND_US)
    assert (yard.bodies(here), yard.undeliverable()) == ([b"here"], 1)


@pytest.mark.parametrize("is_paged", [False, True])
def test_each_of_very_many_destinations_gets_its_own(is_paged: bool) -> None:
    """Destinations beyond the maximum of message lists share one, of which each message is tried."""
    yard = Yard(octets_max=20_000 if is_paged else 1 << 30)
    count = LISTS_MAX + 40
    for number in range(count):
        yard.send(b"%d" % number, f"gone.{number}", 1)
    yard.pass_time(SECOND_US, page=is_paged)
    undeliverable = yard.level(0).undeliverable
    assert undeliverable is not None
    assert (len(undeliverable.message_lists), yard.undeliverable()) == (LISTS_MAX + 1, count)
    if is_paged:
        yard.house.page()
        yard.restart()
    for number in (3, count - 20):
        yard.bind(f"gone.{number}")
        yard.pass_time(2 * SECOND_US)
        assert yard.bodies(f"gone.{number}") == [b"%d" % number]
    assert yard.undeliverable() == count - 2


def test_other_keys_of_a_message_are_ways_too() -> None:
    """A message with CC is delivered by that key; messages without it are not delayed by it."""
    yard = Yard(MILLISECONDS)
    cc = [MILLISECONDS.routing_key(0, "copy")]
    yard.send(b"1", "sales", 0.001, headers={"CC": cc})
    yard.send(b"2", "sales", 0.001)
    yard.send(b"3", "sales", 0.001, headers={"CC": cc})
    yard.pass_time(SECOND_US)
    yard.bind("copy")
    yard.pass_time(SECOND_US)
    assert (yard.bodies("copy"), yard.undeliverable()) == ([b"1", b"3"], 1)
    yard.bind("sales")
    yard.pass_time(SECOND_US)
    assert (yard.bodies("sales"), yard.undeliverable()) == ([b"2"], 0)


def sure(exchange: str) -> dict[str, Value]:
    return {"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
            "x-dead-letter-exchange": exchange, "x-message-ttl": 1}  # fmt: skip


def test_where_the_key_does_not_decide_each_is_tried() -> None:
    """With a headers exchange each message is tried; without a change only some are tried at a time."""
    yard = Yard()
    yard.call(grammar.EXCHANGE_DECLARE, exchange="h", type="headers")
    yard.call(grammar.QUEUE_DECLARE, queue="q", durable=True, arguments=sure("h"))
    count = 2 * int(TRIES_MAX)
    for number in range(count):
        yard.client.publish("q", b"%d" % number, headers={"n": number})
    yard.pass_time(SECOND_US // 2)
    assert yard.queue("q").undeliverable_count() == count
    yard.call(grammar.QUEUE_DECLARE, queue="last")
    yard.call(grammar.QUEUE_BIND, queue="last", exchange="h", arguments={"n": count - 1, "x-match": "all"})
    yard.pass_time(int(SOON_US) + count * int(VAIN_US))
    assert (yard.bodies("last"), yard.queue("q").undeliverable_count()) == ([b"%d" % (count - 1)], count - 1)
    yard.pass_time(FOREVER_US)
    next_id = yard.bench.broker.log.next_id
    yard.pass_time(int(PAUSE_MAX_US))
    assert yard.bench.broker.log.next_id - next_id == TRIES_MAX


def test_the_firehose_makes_no_way() -> None:
    """With the firehose on, routes are not cached; the destination of undeliverable messages is known nevertheless."""
    yard = Yard()
    yard.bench.broker.trace("/", True)
    for number in range(3):
        yard.send(b"%d" % number, "gone", 1)
    yard.pass_time(SECOND_US)
    next_id = yard.bench.broker.log.next_id
    yard.bind("another")
    yard.pass_time(10 * SECOND_US)
    assert (yard.undeliverable(), yard.bench.broker.log.next_id) == (3, next_id)


# -- memory, disk and restarts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_orderly", [False, True])
def test_they_cost_disk_and_no_memory(is_orderly: bool) -> None:
    yard = Yard(octets_max=20_000)
    count = 2000
    for number in range(count):
        yard.send(b"%d" % number, "sales" if number % 2 else "gone", 1)
        if number % 100 == 0:
            yard.house.page()
    yard.pass_time(SECOND_US, page=True)
    for _ in range(2):
        yard.house.page()
        assert yard.house.pager.octets() <= 20_000
        assert yard.undeliverable() == count
        yard.restart(is_orderly=is_orderly)
    in_memory = sum(len(message_list.ready.in_memory()) for message_list in yard.level(0).every_list())
    assert (yard.undeliverable(), yard.level(0).count()) == (count, 0)
    assert in_memory < count // 10
    assert yard.house.pager.octets() <= 20_000
    yard.bind("sales")
    yard.pass_time(SECOND_US)
    assert yard.fetch("sales") == [b"%d" % number for number in range(1, count, 2)]
    assert yard.undeliverable() == count // 2
    assert yard.house.pager.octets() <= 20_000
    for number in reversed(range(3)):
        yard.call(grammar.QUEUE_DELETE, queue=SHORT.level_name(number))
    yard.house.page()
    assert (yard.bench.broker.log.live(), yard.house.pager.segments) == (0, {})


def test_those_that_are_lost_with_their_pages_do_not_stand_in_the_way() -> None:
    yard = Yard(octets_max=10_000)
    for number in range(300):
        yard.send(b"%d" % number, "sales", 1)
    yard.pass_time(SECOND_US, page=True)
    yard.house.page()
    yard.restart()
    yard.bench.broker.log.read_page = lambda segment, offset, size: None
    yard.send(b"new", "sales", 1)
    yard.pass_time(SECOND_US)
    yard.bind("sales")
    yard.pass_time(10 * SECOND_US)
    assert yard.bodies("sales")[-1] == b"new"
    assert yard.undeliverable() == 0


ROOM = {"x-max-length-bytes": 100, "x-overflow": "reject-publish"}


@pytest.mark.parametrize("is_paged", [False, True])
def test_room_is_counted_anew_after_a_restart(is_paged: bool) -> None:
    yard = Yard(octets_max=300 if is_paged else 1 << 30)
    yard.call(grammar.QUEUE_DECLARE, queue="q", durable=True, arguments={**sure("nowhere"), **ROOM})
    for _ in range(9):
        yard.client.publish("q", b"0123456789")
    yard.pass_time(SECOND_US // 2, page=is_paged)
    yard.house.page()
    yard.restart()
    yard.call(grammar.CONFIRM_SELECT)
    for octets in (11, 10, 1):
        yard.client.publish("q", b"x" * octets)
        yard.pass_time(10_000)
        yard.house.write()
    assert [method.name for method in yard.client.methods()] == ["basic.nack", "basic.ack", "basic.nack"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from("abc"), st.integers(1, 7)),
        st.tuples(st.sampled_from(["bind", "unbind"]), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("time"), st.just(""), st.integers(1, 4000)),
        st.tuples(st.sampled_from(["page", "crash", "stop"]), st.just(""), st.just(0)),
    ),
    max_size=30,
)  # fmt: skip


@given(steps=STEPS)
@example(steps=[
    ("send", "a", 1), ("unbind", "a", 0), ("time", "", 1000), ("send", "a", 1), ("bind", "a", 0), ("crash", "", 0),
    ("crash", "", 0),
])  # fmt: skip
def test_every_message_arrives_once_and_never_early(steps: list[tuple[str, str, int]]) -> None:
    """Endpoints come and go, the broker crashes, messages are paged or not: each endpoint gets what was sent to it."""
    yard = Yard(octets_max=1500)
    for name in "abc":
        yard.bind(name)
    due: dict[bytes, tuple[str, int]] = {}
    arrived: list[bytes] = []

    def look() -> None:
        for name in "abc":
            for body in yard.fetch(name):
                assert due[body][0] == name
                assert due[body][1] <= yard.now_us
                arrived.append(body)

    for step, name, number in steps:
        if step == "send":
            body = b"%d" % len(due)
            due[body] = (name, yard.now_us + number * SECOND_US)
            yard.send(body, name, number)
        elif step == "bind":
            yard.bind(name)
        elif step == "unbind":
            yard.unbind(name)
        elif step == "time":
            yard.pass_time(number * 1000)
        elif step == "page":
            yard.house.page()
        else:
            look()
            yard.restart(is_orderly=step == "stop")
        look()
    for name in "abc":
        yard.bind(name)
    yard.pass_time(10 * SECOND_US)
    look()
    assert sorted(arrived) == sorted(due)
    assert (yard.undeliverable(), yard.bench.broker.log.live()) == (0, 0)
