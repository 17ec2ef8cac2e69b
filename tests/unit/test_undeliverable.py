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

from .rig import Rig
from .support import SECOND_US, Bench
from .test_dead_letters import history
from .test_levels import declare

SHORT = Layout(levels=3)
KOMBU = Layout("shop_celery_delayed", queue_type="quorum", level_names="{prefix}_{level}",
               delivery_name="{prefix}_delivery", starts_at_top=True)  # fmt: skip
FOREVER_US = 3600 * SECOND_US


class RetryRig:
    """A broker with its disk, a delay layout and a clock that survives restarts; every timer fires on time."""

    def __init__(self, layout: Layout = SHORT, octets_max: int = 1 << 30) -> None:
        self.layout = layout
        self.disk = MemoryDisk()
        self.octets_max = octets_max
        self.rig = Rig(self.disk, octets_max=octets_max)
        self.client = self.rig.bench.connect()
        declare(self.client, layout)
        self.rig.write()

    @property
    def bench(self) -> Bench:
        return self.rig.bench

    @property
    def now_us(self) -> int:
        return self.bench.now_us

    def call(self, spec: grammar.MethodSpec, **values: object) -> Method:
        """Send a method, sync, and return the last method received."""
        self.client.send(1, spec, **values)
        self.rig.write()
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
        self.rig.write()
        self.client.frames()
        self.client.send(1, grammar.BASIC_CONSUME, queue=name, no_ack=True, consumer_tag=name)
        found: list[bytes] = []
        while bodies := self.client.bodies():  # one turn delivers a part of many
            found += bodies
            self.client.raw(b"")
        self.client.send(1, grammar.BASIC_CANCEL, consumer_tag=name)
        self.rig.write()
        self.client.frames()
        return found

    def pass_time(self, us: int, *, page: bool = False) -> None:
        end_us = self.now_us + us
        while 0 < (next_us := self.bench.broker.timers.next_us()) <= end_us:
            self.bench.now_us = max(self.now_us, next_us)
            self.bench.broker.run_timers(self.now_us)
            self.rig.write()
            if page:
                self.rig.page()
        self.bench.now_us = end_us

    def restart(self, *, is_orderly: bool = False) -> None:
        now_us = self.now_us
        if is_orderly:
            self.client.peer.lost(self.now_us)
            self.bench.broker.stop()
        self.rig.write()
        self.disk.crash()
        self.rig = Rig(self.disk, octets_max=self.octets_max)
        self.bench.now_us = now_us
        self.bench.broker.run_timers(now_us)
        self.rig.write()  # sync what is released at once, since connecting a client writes to no disk
        self.client = self.bench.connect()


# -- undeliverable messages --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [*LAYOUTS.values(), KOMBU], ids=[*LAYOUTS, "kombu with a prefix"])
def test_what_is_due_in_a_named_layout_waits_for_its_destination(layout: Layout) -> None:
    """For any queue type and strategy; the message is not ready, and one event is reported."""
    retry_rig = RetryRig(layout)
    told: list[str] = []
    retry_rig.bench.broker.on_event = told.append
    units = [3, 2, 3, 4]
    for number, count in enumerate(units):
        retry_rig.send(b"%d" % number, "sales", count * layout.unit_ms / 1000)
    retry_rig.pass_time(5 * layout.unit_ms * 1000)
    assert (retry_rig.undeliverable(), retry_rig.bench.broker.vhosts["/"].discards) == (4, {})
    assert all(retry_rig.level(number).count() == 0 for number in range(layout.levels))
    name = layout.level_name(1)
    text = f"queue '{name}' in vhost '/': dead letter without a route: the message for 'sales' is kept until a"
    assert [line for line in told if f"'{name}'" in line] == [f"{text} queue accepts it (logged once; all are counted)"]
    retry_rig.bind("sales")
    retry_rig.pass_time(int(SOON_US))
    assert (retry_rig.bodies("sales"), retry_rig.undeliverable()) == ([b"1", b"0", b"2", b"3"], 0)
    waits = [[layout.level_name(level) for level in (0, 1, 2) if count >> level & 1] for count in units]
    assert [[death[0] for death in history(entry)] for entry in retry_rig.queue("sales").in_memory()] == [
        waits[1], waits[0], waits[2], waits[3],
    ]  # fmt: skip


