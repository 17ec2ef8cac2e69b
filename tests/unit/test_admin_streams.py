"""/api/streams on a fake control and real files: lists, byte ranges, permissions, leases."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.requests import Request

from leveret.admin.file_answer import OpenFile, Unsatisfiable, file_answer, part
from leveret.admin.paths import examined
from leveret.admin.paths.examined import Examined, ExaminedFile, Examiner, sealed_file
from leveret.control.refusal import ACCESS_REFUSED, BAD_REQUEST, Refused
from leveret.store.disk import RealDisk
from leveret.store.format import DATA_START
from leveret.store.stream_files import Chunk, StreamFiles
from leveret.store.tables import date_directory, file_name, stream_directory

from .admin import MINE, Browser, missing

CREATION = "00000000000000bb"
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000
PATH = f"/api/streams/{MINE}/orders"


class Stream:
    """A stream's files: each `write` makes a native one, each `seal` a table of ten rows, one a second."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.directory = str(home / "streams" / "7")
        self.tables = stream_directory(str(home / "tables"), MINE, "orders")
        self.files = StreamFiles(RealDisk(), self.directory)
        self.committed = 0
        self.leases: list[dict[str, Any]] = []

    def write(self, first: int) -> None:
        time_us = NOON_US + first * 1_000_000
        chunks = [Chunk(first, 4, time_us, time_us + 3_000_000, b"a" * 100)]
        chunks.append(Chunk(first + 4, 6, time_us + 4_000_000, time_us + 9_000_000, b"b" * 100))
        self.files.appended(self.files.append(chunks, DATA_START + 200))
        self.committed = first + 10

    def seal(self, first: int, creation: str = CREATION) -> Path:
        folder = Path(self.tables) / date_directory("2026-11-22")
        folder.mkdir(parents=True, exist_ok=True)
        times = pa.array([NOON + timedelta(seconds=first + index) for index in range(10)], pa.timestamp("us", "UTC"))
        path = folder / file_name(first, first + 9, creation)
        pq.write_table(pa.table({"offset": range(first, first + 10), "timestamp": times}), path)
        return path

    def native(self, first: int) -> Path:
        return Path(self.files.path(first))

    def facts(self, fields: dict[str, Any]) -> Any:
        """Answer get_stream_files, as the broker does."""
        if fields["user"] == "watch":
            raise Refused(ACCESS_REFUSED, "access to queue 'orders' in vhost 'mine' refused for user 'watch'")
        if (fields["vhost"], fields["name"]) != (MINE, "orders"):
            return missing(fields)
        return {
            "vhost": MINE, "name": "orders", "creation": CREATION, "schema": None, "leases": self.leases,
            "first_offset": self.files.first, "retained_from_offset": self.files.first,
            "written_offset": self.files.end, "committed_offset": self.committed,
            "directory": self.directory, "tables": self.tables,
            "native": [(each.first, each.end, each.size) for each in self.files.segments],
        }  # fmt: skip


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


