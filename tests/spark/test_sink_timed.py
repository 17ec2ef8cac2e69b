"""Rows with a time are encoded by columns, and equal what the delay layout makes of each row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from leveret.delay import CELERY, MILLISECONDS, NSERVICEBUS, Layout
from leveret.delay.instant import as_header
from leveret.delay.message import DELIVER_AT, TIME_SENT
from leveret.spark.sink.timed import timed
from leveret.wire.table import decode_table

NOW = datetime(2026, 1, 1, 12, 0, 0, 250_000, UTC)
WAITS_US = (-5, 0, 1, 999_999, 1_000_000, 1_000_001, 77_123_456, 3_600_000_000, 200_000_000_000)
HEADERS = pa.map_(pa.string(), pa.string())


def waits(**more: Any) -> pa.RecordBatch:
    times = [NOW + timedelta(microseconds=wait) for wait in WAITS_US]
    return pa.RecordBatch.from_pydict({"at": pa.array(times, pa.timestamp("us", "UTC")), **more})


def columns(**more: Any) -> dict[str, Any]:
    return {"exchange": "", "routing_key": "bills", "delivery_mode": 2, **more}


@pytest.mark.parametrize("layout", [NSERVICEBUS, MILLISECONDS, CELERY])
@pytest.mark.parametrize(
    "headers", [[None], [{"x-schedule": "bills", "n": None}], [{"a": "1"}, None, {}, {"a": "2", "bc": "3" * 300}]]
)
def test_rows_are_what_the_layout_makes_of_each(layout: Layout, headers: list[dict[str, str | None] | None]) -> None:
    given = columns(routing_key=pa.array([f"q{n % 2}" for n in range(len(WAITS_US))]))
    rows = [headers[row % len(headers)] for row in range(len(WAITS_US))]
    if any(headers):
        # a slice, whose offsets do not begin at 0
        pairs = [[("sliced", "off")], *(None if row is None else list(row.items()) for row in rows)]
        given["headers"] = pa.array(pairs, HEADERS).slice(1)
    found = timed(given, waits(), layout, NOW)
    assert found is not None
    for row, wait_us in enumerate(WAITS_US):
        units = layout.units(timedelta(microseconds=max(wait_us, 0)))
        assert found["exchange"][row].as_py() == layout.entrance(units)
        assert found["routing_key"][row].as_py() == layout.routing_key(units, f"q{row % 2}")
        if layout.delay_header:
            due = NOW + timedelta(milliseconds=units * layout.unit_ms)
            octets = found["headers"][row].as_py()
            told, end = decode_table(octets, 0)
            assert end == len(octets)
            assert list(told.items()) == [
                (TIME_SENT, as_header(NOW)), *(rows[row] or {}).items(), (DELIVER_AT, as_header(due)),
                (layout.delay_header, units),
            ]  # fmt: skip
        else:
            assert found.get("headers") is given.get("headers")


def test_rows_with_a_delay_wait_as_long_as_the_layout_says() -> None:
    delays_s = (0, 0.0015, 0.25, 7.0, 86_400.0, 0.25)
    destinations = pa.array(["bills"] * len(delays_s))
    found = timed(columns(routing_key=destinations), pa.RecordBatch.from_pydict({"delay": delays_s}), MILLISECONDS, NOW)
    assert found is not None
    for row, delay_s in enumerate(delays_s):
        exchange, key, _ = MILLISECONDS.message("bills", delay_s)
        assert (found["exchange"][row].as_py(), found["routing_key"][row].as_py()) == (exchange, key)


@pytest.mark.parametrize("delay_s", [-1.0, float("nan"), float("inf"), 1e12])
def test_a_delay_that_cannot_be_is_told_by_its_row(delay_s: float) -> None:
    assert timed(columns(), pa.RecordBatch.from_pydict({"delay": [1.0, delay_s]}), NSERVICEBUS, NOW) is None


@pytest.mark.parametrize(
    ("given", "waiting"),
    [
        (columns(), waits(delay=[None] * 8 + [1.0])),
        (columns(), waits(exchange=[None] * 8 + ["e"])),
        (columns(), waits().set_column(0, "at", pa.array([None] * 9, pa.timestamp("us", "UTC")))),
        (columns(routing_key=""), waits()),
        (columns(routing_key=pa.array(["q"] * 8 + [None])), waits()),
        (columns(routing_key="q" * 200), waits()),
        (columns(expiration="5"), waits()),
        (columns(headers=pa.array([[("a", "1")]] * 8 + [[("x-death", "1")]], HEADERS)), waits()),
        (columns(headers=pa.array([None] * 8 + [[(TIME_SENT, "1")]], HEADERS)), waits()),
    ],
)
def test_what_is_uncommon_or_wrong_is_made_row_by_row(given: dict[str, Any], waiting: pa.RecordBatch) -> None:
    assert timed(given, waiting, NSERVICEBUS, NOW) is None


def test_what_is_too_far_away_is_told_by_its_row() -> None:
    assert timed(columns(), waits(), Layout("t", levels=6, unit_ms=1000), NOW) is None