def test_other_queues_of_that_kind_drop_theirs_as_rabbitmq_does() -> None:
    retry_rig = RetryRig()
    arguments = {**SHORT.level_arguments(0), "x-dead-letter-exchange": "another"}
    for name, dying in (("nsb.delay-level-99", SHORT.level_arguments(0)), ("other", arguments)):
        retry_rig.call(grammar.QUEUE_DECLARE, queue=name, durable=True, arguments=dying)
        retry_rig.client.publish(name, b"x", delivery_mode=2)
    retry_rig.pass_time(2 * SECOND_US)
    discards = retry_rig.bench.broker.vhosts["/"].discards
    assert discards == {"dead letter without a route": 1, "dead letter exchange missing": 1}


def test_who_waits_in_vain_delays_nobody() -> None:
    """With NServiceBus on RabbitMQ, one removed endpoint stops the delays of all (its issue 1407)."""
    retry_rig = RetryRig()
    retry_rig.bind("here")
    for _ in range(100):
        retry_rig.send(b"gone", "gone", 1)
    for number in range(100):
        retry_rig.send(b"%d" % number, "here", 1)
    retry_rig.pass_time(SECOND_US)
    assert (retry_rig.undeliverable(), retry_rig.bodies("here")) == (100, [b"%d" % number for number in range(100)])


def test_a_wait_goes_on_where_a_level_was_missing() -> None:
    """Without the next level's exchange the message is undeliverable on its way; the time lost there is made up for."""
    retry_rig = RetryRig()
    retry_rig.bind("sales")
    sent_us = retry_rig.now_us
    retry_rig.send(b"long", "sales", 7)
    retry_rig.call(grammar.EXCHANGE_DELETE, exchange=SHORT.level_name(1))
    retry_rig.pass_time(8 * SECOND_US)
    assert [int(retry_rig.level(number).undeliverable_count()) for number in range(3)] == [0, 0, 1]
    declare(retry_rig.client, SHORT)
    retry_rig.pass_time(int(SOON_US))
    assert retry_rig.bodies("sales") == [b"long"]
    assert retry_rig.now_us - sent_us < 9 * SECOND_US


def test_a_time_to_live_begins_with_the_release() -> None:
    retry_rig = RetryRig()
    retry_rig.send(b"x", "sales", 1)
    retry_rig.pass_time(FOREVER_US)
    retry_rig.bind("sales", message_ttl=5000)
    retry_rig.pass_time(int(SOON_US) + 4 * SECOND_US)
    assert retry_rig.bodies("sales") == [b"x"]
    retry_rig.pass_time(SECOND_US)
    assert retry_rig.bodies("sales") == []


def test_purging_a_level_leaves_them_and_it_is_not_empty() -> None:
    """As RabbitMQ's purge leaves the dead letters that a quorum queue keeps."""
    retry_rig = RetryRig()
    retry_rig.send(b"x", "sales", 1)
    retry_rig.pass_time(SECOND_US)
    name = SHORT.level_name(0)
    assert retry_rig.call(grammar.QUEUE_PURGE, queue=name).number("message_count") == 0
    assert retry_rig.undeliverable() == 1
    other = retry_rig.bench.connect()
    other.send(1, grammar.QUEUE_DELETE, queue=name, if_empty=True)
    (close,) = other.methods()
    assert close.text("reply_text") == f"PRECONDITION_FAILED - queue '{name}' in vhost '/' not empty"
    assert retry_rig.undeliverable() == 1
    retry_rig.call(grammar.QUEUE_DELETE, queue=name)
    assert retry_rig.bench.broker.log.live() == 0


# -- release -----------------------------------------------------------------------------------------------------------


def test_they_go_in_due_order_whatever_level_they_came_from() -> None:
    retry_rig = RetryRig()
    for seconds in (7, 3, 6, 1, 5, 2, 4):
        retry_rig.send(b"%d" % seconds, "sales", seconds)
    retry_rig.pass_time(10 * SECOND_US)
    assert [int(retry_rig.level(number).undeliverable_count()) for number in range(3)] == [4, 2, 1]
    retry_rig.bind("sales")
    retry_rig.pass_time(int(SOON_US))
    assert retry_rig.bodies("sales") == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]


