"""leveret.testing.simulation: its promises to authors of tests."""

from __future__ import annotations

from collections import Counter

import pytest

from leveret.broker.exchanges.binding import count_to
from leveret.client import ChannelClosed
from leveret.testing.simulation import BrokerDown, Publisher, Simulation, Sizes
from leveret.testing.simulation.clock import Clock
from leveret.testing.simulation.publisher import UNKNOWN
from leveret.testing.simulation.simulation import FORTH


def test_events_happen_in_the_order_of_their_times_and_then_of_asking() -> None:
    clock, order = Clock(), list[str]()
    clock.later(20, lambda: order.append("late"))
    clock.later(10, lambda: order.append("first"))
    clock.later(10, lambda: order.append("second"))
    cancelled = clock.later(5, lambda: order.append("never"))
    cancelled.cancel()
    while clock.step():
        pass
    assert order == ["first", "second", "late"]


def single(seed: int) -> Simulation:
    """Cut the power of a broker during a publish."""
    with Simulation(seed) as sim:
        one = sim.broker("one")
        one.declare_exchange("events")
        one.declare_queue("all")
        one.bind("all", "events", "#")
        publisher = one.publisher("events", repeats=False)
        consumer = one.consumer("all")
        publisher.publish_every(0.01, 40, "a.b")
        sim.crash(one, after_s=0.2, for_s=0.5)
        sim.run(3)
        sim.settle()
        sim.run(until=lambda: one.messages("all") == 0)
        assert publisher.ids(UNKNOWN)
        assert set(publisher.confirmed) <= consumer.copies().keys()
        assert set(consumer.copies().values()) == {1}
    return sim


def test_the_same_seed_is_the_same_world_and_another_one_is_not() -> None:
    assert single(3).trace.digest() == single(3).trace.digest()
    assert single(3).trace.digest() != single(4).trace.digest()


def test_a_failure_says_which_seed_it_was_and_shows_the_last_events() -> None:
    def fail() -> None:
        with Simulation(99) as sim:
            sim.broker("one").declare_queue("q")
            raise AssertionError

    with pytest.raises(AssertionError) as caught:
        fail()
    notes = "\n".join(caught.value.__notes__)
    assert "seed 99" in notes
    assert "one: sync /data/journal" in notes


def test_what_is_declared_is_on_the_disk_when_the_call_returns() -> None:
    with Simulation(1) as sim:
        one = sim.broker("one")
        one.declare_queue("q")
        one.declare_exchange("x", "direct")
        one.bind("q", "x", "key")
        sim.crash(one, for_s=1)
        sim.run(2)
        assert count_to(one.core.vhosts["/"].queues["q"])


def test_a_broker_that_refuses_says_why_and_one_that_is_down_is_not_asked() -> None:
    with Simulation(1) as sim:
        one = sim.broker("one")
        one.declare_queue("q")
        with pytest.raises(ValueError, match="PRECONDITION_FAILED - inequivalent arg 'durable'"):
            one.declare_queue("q", durable=False)
        with pytest.raises(ValueError, match="NOT_FOUND - no exchange 'x'"):
            one.bind("q", "x")
        sim.crash(one, for_s=None)
        sim.run(0.1)
        with pytest.raises(BrokerDown, match="one is down"):
            one.declare_queue("other")
        assert not one.is_up


def test_a_crash_at_a_disk_operation_hits_just_that_one() -> None:
    """A declaration is a write and a sync: each of them can be the machine's last operation."""
    for number in (1, 2):
        with Simulation(1) as sim:
            one = sim.broker("one")
            sim.crash_at_disk_operation(one, number, for_s=1)
            with pytest.raises(BrokerDown, match="one went down"):
                one.declare_queue("q")
            assert any(f"one: {'write' if number == 1 else 'sync'}" in line for line in sim.trace.lines(4)[:2])
            sim.run(2)
            assert one.is_up


def test_an_orderly_stop_delivers_nothing_twice() -> None:
    with Simulation(1) as sim:
        one = sim.broker("one")
        one.declare_queue("q")
        publisher = one.publisher("")
        for _ in range(5):
            publisher.publish("q")
        sim.settle()
        sim.stop(one, for_s=1)
        sim.run(2)
        consumer = one.consumer("q")
        sim.run(until=lambda: one.messages("q") == 0)
        assert [each.redelivered for each in consumer.deliveries] == [False] * 5


def test_what_was_not_synced_at_a_power_cut_is_lost_or_not_or_torn() -> None:
    """All three outcomes occur over the seeds; confirmed messages are there with every seed."""
    outcomes: Counter[int] = Counter()
    torn = 0
    for seed in range(30):
        with Simulation(seed) as sim:
            one = sim.broker("one")
            one.declare_queue("q")
            publisher = one.publisher("")
            publisher.publish("q")
            sim.settle()
            sim.slow_disk(one, 60_000, for_s=100)
            sim.run(0.1)
            publisher.publish("q")
            sim.run(1)
            assert len(publisher.confirmed) == 1
            sim.crash(one, for_s=1)
            sim.run(2)
            outcomes[one.messages("q")] += 1
            torn += sim.counts["torn batch"]
    assert outcomes.keys() == {1, 2}
    assert torn


