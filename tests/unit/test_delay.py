"""The delay levels as arithmetic and topology, on a model that follows the bindings instead of a broker."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.delay import (
    CELERY,
    CELERY_CLASSIC,
    CONVENTIONAL,
    DIRECT,
    MILLISECONDS,
    NSERVICEBUS,
    ExchangeBinding,
    ExchangeDeclaration,
    Layout,
    QueueBinding,
    QueueDeclaration,
    received,
)
from leveret.delay.instant import from_header
from leveret.delay.message import DELIVER_AT, TIME_SENT
from leveret.delay.tools import verification
from leveret.wire.properties import Properties

SEED_EXAMPLE = Layout(levels=4)


def matches(pattern: list[str], words: list[str]) -> bool:
    """Match a topic by its definition: ``*`` is one word, ``#`` any number of words."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(matches(pattern[1:], words[i:]) for i in range(len(words), -1, -1))
    return bool(words) and pattern[0] in ("*", words[0]) and matches(pattern[1:], words[1:])


@dataclass
class Walk:
    """The destinations that a message reached, and the queues in which it waited, with their TTLs."""

    arrived: list[str]
    waits: list[tuple[str, int]]


class Model:
    """The smallest broker that can carry a message through a layout."""

    def __init__(self, layout: Layout, *destinations: str) -> None:
        declarations = [*layout.topology(), *(layout.destination_binding(name) for name in destinations)]
        self.ttl: dict[str, int] = {}
        self.dead_letter: dict[str, str] = {}
        self.bindings: dict[str, list[tuple[list[str], str, bool]]] = {}
        for one in declarations:
            match one:
                case ExchangeDeclaration(name):
                    self.bindings.setdefault(name, [])
                case QueueDeclaration(name, arguments):
                    self.ttl[name] = int(str(arguments["x-message-ttl"]))
                    self.dead_letter[name] = str(arguments["x-dead-letter-exchange"])
                case QueueBinding(queue, exchange, key):
                    self.bindings[exchange].append((key.split("."), queue, True))
                case ExchangeBinding(destination, source, key):
                    self.bindings[source].append((key.split("."), destination, False))

    def walk(self, exchange: str, key: str) -> Walk:
        walk = Walk([], [])
        words = key.split(".")
        pending = [exchange]
        while pending:
            for pattern, target, is_queue in self.bindings[pending.pop()]:
                if not matches(pattern, words):
                    continue
                if not is_queue:
                    pending.append(target)
                elif target in self.ttl:
                    walk.waits.append((target, self.ttl[target]))
                    pending.append(self.dead_letter[target])
                else:
                    walk.arrived.append(target)
        return walk


MODELS = {
    layout: Model(layout, "dest", "other", "a.dotted.dest") for layout in (NSERVICEBUS, MILLISECONDS, SEED_EXAMPLE)
}


def test_ten_seconds_in_four_levels_is_the_example_of_the_seed() -> None:
    exchange, key = SEED_EXAMPLE.route(10, "destination")
    assert (exchange, key) == ("nsb.delay-level-03", "1.0.1.0.destination")
    walk = Model(SEED_EXAMPLE, "destination").walk(exchange, key)
    assert walk.waits == [("nsb.delay-level-03", 8000), ("nsb.delay-level-01", 2000)]
    assert walk.arrived == ["destination"]


def test_ten_seconds_in_all_levels_start_at_level_three() -> None:
    exchange, key = NSERVICEBUS.route(timedelta(seconds=10), "destination")
    assert exchange == "nsb.delay-level-03"
    assert key == "0." * 24 + "1.0.1.0.destination"


def test_the_topology_of_the_seed() -> None:
    topology = NSERVICEBUS.topology()
    names = [f"nsb.delay-level-{level:02d}" for level in range(27, -1, -1)]
    exchanges = [one.name for one in topology if isinstance(one, ExchangeDeclaration)]
    queues = [one for one in topology if isinstance(one, QueueDeclaration)]
    assert exchanges == [*names, "nsb.delay-delivery"]
    assert [queue.name for queue in queues] == names
    assert [queue.arguments for queue in queues] == [
        {"x-queue-mode": "lazy", "x-message-ttl": 2**level * 1000, "x-dead-letter-exchange": following}
        for level, following in zip(range(27, -1, -1), [*names[1:], "nsb.delay-delivery"], strict=True)
    ]
    assert queues[0].arguments["x-message-ttl"] == 134_217_728_000


