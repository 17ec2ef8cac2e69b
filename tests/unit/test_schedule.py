"""Messages of a delayed exchange: never early, never twice, in order of due time, after any restart."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.delayed.schedule import slice_of
from leveret.broker.messages.contents import body_of
from leveret.wire import grammar

from .delays import Site, bind, declare, fetch, opened, schedule_of, send
from .rig import SEGMENTS
from .support import SECOND_US, Bench

MS = 1000
HOUR_MS = 3_600_000


def test_clients_cannot_reach_what_an_exchange_holds() -> None:
    bench = Bench()
    client = opened(bench)
    send(client, b"x", 1000)
    assert client.call(1, grammar.QUEUE_DECLARE, queue="d", passive=True).name == "channel.close"


@pytest.mark.parametrize("delay_us", [0, 1, 10**6, 67_108_864, 10**9, 86_400 * 10**6, 315_360_000_000_000])
def test_a_slice_is_narrow_beside_its_delay(delay_us: int) -> None:
    now_us = 1_700_000_000_000_000
    index = slice_of(now_us + delay_us, now_us)
    assert index < 1 << 30
    width = 1 << (20 + (index >> 24))
    start = (now_us + delay_us) // width * width
    assert slice_of(start, now_us) == index or start - now_us < 16 * width
    assert width == 1 << 20 or delay_us >= 16 * width


def test_a_few_hundred_message_lists_reach_ten_years() -> None:
    bench = Bench()
    client = opened(bench)
    for delay_ms in (int(1.01**power) for power in range(2700)):
        if delay_ms <= 315_360_000_000:
            send(client, b"x", delay_ms)
    schedule = schedule_of(bench)
    assert schedule.count() > 2000
    assert len(schedule.message_lists) < 32 * 26


def test_message_lists_that_are_done_with_go() -> None:
    bench = Bench()
    client = opened(bench)
    for number in range(500):
        send(client, b"%d" % number, 900 if number % 2 else 3000)
        bench.pass_time(SECOND_US)
    schedule = schedule_of(bench)
    assert schedule.count() <= 3
    assert len(schedule.message_lists) <= 70


def test_a_burst_is_released_in_parts_and_in_order() -> None:
    bench = Bench()
    client = opened(bench)
    count = 3500
    for number in range(count):
        send(client, b"%d" % number, 5000)
    queue = bench.broker.vhosts["/"].queues["q"]
    found: list[bytes] = []
    bench.pass_time(4 * SECOND_US)
    while any(message_list.ready.count() for message_list in schedule_of(bench).message_lists):
        bench.pass_time(1)
    bench.pass_time(SECOND_US)
    assert queue.count() == 1000
    while len(found) < count:
        found += fetch(client)
        bench.sync()
        next_us = bench.broker.timers.next_us()
        assert next_us <= bench.now_us + 1 or len(found) == count
        bench.pass_time(1)
    assert found == [b"%d" % number for number in range(count)]


def test_nothing_moves_while_the_log_waits_for_the_disk() -> None:
    bench = Bench()
    client = opened(bench)
    for number in range(30):
        send(client, bytes(100_000) + b"%d" % number, 5000)
    bench.sync()
    bench.pass_time(5 * SECOND_US)
    queue = bench.broker.vhosts["/"].queues["q"]
    assert queue.count() == 21
    assert bench.now_us < bench.broker.timers.next_us() <= bench.now_us + 1000
    bench.pass_time(1000)
    assert queue.count() == 21
    bench.sync()
    bench.pass_time(1000)
    assert queue.count() == 30


def test_only_so_much_is_taken_into_memory() -> None:
    bench = Bench()
    client = opened(bench, durable=False)
    for number in range(400):
        send(client, bytes(100_000) + b"%d" % number, 5000)
    bench.pass_time(5 * SECOND_US - 1)
    schedule = schedule_of(bench)
    in_heap = schedule.count() - sum(message_list.ready.count() for message_list in schedule.message_lists)
    assert 160 < in_heap < 180
    # messages that stay in their list set no timer
    assert bench.broker.timers.next_us() == bench.now_us + 1
    bench.pass_time(1)
    while schedule.count():
        bench.sync()
        bench.pass_time(1000)
    found = bench.broker.vhosts["/"].queues["q"].in_memory()
    assert [int(body_of(entry.content).lstrip(b"\0")) for entry in found] == list(range(400))


@pytest.mark.parametrize("is_orderly", [True, False])
@pytest.mark.parametrize("delivery_mode", [1, 2])
def test_what_a_durable_exchange_holds_survives(is_orderly: bool, delivery_mode: int) -> None:
    site = Site()
    for number, delay_ms in enumerate([5000, 60_000, 1500, 3_600_000]):
        send(site.client, b"%d" % number, delay_ms, delivery_mode=delivery_mode)
    site.restart(is_orderly, 5 * SECOND_US)
    assert site.rig.recovered == 4
    site.pass_time(0)
    assert site.fetch() == [b"2", b"0"]
    site.pass_time(55 * SECOND_US - 1)
    assert site.fetch() == []
    site.pass_time(1)
    assert site.fetch() == [b"1"]
    site.restart(is_orderly)
    assert site.rig.recovered == 1
    site.pass_time(3540 * SECOND_US)
    assert site.fetch() == [b"3"]


@pytest.mark.parametrize("delivery_mode", [1, 2])
def test_what_is_due_is_in_its_queue_after_a_crash(delivery_mode: int) -> None:
    site = Site()
    send(site.client, b"x", 1000, delivery_mode=delivery_mode)
    site.save()
    site.pass_time(SECOND_US)
    site.restart()
    assert (site.rig.recovered, site.schedule.count()) == (1, 0)
    assert site.fetch() == [b"x"]


def test_a_transient_exchange_holds_its_messages_on_disk_only_for_the_sake_of_memory() -> None:
    site = Site(octets_max=3000)
    declare(site.client, "fleeting", durable=False)
    site.client.send(1, grammar.QUEUE_BIND, queue="q", exchange="fleeting", routing_key="k")
    for number in range(50):
        send(site.client, b"%d" % number, 5000, exchange="fleeting")
        site.page()
    assert site.disk.list_names(SEGMENTS) != []
    site.pass_time(5 * SECOND_US)
    assert site.fetch() == [b"%d" % number for number in range(50)]
    for number in range(50):
        send(site.client, b"%d" % number, 5000, exchange="fleeting")
        site.page()
    site.restart()
    assert site.rig.recovered == 0
    site.page()
    assert site.disk.list_names(SEGMENTS) == []


def test_many_held_messages_are_on_disk_and_come_back_in_time_without_their_journal_files() -> None:
    site = Site(octets_max=3000)
    delays = [7000 + (number * 7919) % 300_000 for number in range(400)]
    start_us = site.now_us
    for number, delay_ms in enumerate(delays):
        send(site.client, b"%d" % number, delay_ms)
        site.page()
    assert len(site.schedule.in_memory()) < 100
    assert len(site.rig.journal.files()) <= 4
    site.restart()
    assert site.rig.recovered == 400
    found: list[int] = []
    while len(found) < 400:
        site.pass_time(SECOND_US)
        for body in site.fetch():
            found.append(int(body))
            assert delays[found[-1]] * MS <= site.now_us - start_us < delays[found[-1]] * MS + SECOND_US
        site.page()
        assert len(site.schedule.in_memory()) < 100
    assert found == sorted(range(400), key=lambda number: delays[number])
    site.page()
    assert site.disk.list_names(SEGMENTS) == []
    site.restart()
    assert site.rig.recovered == 0


def test_messages_of_a_wide_slice_are_in_time_whatever_their_order() -> None:
    bench = Bench()
    client = opened(bench)
    hour_us = 1_700_000_000 * SECOND_US // (1 << 27) * (1 << 27) + (30 << 27)  # the start of a slice
    offsets_s = [120, 90, 60, 3, 1, 100, 30]
    for offset_s in offsets_s:
        send(client, b"%d" % offset_s, (hour_us - bench.now_us) // MS + 1000 * offset_s)
    assert len(schedule_of(bench).message_lists) == 1
    # a slice may hold many messages, so it is sorted in good time
    assert bench.broker.timers.next_us() <= hour_us + SECOND_US - (1 << 25)
    for offset_s in sorted(offsets_s):
        due_us = bench.now_us + ((hour_us - bench.now_us) // MS + 1000 * offset_s) * MS
        while bench.broker.timers.next_us() < due_us:
            bench.pass_time(bench.broker.timers.next_us() - bench.now_us)
        assert fetch(client) == []
        bench.pass_time(due_us - bench.now_us)
        assert fetch(client) == [b"%d" % offset_s]


def test_messages_with_one_delay_are_not_moved_from_list_to_list() -> None:
    site = Site(octets_max=3000)
    for number in range(300):
        send(site.client, b"%d" % number, HOUR_MS)
        site.page()
        site.pass_time(100_000)
    next_id = site.bench.broker.log.next_id
    site.pass_time(HOUR_MS * MS - 30 * SECOND_US)
    found: list[bytes] = []
    while len(found) < 300:
        site.pass_time(SECOND_US)
        site.page()
        found += site.fetch()
    assert found == [b"%d" % number for number in range(300)]
    # each message leaves by one record, and few were moved to another message list
    assert site.bench.broker.log.next_id - next_id < 330


def test_a_page_whose_messages_are_due_in_another_order_is_taken_as_a_whole() -> None:
    """After a restart only the earliest due time of a page is known."""
    site = Site(octets_max=1)
    width_us = 1 << 27  # width of a slice that is due in an hour
    start_us = (site.now_us + 3_600 * SECOND_US) // width_us * width_us + width_us
    offsets_s = [10, 70, 15, 20]
    for offset_s in offsets_s:
        send(site.client, b"%d" % offset_s, (start_us - site.now_us) // MS + offset_s * 1000)
    site.page()
    site.restart()
    (message_list,) = site.schedule.message_lists
    assert len(message_list.pages) == 2  # one with 10 and 70, one with 15 and 20
    site.pass_time(start_us - site.now_us)
    for offset_s in sorted(offsets_s):
        site.pass_time(start_us + offset_s * SECOND_US - site.now_us)
        assert site.fetch() == [b"%d" % offset_s]


@pytest.mark.parametrize("is_paged", [False, True])
@pytest.mark.parametrize("is_orderly", [True, False, None])
def test_deleting_the_exchange_deletes_what_it_holds(is_paged: bool, is_orderly: bool | None) -> None:
    site = Site(octets_max=3000 if is_paged else 1 << 30)
    for number in range(100):
        send(site.client, b"%d" % number, 500 + 100 * number)
        if is_paged:
            site.page()
    site.client.send(1, grammar.EXCHANGE_DELETE, exchange="d")
    site.page()
    assert site.disk.list_names(SEGMENTS) == []
    assert site.bench.broker.log.live() == 0
    declare(site.client)
    site.client.send(1, grammar.QUEUE_BIND, queue="q", exchange="d", routing_key="k")
    send(site.client, b"new", 2000)
    if is_orderly is not None:
        site.restart(is_orderly)
        assert site.rig.recovered == 1
    site.pass_time(60 * SECOND_US)
    assert site.fetch() == [b"new"]


def test_what_a_deleted_exchange_held_does_not_come_back_from_the_journal() -> None:
    site = Site(file_size=1 << 20)  # everything in one file
    send(site.client, b"x", 1000)
    site.client.send(1, grammar.EXCHANGE_DELETE, exchange="d")
    site.restart()
    assert site.rig.recovered == 0


def test_an_auto_delete_exchange_goes_with_its_last_binding_and_with_what_it_holds() -> None:
    site = Site()
    site.client.send(
        1, grammar.EXCHANGE_DECLARE, exchange="brief", type="x-delayed-message", durable=True, auto_delete=True,
        arguments={"x-delayed-type": "fanout"},
    )  # fmt: skip
    site.client.send(1, grammar.QUEUE_BIND, queue="q", exchange="brief")
    send(site.client, b"x", 1000, exchange="brief")
    site.client.send(1, grammar.QUEUE_UNBIND, queue="q", exchange="brief")
    site.save()
    assert site.bench.broker.log.live() == 0
    assert set(site.bench.broker.vhosts["/"].schedules) == {"d"}
    site.pass_time(SECOND_US)
    site.restart()
    assert site.fetch() == []


DELAYS_MS = st.one_of(
    st.integers(-1, 3),
    st.integers(1, 4000),
    st.integers(1, 100_000),
    st.integers(1, 10_000_000),
    st.sampled_from([1000, 2000, 2097, 5000, 60_000, HOUR_MS]),
)
OPERATIONS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 10), DELAYS_MS),
    st.tuples(st.just("scatter"), st.integers(1, 40), st.integers(2, 1_000_000)),
    st.tuples(st.just("time"), st.just(0), st.one_of(st.integers(1, 3000), st.integers(1, 200_000), DELAYS_MS)),
    st.tuples(st.just("next"), st.sampled_from([-1, 0]), st.just(0)),
    st.tuples(st.sampled_from(["page", "crash", "stop"]), st.just(0), st.integers(0, 5000)),
    st.tuples(st.just("delete"), st.just(0), st.just(0)),
)


def check(found: list[bytes], wanted: list[tuple[int, int, int]]) -> None:
    """Each message is there once, by due time; equal ones that were published together keep their order."""
    by_number = {number: (due_us, published_us) for due_us, number, published_us in wanted}
    numbers = [int(body) for body in found]
    assert sorted(numbers) == sorted(by_number)
    dues = [by_number[number][0] for number in numbers]
    assert dues == sorted(dues)
    alike: dict[tuple[int, int], list[int]] = {}
    for number in numbers:
        alike.setdefault(by_number[number], []).append(number)
    assert all(group == sorted(group) for group in alike.values())


@pytest.mark.timeout(600)
@settings(max_examples=80, deadline=None)
@given(st.lists(OPERATIONS, max_size=25))
def test_a_delayed_exchange_is_as_its_model(operations: list[tuple[str, int, int]]) -> None:
    """The model is a list of (due time, number, time of the publish)."""
    site = Site(octets_max=2000)
    model: list[tuple[int, int, int]] = []
    number = 0
    for operation, count, value in operations:
        if operation in ("publish", "scatter"):
            delays = [value] * count
            if operation == "scatter":
                base = HOUR_MS if value < 100_000 else 0
                delays = [base + (n + 1) * value // count for n in range(count)]
            for delay_ms in delays[::-1]:
                send(site.client, b"%d" % number, delay_ms, delivery_mode=1 + number % 2)
                model.append((site.now_us + max(0, delay_ms) * MS, number, site.now_us))
                number += 1
        elif operation == "time":
            site.pass_time(max(0, value) * MS)
        elif operation == "next" and model:
            site.pass_time(max(0, min(model)[0] + count - site.now_us))
        elif operation == "page":
            site.page()
        elif operation in ("crash", "stop"):
            site.restart(operation == "stop", value * MS)
            site.pass_time(0)
        elif operation == "delete" and number % 3 == 0:
            site.client.send(1, grammar.EXCHANGE_DELETE, exchange="d")
            declare(site.client)
            bind(site.client)
            model = []
        due = [item for item in model if item[0] <= site.now_us]
        model = [item for item in model if item[0] > site.now_us]
        check(site.fetch(), due)
        assert site.schedule.count() == len(model)
    site.page()
    site.pass_time(10_000_000 * MS)
    check(site.fetch(), model)
    site.page()
    assert site.bench.broker.log.live() == 0
    assert site.disk.list_names(SEGMENTS) == []