def lossy(seed: int, reference: str | None, repeats: bool = True) -> tuple[Publisher, list[str]]:
    """Break a publisher's connection while it publishes; return it and the ids in the queue, in order."""
    with Simulation(seed) as sim:
        one = sim.broker("one")
        one.declare_queue("q")
        publisher = one.publisher("", reference, repeats)
        for number in range(5):
            sim.at(0.1 + 0.5 * number, lambda: publisher.publish_every(0, 20, "q"))
            sim.reset(publisher, one, after_s=0.1 + 0.5 * number + 0.0001 + 0.0003 * number)
        sim.run(3)
        sim.settle()
        consumer = one.consumer("q", prefetch=0)
        sim.run(until=lambda: one.messages("q") == 0)
        return publisher, [each.id for each in consumer.deliveries]


def test_a_publisher_sends_again_what_was_not_confirmed_unless_it_asks_or_is_told_not_to() -> None:
    doubled, missing = 0, 0
    for seed in range(10):
        publisher, came = lossy(seed, None)
        assert publisher.confirmed == list(publisher.messages)
        assert set(came) == set(publisher.messages)
        doubled += len(came) > len(publisher.messages)
        publisher, came = lossy(seed, "till")
        assert publisher.confirmed == came == list(publisher.messages)
        publisher, came = lossy(seed, None, repeats=False)
        assert set(publisher.confirmed) <= set(came)
        assert len(set(came)) == len(came)
        missing += len(came) < len(publisher.messages)
        assert publisher.is_done
    assert doubled
    assert missing


def test_a_client_that_lost_its_connection_alone_comes_back_and_acknowledges_too_late() -> None:
    with Simulation(1) as sim:
        one = sim.broker("one")
        one.declare_queue("q")
        one.publisher("").publish("q")
        consumer = one.consumer("q", work_ms=500)
        sim.run(until=lambda: bool(consumer.deliveries))
        consumer.lose()
        sim.run(until=lambda: one.messages("q") == 0, limit_s=20)
        assert [each.redelivered for each in consumer.deliveries] == [False, True]
        assert consumer.late_acks == 1


def test_a_client_whose_channel_the_broker_closes_has_ended_and_says_why() -> None:
    with Simulation(1) as sim:
        one = sim.broker("one")
        publisher = one.publisher("missing")
        publisher.publish("key")
        sim.settle()
        assert publisher.ids(UNKNOWN) == list(publisher.messages)
        assert "no exchange 'missing'" in str(publisher.error)
        with pytest.raises(ChannelClosed, match="no exchange 'missing'"):
            publisher.publish("key")
        assert len(publisher.messages) == 1


def test_a_client_tries_again_if_its_broker_is_not_there_yet() -> None:
    with Simulation(1) as sim:
        one = sim.broker("one")
        one.declare_queue("q")
        sim.crash(one, for_s=5, is_power_cut=False)
        sim.run(0.1)
        publisher = one.publisher("")
        publisher.publish("q")
        sim.run(1)
        assert not publisher.is_done
        sim.run(until=lambda: publisher.is_done, limit_s=10)
        assert len(publisher.confirmed) == one.messages("q") == 1


def test_a_client_does_not_wait_for_a_broker_that_went_down_in_the_midst_of_a_handshake() -> None:
    for after_s in (0.0001, 0.0003, 0.0005, 0.0007):
        with Simulation(1) as sim:
            one = sim.broker("one")
            one.declare_queue("q")
            publisher = one.publisher("")
            publisher.publish("q")
            sim.crash(one, after_s=after_s, for_s=0.5)
            sim.run(until=lambda publisher=publisher: publisher.is_done, limit_s=60)  # type: ignore[misc]


def test_small_sizes_make_pages_and_files_of_a_short_history() -> None:
    with Simulation(1, sizes=Sizes(file_octets=12_000, ready_octets=4000, page_octets=600)) as sim:
        one = sim.broker("one")
        one.declare_queue("q")
        publisher = one.publisher("")
        publisher.publish_every(0.005, 100, "q", body_octets=200)
        sim.run(3)
        sim.settle()
        trace = "\n".join(sim.trace.lines())
        assert "write /data/segments/" in trace
        assert "journal-0000000002.lvj" in trace
        consumer = one.consumer("q")
        sim.run(until=lambda: one.messages("q") == 0)
        assert list(consumer.copies()) == publisher.confirmed


def test_a_partition_stalls_a_connection_and_closes_none() -> None:
    with Simulation(2) as sim:
        one, other = sim.broker("one"), sim.broker("other")
        heard: list[bytes] = []
        lost: list[str] = []

        class User:
            def received(self, data: bytes) -> None:
                heard.append(data)

            def lost(self, reason: str) -> None:
                lost.append(reason)

        end = sim.network.dial(sim.network.host("one"), "other", User(), lambda: end.write(b"AMQP\0\0\x09\x01"))
        sim.run(0.001)
        sim.partition(other, one, for_s=5, direction=FORTH)
        sim.run(4)
        assert (heard, lost) == ([], [])
        sim.run(2)
        assert b"RabbitMQ" in b"".join(heard)
        sim.reset(one, other)
        sim.run(1)
        assert lost == ["connection reset by peer"]
