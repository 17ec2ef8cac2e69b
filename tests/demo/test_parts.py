"""The small parts of the demo, without a broker and Spark."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from leveret.demo import workspace
from leveret.demo.account import picture
from leveret.demo.account.reconcile import Notice
from leveret.demo.airports import AirportSample
from leveret.demo.data import Flights
from leveret.demo.errors import DemoError
from leveret.demo.faults import hasty_notice
from leveret.demo.lookups import objects
from leveret.demo.outage import Outage
from leveret.demo.plan import AIRPORTS, MARKER, DemoPlan
from leveret.demo.progress import Display
from leveret.demo.roles.lookup import Planes
from leveret.demo.roles.role import write_records


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


FIELDS = pa.schema([("id", pa.string()), ("dep_time", pa.int32())])


def test_messages_become_rows_with_the_fields_of_the_schema() -> None:
    texts = [b'{"id":"a","dep_time":517}', b'{"dep_time":null,"more":[1]}', b'{"id":"c \\n \xc3\xa9"}']
    rows = objects(pa.array(texts, pa.binary()), FIELDS)
    assert rows.schema == FIELDS
    assert rows.to_pylist() == [
        {"id": "a", "dep_time": 517}, {"id": None, "dep_time": None}, {"id": "c \n é", "dep_time": None},
    ]  # fmt: skip
    assert objects(pa.array([], pa.binary()), FIELDS).num_rows == 0


@pytest.mark.parametrize(
    "text", [b"", b"7", b"[]", b"null", b"{", b"{}\n{}", b"{}{}", b"{} 7", b'{"dep_time":"late"}', b'{"id":1}']
)
def test_what_is_not_one_object_with_these_fields_is_an_error_and_shifts_no_rows(text: bytes) -> None:
    with pytest.raises(ValueError):
        objects(pa.array([b"{}", text, b"{}"], pa.binary()), FIELDS)


def test_a_notice_was_published_when_its_batch_was_released_or_else_when_its_task_sent_it(tmp_path: Path) -> None:
    for folder in ("sent", "released"):
        (tmp_path / "records" / folder).mkdir(parents=True)
    records = tmp_path / "records"
    for name, ids in (("0-0", ["a"]), ("0-1", ["b"]), ("1-0", ["c", "a"])):
        write_records(records / "sent" / f"{name}.parquet", id=ids, sent_ns=[100] * len(ids))
    (records / "released" / "0").write_text("150")
    write_records(records / "delivered.parquet", id=["c", "b", "x", "a"], received_ns=[200, 210, 220, 230])
    notices = workspace.read_notices(plan(tmp_path), {"a": 5, "b": 6, "c": 7})
    assert notices == [
        Notice("c", 100, 7, 200), Notice("b", 150, 6, 210), Notice("x", 220, 1, 220), Notice("a", 100, 5, 230)
    ]  # fmt: skip
    assert notices[2].early, "nobody has sent it"


def test_bars_tell_rates_and_how_far_a_stage_is_behind() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with Display(console, 1_000) as display:
        display.show("confirmed", 900)
        display.show("looked up", 400)
        display.show("delivered", 7)
        display.total("delivered", 10)
        display.show("delivered", 8)
    told = console.file.getvalue()
    for said in ("/s, 100 to come", "/s, 500 behind", "/s, 2 to come"):
        assert said in told


def test_without_a_terminal_lines_tell_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leveret.demo.progress.LINE_S", 0.0)
    console = Console(file=io.StringIO(), force_terminal=False, width=120)
    with Display(console, 1_000) as display:
        display.show("confirmed", 1_000)
        display.show("looked up", 400)
    assert "looked up 400 (0/s, 600 behind)" in console.file.getvalue()


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
