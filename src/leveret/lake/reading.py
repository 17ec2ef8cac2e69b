"""A stream as a table for any program: its sealed files, and the messages that are in no file yet, read over AMQP.

The broker tells the offset after the last message and the list of files is made after that, so the files and the
messages between them have every message below that offset once, whatever is sealed meanwhile.
"""

from __future__ import annotations

import functools
import io
import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from leveret.client import BlockingConnection, ChannelClosed
from leveret.client.protocol.url import parse_url
from leveret.client.segments.api import NotThere, StreamApi
from leveret.client.segments.errors import SegmentsUnavailable
from leveret.client.segments.ranged import RangedFile
from leveret.lake.bodies import TableBodyParser
from leveret.lake.live import StreamUnreadable, live_rows
from leveret.lake.rows import RowMaker
from leveret.store.disk import RealDisk
from leveret.store.tables import TableFile, parsed, table_files
from leveret.wire.body_schema import parse_schema
from leveret.wire.errors import NOT_FOUND

if TYPE_CHECKING:
    import duckdb
    import polars
    from pyspark.sql import DataFrame, SparkSession

URL_DEFAULT: Final = "amqp://guest:guest@localhost:5672/"
LEASE_MS: Final = 900_000
"""How long retention spares the files of a table that was read with `api_url`."""


def dataset(
    stream: str, url: str = URL_DEFAULT, *, tables_dir: str | None = None, api_url: str | None = None
) -> ds.Dataset:
    """Return all messages that the stream has now, each once, as a pyarrow dataset.

    The columns are those of the stream's files (docs/guides/streams-as-tables.md), and `date`. Files are read when the
    dataset is; messages that are in no file yet are read now, into memory. Rows are in no particular order. Messages
    that arrive later are not in it: call again. Retention may delete a file before it is read, which then fails with
    FileNotFoundError, unless `api_url` is given: then the files stay for another 15 minutes.

    Args:
        stream: Its name. The broker must be leveret.
        url: AMQP URL of the broker; the user needs permission to read the stream.
        tables_dir: The broker's --tables-dir as this machine sees it; None for the path that the broker tells.
        api_url: URL of the broker's HTTP API, which serves the files if they cannot be read here.

    Raises:
        StreamUnreadable: There is no such stream, it is deleted meanwhile, or its files cannot be read from here.
        ConnectionClosed: The broker cannot be reached, or refuses the login.
        ValueError: A URL is malformed.
    """
    files, live, folder = _found(stream, url, tables_dir, api_url)
    sealed = ds.FileSystemDataset(folder.fragments(files), live.schema, ds.ParquetFileFormat(), fs.LocalFileSystem())
    return ds.dataset([sealed, ds.dataset(live)])


def data_frame(
    spark: SparkSession,
    stream: str,
    url: str = URL_DEFAULT,
    *,
    tables_dir: str | None = None,
    api_url: str | None = None,
) -> DataFrame:
    """Return what :func:`dataset` has as a DataFrame, whose files Spark reads by itself: no row passes through Python.

    Driver and executors must see the files under one path. `api_url` serves no files here, but makes retention spare
    them for 15 minutes. Raises as :func:`dataset` does.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    files, live, folder = _found(stream, url, tables_dir, api_url)
    if folder.is_served:
        raise StreamUnreadable(
            f"Spark reads the files of stream {stream!r} by their paths, but they can't be read here: tables_dir says "
            "where they are mounted"
        )
    schema = from_arrow_schema(live.schema)
    rows = spark.createDataFrame(live if live.num_rows else [], schema)  # an Arrow table without rows fails
    if not files:
        return rows
    # the directory of a date is below the stream's; a path may have characters that mean something in a pattern
    places = ["file://" + os.path.abspath(file.path) for file in files]
    directory = os.path.dirname(os.path.dirname(places[0]))
    patterns = [re.sub(r"[][{}*?,\\^]", r"\\\g<0>", place) for place in places]
    sealed = spark.read.schema(schema).option("basePath", directory).parquet(*patterns)
    return sealed.unionByName(rows) if live.num_rows else sealed


def lazy_frame(
    stream: str, url: str = URL_DEFAULT, *, tables_dir: str | None = None, api_url: str | None = None
) -> polars.LazyFrame:
    """Return :func:`dataset` as a polars LazyFrame, which reads the columns and files that a query needs."""
    import polars as pl

    return pl.scan_pyarrow_dataset(dataset(stream, url, tables_dir=tables_dir, api_url=api_url))


def relation(
    stream: str,
    url: str = URL_DEFAULT,
    *,
    tables_dir: str | None = None,
    api_url: str | None = None,
    connection: duckdb.DuckDBPyConnection | None = None,
) -> duckdb.DuckDBPyRelation:
    """Return :func:`dataset` as a DuckDB relation, of `connection` or of DuckDB's default connection."""
    import duckdb

    table = dataset(stream, url, tables_dir=tables_dir, api_url=api_url)
    return (duckdb.default_connection() if connection is None else connection).from_arrow(table)


