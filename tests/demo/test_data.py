"""The demo's input: all the flights, as messages with unique ids."""

import json

import pytest

from leveret.demo.data import CODES, NUMBERS, load_airlines, load_flights, load_planes
from leveret.demo.plan import ALL_FLIGHTS


def test_all_flights_have_an_id_of_their_own() -> None:
    flights = load_flights()
    assert len(flights.ids) == len(flights.keys) == len(flights.bodies) == len(flights.late) == ALL_FLIGHTS
    assert len(set(flights.ids)) == ALL_FLIGHTS
    assert flights.ids[0] == "20130101-UA-1545-EWR"
    assert flights.keys[0] == "flight.EWR.UA.IAH"
    assert len(flights.due()) == 80_100


def test_a_body_is_json_with_every_field_and_null_for_what_is_unknown() -> None:
    flights = load_flights(2_000, seed=7)
    rows = [json.loads(body) for body in flights.bodies]
    assert all(row.keys() == {"id", *NUMBERS, *CODES, "time_hour"} for row in rows)
    assert [row["id"] for row in rows] == flights.ids
    assert all(type(row[name]) is int or row[name] is None for row in rows for name in NUMBERS)
    assert all(type(row[name]) is str or row[name] is None for row in rows for name in CODES)
    assert any(row["arr_delay"] is None for row in rows)
    assert [(row["arr_delay"] or 0) >= 15 for row in rows] == flights.late


def test_a_sample_depends_on_the_seed_alone() -> None:
    assert load_flights(100, seed=1) == load_flights(100, seed=1)
    assert load_flights(100, seed=1).ids != load_flights(100, seed=2).ids


@pytest.mark.parametrize("count", [0, -1, ALL_FLIGHTS + 1])
def test_an_impossible_number_of_flights_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=r"flights must be 1 to 336776"):
        load_flights(count)


def test_planes_and_airlines_by_their_codes() -> None:
    assert load_planes()["N103US"]["model"] == "A320-214"
    assert len(load_planes()) == 3_322
    assert load_airlines()["UA"] == "United Air Lines Inc."