@pytest.fixture
def browse(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> Browser:
    monkeypatch.setattr("leveret.admin.paths.streams.HASHES_S_MAX", None)  # no limit, however slow the machine is
    browse = Browser()
    browse.control.answers["get_stream_files"] = stream.facts
    return browse


# -- the list ----------------------------------------------------------------------------------------------------------


async def test_what_is_listed(browse: Browser, stream: Stream) -> None:
    stream.write(0)
    stream.write(10)
    stream.committed = 25
    table = stream.seal(0)
    stream.seal(100, "00000000000000aa")  # of an earlier stream of the same name
    stream.leases = [{"id": "a", "name": "me", "first_offset": 0, "expires_ms": 5}]
    answer = await browse("GET", f"{PATH}/segments", user="plain")
    assert answer.status_code == 200
    found = answer.json()
    rows = found.pop("segments")
    assert found == {
        "vhost": MINE, "name": "orders", "creation": CREATION, "schema": None, "first_offset": 0, "next_offset": 25,
        "retained_from_offset": 0, "unsealed": {"first_offset": 10, "last_offset": 24},
        "tail": {"first_offset": 20, "last_offset": 24}, "leases": stream.leases,
    }  # fmt: skip
    noon_ms = NOON_US // 1000
    first = {"first_offset": 0, "last_offset": 9, "first_ms": noon_ms, "last_ms": noon_ms + 9000}
    native = stream.native(0).read_bytes()
    assert rows == [
        {"kind": "table", "file": table.name, **first, "size_bytes": table.stat().st_size, "date": "2026-11-22",
         "sha256": sha256(table.read_bytes()).hexdigest()},
        {"kind": "native", "file": "00000000000000000000.lvs", **first, "size_bytes": len(native),
         "sha256": sha256(native).hexdigest()},
        {"kind": "native", "file": "00000000000000000010.lvs", "first_offset": 10, "last_offset": 19,
         "first_ms": noon_ms + 10_000, "last_ms": noon_ms + 19_000, "size_bytes": stream.native(10).stat().st_size,
         "sha256": None},
    ]  # fmt: skip


async def test_a_stream_with_nothing_in_it(browse: Browser) -> None:
    found = (await browse("GET", f"{PATH}/segments")).json()
    assert (found["segments"], found["unsealed"], found["tail"]) == ([], None, None)


async def test_a_file_is_read_once(browse: Browser, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def examine(file: ExaminedFile) -> Examined:
        read.append(os.path.basename(file.path))
        return Examined(f"{len(read)}", 1000, 2000)

    monkeypatch.setattr(examined, "examine", examine)
    stream.write(0)
    stream.write(10)
    for _ in range(3):
        rows = (await browse("GET", f"{PATH}/segments")).json()["segments"]
        assert (rows[0]["sha256"], rows[0]["first_ms"], rows[0]["last_ms"]) == ("1", 1, 2)
    assert read == ["00000000000000000000.lvs"]


def test_hashes_are_kept_over_restarts_and_forgotten_with_their_files(tmp_path: Path) -> None:
    database, paths = str(tmp_path / "examined.db"), [str(tmp_path / "s" / name) for name in "abc"]
    (tmp_path / "s").mkdir()
    for path in paths:
        Path(path).write_bytes(b"x")
    files = [sealed_file(path) for path in paths]
    examiner = Examiner(database)
    for file in files:
        assert examiner.find_out(file).result() == Examined(sha256(b"x").hexdigest(), None, None)
    again = Examiner(database)
    assert [again.known(file) is not None for file in files] == [True, True, True]
    again.forget(str(tmp_path / "s"), files[:2])
    again.forget(str(tmp_path / "other"), [])
    assert [again.known(file) is not None for file in files] == [True, True, False]
    os.remove(paths[0])
    Path(paths[1]).write_bytes(b"y")  # another file of the same name
    third = Examiner(database)
    assert third.known(files[0]) is None
    assert third.known(sealed_file(paths[1])) is None
    assert third.find_out(files[0]).result() is None


def test_a_damaged_database_is_made_anew(tmp_path: Path) -> None:
    database, path = tmp_path / "examined.db", tmp_path / "a"
    database.write_bytes(b"no database, but long enough to be looked at as one" * 100)
    path.write_bytes(b"x")
    file = sealed_file(str(path))
    assert Examiner(str(database)).find_out(file).result() is not None
    assert Examiner(str(database)).known(file) is not None


def test_where_there_can_be_no_database_it_is_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    file, examiner = sealed_file(str(path)), Examiner(str(tmp_path / "none" / "examined.db"))
    assert examiner.find_out(file).result() is not None
    assert "can't be used" in caplog.text
    assert examiner.known(file) is not None


async def test_a_full_disk_spoils_no_list(
    browse: Browser, stream: Stream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream.write(0)
    stream.write(10)
    browse.api._examiner._open().execute("pragma query_only = on")
    rows = (await browse("GET", f"{PATH}/segments")).json()["segments"]
    assert [(row["last_offset"], row["sha256"]) for row in rows] == [(9, None), (19, None)]
    assert "can't be examined" in caplog.text
    browse.api._examiner._open().execute("pragma query_only = off")
    assert (await browse("GET", f"{PATH}/segments")).json()["segments"][0]["sha256"] is not None


async def test_what_takes_long_to_read_does_not_hold_up_the_list(
    browse: Browser, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.admin.paths.streams.HASHES_S_MAX", 0)
    stream.write(0)
    stream.write(10)
    rows = (await browse("GET", f"{PATH}/segments")).json()["segments"]
    assert [row["file"] for row in rows] == ["00000000000000000000.lvs", "00000000000000000010.lvs"]
    browse.api._examiner._thread.submit(lambda: None).result()  # wait for the hash that was begun
    rows = (await browse("GET", f"{PATH}/segments")).json()["segments"]
    assert rows[0]["sha256"] == sha256(stream.native(0).read_bytes()).hexdigest()


# -- bytes -------------------------------------------------------------------------------------------------------------


async def get(browse: Browser, name: str, method: str = "GET", **headers: str) -> httpx.Response:
    sent = {key.replace("_", "-"): value for key, value in headers.items()}
    return await browse(method, f"{PATH}/segments/{name}", user="plain", headers=sent)


async def test_a_whole_file(browse: Browser, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leveret.admin.file_answer.READ_OCTETS", 100)
    table = stream.seal(0)
    answer = await get(browse, table.name, accept="application/octet-stream", accept_encoding="gzip")
    assert (answer.status_code, answer.content) == (200, table.read_bytes())
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    assert answer.headers["content-length"] == str(len(answer.content))
    assert answer.headers["accept-ranges"] == "bytes"
    assert "content-encoding" not in answer.headers
    assert answer.headers["vary"] == "accept, accept-encoding, origin"


async def test_the_newest_native_file_ends_where_the_broker_says(browse: Browser, stream: Stream) -> None:
    stream.write(0)
    whole = stream.native(0).read_bytes()
    stream.native(0).write_bytes(whole + b"half a chunk")
    answer = await get(browse, "00000000000000000000.lvs")
    assert (answer.content, answer.headers["content-type"]) == (whole, "application/octet-stream")
    tag = answer.headers["etag"]
    stream.files.segments[0].size += 4
    later = await get(browse, "00000000000000000000.lvs", range="bytes=100-", if_range=tag)
    assert (later.status_code, later.content) == (200, whole + b"half")  # the client has a part of an older version
    assert later.headers["etag"] != tag


@pytest.mark.parametrize(
    ("header", "first", "end"),
    [("bytes=0-0", 0, 1), ("bytes=5-", 5, 100), ("bytes=-10", 90, 100), ("bytes=90-500", 90, 100),
     ("bytes=-500", 0, 100), ("Bytes = 1 - 2", 1, 3)],
)  # fmt: skip
def test_parts(header: str, first: int, end: int) -> None:
    assert part(header, 100) == (first, end)


@pytest.mark.parametrize(
    "header", [None, "", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=5-4", "bytes=0-1,4-5", "items=0-1"]
)
def test_what_is_no_range_means_all(header: str | None) -> None:
    assert part(header, 100) is None


@pytest.mark.parametrize(
    ("header", "size"), [("bytes=100-", 100), ("bytes=100-200", 100), ("bytes=-0", 100), ("bytes=0-", 0)]
)
def test_a_range_behind_the_end(header: str, size: int) -> None:
    with pytest.raises(Unsatisfiable):
        part(header, size)


async def test_a_range(browse: Browser, stream: Stream) -> None:
    table = stream.seal(0)
    data = table.read_bytes()
    answer = await get(browse, table.name, range="bytes=4-11")
    assert (answer.status_code, answer.content) == (206, data[4:12])
    assert answer.headers["content-range"] == f"bytes 4-11/{len(data)}"
    assert answer.headers["content-length"] == "8"
    tag = answer.headers["etag"]
    assert (await get(browse, table.name, range="bytes=-8", if_range=tag)).content == data[-8:]
    assert (await get(browse, table.name, range="bytes=-8", if_range='"other"')).content == data
    refused = await get(browse, table.name, range=f"bytes={len(data)}-")
    assert (refused.status_code, refused.content) == (416, b"")
    assert refused.headers["content-range"] == f"bytes */{len(data)}"


async def test_what_the_client_has_is_not_sent_again(browse: Browser, stream: Stream) -> None:
    table = stream.seal(0)
    tag = (await get(browse, table.name)).headers["etag"]
    for known in (tag, f'"x", W/{tag}', "*"):
        answer = await get(browse, table.name, if_none_match=known)
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    assert (await get(browse, table.name, if_none_match='"x"')).status_code == 200


async def test_head(browse: Browser, stream: Stream) -> None:
    table = stream.seal(0)
    answer = await get(browse, table.name, "HEAD")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(table.stat().st_size)


async def test_who_has_gone_is_sent_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client disconnects after a part; the rest is not read, and the file is closed."""
    monkeypatch.setattr("leveret.admin.file_answer.READ_OCTETS", 10)
    path = tmp_path / "a"
    path.write_bytes(bytes(100))
    file = path.open("rb", buffering=0)
    sent: list[int] = []
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(len(message.get("body", b"")))
        if sum(sent) >= 30:
            gone.set()
            await asyncio.sleep(0)

    answer = file_answer(Request({"type": "http", "method": "GET", "headers": []}), OpenFile(file, 100, '"x"', "x/y"))
    await answer({"type": "http", "method": "GET"}, receive, send)
    assert 30 <= sum(sent) < 100
    assert file.closed


@pytest.mark.parametrize(
    "name", ["none", "00000000000000000005.lvs", file_name(0, 9, "00000000000000aa"), file_name(0, 8, CREATION),
             "..%2F..%2F..%2Fstreams%2F7%2F00000000000000000000.lvs", "%2Fetc%2Fpasswd"]
)  # fmt: skip
async def test_other_files_are_none(browse: Browser, stream: Stream, name: str) -> None:
    stream.write(0)
    stream.seal(0)
    stream.seal(0, "00000000000000aa")
    answer = await get(browse, name)
    assert (answer.status_code, answer.json()["error"]) == (404, "Object Not Found")


# -- permissions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["segments", "segments/x", "leases", "leases/x"])
async def test_who_may(browse: Browser, path: str) -> None:
    method = "DELETE" if path == "leases/x" else "GET"
    assert (await browse(method, f"{PATH}/{path}", user=None)).status_code == 401
    assert (await browse(method, f"{PATH}/{path}", password="wrong")).status_code == 401
    assert (await browse(method, f"/api/streams/theirs/orders/{path}", user="plain")).status_code == 401
    answer = await browse(method, f"{PATH}/{path}", user="watch")
    assert (answer.status_code, answer.json()["error"]) == (403, "access_refused")
    answer = await browse(method, f"/api/streams/{MINE}/none/{path}", user="plain")
    assert (answer.status_code, answer.json()["error"]) == (404, "Object Not Found")


# -- leases ------------------------------------------------------------------------------------------------------------

OF_STREAM = {"vhost": MINE, "name": "orders", "user": "plain"}


async def test_a_lease(browse: Browser, stream: Stream) -> None:
    lease = {"id": "a", "name": "plain", "first_offset": 5, "expires_ms": 9}
    browse.control.answers |= dict.fromkeys(("grant_stream_lease", "renew_stream_lease"), lambda _: lease)
    browse.control.answers["release_stream_lease"] = lambda _: None
    answer = await browse("POST", f"{PATH}/leases", user="plain", json={"first": 5, "duration_ms": 1000})
    assert (answer.status_code, answer.json()) == (201, lease)
    asked = OF_STREAM | {"first": 5, "duration_ms": 1000, "holder": "plain"}
    assert browse.control.fields_of("grant_stream_lease") == asked
    answer = await browse("PUT", f"{PATH}/leases/a", user="plain", json={"duration_ms": "500"})
    assert (answer.status_code, answer.json()) == (200, lease)
    assert browse.control.fields_of("renew_stream_lease") == OF_STREAM | {"id": "a", "duration_ms": 500}
    answer = await browse("DELETE", f"{PATH}/leases/a", user="plain")
    assert (answer.status_code, answer.content) == (204, b"")
    assert browse.control.fields_of("release_stream_lease") == OF_STREAM | {"id": "a"}
    stream.leases = [lease]
    assert (await browse("GET", f"{PATH}/leases", user="plain")).json() == [lease]


async def test_wrong_leases(browse: Browser) -> None:
    def refuse(fields: dict[str, Any]) -> Any:
        raise Refused(BAD_REQUEST, "why")

    browse.control.answers |= {"grant_stream_lease": refuse, "renew_stream_lease": missing}
    browse.control.answers["release_stream_lease"] = missing
    for body in ({}, {"duration_ms": "long"}, {"duration_ms": 1, "first": "x"}, {"duration_ms": 1}):
        answer = await browse("POST", f"{PATH}/leases", json=body)
        assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    assert (await browse("PUT", f"{PATH}/leases/a", json={"duration_ms": 1})).status_code == 404
    assert (await browse("DELETE", f"{PATH}/leases/a")).status_code == 404
    assert (await browse("PUT", f"/api/streams/{MINE}/none/leases/a", json={"duration_ms": 1})).status_code == 404
