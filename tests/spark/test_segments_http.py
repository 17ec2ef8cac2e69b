"""Sealed segments over HTTP, and the leases that protect their files meanwhile."""

from __future__ import annotations

import base64
import json
import pickle
import shutil
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trustme

from leveret.client import BlockingConnection
from leveret.client.segments.api import StreamApi
from leveret.client.segments.errors import SealedFileDamaged, SegmentGone, SegmentsUnavailable
from leveret.client.segments.ranged import RangedFile
from leveret.spark.segments.lease import StreamLease
from leveret.spark.segments.options import SegmentOptions
from leveret.spark.segments.planner import SealedPlanner
from leveret.testing.processes import LeveretProcess, free_port

from ..no_tls import NO_TLS
from ..waiting import until
from .sealed import ARROW, COUNT, STREAM, only, rows, sealed


@pytest.fixture
def http(sealed_broker: LeveretProcess) -> dict[str, str]:
    """The options of a client that does not see the directory."""
    return {"url": sealed_broker.url, "apiUrl": sealed_broker.admin_url, "segments": "http"}


@pytest.fixture
def api(sealed_broker: LeveretProcess) -> StreamApi:
    return api_of(sealed_broker, STREAM)


def api_of(broker: LeveretProcess, stream: str) -> StreamApi:
    return StreamApi.of(broker.admin_url, broker.url, "/", stream)


@pytest.fixture
def facts(sealed_facts: dict[str, Any]) -> dict[str, Any]:
    """The facts without the directory."""
    return sealed_facts | {"tables_dir": None}


# -- rows --------------------------------------------------------------------------------------------------------------


def test_the_rows_are_those_of_the_files(
    http: dict[str, str], facts: dict[str, Any], sealed_facts: dict[str, Any]
) -> None:
    assert rows(sealed(**http), facts, 3, COUNT - 2).equals(rows(sealed(), sealed_facts, 3, COUNT - 2))
    automatic = sealed(**{**http, "segments": "auto"})
    assert rows(automatic, facts, 90, 110, only("offset"))["offset"].to_pylist() == list(range(90, 110))


def test_an_executor_that_sees_no_directory_asks_the_api(
    http: dict[str, str], sealed_facts: dict[str, Any], tmp_path: Path
) -> None:
    """The driver sees the files, but the machine of the task does not."""
    directory = tmp_path / "%2F" / STREAM
    shutil.copytree(sealed_facts["tables_dir"], directory)
    tasks = sealed(**{**http, "segments": "auto"}).plan(sealed_facts | {"tables_dir": str(directory)}, 0, COUNT)
    assert all(file.path for task in tasks for file in task.files)
    shutil.rmtree(directory)
    found = pa.Table.from_batches([batch for task in tasks for batch in task.read(only("offset"))])
    assert found["offset"].to_pylist() == list(range(COUNT))


def test_many_tasks_are_cut_from_files_far_away(http: dict[str, str], facts: dict[str, Any]) -> None:
    tasks = sealed(**http).plan(facts, 0, COUNT, 40)
    assert len(tasks) >= 40
    assert [0, *[task.end for task in tasks]] == [*[task.first for task in tasks], COUNT]


class Counted(RangedFile):
    """Does not keep the end of the file in memory, so that each read is a request."""

    def _fetch(self, wanted: str) -> bytes:
        return super()._fetch("bytes=-1024" if wanted.startswith("bytes=-") else wanted)


def test_pruned_columns_are_not_fetched(api: StreamApi, sealed_facts: dict[str, Any]) -> None:
    """Parquet's reader requests ranges of columns, and each is one request."""
    name = next(Path(sealed_facts["tables_dir"]).glob("*/*.parquet")).name
    octets: dict[str, int] = {}
    for leaf in ("offset", "body"):
        with Counted(api, name) as file:
            parquet = pq.ParquetFile(file, pre_buffer=True)
            before = file.octets, file.requests
            parquet.read_row_groups([0], columns=[leaf])
            octets[leaf], requests = file.octets - before[0], file.requests - before[1]
            assert requests == 1
            assert file.size > octets[leaf]
    assert 0 < 4 * octets["offset"] < octets["body"]


def test_a_file_behind_http_is_a_file(api: StreamApi, sealed_facts: dict[str, Any]) -> None:
    path = next(Path(sealed_facts["tables_dir"]).glob("*/*.parquet"))
    whole = path.read_bytes()
    with Counted(api, path.name) as file:
        assert file.size == len(whole)
        assert file.read(10) == whole[:10]
        file.seek(-5, 2)
        assert (file.tell(), file.read(100), file.read(1)) == (len(whole) - 5, whole[-5:], b"")
        file.seek(100)
        assert file.read(0) == b""
        file.seek(7, 1)
        buffer = bytearray(20)
        assert file.readinto(buffer) == 20
        assert bytes(buffer) == whole[107:127]
        file.seek(0)
        assert file.read() == whole


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_file_that_is_gone(http: dict[str, str], facts: dict[str, Any]) -> None:
    (task,) = pickle.loads(pickle.dumps(sealed(**http).plan(facts, 10, 20)))
    (file,) = task.files
    other = file.name[:-24] + "0" * 16 + ".parquet"
    object.__setattr__(file, "name", other)
    with pytest.raises(SegmentGone, match=r"offsets 10 to 19 .*apiUrl.*failOnDataLoss"):
        list(task.read(ARROW))


