"""A schedule's requests to the broker, and its errors if they fail; without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from leveret.pipelines import PipelineError
from leveret.pipelines.schedules.api import DelayedApi, Refusal
from leveret.pipelines.schedules.reminders import Columns
from leveret.pipelines.schedules.tasks import Retime, TakeBack


class Office(HTTPServer):
    """An HTTP API that knows which ids are pending, and refuses requests with too many ids."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.pending = {"a", "b", "c", "d"}
        self.most = 2
        self.status = 200
        self.calls: list[tuple[str, dict[str, str], dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    def answer(self) -> None:
        office = self.server
        assert isinstance(office, Office)
        parts = urlsplit(self.path)
        assert parts.path == "/api/delayed/a%2Fb/messages"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
        office.calls.append((self.command, dict(parse_qsl(parts.query)), body))
        ids = body.get("times") or body.get("message_ids") or ()
        found = sorted(office.pending.intersection(ids))
        status = office.status if len(ids) <= office.most else 400
        told = {"message_count": len(found), "message_ids": found} if status == 200 else {"reason": "no"}
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(told).encode())

    do_GET = do_PUT = do_DELETE = answer

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def office() -> Iterator[Office]:
    with Office() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def api(office: Office) -> DelayedApi:
    return DelayedApi.of(office.url, "amqp://u:p@host/a%2Fb", "bills")


def batches(**times: int) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"id": list(times), "at_ms": list(times.values())})


def answers(found: Iterator[pa.RecordBatch]) -> dict[str, bool]:
    return {row["id"]: row["found"] for batch in found for row in batch.to_pylist()}


def test_times_are_given_in_as_few_calls_as_the_broker_takes(office: Office) -> None:
    found = answers(Retime(api(office))(batches(a=1, b=2, c=3, gone=4)))
    assert found == {"a": True, "b": True, "c": True, "gone": False}
    ours = {"header": "x-schedule=bills"}
    assert office.calls == [
        ("PUT", ours, {"times": {"a": 1, "b": 2, "c": 3, "gone": 4}}),
        ("PUT", ours, {"times": {"a": 1, "b": 2}}),
        ("PUT", ours, {"times": {"c": 3, "gone": 4}}),
    ]


def test_what_is_refused_for_a_single_message_is_an_error(office: Office) -> None:
    office.status = 400
    with pytest.raises(Refusal, match="refused: no"):
        api(office).retime({"a": 1, "b": 2})
    assert [call[2] for call in office.calls] == [{"times": {"a": 1, "b": 2}}, {"times": {"a": 1}}]


def test_old_versions_are_taken_back_and_new_ones_are_not(office: Office) -> None:
    assert answers(TakeBack(api(office), 7)(batches(a=0, x=0))) == {"a": True, "x": False}
    query = {"header": "x-schedule=bills", "without_header": "x-schedule-run=7"}
    assert office.calls == [("DELETE", query, {"message_ids": ["a", "x"]})]


@pytest.mark.parametrize(("status", "said"), [(401, "needs a tag"), (404, "only leveret's does"), (503, "replied 503")])
def test_an_api_that_is_none_is_told(office: Office, status: int, said: str) -> None:
    office.status = status
    with pytest.raises(PipelineError, match=said):
        api(office).check()


def test_an_api_that_is_away_is_told() -> None:
    with pytest.raises(PipelineError, match="can't be reached"):
        DelayedApi.of("http://127.0.0.1:1", "amqp://host", "bills").check()
    with pytest.raises(PipelineError, match="--api-url"):
        DelayedApi.of("http://host:99999999", "amqp://host", "bills")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (Columns(queue_name="q"), "set when to send"),
        (Columns(at="at", delay_s="at", queue_name="q"), "set when to send"),
        (Columns(at="at"), "set where to send"),
        (Columns(at="at", queue_name="q", queue="id"), "set where to send"),
        (Columns(id="key", at="at", queue_name="q"), "no column 'key'; it has id, at"),
    ],
)
def test_columns_that_are_missing_are_told(columns: Columns, said: str) -> None:
    schema = StructType().add("id", "string").add("at", "timestamp")
    with pytest.raises(PipelineError, match=said):
        columns.check(schema)
