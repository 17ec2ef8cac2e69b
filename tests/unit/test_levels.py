"""How the broker recognizes the queues of a delay layout, and what it reads from their messages' keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.delayed.levels import Level, address, due_us, level_of, levels_of
from leveret.delay import LAYOUTS, NSERVICEBUS, ExchangeDeclaration, Layout, QueueBinding, QueueDeclaration
from leveret.wire import grammar
from leveret.wire.table import Value

from .support import Bench, Client

NAMED = [*LAYOUTS.values(), Layout(), Layout("tenant_celery_delayed", level_names="{prefix}_{level}",
                                            delivery_name="{prefix}_delivery", starts_at_top=True)]  # fmt: skip


def declare(client: Client, layout: Layout) -> None:
    """Declare a layout on a bench's broker."""
    for one in layout.topology():
        match one:
            case ExchangeDeclaration():
                client.send(1, grammar.EXCHANGE_DECLARE, exchange=one.name, type="topic", durable=True)
            case QueueDeclaration():
                client.send(1, grammar.QUEUE_DECLARE, queue=one.name, durable=True, arguments=one.arguments)
            case QueueBinding():
                client.send(
                    1, grammar.QUEUE_BIND, queue=one.queue, exchange=one.exchange, routing_key=one.routing_key
                )
            case _:
                client.send(
                    1, grammar.EXCHANGE_BIND, destination=one.destination, source=one.source,
                    routing_key=one.routing_key,
                )  # fmt: skip


@pytest.mark.parametrize("layout", NAMED)
def test_every_level_of_a_named_layout_is_known(layout: Layout) -> None:
    for number in range(layout.levels):
        level = level_of(layout.level_name(number), layout.level_arguments(number))
        assert level is not None
        assert (level.prefix, level.number, level.unit_us) == (layout.prefix, number, layout.unit_ms * 1000)
        assert level.onward == (layout.level_name(number - 1) if number else layout.delivery_exchange)


OTHERS: dict[str, tuple[str, dict[str, Value]]] = {
    "another name": ("nsb.level-03", {}),
    "another name of Celery's": ("celery_delayed_delivery", {}),
    "one digit": ("nsb.delay-level-3", {"x-dead-letter-exchange": "nsb.delay-level-2"}),
    "two digits of Celery's": ("celery_delayed_03", {"x-dead-letter-exchange": "celery_delayed_02"}),
    "no prefix": (".delay-level-03", {"x-dead-letter-exchange": ".delay-level-02"}),
    "too high": ("nsb.delay-level-28", {"x-message-ttl": 1000 << 28, "x-dead-letter-exchange": "nsb.delay-level-27"}),
    "another exchange": ("nsb.delay-level-03", {"x-dead-letter-exchange": "nsb.delay-level-01"}),
    "another key": ("nsb.delay-level-03", {"x-dead-letter-routing-key": "k"}),
    "no power of two": ("nsb.delay-level-03", {"x-message-ttl": 7999}),
    "no wait": ("nsb.delay-level-03", {"x-message-ttl": 0}),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_a_queue_that_only_looks_like_a_level_is_none(what: str) -> None:
    name, others = OTHERS[what]
    arguments = {**NSERVICEBUS.level_arguments(3), **others}
    assert level_of(name, arguments) is None


def test_arguments_are_asked_for() -> None:
    for missing in ("x-message-ttl", "x-dead-letter-exchange"):
        arguments = NSERVICEBUS.level_arguments(3)
        del arguments[missing]
        assert level_of("nsb.delay-level-03", arguments) is None


@pytest.mark.parametrize("layout", [Layout(levels=4), Layout("nsb.ms", unit_ms=1, levels=1), LAYOUTS["celery"]])
def test_the_number_of_levels_is_that_of_the_binding(layout: Layout) -> None:
    bench = Bench()
    client = bench.connect()
    declare(client, layout)
    queues = bench.broker.vhosts["/"].queues
    found = [levels_of(queues[layout.level_name(number)]) for number in range(layout.levels)]
    assert found == [layout.levels] * layout.levels
    name = layout.level_name(0)
    key = "*." * (layout.levels - 1) + "1.#"
    client.call(1, grammar.QUEUE_UNBIND, queue=name, exchange=name, routing_key=key)
    client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.topic", routing_key=key)
    client.call(1, grammar.QUEUE_BIND, queue=name, exchange=name, routing_key="#.1.#")
    assert levels_of(queues[name]) == 0
    client.queue("other")
    assert levels_of(queues["other"]) == 0


@given(units=st.integers(0, (1 << 28) - 1), destination=st.text(min_size=1, max_size=20))
def test_a_key_says_delay_and_destination(units: int, destination: str) -> None:
    assert address(NSERVICEBUS.routing_key(units, destination), 28) == (units, destination)


STRANGE = ["", "1.0.1.0", "1.0.1.0.", "1.0.1.dest", "1.0.2.0.dest", "1.0.1-0.dest", "10.1.0.dest"]


@pytest.mark.parametrize("key", STRANGE)
def test_other_keys_say_nothing(key: str) -> None:
    assert address(key, 4) is None


def test_destinations_may_look_like_digits() -> None:
    assert address("1.0.1.0.1.0.a", 4) == (10, "1.0.a")
    assert address("dest", 0) is None


@given(units=st.integers(1, (1 << 28) - 1), unit_us=st.sampled_from([1000, 1_000_000]))
def test_what_is_left_to_wait(units: int, unit_us: int) -> None:
    """A message has the same due time in each level that it waits in."""
    now_us = at_us = 1_700_000_000_000_000
    for number in reversed(range(28)):
        if units >> number & 1:
            at_us += unit_us << number
            assert due_us(Level("nsb", number, unit_us, ""), units, at_us) == now_us + units * unit_us