def test_only_those_go_that_somebody_waits_for() -> None:
    """For the others nothing is written or read, and only a timer for the next try is left."""
    retry_rig = RetryRig(octets_max=20_000)
    for number in range(300):
        retry_rig.send(b"%d" % number, "gone", 1)
        retry_rig.send(b"%d" % number, "back", 1)
    retry_rig.pass_time(SECOND_US, page=True)
    retry_rig.rig.page()
    retry_rig.restart()
    reads: list[int] = []
    log = retry_rig.bench.broker.log
    read = log.read_page
    log.read_page = lambda segment, offset, size: (reads.append(size), read(segment, offset, size))[1]
    retry_rig.bind("back")
    gone = [page for message_list in retry_rig.level(0).every_list() for page in message_list.pages]
    retry_rig.pass_time(2 * SECOND_US)
    assert (retry_rig.undeliverable(), retry_rig.fetch("back")) == (300, [b"%d" % number for number in range(300)])
    # one read of a page of the others, besides each page of the released ones
    assert len(reads) <= len(gone) // 2 + 5
    reads.clear()
    events = log.events
    retry_rig.bind("another")
    for _ in range(20):
        retry_rig.pass_time(int(PAUSE_MAX_US))
    assert (reads, log.events - events) == ([], 2)
    assert retry_rig.bench.broker.timers.next_us() > retry_rig.now_us + SECOND_US


def test_new_ones_do_not_overtake_those_that_are_being_released() -> None:
    retry_rig = RetryRig()
    count = 600
    for number in range(count):
        retry_rig.send(b"%d" % number, "sales", 1)
    retry_rig.pass_time(SECOND_US)
    retry_rig.send(b"new", "sales", 1)
    retry_rig.pass_time(SECOND_US - int(SOON_US) - int(NEXT_US))
    retry_rig.bind("sales")
    retry_rig.pass_time(SECOND_US)
    assert retry_rig.bodies("sales") == [*[b"%d" % number for number in range(count)], b"new"]


def test_a_full_queue_gets_them_when_it_has_room() -> None:
    retry_rig = RetryRig()
    retry_rig.bind("small", max_length=2, overflow="reject-publish")
    for number in range(6):
        retry_rig.send(b"%d" % number, "small", 1)
    retry_rig.pass_time(SECOND_US)
    found: list[bytes] = []
    for _ in range(3):
        assert retry_rig.undeliverable() == 4 - len(found)
        found += retry_rig.fetch("small")
        retry_rig.pass_time(2 * int(PAUSE_MIN_US))
    assert (found, retry_rig.undeliverable()) == ([b"%d" % number for number in range(6)], 0)


def test_destinations_that_hash_alike_are_not_mistaken_for_each_other() -> None:
    seen: dict[int, str] = {}
    number = 0
    while True:
        here = f"endpoint.{(number := number + 1)}"
        gone = seen.setdefault(crc32(here.encode()) & 0xFFFFFF, here)
        if gone != here:
            break
    retry_rig = RetryRig()
    retry_rig.send(b"gone", gone, 1)
    retry_rig.send(b"here", here, 1)
    retry_rig.pass_time(SECOND_US)
    retry_rig.bind(here)
    retry_rig.pass_time(SECOND_US)
    assert (retry_rig.bodies(here), retry_rig.undeliverable()) == ([b"here"], 1)


