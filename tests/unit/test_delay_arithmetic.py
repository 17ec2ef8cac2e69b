"""All 2^28 delays, by edges and samples: against NServiceBus's tables, and through the real core with virtual time."""

from __future__ import annotations

import random
from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.delay import (
    CELERY,
    MILLISECONDS,
    NSERVICEBUS,
    NSERVICEBUS_V2,
    Layout,
)
from leveret.wire import grammar

from .support import SECOND_US, Bench, Client
from .waiting import carry_out

UNITS_MAX = 268_435_455  # "28 bits ... about 8.5 years"
EDGES = sorted(
    {0, UNITS_MAX}
    | {near for bit in range(28) for near in ((1 << bit) - 1, 1 << bit, (1 << bit) + 1) if near <= UNITS_MAX}
    | {UNITS_MAX - (1 << bit) for bit in range(28)}  # a single 0
    | {0x5555555, 0xAAAAAAA, 0x0F0F0F0, 0xF0F0F0F}
)
SAMPLES = 100_000
SOON_US = 25_000


class Seed:
    """NServiceBus's layout in numbers: for each bit, an exchange lets a message wait 2^level s or passes it down."""

    def __init__(self) -> None:
        self.wait_s = [1]
        for _ in range(27):
            self.wait_s.append(2 * self.wait_s[-1])

    def walk(self, exchange: str, key: str) -> tuple[list[int], str]:
        """Return the levels in which a message waits, and its destination."""
        words = key.split(".")
        level = int(exchange.removeprefix("nsb.delay-level-")) if "level" in exchange else -1
        waits = []
        while level >= 0:
            if words[27 - level] == "1":
                waits.append(level)
            else:
                assert words[27 - level] == "0"
            level -= 1
        return waits, ".".join(words[28:])


SEED = Seed()


def check(units: int) -> None:
    """Check that the waits of a delay add up to it, and that the first exchange is the first that leads into a
    queue."""
    exchange, key = NSERVICEBUS.route(units, "orders")
    waits, destination = SEED.walk(exchange, key)
    assert sum(SEED.wait_s[level] for level in waits) == units
    assert destination == "orders"
    assert exchange == (f"nsb.delay-level-{waits[0]:02d}" if waits else "nsb.delay-delivery")
    assert NSERVICEBUS.address(key) == (units, "orders")
    # publishing at the top leads to the same queues
    assert SEED.walk("nsb.delay-level-27", key)[0] == waits


