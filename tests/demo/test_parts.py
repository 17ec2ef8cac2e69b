"""The small parts of the demo, without a broker and Spark."""

import json
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leveret.demo import workspace
from leveret.demo.account import picture
from leveret.demo.airports import AirportSample
from leveret.demo.data import Flights
from leveret.demo.errors import DemoError
from leveret.demo.faults import hasty_notice
from leveret.demo.outage import Outage
from leveret.demo.plan import AIRPORTS, MARKER, SENT_HEADER, DemoPlan
from leveret.demo.roles.lookup import Planes
from leveret.demo.timed import ROWS_PER_STAMP, stamped


def plan(output: Path, *faults: str) -> DemoPlan:
    return DemoPlan("amqp://guest:guest@127.0.0.1/%2F", 10, 3, output, faults)


def test_a_plan_survives_the_way_to_a_child_process(tmp_path: Path) -> None:
    assert DemoPlan.from_json(plan(tmp_path, "lost").to_json()) == plan(tmp_path, "lost")


def test_the_lookup_service_answers_with_the_flight_and_its_aircraft() -> None:
    planes = Planes({"N1": {"model": "A320", "seats": 180}})
    request = {"id": "20130101-UA-1-EWR", "tailnum": "N1", "carrier": "UA"}
    assert json.loads(planes.answer(json.dumps(request).encode())) == {
        "id": "20130101-UA-1-EWR",
        "plane": {"model": "A320", "seats": 180},
    }


@pytest.mark.parametrize("tail_number", ["N2", None])
def test_an_unknown_aircraft_is_null(tail_number: str | None) -> None:
    answer = Planes({"N1": {}}).answer(json.dumps({"id": "x", "tailnum": tail_number}).encode())
    assert json.loads(answer) == {"id": "x", "plane": None}


@pytest.mark.parametrize("request_body", [b"", b"[]", b"{}", b"\xff"])
def test_a_request_that_is_no_flight_is_an_error(request_body: bytes) -> None:
    with pytest.raises(ValueError):
        Planes({}).answer(request_body)


def test_stamps_are_taken_when_the_sink_takes_the_rows() -> None:
    rows = 2 * ROWS_PER_STAMP + 1
    kind = pa.map_(pa.string(), pa.string())
    batch = pa.RecordBatch.from_pydict({"body": [b"x"] * rows, "headers": pa.array([[("a", "b")]] * rows, kind)})
    parts = stamped(iter([batch]))
    stamps = []
    for part in parts:
        assert part.num_rows <= ROWS_PER_STAMP
        headers = [dict(pairs) for pairs in part.column("headers").to_pylist()]
        assert all(one.keys() == {"a", SENT_HEADER} for one in headers)
        stamps += [int(one[SENT_HEADER]) for one in headers]
        assert stamps[-1] <= time.time_ns()
    assert len(stamps) == rows
    assert stamps == sorted(stamps)
    assert len(set(stamps)) == 3


def test_the_hasty_notice_is_of_the_longest_late_flight(tmp_path: Path) -> None:
    flights = Flights(["a", "b", "c"], ["k"] * 3, [b"{}"] * 3, [True, True, False], [50, 70, 90])
    assert hasty_notice(plan(tmp_path, "early"), flights) == "b"
    assert hasty_notice(plan(tmp_path, "lost"), flights) is None


def test_a_directory_of_results_is_emptied_and_no_other(tmp_path: Path) -> None:
    output = tmp_path / "a" / "b"
    workspace.prepare(output)
    assert (output / MARKER).exists()
    (output / "old").mkdir()
    (output / "old" / "file").touch()
    workspace.prepare(output)
    assert sorted(path.name for path in output.iterdir()) == [MARKER, "records"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine").touch()
    with pytest.raises(DemoError, match="is not empty"):
        workspace.prepare(other)
    assert (other / "mine").exists()
    with pytest.raises(DemoError, match="can't be prepared"):
        workspace.prepare(other / "mine")


def test_ids_are_read_from_a_file_or_a_directory_or_nothing(tmp_path: Path) -> None:
    assert workspace.read_ids(tmp_path / "nothing") == []
    assert workspace.read_ids(tmp_path) == []
    pq.write_table(pa.table({"id": ["a", None]}), tmp_path / "1.parquet")
    assert workspace.read_ids(tmp_path / "1.parquet") == ["a", ""]
    assert workspace.read_ids(tmp_path) == ["a", ""]


def test_the_picture_of_a_federated_run_is_of_the_time_in_which_something_moved(tmp_path: Path) -> None:
    counts = [(0.2, 0, 0), (9.8, 0, 0), (10.0, 5, 3), (11.0, 5, 5), (11.4, 5, 5), (60.0, 5, 5)]
    samples = [AirportSample(airport, *count) for count in counts for airport in AIRPORTS]
    assert {sample.seconds for sample in picture.while_moving(samples)} == {9.8, 10.0, 11.0, 11.4}
    assert picture.while_moving([AirportSample("EWR", 3.0, 0, 0)]) == []
    outage = Outage("JFK", "link cut", "link restored", 0, 1, lambda: None, lambda: None, began_s=10.1, ended_s=10.9)
    picture.draw_crossing(samples, [outage], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_shows_shares_by_carrier_and_hour(tmp_path: Path) -> None:
    few = {"carrier": ["ZZ"], "hour": [7], "on_time": [True]}
    many = {"carrier": ["AA"] * 20 + ["BB"] * 20, "hour": [7, 8] * 20, "on_time": ([True] * 15 + [False] * 5) * 2}
    both = {name: many[name] + few[name] for name in many}
    pq.write_table(pa.table(both), tmp_path / "flights.parquet")
    shares = picture.punctuality_by_hour(tmp_path / "flights.parquet")
    assert list(shares.columns) == [7, 8]
    assert set(shares.index) == {"AA", "BB", "ZZ"}
    assert np.isnan(shares.loc["ZZ"]).all()
    assert shares.loc["AA", 7] == pytest.approx(0.8)
    picture.draw(shares, {"AA": "Alpha"}, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