def test_the_bindings_of_the_seed() -> None:
    topology = NSERVICEBUS.topology()
    assert QueueBinding("nsb.delay-level-27", "nsb.delay-level-27", "1.#") in topology
    assert ExchangeBinding("nsb.delay-level-26", "nsb.delay-level-27", "0.#") in topology
    assert QueueBinding("nsb.delay-level-26", "nsb.delay-level-26", "*.1.#") in topology
    assert ExchangeBinding("nsb.delay-level-25", "nsb.delay-level-26", "*.0.#") in topology
    assert QueueBinding("nsb.delay-level-01", "nsb.delay-level-01", "*." * 26 + "1.#") in topology
    assert ExchangeBinding("nsb.delay-level-00", "nsb.delay-level-01", "*." * 26 + "0.#") in topology
    assert QueueBinding("nsb.delay-level-00", "nsb.delay-level-00", "*." * 27 + "1.#") in topology
    assert ExchangeBinding("nsb.delay-delivery", "nsb.delay-level-00", "*." * 27 + "0.#") in topology
    assert len(topology) == 28 + 29 + 28 + 28
    assert NSERVICEBUS.destination_binding("dest") == QueueBinding("dest", "nsb.delay-delivery", "#.dest")


def test_every_exchange_is_declared_before_it_is_bound() -> None:
    declared: set[str] = set()
    for one in NSERVICEBUS.topology():
        match one:
            case ExchangeDeclaration(name) | QueueDeclaration(name):
                declared.add(name)
            case QueueBinding(queue, exchange, _):
                assert {queue, exchange} <= declared
            case ExchangeBinding(destination, source, _):
                assert {destination, source} <= declared


@given(st.sampled_from(list(MODELS)), st.data())
def test_any_delay_waits_its_units_and_reaches_only_its_destination(layout: Layout, data: st.DataObject) -> None:
    units = data.draw(st.integers(0, layout.units_max))
    destination = data.draw(st.sampled_from(["dest", "other", "a.dotted.dest"]))
    exchange, key = layout.route(timedelta(milliseconds=units * layout.unit_ms), destination)
    walk = MODELS[layout].walk(exchange, key)
    assert sum(ttl for _, ttl in walk.waits) == units * layout.unit_ms
    # "#.dest" also matches a destination that ends in ".dest", by the layout's definition
    # (docs/guides/delayed-delivery.md)
    assert sorted(walk.arrived) == (["a.dotted.dest", "dest"] if destination == "a.dotted.dest" else [destination])
    if units:
        assert walk.waits[0][0] == exchange, "the first exchange is the first that leads into a queue"
    else:
        assert exchange == layout.delivery_exchange


@given(st.floats(0, 1e5))
def test_seconds_are_rounded_up_and_never_down(delay_s: float) -> None:
    for layout in (NSERVICEBUS, MILLISECONDS):
        exact = Fraction(repr(delay_s)) * 1000 / layout.unit_ms
        assert exact <= layout.units(delay_s) < exact + 1


@given(st.timedeltas(timedelta(0), timedelta(days=3)))
def test_timedeltas_are_rounded_up_exactly(delay: timedelta) -> None:
    waited = timedelta(milliseconds=MILLISECONDS.units(delay))
    assert delay <= waited < delay + timedelta(milliseconds=1)


def test_a_decimal_fraction_gains_no_unit_from_binary_floats() -> None:
    assert MILLISECONDS.units(4.035) == 4035
    assert MILLISECONDS.units(1.001) == 1001
    assert MILLISECONDS.units(1e-9) == 1
    assert NSERVICEBUS.units(0.0) == NSERVICEBUS.units(timedelta(0)) == 0
    assert NSERVICEBUS.units(0.001) == NSERVICEBUS.units(timedelta(microseconds=1)) == 1