def test_wrong_credentials(http: dict[str, str], facts: dict[str, Any], sealed_broker: LeveretProcess) -> None:
    """The credentials of the AMQP URL are used, unless the API's URL has its own."""
    wrong = http | {"url": http["url"].replace("guest:guest", "guest:wrong")}
    text = r"refuses user 'guest' \(401\).*management.*apiUrl"
    with pytest.raises(SegmentsUnavailable, match=text):
        sealed(**wrong).plan(facts, 0, COUNT)
    with pytest.raises(SegmentsUnavailable, match=text):
        sealed(**wrong).hold(facts, 0)
    right = wrong | {"apiUrl": http["apiUrl"].replace("http://", "http://guest:guest@")}
    tasks = sealed(**right).plan(facts, 0, COUNT)
    assert tasks[-1].end == COUNT
    assert "guest" not in repr(tasks[0].api).replace("user='guest'", "")
    (task,) = sealed(**http).plan(facts, 0, 5)
    object.__setattr__(task, "api", StreamApi.of(wrong["apiUrl"], wrong["url"], "/", STREAM))
    with pytest.raises(SegmentsUnavailable, match=text):
        list(task.read(ARROW))


def test_a_file_that_is_replaced_while_it_is_read(api: StreamApi, sealed_facts: dict[str, Any]) -> None:
    """A range of the new file is not taken for one of the old file."""
    path = next(Path(sealed_facts["tables_dir"]).glob("*/*.parquet"))
    whole = path.read_bytes()
    with Counted(api, path.name) as file:
        file.read(10)
        aside = path.rename(path.with_suffix(".aside"))
        try:
            path.write_bytes(whole + b"more")
            with pytest.raises(SealedFileDamaged, match="it changed while"):
                file.read(10)
        finally:
            aside.rename(path)


def test_a_connection_that_was_closed_meanwhile(api: StreamApi, sealed_facts: dict[str, Any]) -> None:
    """Servers close connections that are idle for a while."""
    path = next(Path(sealed_facts["tables_dir"]).glob("*/*.parquet"))
    with Counted(api, path.name) as file:
        kept = file._connection
        assert kept is not None
        assert kept.sock is not None
        kept.sock.shutdown(socket.SHUT_RDWR)
        assert file.read(4) == b"PAR1"