@pytest.mark.parametrize("is_paged", [False, True])
def test_each_of_very_many_destinations_gets_its_own(is_paged: bool) -> None:
    """Destinations beyond the maximum of message lists share one, of which each message is tried."""
    retry_rig = RetryRig(octets_max=20_000 if is_paged else 1 << 30)
    count = LISTS_MAX + 40
    for number in range(count):
        retry_rig.send(b"%d" % number, f"gone.{number}", 1)
    retry_rig.pass_time(SECOND_US, page=is_paged)
    undeliverable = retry_rig.level(0).undeliverable
    assert undeliverable is not None
    assert (len(undeliverable.message_lists), retry_rig.undeliverable()) == (LISTS_MAX + 1, count)
    if is_paged:
        retry_rig.rig.page()
        retry_rig.restart()
    for number in (3, count - 20):
        retry_rig.bind(f"gone.{number}")
        retry_rig.pass_time(2 * SECOND_US)
        assert retry_rig.bodies(f"gone.{number}") == [b"%d" % number]
    assert retry_rig.undeliverable() == count - 2


def test_other_keys_of_a_message_are_ways_too() -> None:
    """A message with CC is delivered by that key; messages without it are not delayed by it."""
    retry_rig = RetryRig(MILLISECONDS)
    cc = [MILLISECONDS.routing_key(0, "copy")]
    retry_rig.send(b"1", "sales", 0.001, headers={"CC": cc})
    retry_rig.send(b"2", "sales", 0.001)
    retry_rig.send(b"3", "sales", 0.001, headers={"CC": cc})
    retry_rig.pass_time(SECOND_US)
    retry_rig.bind("copy")
    retry_rig.pass_time(SECOND_US)
    assert (retry_rig.bodies("copy"), retry_rig.undeliverable()) == ([b"1", b"3"], 1)
    retry_rig.bind("sales")
    retry_rig.pass_time(SECOND_US)
    assert (retry_rig.bodies("sales"), retry_rig.undeliverable()) == ([b"2"], 0)


def sure(exchange: str) -> dict[str, Value]:
    return {"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
            "x-dead-letter-exchange": exchange, "x-message-ttl": 1}  # fmt: skip