def test_the_waits_of_every_edge_and_of_many_samples_add_up_to_the_delay() -> None:
    assert sum(SEED.wait_s) == UNITS_MAX
    assert SEED.wait_s == [NSERVICEBUS.ttl_ms(level) // 1000 for level in range(28)]
    for units in EDGES:
        check(units)
    sample = random.Random(28)
    for _ in range(SAMPLES):
        check(sample.getrandbits(28))


@given(st.integers(0, UNITS_MAX - 1), st.integers(1, 999_999))
def test_any_part_of_a_second_is_a_second_more(units: int, part_us: int) -> None:
    assert NSERVICEBUS.units(timedelta(seconds=units, microseconds=part_us)) == units + 1
    for whole in (units, float(units), timedelta(seconds=units)):
        assert NSERVICEBUS.units(whole) == units
    exact = Fraction(units) + Fraction(part_us, 10**6)
    assert NSERVICEBUS.units(float(exact)) in (units, units + 1)
    assert NSERVICEBUS.units(float(exact)) >= Fraction(repr(float(exact)))


def declared(client: Client, layout: Layout) -> None:
    """Declare the layout as any client can, and the queue ``orders`` behind it, with a consumer."""
    carry_out(client, layout.topology())
    client.send(1, grammar.QUEUE_DECLARE, queue="orders", durable=True)
    client.send(1, grammar.QUEUE_BIND, queue="orders", exchange=layout.delivery_exchange, routing_key="#.orders")
    client.send(1, grammar.BASIC_CONSUME, queue="orders", no_ack=True)
    client.bench.sync()
    client.frames()


def wait_for(client: Client, count: int) -> list[tuple[bytes, int]]:
    """Run each timer at its time until `count` messages have come; return them with their times of arrival."""
    bench = client.bench
    found: list[tuple[bytes, int]] = []

    def look() -> None:
        bench.sync()
        found.extend((body, bench.now_us) for body in client.bodies())

    look()
    while len(found) < count:
        next_us = bench.broker.timers.next_us()
        assert next_us, "nothing will ever happen"
        bench.pass_time(max(0, next_us - bench.now_us))
        look()
    return found


@settings(max_examples=60)
@given(
    layout=st.sampled_from([NSERVICEBUS, NSERVICEBUS_V2, CELERY, MILLISECONDS]),
    messages=st.lists(
        st.tuples(st.one_of(st.integers(0, UNITS_MAX), st.sampled_from(EDGES)), st.integers(0, 10 * SECOND_US)),
        min_size=1,
        max_size=12,
    ),
)
def test_any_delay_arrives_exactly_on_time_in_the_real_core(layout: Layout, messages: list[tuple[int, int]]) -> None:
    """Exact to the microsecond, whatever else is under way."""
    client = Bench().connect()
    declared(client, layout)
    due: list[tuple[bytes, int]] = []
    arrived: list[tuple[bytes, int]] = []
    for number, (units, pause_us) in enumerate(messages):
        body = b"%d" % number
        delay = timedelta(milliseconds=units * layout.unit_ms)
        exchange, key, properties = layout.message("orders", delay)
        due.append((body, client.bench.now_us + units * layout.unit_ms * 1000))
        client.publish(key, body, exchange=exchange, headers=properties.headers, delivery_mode=2)
        end_us = client.bench.now_us + pause_us
        client.bench.sync()  # deliver what is due without delay first
        arrived += [(body, client.bench.now_us) for body in client.bodies()]
        while 0 < (next_us := client.bench.broker.timers.next_us()) <= end_us:
            client.bench.pass_time(max(0, next_us - client.bench.now_us))
            client.bench.sync()
            arrived += [(body, client.bench.now_us) for body in client.bodies()]
        client.bench.sync()
        arrived += [(body, client.bench.now_us) for body in client.bodies()]
        client.bench.now_us = end_us
    arrived += wait_for(client, len(due) - len(arrived))
    assert sorted(arrived) == sorted(due)
    assert [at_us for _, at_us in arrived] == sorted(at_us for _, at_us in due)


@pytest.mark.parametrize("units", [1, 10, 4095, 0x5555555, UNITS_MAX])
def test_a_broker_that_rings_late_adds_no_lateness_from_level_to_level(units: int) -> None:
    """Each timer runs 25 ms late, as in a busy loop: the message is late by one of those, not by their sum.

    The next wait begins when the one before it ended, even if the timer ran later.
    """
    bench = Bench()
    client = bench.connect()
    declared(client, NSERVICEBUS)
    exchange, key = NSERVICEBUS.route(units, "orders")
    due_us = bench.now_us + units * SECOND_US
    client.publish(key, b"x", exchange=exchange, delivery_mode=2)
    bench.sync()
    bodies: list[bytes] = []
    while not bodies:
        next_us = bench.broker.timers.next_us()
        assert next_us
        bench.pass_time(max(0, next_us + SOON_US - bench.now_us))
        bench.sync()
        bodies += client.bodies()
    assert due_us <= bench.now_us <= due_us + SOON_US


def test_the_example_of_the_seed_second_by_second() -> None:
    """10 seconds in four levels: 8 in level 3, 2 in level 1."""
    layout = Layout(levels=4)
    client = Bench().connect()
    declared(client, layout)
    exchange, key = layout.route(10, "orders")
    assert (exchange, key) == ("nsb.delay-level-03", "1.0.1.0.orders")
    client.publish(key, exchange=exchange, delivery_mode=2)
    places = []
    for second in range(11):
        if second:
            client.bench.pass_time(SECOND_US)
        client.bench.sync()
        waiting = [
            level
            for level in range(4)
            if client.call(1, grammar.QUEUE_DECLARE, queue=layout.level_name(level), passive=True).number(
                "message_count"
            )
        ]
        places.append(waiting[0] if waiting else None)
    assert places == [3] * 8 + [1] * 2 + [None]