def test_the_longest_delay_is_all_ones() -> None:
    exchange, key = NSERVICEBUS.route(268_435_455, "d")
    assert (exchange, key) == ("nsb.delay-level-27", "1." * 28 + "d")
    with pytest.raises(ValueError, match="too long: 268435456 units of 1000 ms, at most 268435455"):
        NSERVICEBUS.units(268_435_456)
    with pytest.raises(ValueError, match="too long"):
        NSERVICEBUS.units(268_435_455.5)


@pytest.mark.parametrize("delay", [-1, -0.001, -1e-300, timedelta(microseconds=-1)])
def test_negative_delays_are_refused(delay: timedelta | float) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        NSERVICEBUS.units(delay)


@pytest.mark.parametrize("delay", [math.nan, math.inf, -math.inf])
def test_delays_that_are_no_number_are_refused(delay: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        NSERVICEBUS.units(delay)


def test_a_destination_must_fit_the_routing_key() -> None:
    assert len(NSERVICEBUS.route(1, "d" * 199)[1]) == 255
    with pytest.raises(ValueError, match="200 bytes, but 28 levels leave only 199"):
        NSERVICEBUS.route(1, "é" * 100)
    with pytest.raises(ValueError, match="needs a destination"):
        NSERVICEBUS.route(1, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prefix": ""}, "prefix"),
        ({"levels": 0}, "1 to 28"),
        ({"levels": 29}, "1 to 28"),
        ({"unit_ms": 0}, "at least 1 ms"),
        ({"unit_ms": 60_000}, "brokers take no more"),
    ],
)
def test_impossible_layouts_are_refused(arguments: dict[str, str | int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout(**arguments)  # type: ignore[arg-type]


def test_extra_arguments_of_level_queues() -> None:
    queue = Layout("lazy", levels=1, queue_arguments=(("x-queue-mode", "lazy"),)).topology()[1]
    assert queue == QueueDeclaration(
        "lazy.delay-level-00",
        {"x-queue-mode": "lazy", "x-message-ttl": 1000, "x-dead-letter-exchange": "lazy.delay-delivery"},
    )


def test_an_expiration_together_with_a_delay_is_refused() -> None:
    with pytest.raises(ValueError, match="must not have an expiration"):
        NSERVICEBUS.message("d", 1, Properties(expiration="1000"))


def test_the_death_history_of_an_earlier_delivery_is_not_sent_again() -> None:
    headers = {"x-death": [], "x-first-death-queue": "q", "x-last-death-reason": "expired", "mine": 1}
    before = Properties(message_id="m", headers=headers, delivery_mode=1)  # type: ignore[arg-type]
    assert MILLISECONDS.message("d", 1, before)[2] == Properties(
        message_id="m", headers={"mine": 1}, delivery_mode=1
    )
    assert before.headers is headers
    assert "x-death" in headers, "the caller's table is not touched"


def test_a_delayed_message_is_persistent_unless_its_sender_says_otherwise() -> None:
    assert MILLISECONDS.message("d", 1)[2] == Properties(delivery_mode=2)
    assert MILLISECONDS.message("d", 1, Properties(message_id="m"))[2].delivery_mode == 2
    assert MILLISECONDS.message("d", 1, Properties(delivery_mode=1))[2].delivery_mode == 1


def test_nservicebus_is_told_the_delay_and_when_the_message_was_sent() -> None:
    headers = NSERVICEBUS.message("d", 9.5, Properties(headers={"mine": 1}))[2].headers or {}
    assert headers["NServiceBus.Transport.RabbitMQ.DelayInSeconds"] == 10
    assert headers["mine"] == 1
    sent = from_header(str(headers["NServiceBus.TimeSent"]))
    assert abs(datetime.now(UTC) - sent) < timedelta(minutes=1)
    kept = {"NServiceBus.TimeSent": "2026-01-02 03:04:05:678901 Z"}
    again = NSERVICEBUS.message("d", 1, Properties(headers=dict(kept)))[2]
    assert (again.headers or {})["NServiceBus.TimeSent"] == kept["NServiceBus.TimeSent"]
    assert (received(again, NSERVICEBUS.delay_header).headers or {}).keys() == {TIME_SENT, DELIVER_AT}


def test_a_message_that_is_sent_again_tells_anew_when_it_is_due() -> None:
    """As in NServiceBus's delayed retries: the time of the first sending stays, so it does not tell the due time."""
    old = {TIME_SENT: "2026-01-02 03:04:05:678901 Z", DELIVER_AT: "2026-01-02 03:05:05:678901 Z"}
    before = datetime.now(UTC)
    headers = NSERVICEBUS.message("d", 9.5, Properties(headers=dict(old)))[2].headers or {}
    assert headers[TIME_SENT] == old[TIME_SENT]
    assert timedelta(0) <= from_header(str(headers[DELIVER_AT])) - before - timedelta(seconds=10) < timedelta(minutes=1)


def test_a_time_is_a_delay_and_now_where_it_is_past() -> None:
    assert NSERVICEBUS.message("d", at=datetime(2020, 1, 1, tzinfo=UTC))[0] == "nsb.delay-delivery"
    exchange, key, _ = NSERVICEBUS.message("d", at=datetime.now(UTC) + timedelta(seconds=1000))
    assert exchange == "nsb.delay-level-09"
    assert int(key.removesuffix(".d").replace(".", ""), 2) in (999, 1000)
    with pytest.raises(TypeError, match="time zone"):
        NSERVICEBUS.message("d", at=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="either"):
        NSERVICEBUS.message("d", 1, at=datetime.now(UTC))
    with pytest.raises(ValueError, match="either"):
        NSERVICEBUS.message("d")


def test_celery_names_its_levels_without_padding_and_starts_at_the_top() -> None:
    topology = CELERY.topology()
    assert {one.name for one in topology if isinstance(one, QueueDeclaration)} == {
        f"celery_delayed_{level}" for level in range(28)
    }
    assert CELERY.delivery_exchange == "celery_delayed_delivery"
    assert CELERY.route(1, "celery")[0] == "celery_delayed_27"
    assert CELERY.level_arguments(0) == {
        "x-queue-type": "quorum",
        "x-overflow": "reject-publish",
        "x-dead-letter-strategy": "at-least-once",
        "x-message-ttl": 1000,
        "x-dead-letter-exchange": "celery_delayed_delivery",
    }
    assert CELERY_CLASSIC.level_arguments(1) == {
        "x-queue-type": "classic",
        "x-overflow": "reject-publish",
        "x-message-ttl": 2000,
        "x-dead-letter-exchange": "celery_delayed_0",
    }


def test_routing_topologies_bind_a_queue_or_an_exchange() -> None:
    assert DIRECT.destination_binding(NSERVICEBUS, "a.b") == QueueBinding("a.b", "nsb.delay-delivery", "#.a.b")
    assert CONVENTIONAL.destination_binding(NSERVICEBUS, "a") == ExchangeBinding("a", "nsb.delay-delivery", "#.a")


class Stub:
    """The part of a connection that identifies the broker."""

    def __init__(self, **properties: str) -> None:
        self.server_properties = properties


@pytest.mark.parametrize(
    ("properties", "told", "warnings"),
    [
        ({"product": "RabbitMQ", "version": "4.1.0", "leveret_version": "0.9"}, "leveret 0.9", []),
        ({"product": "RabbitMQ", "version": "4.1.0"}, "RabbitMQ 4.1.0", ["delivery limit", "queue type"]),
        ({"product": "RabbitMQ", "version": "3.13.7"}, "RabbitMQ 3.13.7", ["queue type"]),
    ],
)
def test_what_is_asked_of_rabbitmq_is_not_asked_of_leveret(
    properties: dict[str, str], told: str, warnings: list[str]
) -> None:
    layout = Layout(levels=4, queue_type="classic")
    found = verification._broker(Stub(**properties), layout)  # type: ignore[arg-type]
    assert (found[0].what, found[0].detail) == ("broker", told)
    assert [one.what for one in found[1:]] == warnings