def test_where_the_key_does_not_decide_each_is_tried() -> None:
    """With a headers exchange each message is tried; without a change only some are tried at a time."""
    retry_rig = RetryRig()
    retry_rig.call(grammar.EXCHANGE_DECLARE, exchange="h", type="headers")
    retry_rig.call(grammar.QUEUE_DECLARE, queue="q", durable=True, arguments=sure("h"))
    count = 2 * int(TRIES_MAX)
    for number in range(count):
        retry_rig.client.publish("q", b"%d" % number, headers={"n": number})
    retry_rig.pass_time(SECOND_US // 2)
    assert retry_rig.queue("q").undeliverable_count() == count
    retry_rig.call(grammar.QUEUE_DECLARE, queue="last")
    retry_rig.call(grammar.QUEUE_BIND, queue="last", exchange="h", arguments={"n": count - 1, "x-match": "all"})
    retry_rig.pass_time(int(SOON_US) + count * int(VAIN_US))
    assert (retry_rig.bodies("last"), retry_rig.queue("q").undeliverable_count()) == ([b"%d" % (count - 1)], count - 1)
    retry_rig.pass_time(FOREVER_US)
    next_id = retry_rig.bench.broker.log.next_id
    retry_rig.pass_time(int(PAUSE_MAX_US))
    assert retry_rig.bench.broker.log.next_id - next_id == TRIES_MAX


def test_the_firehose_makes_no_way() -> None:
    """With the firehose on, routes are not cached; the destination of undeliverable messages is known nevertheless."""
    retry_rig = RetryRig()
    retry_rig.bench.broker.trace("/", True)
    for number in range(3):
        retry_rig.send(b"%d" % number, "gone", 1)
    retry_rig.pass_time(SECOND_US)
    next_id = retry_rig.bench.broker.log.next_id
    retry_rig.bind("another")
    retry_rig.pass_time(10 * SECOND_US)
    assert (retry_rig.undeliverable(), retry_rig.bench.broker.log.next_id) == (3, next_id)


# -- memory, disk and restarts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_orderly", [False, True])
def test_they_cost_disk_and_no_memory(is_orderly: bool) -> None:
    retry_rig = RetryRig(octets_max=20_000)
    count = 2000
    for number in range(count):
        retry_rig.send(b"%d" % number, "sales" if number % 2 else "gone", 1)
        if number % 100 == 0:
            retry_rig.rig.page()
    retry_rig.pass_time(SECOND_US, page=True)
    for _ in range(2):
        retry_rig.rig.page()
        assert retry_rig.rig.pager.octets() <= 20_000
        assert retry_rig.undeliverable() == count
        retry_rig.restart(is_orderly=is_orderly)
    in_memory = sum(len(message_list.ready.in_memory()) for message_list in retry_rig.level(0).every_list())
    assert (retry_rig.undeliverable(), retry_rig.level(0).count()) == (count, 0)
    assert in_memory < count // 10
    assert retry_rig.rig.pager.octets() <= 20_000
    retry_rig.bind("sales")
    retry_rig.pass_time(SECOND_US)
    assert retry_rig.fetch("sales") == [b"%d" % number for number in range(1, count, 2)]
    assert retry_rig.undeliverable() == count // 2
    assert retry_rig.rig.pager.octets() <= 20_000
    for number in reversed(range(3)):
        retry_rig.call(grammar.QUEUE_DELETE, queue=SHORT.level_name(number))
    retry_rig.rig.page()
    assert (retry_rig.bench.broker.log.live(), retry_rig.rig.pager.segments) == (0, {})


def test_those_that_are_lost_with_their_pages_do_not_stand_in_the_way() -> None:
    retry_rig = RetryRig(octets_max=10_000)
    for number in range(300):
        retry_rig.send(b"%d" % number, "sales", 1)
    retry_rig.pass_time(SECOND_US, page=True)
    retry_rig.rig.page()
    retry_rig.restart()
    retry_rig.bench.broker.log.read_page = lambda segment, offset, size: None
    retry_rig.send(b"new", "sales", 1)
    retry_rig.pass_time(SECOND_US)
    retry_rig.bind("sales")
    retry_rig.pass_time(10 * SECOND_US)
    assert retry_rig.bodies("sales")[-1] == b"new"
    assert retry_rig.undeliverable() == 0


ROOM = {"x-max-length-bytes": 100, "x-overflow": "reject-publish"}


@pytest.mark.parametrize("is_paged", [False, True])
def test_room_is_counted_anew_after_a_restart(is_paged: bool) -> None:
    retry_rig = RetryRig(octets_max=300 if is_paged else 1 << 30)
    retry_rig.call(grammar.QUEUE_DECLARE, queue="q", durable=True, arguments={**sure("nowhere"), **ROOM})
    for _ in range(9):
        retry_rig.client.publish("q", b"0123456789")
    retry_rig.pass_time(SECOND_US // 2, page=is_paged)
    retry_rig.rig.page()
    retry_rig.restart()
    retry_rig.call(grammar.CONFIRM_SELECT)
    for octets in (11, 10, 1):
        retry_rig.client.publish("q", b"x" * octets)
        retry_rig.pass_time(10_000)
        retry_rig.rig.write()
    assert [method.name for method in retry_rig.client.methods()] == ["basic.nack", "basic.ack", "basic.nack"]


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
    retry_rig = RetryRig(octets_max=1500)
    for name in "abc":
        retry_rig.bind(name)
    due: dict[bytes, tuple[str, int]] = {}
    arrived: list[bytes] = []

    def look() -> None:
        for name in "abc":
            for body in retry_rig.fetch(name):
                assert due[body][0] == name
                assert due[body][1] <= retry_rig.now_us
                arrived.append(body)

    for step, name, number in steps:
        if step == "send":
            body = b"%d" % len(due)
            due[body] = (name, retry_rig.now_us + number * SECOND_US)
            retry_rig.send(body, name, number)
        elif step == "bind":
            retry_rig.bind(name)
        elif step == "unbind":
            retry_rig.unbind(name)
        elif step == "time":
            retry_rig.pass_time(number * 1000)
        elif step == "page":
            retry_rig.rig.page()
        else:
            look()
            retry_rig.restart(is_orderly=step == "stop")
        look()
    for name in "abc":
        retry_rig.bind(name)
    retry_rig.pass_time(10 * SECOND_US)
    look()
    assert sorted(arrived) == sorted(due)
    assert (retry_rig.undeliverable(), retry_rig.bench.broker.log.live()) == (0, 0)
