"""Readers of a stream's files over HTTP, under a lease: rows and bytes are right, and kill -9 takes none of it away."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pika
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leveret.cli.lake import BrokerStreams
from leveret.lake.iceberg import open_catalog
from leveret.testing.processes import LeveretProcess

from ..no_tls import NO_TLS
from ..waiting import until

GUEST = ("guest", "guest")
STREAM = "/api/streams/%2F/far"
FAR = ("%2F", "far")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LeveretProcess]:
    with LeveretProcess(tmp_path / "data", admin=True) as process:
        yield process


class RangeFile(io.RawIOBase):
    """A remote file of which only the requested ranges are fetched."""

    def __init__(self, client: httpx.Client, path: str) -> None:
        self._client = client
        self._path = path
        head = client.head(path)
        assert head.status_code == 200
        self._size, self._tag = int(head.headers["content-length"]), head.headers["etag"]
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        headers = {"range": f"bytes={self._at}-{end - 1}", "if-range": self._tag}
        answer = self._client.get(self._path, headers=headers)
        assert answer.status_code == 206
        self._at = end
        return answer.content


def http(broker: LeveretProcess, auth: tuple[str, str] = GUEST) -> httpx.Client:
    return httpx.Client(base_url=broker.admin_url, auth=auth, timeout=60, verify=NO_TLS)


def publish(broker: LeveretProcess, first: int, count: int) -> None:
    """Publish `count` more confirmed messages; their file is sealed soon."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    arguments = {
        "x-queue-type": "stream", "x-max-length-bytes": 1, "x-stream-max-segment-size-bytes": 1,
        "x-leveret-seal-after-ms": 1,
    }  # fmt: skip
    channel.queue_declare("far", durable=True, arguments=arguments)
    channel.confirm_delivery()
    for number in range(first, first + count):
        channel.basic_publish("", "far", f'{{"n": {number}}}'.encode() * 100)
    connection.close()


def listing(client: httpx.Client) -> dict[str, Any]:
    answer = client.get(f"{STREAM}/segments")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def sealed_up_to(client: httpx.Client, end: int) -> bool:
    """Whether all messages before this offset are in tables, and the hashes of complete files are known."""
    found = listing(client)
    hashed = [row for row in found["segments"] if row["sha256"] is not None]
    return found["next_offset"] == end and found["unsealed"] is None and len(hashed) == len(found["segments"]) - 1


def lease(client: httpx.Client, first: int = 0) -> str:
    answer = client.post(f"{STREAM}/leases", json={"first": first, "duration_ms": 3_600_000, "name": "far"})
    assert answer.status_code == 201
    return str(answer.json()["id"])


def check_files(client: httpx.Client, rows: list[dict[str, Any]]) -> None:
    """Check that each file has the bytes that the list promised."""
    for row in rows:
        answer = client.get(f"{STREAM}/segments/{row['file']}")
        assert answer.status_code == 200
        assert len(answer.content) == row["size_bytes"]
        assert row["sha256"] in (None, sha256(answer.content).hexdigest())


