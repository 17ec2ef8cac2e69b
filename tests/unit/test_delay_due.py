"""The rest of a delay, computed from what a message in a level carries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.client import Delivery, Properties
from leveret.delay import CELERY, NSERVICEBUS, NSERVICEBUS_V2, Layout
from leveret.delay.due import remaining_in_level
from leveret.delay.instant import as_header
from leveret.delay.message import DELIVER_AT, TIME_SENT
from leveret.delay.named import DELAY_HEADER
from leveret.delay.tools.plan import moved, planned, poison
from leveret.wire.properties import encode_header
from leveret.wire.table import Value

SENT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def left(units: int, level: int, headers: dict[str, Value], after_s: float = 0, layout: Layout = NSERVICEBUS) -> float:
    remaining = remaining_in_level(layout, level, units, headers, SENT + timedelta(seconds=after_s))
    assert remaining is not None
    return remaining.total_seconds()


def died_in(level: int, at: datetime) -> dict[str, Value]:
    return {"x-death": [{"queue": f"nsb.delay-level-{level:02d}", "time": at, "reason": "expired", "count": 1}]}


def message(headers: dict[str, Value] | None, units: int = 10, key: str | None = None, **more: object) -> Delivery:
    properties = Properties(headers=headers, **more)  # type: ignore[arg-type]
    key = NSERVICEBUS.routing_key(units, "orders") if key is None else key
    return Delivery(b"body", encode_header(properties, 4), "nsb.delay-level-03", key, 1, False, "")


def test_the_time_of_sending_and_the_delay_tell_what_is_left() -> None:
    headers: dict[str, Value] = {TIME_SENT: as_header(SENT), DELAY_HEADER: 10}
    assert left(10, 3, headers) == 10
    assert left(10, 3, headers, 3.25) == 6.75
    assert left(10, 1, headers, 8.5) == 1.5
    assert left(10, 3, {**headers, DELAY_HEADER: "10"}, 3.25) == 6.75, "as text"


def test_what_was_sent_again_counts_from_then() -> None:
    old = as_header(SENT - timedelta(days=3))
    assert left(10, 3, {TIME_SENT: old, DELAY_HEADER: 10, DELIVER_AT: as_header(SENT + 10 * SECOND)}, 1) == 9
    assert left(10, 3, {TIME_SENT: old, DELAY_HEADER: 10, "NServiceBus.Retries.Timestamp": as_header(SENT)}, 1) == 9


def test_the_digits_below_are_waited_for_whatever_the_headers_say() -> None:
    old = as_header(SENT - timedelta(days=3))
    assert left(0b1011, 3, {TIME_SENT: old, DELAY_HEADER: 11}) == 3
    assert left(0b1011, 0, {TIME_SENT: old, DELAY_HEADER: 11}) == 0


def test_a_clock_that_is_ahead_makes_nothing_wait_longer_than_its_level() -> None:
    ahead = as_header(SENT + timedelta(days=3))
    assert left(0b1011, 3, {TIME_SENT: ahead, DELAY_HEADER: 11}) == 11
    assert left(0b1011, 1, {TIME_SENT: ahead, DELAY_HEADER: 11}) == 3


def test_without_such_headers_the_last_hop_tells_to_the_second() -> None:
    assert left(10, 1, died_in(3, SENT), 0.5) == 2, "the hop was at 12:00:00.999 at the latest"
    assert left(10, 1, died_in(3, SENT), 2.25) == 0.75
    assert left(10, 1, died_in(3, SENT.replace(tzinfo=None)), 2.25) == 0.75, "a client that knows no zones"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {TIME_SENT: as_header(SENT)},
        {TIME_SENT: "yesterday", DELAY_HEADER: 10},
        {TIME_SENT: as_header(SENT), DELAY_HEADER: -1},
        {TIME_SENT: as_header(SENT), DELAY_HEADER: "ten"},
        {DELIVER_AT: 5},
        {"eta": "2026-03-01T12:00:00"},
        {"eta": "soon"},
        {"x-death": []},
        {"x-death": "none"},
        {"x-death": [{"queue": "orders", "time": SENT}]},
        {"x-death": [{"queue": "nsb.delay-level-01", "time": SENT}]},
        {"x-death": [{"queue": "nsb.delay-level-07", "time": "12:00"}]},
    ],
)
def test_what_tells_nothing_is_not_guessed(headers: dict[str, Value]) -> None:
    assert remaining_in_level(NSERVICEBUS, 1, 10, headers, SENT) is None


def test_a_celery_task_tells_its_eta() -> None:
    assert left(10, 3, {"eta": "2026-03-01T13:00:09.5+01:00"}, 2, CELERY) == 7.5


@given(
    units=st.integers(1, NSERVICEBUS.units_max),
    waited_us=st.integers(0, 10**15),
    skew_us=st.integers(-(10**9), 10**9),
    data=st.data(),
)
def test_nothing_is_early_wherever_a_message_stands(
    units: int, waited_us: int, skew_us: int, data: st.DataObject
) -> None:
    """A sender's clock that is behind may cost the wait of one level, never more; a correct clock costs nothing."""
    level = data.draw(st.sampled_from([bit for bit in range(28) if units >> bit & 1]))
    entered = units >> (level + 1) << (level + 1)
    waited = timedelta(seconds=entered) + timedelta(microseconds=waited_us) % timedelta(seconds=1 << level)
    headers: dict[str, Value] = {TIME_SENT: as_header(SENT + timedelta(microseconds=skew_us)), DELAY_HEADER: units}
    remaining = remaining_in_level(NSERVICEBUS, level, units, headers, SENT + waited)
    assert remaining is not None
    true = timedelta(seconds=units) - waited
    if skew_us >= 0:
        assert remaining >= true
    if skew_us == 0:
        assert remaining == true
    assert timedelta(seconds=units & ((1 << level) - 1)) <= remaining <= true + min(waited, timedelta(seconds=1000))