def _found(
    stream: str, url: str, tables_dir: str | None, api_url: str | None
) -> tuple[list[TableFile], pa.Table, _Files]:
    """Return the stream's files, the messages that are in none of them, and the place of the files."""
    folder = _Files(stream, url, tables_dir, api_url)
    folder.hold()
    with BlockingConnection(url, name="leveret lake", reconnect=False) as connection:
        facts = _facts(connection, stream)
        schema = facts["schema"]
        maker = RowMaker(None if schema is None else TableBodyParser(parse_schema(schema)))
        end = facts["next_offset"]
        files = [file for file in folder.found(facts) if file.last >= facts["first_offset"] and file.last < end]
        batches = list(_unsealed(connection, facts, files, maker))
    return files, pa.Table.from_batches(batches, maker.dated), folder


def _facts(connection: BlockingConnection, stream: str) -> dict[str, Any]:
    with connection.channel() as channel:
        try:
            return channel.stream_facts(stream)
        except ChannelClosed as error:
            if error.code != NOT_FOUND:
                raise StreamUnreadable(f"{stream!r} can't be read: {error}") from None
            raise StreamUnreadable(
                f"there is no stream {stream!r} in this virtual host, or the broker is not leveret ({error})"
            ) from None


def _unsealed(
    connection: BlockingConnection, facts: dict[str, Any], files: Sequence[TableFile], maker: RowMaker
) -> Iterator[pa.RecordBatch]:
    """Yield the messages that are in none of the files."""
    at = facts["first_offset"]
    for first, last in [*((file.first, file.last) for file in files), (facts["next_offset"], -1)]:
        if at < first:
            yield from live_rows(connection, facts, at, first, maker)
        at = last + 1


class _Files:
    """The sealed files of one stream, by path or over HTTP."""

    def __init__(self, stream: str, url: str, tables_dir: str | None, api_url: str | None) -> None:
        self._tables_dir = tables_dir
        self._api = None if api_url is None else StreamApi.of(api_url, url, parse_url(url).vhost, stream)

    def hold(self) -> None:
        """Have retention spare the files from now on, if there is an API."""
        if self._api is not None:
            try:
                self._api.grant(0, LEASE_MS, "leveret lake")
            except (NotThere, SegmentsUnavailable) as error:
                raise StreamUnreadable(f"the HTTP API grants no lease: {error}") from None

    @property
    def is_served(self) -> bool:
        """Whether the files found must be read over HTTP."""
        return self._api is not None

    def found(self, facts: dict[str, Any]) -> list[TableFile]:
        """Return the files that exist now, in order of offsets."""
        told: str | None = facts["tables_dir"]
        if told is not None and self._tables_dir is not None:
            told = os.path.join(self._tables_dir, *told.split("/")[-2:])
        if told is not None and os.access(told, os.R_OK | os.X_OK):
            self._api = None
            files = table_files(RealDisk(), told)
        elif self._api is not None:
            rows = self._api.segments()
            files = [
                file for row in rows if (file := parsed("", f"date={row['date']}", row["file"])) is not None
            ]
        elif facts["sealed_offset"]:
            raise StreamUnreadable(
                f"the files of stream {facts['name']!r} are in {told}, which can't be read here: tables_dir says where "
                "they are, api_url where they are served"
            )
        else:
            files = []
        return sorted(file for file in files if file.creation == facts["creation"])

    def fragments(self, files: Sequence[TableFile]) -> list[ds.Fragment]:
        """Return the files as fragments; what their names tell lets queries skip them unopened."""
        parquet, local = ds.ParquetFileFormat(), fs.LocalFileSystem()
        offset, date = ds.field("offset"), ds.field("date")
        return [
            parquet.make_fragment(
                file.path if self._api is None else _ServedFile(self._api, os.path.basename(file.path)),
                local if self._api is None else None,
                (date == file.date) & (offset >= file.first) & (offset <= file.last),
            )
            for file in files
        ]


class _ServedFile(io.RawIOBase):
    """A file over HTTP that makes its first request when it is read."""

    def __init__(self, api: StreamApi, name: str) -> None:
        self._api = api
        self._name = name

    @functools.cached_property
    def _file(self) -> RangedFile:
        return RangedFile(self._api, self._name)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)