def test_a_far_reader_gets_rows_by_ranges(broker: LeveretProcess) -> None:
    with http(broker) as client:
        publish(broker, 0, 0)
        lease(client)  # before the first message: otherwise files may be removed while later ones are sealed
        publish(broker, 0, 50)
        until(lambda: sealed_up_to(client, 50))
        publish(broker, 50, 50)
        until(lambda: sealed_up_to(client, 100))
        found = listing(client)
        check_files(client, found["segments"])
        tables = [row for row in found["segments"] if row["kind"] == "table"]
        assert [row["kind"] for row in found["segments"]].count("native") >= 2
        offsets, bodies = [], []
        for row in tables:
            with RangeFile(client, f"{STREAM}/segments/{row['file']}") as file:
                rows = pq.read_table(pa.PythonFile(file, "r"), columns=["offset", "timestamp", "body"])
            offsets += rows["offset"].to_pylist()
            bodies += rows["body"].to_pylist()
            times = rows["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_pylist()
            assert (min(times), max(times)) == (row["first_ms"], row["last_ms"])
        assert offsets == list(range(100))
        assert bodies == [f'{{"n": {number}}}'.encode() * 100 for number in range(100)]
        client.put("/api/users/other", json={"password": "x", "tags": "administrator"})
        rights = {"configure": ".*", "write": ".*", "read": "^$"}
        client.put("/api/permissions/%2F/other", json=rights)
    with http(broker, ("other", "x")) as other:
        for path in ("segments", f"segments/{tables[0]['file']}", "leases"):
            assert other.get(f"{STREAM}/{path}").status_code == 403
        assert other.post(f"{STREAM}/leases", json={"duration_ms": 1}).status_code == 403


def test_a_table_of_the_catalogue_has_the_messages(broker: LeveretProcess) -> None:
    """Sealed by the broker, registered beside it, and read by pyiceberg."""
    with http(broker) as client:
        publish(broker, 0, 0)
        lease(client)
        publish(broker, 0, 30)
        until(lambda: sealed_up_to(client, 30))
        publish(broker, 30, 30)
        until(lambda: sealed_up_to(client, 60))
    streams = BrokerStreams(str(broker.data_dir))
    [fact] = streams.files()
    held = streams.hold("/", "far", "", 0, 60_000)
    assert streams.hold("/", "far", held, 0, 60_000) == held
    assert streams.hold("/", "far", "none", 0, 60_000) not in ("none", held)
    assert streams.hold("/", "none", "", 0, 60_000) == ""

    home = broker.data_dir / "iceberg"
    command = [sys.executable, "-m", "leveret.cli.main", "lake", "register", "--data-dir", str(broker.data_dir)]
    with subprocess.Popen([*command, "--follow", "--every-s", "0"], stdout=subprocess.PIPE, text=True) as registering:
        assert registering.stdout is not None
        assert registering.stdout.readline() == "%2F/far: 1 files added, 0 removed\n"
        with http(broker) as client:
            assert "iceberg" in {each["name"] for each in client.get(f"{STREAM}/leases").json()}
        registering.terminate()
        assert (registering.communicate()[0], registering.returncode) == ("", 0)
    catalog = open_catalog(f"sqlite:///{home}/catalog.db", f"file://{home}")
    rows = catalog.load_table(FAR).scan().to_arrow().sort_by("offset")
    first = fact["retained_from_offset"]
    assert rows["offset"].to_pylist() == list(range(first, 60))
    assert rows["body"].to_pylist() == [f'{{"n": {number}}}'.encode() * 100 for number in range(first, 60)]
    assert set(rows["routing_key"].to_pylist()) == {"far"}


def admin_pid(broker: LeveretProcess) -> int:
    """Return the process id of the HTTP API."""
    text = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text()
    [found] = [int(pid) for pid in text.split() if b"leveret.admin" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


def test_a_lease_holds_over_kills(broker: LeveretProcess) -> None:
    """Between listing and reading, the broker is killed, and then the process that serves the files."""
    with http(broker) as client:
        publish(broker, 0, 0)
        held = lease(client)
        publish(broker, 0, 20)
        for end in (40, 60):
            publish(broker, end - 20, 20)
            until(partial(sealed_up_to, client, end))
        before = listing(client)
        files = before["segments"]
        assert before["first_offset"] == 0
        assert before["retained_from_offset"] > 0  # without the lease, the first files would be gone

    broker.kill()
    broker.start()
    with http(broker) as client:
        publish(broker, 60, 20)  # another file is sealed, so retention has run again
        until(lambda: sealed_up_to(client, 80))
        assert [each["id"] for each in listing(client)["leases"]] == [held]
        check_files(client, files)

    os.kill(admin_pid(broker), signal.SIGKILL)
    with http(broker) as client:
        check_files(client, files)
        assert client.put(f"{STREAM}/leases/{held}", json={"first": 50, "duration_ms": 3_600_000}).status_code == 200
        until(lambda: listing(client)["first_offset"] > 0)
        kept = [row for row in files if row["last_offset"] >= 50]
        check_files(client, kept)
        assert client.delete(f"{STREAM}/leases/{held}").status_code == 204
        gone = [row["file"] for row in files if row["last_offset"] < before["retained_from_offset"]]
        assert {name.partition(".")[2] for name in gone} == {"lvs", "parquet"}
        until(lambda: all(client.get(f"{STREAM}/segments/{name}").status_code == 404 for name in gone))
        until(lambda: not {path.name for path in (broker.data_dir / "tables").rglob("*.parquet")} & set(gone))
