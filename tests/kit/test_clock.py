"""A virtual clock that tests move on: timers fire in order, messages are delivered, and no heartbeat is missed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pika
import pytest

from leveret.client import BlockingChannel, BlockingConnection, ChannelClosed, Delivery, Properties
from leveret.delay import NSERVICEBUS
from leveret.testing import LiveBroker, VirtualClock, broker, eventually

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
PERSISTENT = Properties(delivery_mode=2)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def rabbit(clock: VirtualClock) -> Iterator[LiveBroker]:
    with broker(clock=clock) as rabbit:
        yield rabbit


@pytest.fixture
def channel(rabbit: LiveBroker) -> Iterator[BlockingChannel]:
    """A channel in confirm mode."""
    with BlockingConnection(rabbit, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        yield channel


def received(channel: BlockingChannel, count: int) -> list[Delivery]:
    """Return deliveries that have arrived or are on their way."""
    found = [channel.next_delivery(60) for _ in range(count)]
    assert all(found)
    return [delivery for delivery in found if delivery is not None]


def test_time_stands_still_until_it_is_moved(rabbit: LiveBroker, clock: VirtualClock, channel: BlockingChannel) -> None:
    channel.declare_queue("work", arguments={"x-message-ttl": 1})
    channel.publish(b"", routing_key="work")
    channel.wait_for_confirms()
    until_s = time.monotonic() + 0.05
    assert all(rabbit.queue_depth("work") == 1 for _ in iter(lambda: time.monotonic() < until_s, False))
    assert clock.next_due() == START + timedelta(milliseconds=1)
    assert clock.advance_to_next() == START + timedelta(milliseconds=1)
    clock.advance(milliseconds=1)  # a message may still be delivered at the very instant in which it expires
    assert rabbit.queue_depth("work") == 0
    assert clock.advance_to_next() is None


@pytest.mark.parametrize("delay", [timedelta(days=3), timedelta(seconds=2**28 - 1)], ids=["3-days", "8.5-years"])
def test_delay_levels(rabbit: LiveBroker, clock: VirtualClock, channel: BlockingChannel, delay: timedelta) -> None:
    """All hops of the delay levels happen; one second before the delay ends there is no delivery."""
    NSERVICEBUS.declare_blocking(channel)
    channel.declare_queue("Sales")
    NSERVICEBUS.bind_destination_blocking(channel, "Sales")
    exchange, key = NSERVICEBUS.route(delay, "Sales")
    channel.publish(b"remember", exchange, key, PERSISTENT, mandatory=True)
    channel.wait_for_confirms()
    channel.consume("Sales", no_ack=True)
    clock.advance(delay - timedelta(seconds=1))
    assert rabbit.delivered("Sales") == []
    clock.advance(seconds=1)
    assert [message.body for message in rabbit.delivered("Sales")] == [b"remember"]
    assert received(channel, 1)[0].body == b"remember"
    assert clock.now() == START + delay


def test_a_crash_on_the_way_through_the_levels_loses_and_hastens_nothing(
    rabbit: LiveBroker, clock: VirtualClock, channel: BlockingChannel
) -> None:
    NSERVICEBUS.declare_blocking(channel)
    channel.declare_queue("Sales")
    NSERVICEBUS.bind_destination_blocking(channel, "Sales")
    exchange, key = NSERVICEBUS.route(100_000, "Sales")
    channel.publish(b"", exchange, key, PERSISTENT)
    channel.wait_for_confirms()
    clock.advance(seconds=70_000)
    rabbit.restart(crash=True)
    clock.advance(seconds=29_999)
    assert rabbit.queue_depth("Sales") == 0
    clock.advance(seconds=1)
    assert rabbit.queue_depth("Sales") == 1


def test_things_happen_in_due_order(rabbit: LiveBroker, clock: VirtualClock, channel: BlockingChannel) -> None:
    """The order depends neither on the queues nor on the order of publishing."""
    channel.declare_queue("due", durable=False)
    delays_ms = [50_000, 10, 3_600_000, 999, 86_400_000]
    for ms in delays_ms:
        dead = {"x-message-ttl": ms, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "due"}
        channel.declare_queue(f"in-{ms}", arguments=dead)
        channel.publish(b"%d" % ms, routing_key=f"in-{ms}")
    channel.wait_for_confirms()
    channel.consume("due", no_ack=True)
    clock.advance(days=1)
    assert [int(delivery.body) for delivery in received(channel, 5)] == sorted(delays_ms)


def test_a_consumer_gets_what_would_expire_later_in_the_same_advance(
    rabbit: LiveBroker, clock: VirtualClock, channel: BlockingChannel
) -> None:
    """Each event happens at its own time: the message stays for an hour, and a consumer waits for it."""
    dead = {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"}
    channel.declare_queue("wait", arguments=dead)
    channel.declare_queue("work", arguments={"x-message-ttl": 3_600_000})
    channel.publish(b"now", routing_key="wait")
    channel.wait_for_confirms()
    channel.consume("work", no_ack=True)
    clock.advance(days=2)
    assert received(channel, 1)[0].body == b"now"


def test_delayed_exchange(rabbit: LiveBroker, clock: VirtualClock, channel: BlockingChannel) -> None:
    channel.declare_exchange("later", "x-delayed-message", arguments={"x-delayed-type": "direct"})
    channel.declare_queue("work")
    channel.bind_queue("work", "later", "work")
    for days in (2, 1):
        channel.publish(
            b"%d" % days, "later", "work", Properties(delivery_mode=2, headers={"x-delay": days * 86_400_000})
        )
    channel.wait_for_confirms()
    clock.advance(days=1)
    assert [message.body for message in rabbit.messages("work")] == [b"1"]
    clock.advance(days=1)
    assert [message.body for message in rabbit.messages("work")] == [b"1", b"2"]


def test_an_unused_queue_expires(rabbit: LiveBroker, clock: VirtualClock, channel: BlockingChannel) -> None:
    channel.declare_queue("idle", arguments={"x-expires": 7 * 86_400_000})
    clock.advance(days=6)
    assert rabbit.queues() == ["idle"]
    clock.advance(days=1)
    assert rabbit.queues() == []


def test_a_delivery_that_is_not_acknowledged_times_out(
    rabbit: LiveBroker, clock: VirtualClock, channel: BlockingChannel
) -> None:
    """After half an hour, and at most two check intervals late; never early."""
    channel.declare_queue("work")
    channel.publish(b"", routing_key="work")
    channel.wait_for_confirms()
    channel.consume("work")
    received(channel, 1)
    clock.advance(minutes=30)
    assert rabbit.unacknowledged("work") == 1
    clock.advance(minutes=1)
    assert rabbit.queue_depth("work") == 1
    with pytest.raises(ChannelClosed, match="timed out"):
        channel.next_delivery(60)


def test_a_short_timeout_is_noticed_in_a_long_advance(
    rabbit: LiveBroker, clock: VirtualClock, channel: BlockingChannel
) -> None:
    channel.declare_queue("work", arguments={"x-consumer-timeout": 60_000})
    channel.publish(b"", routing_key="work")
    channel.wait_for_confirms()
    channel.consume("work")
    received(channel, 1)
    clock.advance(days=365)
    assert rabbit.queue_depth("work") == 1


def test_heartbeats_outlive_years(rabbit: LiveBroker, clock: VirtualClock) -> None:
    with BlockingConnection(rabbit, heartbeat_s=1, reconnect=False) as connection:
        channel = connection.channel()
        clock.advance(days=3000)
        channel.declare_queue("still-here")
        assert rabbit.queues() == ["still-here"]


def test_heartbeats_go_on_while_time_stands_still(rabbit: LiveBroker) -> None:
    """Heartbeats are between two sockets and follow real time: a client that is silent for two intervals is dropped."""
    silent = pika.URLParameters(f"{rabbit}?heartbeat=1")
    silent.client_properties = {"connection_name": "silent"}
    with BlockingConnection(rabbit, heartbeat_s=1, name="alive", reconnect=False):
        pika.BlockingConnection(silent)  # only sends something when it is asked to
        assert rabbit.connections() == ["alive", "silent"]
        eventually(lambda: rabbit.connections() == ["alive"])


def test_one_clock_for_two_brokers(clock: VirtualClock) -> None:
    with broker(clock=clock) as near, broker(clock=clock) as far:
        for rabbit in (near, far):
            with BlockingConnection(rabbit, reconnect=False) as connection:
                channel = connection.channel()
                channel.confirm_select()
                channel.declare_queue("work", arguments={"x-message-ttl": 60_000})
                channel.publish(b"", routing_key="work")
                channel.wait_for_confirms()
        clock.advance(seconds=61)
        assert (near.queue_depth("work"), far.queue_depth("work")) == (0, 0)
        far.stop()
        clock.advance(days=1)  # a broker that is down has no timers
        far.start()
        assert far.queue_depth("work") == 0


def test_a_stalled_disk_does_not_stop_time(rabbit: LiveBroker, clock: VirtualClock, channel: BlockingChannel) -> None:
    channel.declare_queue("work", arguments={"x-message-ttl": 1000})
    channel.publish(b"", routing_key="work")
    channel.wait_for_confirms()
    with rabbit.faults.disk_stalled():
        clock.advance(seconds=2)
        assert rabbit.queue_depth("work") == 0


def test_what_cannot_be(clock: VirtualClock) -> None:
    with pytest.raises(ValueError, match="time does not go back: -1 day"):
        clock.advance(days=-1)
    with pytest.raises(ValueError, match="must have a time zone"):
        VirtualClock(datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="time does not go back"):
        clock.advance_to(START - timedelta(seconds=1))
    assert repr(clock) == "<VirtualClock at 2026-01-01T12:00:00+00:00>"