class Served(BaseHTTPRequestHandler):
    """An API with a stream without files, and with the only user flights:secret."""

    def do_GET(self) -> None:
        allowed = self.headers["Authorization"] == "Basic " + base64.b64encode(b"flights:secret").decode()
        body = json.dumps({"segments": []}).encode()
        self.send_response(200 if allowed and self.path == "/behind/api/streams/%2F/s/segments" else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_tls_as_in_amqp_urls(tmp_path: Path) -> None:
    authority, certificates = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(certificates)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with ThreadingHTTPServer(("127.0.0.1", 0), Served) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"https://127.0.0.1:{server.server_address[1]}/behind/"
            amqp = "amqps://flights:secret@broker.example/%2F"
            for right in (
                StreamApi.of(f"{url}?cacertfile={certificates}", amqp, "/", "s"),
                StreamApi.of(url, f"{amqp}?cacertfile={certificates}", "/", "s"),
                StreamApi.of(f"{url}?verify=verify_none", amqp, "/", "s"),
            ):
                assert right.segments() == []
            with pytest.raises(SegmentsUnavailable, match=r"apiUrl.*CERTIFICATE_VERIFY_FAILED"):
                StreamApi.of(url, amqp, "/", "s").segments()
        finally:
            server.shutdown()
            thread.join()


def test_nobody_is_there(http: dict[str, str], facts: dict[str, Any]) -> None:
    nowhere = sealed(**{**http, "apiUrl": f"http://127.0.0.1:{free_port()}"})
    with pytest.raises(SegmentsUnavailable, match=r"apiUrl.*can't be reached"):
        nowhere.plan(facts, 0, COUNT)
    with pytest.raises(SegmentsUnavailable, match=r"apiUrl.*can't be reached"):
        nowhere.hold(facts, 0)


def test_another_broker_s_api(http: dict[str, str], facts: dict[str, Any]) -> None:
    other = sealed(**{**http, "url": http["url"].replace("%2F", "elsewhere")})
    for asked in (lambda: other.plan(facts, 0, COUNT), lambda: other.hold(facts, 0)):
        with pytest.raises(SegmentsUnavailable, match="apiUrl"):
            asked()


def test_a_port_that_is_none() -> None:
    with pytest.raises(ValueError, match="port of option apiUrl"):
        sealed(apiUrl="http://localhost:port")


# -- leases ------------------------------------------------------------------------------------------------------------


def held(broker: LeveretProcess) -> list[tuple[str, int]]:
    """Return ids and first offsets of the stream's leases."""
    url = f"{broker.admin_url}/api/streams/%2F/{STREAM}/leases"
    answer = httpx.get(url, auth=("guest", "guest"), timeout=60, verify=NO_TLS)
    return [(each["id"], each["first_offset"]) for each in answer.json()]


@pytest.fixture
def unheld(sealed_broker: LeveretProcess, api: StreamApi) -> LeveretProcess:
    """The broker without leases: those that stopped queries of other files have left would end only after minutes."""
    for lease, _ in held(sealed_broker):
        api.release(lease)
    return sealed_broker


def test_a_lease_is_held_and_given_back(
    unheld: LeveretProcess, http: dict[str, str], facts: dict[str, Any]
) -> None:
    of = sealed(**http)
    assert held(unheld) == []
    of.hold(facts, 7)
    ((lease, first),) = held(unheld)
    assert first == 7
    of.hold(facts, 8)  # too soon to be sent
    assert held(unheld) == [(lease, 7)]
    assert {task.lease for task in of.plan(facts, 7, COUNT)} == {lease}
    of.close()
    assert held(unheld) == []
    of.close()
    assert {task.lease for task in of.plan(facts, 7, COUNT)} == {None}


def test_a_lease_moves_forward_and_is_taken_anew_where_it_has_ended(
    unheld: LeveretProcess, api: StreamApi
) -> None:
    lease = StreamLease(api, renew_s=0)
    lease.hold(3)
    first = lease.id
    lease.hold(9)
    assert held(unheld) == [(first, 9)]
    assert first is not None
    api.release(first)
    lease.hold(11)
    assert lease.id != first
    assert held(unheld) == [(lease.id, 11)]
    lease.release()


def test_a_task_keeps_the_lease(unheld: LeveretProcess, http: dict[str, str], facts: dict[str, Any]) -> None:
    """The task renews it, as the driver may be silent for long. Without a lease it reads as long as files exist."""
    of = sealed(**http)
    of.hold(facts, 0)
    ((lease, _),) = held(unheld)
    StreamApi.of(http["apiUrl"], http["url"], "/", STREAM).renew(lease, 60_000, None)
    before = expiry(unheld)
    (task,) = of.plan(facts, 0, 5)
    assert sum(len(batch) for batch in task.read(only("offset"))) == 5
    assert expiry(unheld) > before + 600_000
    of.close()
    assert sum(len(batch) for batch in task.read(only("offset"))) == 5


def expiry(broker: LeveretProcess) -> int:
    """Return when the stream's only lease ends, in ms."""
    url = f"{broker.admin_url}/api/streams/%2F/{STREAM}/leases"
    answer = httpx.get(url, auth=("guest", "guest"), timeout=60, verify=NO_TLS)
    (lease,) = answer.json()
    return int(lease["expires_ms"])


def test_a_lease_that_cannot_be_renewed_just_now_is_no_error(
    sealed_broker: LeveretProcess, api: StreamApi, caplog: pytest.LogCaptureFixture
) -> None:
    lease = StreamLease(api, renew_s=0)
    lease.hold(0)
    object.__setattr__(api, "port", free_port())
    lease.hold(1)
    assert "was not renewed" in caplog.text
    lease.release()
    object.__setattr__(api, "port", sealed_broker.admin_port)
    for left, _ in held(sealed_broker):
        api.release(left)


def test_retention_waits_for_the_lease(sealed_broker: LeveretProcess) -> None:
    """Unread messages stay although the stream is too long; those that were read are deleted."""
    with BlockingConnection(sealed_broker.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        arguments = {
            "x-queue-type": "stream", "x-leveret-seal-after-ms": 1, "x-stream-max-segment-size-bytes": 50_000,
            "x-max-length-bytes": 100_000,
        }  # fmt: skip
        channel.declare_queue("short", arguments=arguments)

        def publish(count: int) -> None:
            for _ in range(count):
                channel.publish(b"x" * 1000, "", "short")
            channel.wait_for_confirms()

        def facts() -> dict[str, Any]:
            return channel.stream_facts("short")

        options = SegmentOptions.parse({"apiUrl": sealed_broker.admin_url, "segments": "http"})
        of = SealedPlanner(sealed_broker.url, options, "short")
        lease = StreamLease(api_of(sealed_broker, "short"), renew_s=0)
        lease.hold(0)
        publish(2500)
        until(lambda: facts()["sealed_offset"] >= 2000)
        assert facts()["first_offset"] == 0
        early = of.plan(facts(), 0, 10)
        assert sum(len(batch) for task in early for batch in task.read(only("offset"))) == 10
        lease.hold(1500)
        publish(2500)
        until(lambda: facts()["first_offset"] > 0)
        assert facts()["first_offset"] <= 1500
        late = of.plan(facts(), 1500, 1510)
        assert sum(len(batch) for task in late for batch in task.read(only("offset"))) == 10
        with pytest.raises(SegmentGone, match=r"offsets 0 to 9 .*apiUrl"):
            until(lambda: not list(early[0].read(only("offset"))))
        lease.release()
        channel.delete_queue("short")
