"""What a lake is: its directory, how it is partitioned, the columns of its rows, and how it is read."""

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

PARQUET: Final = "parquet"
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
FORMS: Final = (PARQUET, DELTA, ICEBERG)

PARTITION_COLUMNS: Final = ("day", "exchange", "source", "broker")
"""What a lake may be partitioned by."""

DEFAULT_EXCHANGE: Final = "amq.default"
"""How the default exchange, whose name is '', is called in files and directories, as in RabbitMQ's HTTP API. No other
one can have the name, for brokers reserve it. A directory of no name would mean null, which pandas can't mix with
names."""

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
"""The columns of each row: those of its message, where it comes from, and when."""

CONTENT_HEADER: Final = StructField("content_header", BinaryType())

_IDENTITY: Final = f"{STATE}/lake.json"


@dataclass(frozen=True)
class Identity:
    """What a lake is once and for all, as ``_leveret/lake.json`` has it."""

    form: str = PARQUET
    partition_by: tuple[str, ...] = ("day", "exchange")
    version: int = 1

    @staticmethod
    def of(storage: Storage) -> Identity | None:
        """That of the lake in this directory; None if there is none."""
        if not storage.exists(_IDENTITY):
            return None
        found = json.loads(storage.read(_IDENTITY))
        return Identity(found["form"], tuple(found["partition_by"]), found["version"])

    def claim(self, storage: Storage) -> None:
        """Make the directory a lake of this kind, if it is none yet.

        Raises:
            PipelineError: it is a lake of another kind, or it has files that are none of a lake's.
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
    """The rows of a lake, each once: :data:`COLUMNS`, and ``data`` and ``content_header`` if it has them.

    ``exchange`` is '' for the default exchange and never null. What belongs to a merge of files that did not come to
    its end is read once, too.

    Args:
        path: the directory or URI that was archived to; for Iceberg the table's name.
        form: of the lake; None: as the lake itself says, which Iceberg's tables can't.

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
    """The columns of a lake of Parquet, as of now."""
    schemas = Schemas(storage)
    fields: list[StructField] = list(COLUMNS.fields)
    newest = schemas.newest()
    if newest.columns:
        fields.append(StructField("data", newest.struct()))
    if newest.is_exact:
        fields.append(CONTENT_HEADER)
    return StructType(fields)


def _exact(frame: DataFrame) -> DataFrame:
    """The default exchange as AMQP has it: directories can't be called ''. Spark still prunes them by the result."""
    known = [name for name in COLUMNS.names if name in frame.columns]
    names = [*known, *(name for name in frame.columns if name not in known)]
    is_default = F.col("exchange") == DEFAULT_EXCHANGE
    exchange = F.when(is_default, "").otherwise(F.col("exchange")).alias("exchange")
    return frame.select(*(exchange if name == "exchange" else F.col(f"`{name}`") for name in names))


def _words(identity: Identity) -> str:
    return f"{identity.form} partitioned by {', '.join(identity.partition_by) or 'nothing'}"