def test_what_moves_keeps_what_tells_of_it_and_loses_its_hops() -> None:
    headers: dict[str, Value] = {TIME_SENT: as_header(SENT), DELAY_HEADER: 10, "mine": 1, **died_in(3, SENT)}
    properties = {"message_id": "m1", "delivery_mode": 1, "expiration": "5", "user_id": "guest", "reply_to": "r"}
    plan = planned(NSERVICEBUS, 1, message(headers, **properties), SENT + 9 * SECOND, False)
    exchange, key, sent = moved(plan, NSERVICEBUS_V2)
    assert (exchange, key) == ("nsb.v2.delay-level-00", NSERVICEBUS_V2.routing_key(1, "orders"))
    assert sent == Properties(
        headers={TIME_SENT: as_header(SENT), DELAY_HEADER: 10, "mine": 1},
        message_id="m1",
        delivery_mode=1,
        reply_to="r",
    )


def test_a_part_of_a_unit_is_a_whole_one() -> None:
    headers: dict[str, Value] = {TIME_SENT: as_header(SENT), DELAY_HEADER: 10}
    plan = planned(NSERVICEBUS, 3, message(headers), SENT + timedelta(seconds=3.001), False)
    assert moved(plan, NSERVICEBUS_V2)[1] == NSERVICEBUS_V2.routing_key(7, "orders")


def test_what_comes_to_nservicebus_from_elsewhere_tells_its_delay_there() -> None:
    celery = Layout("celery_delayed", level_names="{prefix}_{level}", starts_at_top=True)
    plan = planned(celery, 3, message({"eta": "2026-03-01T12:00:10+00:00"}), SENT, False)
    headers = moved(plan, NSERVICEBUS)[2].headers or {}
    assert headers[DELAY_HEADER] == 10
    assert TIME_SENT in headers


def test_what_can_not_be_told_is_poison_and_says_why() -> None:
    lost = planned(NSERVICEBUS, 3, message({"mine": 1}, message_id="m1", expiration="7"), SENT, False)
    properties = poison(lost, "nsb.delay-level-03")
    assert lost.destination == ""
    assert properties == Properties(
        headers={
            "mine": 1,
            "leveret-delay-queue": "nsb.delay-level-03",
            "leveret-delay-routing-key": NSERVICEBUS.routing_key(10, "orders"),
            "leveret-delay-reason": "its headers do not say when it is due",
        },
        message_id="m1",
    )
    strange = planned(NSERVICEBUS, 3, message({TIME_SENT: as_header(SENT), DELAY_HEADER: 10}, key="a.b"), SENT, False)
    assert strange.reason == "its routing key is not one of a layout with 28 levels"


def test_what_can_not_be_told_waits_its_level_again_if_that_is_wished() -> None:
    plan = planned(NSERVICEBUS, 3, message(None, units=0b11011), SENT, True)
    assert (plan.destination, plan.remaining) == ("orders", 11 * SECOND)


@pytest.mark.parametrize(
    "key", ["", "orders", "1.0.orders", "1." * 28, "2." * 28 + "a", "1." * 27 + "11a", "10" * 28 + "a"]
)
def test_a_key_of_another_kind_is_no_address(key: str) -> None:
    assert NSERVICEBUS.address(key) is None


@given(st.integers(0, NSERVICEBUS.units_max), st.text("ab.0", min_size=1, max_size=20))
def test_an_address_is_what_the_key_was_made_of(units: int, destination: str) -> None:
    assert NSERVICEBUS.address(NSERVICEBUS.routing_key(units, destination)) == (units, destination)
