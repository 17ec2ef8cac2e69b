"""The lake: its identity, partitions and columns, and how to read it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from leveret.pipelines.archives.batches import STATE
from leveret.pipelines.archives.merging import hidden
from leveret.pipelines.archives.schemas import Schemas
from leveret.pipelines.archives.storage import Storage
from leveret.pipelines.errors import PipelineError
from leveret.spark.rows.columns import MESSAGE

__all__ = ["read"]

PARQUET: Final = "parquet"
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
FORMS: Final = (PARQUET, DELTA, ICEBERG)

PARTITION_COLUMNS: Final = ("day", "exchange", "source", "broker")
"""Columns by which a lake may be partitioned."""

DEFAULT_EXCHANGE: Final = "amq.default"
"""The default exchange's name in files and directories, as in RabbitMQ's HTTP API; brokers reserve it, so no other
exchange has it. A directory with an empty name would mean null, which pandas cannot mix with names."""

_OF_LAKES: Final = {
    "source": StringType(),
    "broker": StringType(),
    "offset": LongType(),
    "arrived": TimestampType(),
    "archived": TimestampType(),
    "batch": LongType(),
    "day": DateType(),
}
COLUMNS: Final = StructType(
    [StructField(name, spark) for name, (spark, _) in MESSAGE.items()]
    + [StructField(name, spark) for name, spark in _OF_LAKES.items()]
)
"""The columns of each row: the message's own, then its origin and times."""

CONTENT_HEADER: Final = StructField("content_header", BinaryType())

_IDENTITY: Final = f"{STATE}/lake.json"


@dataclass(frozen=True)
class Identity:
    """The fixed properties of a lake, stored in ``_leveret/lake.json``."""

    form: str = PARQUET
    partition_by: tuple[str, ...] = ("day", "exchange")
    version: int = 1

    @staticmethod
    def of(storage: Storage) -> Identity | None:
        """Return the identity of the lake in this directory, or None."""
        if not storage.exists(_IDENTITY):
            return None
        found = json.loads(storage.read(_IDENTITY))
        return Identity(found["form"], tuple(found["partition_by"]), found["version"])

    def claim(self, storage: Storage) -> None:
        """Make the directory a lake of this kind, unless it is one already.

        Raises:
            PipelineError: it is a lake of another kind, or has other files.
        """
        found = Identity.of(storage)
        if found is None:
            if self.form == PARQUET and (files := storage.files("", ".parquet")):
                raise PipelineError(
                    f"{storage.location} contains files that were not archived, such as {files[0].path}: name a new "
                    "directory"
                )
            storage.make_directory(STATE)
            storage.sync_directories({STATE})
            storage.publish(_IDENTITY, json.dumps(asdict(self)).encode())
        elif found != self:
            raise PipelineError(
                f"the lake in {storage.location} is {_words(found)}, not {_words(self)}: name another lake"
            )


def read(spark: SparkSession, path: str, *, form: str | None = None) -> DataFrame:
    """Return the rows of a lake, each once: :data:`COLUMNS`, and ``data`` and ``content_header`` if it has them.

    ``exchange`` is '' for the default exchange and never null. Files of an unfinished merge are read once, too.

    Args:
        spark: the session.
        path: the directory or URI of the lake; for Iceberg the table's name.
        form: form of the lake; None to read it from the lake, which is impossible for Iceberg.

    Raises:
        PipelineError: there is no lake.
    """
    if form == ICEBERG:
        return _exact(spark.table(path))
    storage = Storage.at(path)
    identity = Identity.of(storage)
    if identity is None:
        raise PipelineError(f"{path} is not a lake: create one with leveret spark archive")
    if identity.form == DELTA:
        return _exact(spark.read.format(DELTA).load(storage.spark()))
    reader = spark.read.schema(schema_of(storage)).option("basePath", storage.spark())
    passed_over = hidden(storage)
    if not passed_over:
        return _exact(reader.parquet(storage.spark()))
    paths = [file.path for file in storage.files("", ".parquet") if not file.path.startswith(f"{STATE}/")]
    return _exact(reader.parquet(*(storage.spark(each) for each in paths if each not in passed_over)))


def schema_of(storage: Storage) -> StructType:
    """Return the current columns of a Parquet lake."""
    schemas = Schemas(storage)
    fields: list[StructField] = list(COLUMNS.fields)
    newest = schemas.newest()
    if newest.columns:
        fields.append(StructField("data", newest.struct()))
    if newest.is_exact:
        fields.append(CONTENT_HEADER)
    return StructType(fields)


def _exact(frame: DataFrame) -> DataFrame:
    """Restore the default exchange's name '', which a directory cannot have. Spark still prunes partitions by the
    result."""
    known = [name for name in COLUMNS.names if name in frame.columns]
    names = [*known, *(name for name in frame.columns if name not in known)]
    is_default = F.col("exchange") == DEFAULT_EXCHANGE
    exchange = F.when(is_default, "").otherwise(F.col("exchange")).alias("exchange")
    return frame.select(*(exchange if name == "exchange" else F.col(f"`{name}`") for name in names))


def _words(identity: Identity) -> str:
    return f"{identity.form} partitioned by {', '.join(identity.partition_by) or 'nothing'}"
