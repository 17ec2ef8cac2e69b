"""How fast the folder of a sealed stream is read: rows per second with pyarrow, DuckDB and Spark.

Each reader reads every column of every row into its own memory, or with Spark into the noop sink. A first read is not
counted, so the files are in the page cache, and Java is warm.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow.dataset
from pyspark.sql import SparkSession

from leveret.spark import session

Reader = Callable[[Path], int]


def with_pyarrow(folder: Path) -> int:
    """Read all columns into an Arrow table."""
    table = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive").to_table()
    return int(table.num_rows)


def with_duckdb(folder: Path) -> int:
    """Read all columns as Arrow batches."""
    query = f"SELECT * FROM read_parquet('{folder}/*/*.parquet', hive_partitioning = true)"
    with duckdb.connect() as connection:
        return sum(batch.num_rows for batch in connection.sql(query).fetch_arrow_reader(100_000))


def grouped_with_duckdb(folder: Path) -> int:
    """Count messages and octets by routing key."""
    query = f"SELECT routing_key, count(*), sum(octet_length(body)) FROM '{folder}/*/*.parquet' GROUP BY routing_key"
    with duckdb.connect() as connection:
        return sum(count for _, count, _ in connection.sql(query).fetchall())


class WithSpark:
    """Reads all columns into the noop sink."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._rows = spark.read.parquet(str(folder)).count()

    def __call__(self, folder: Path) -> int:
        frame = self._spark.read.parquet(str(folder))
        frame.write.format("noop").mode("overwrite").save()
        return self._rows


def rates(folder: Path, rows: int, rounds: int) -> dict[str, float]:
    """Return the median rows per second of each reader; the readers take turns."""
    spark = session("table readers")
    readers: dict[str, Reader] = {
        "pyarrow, all columns": with_pyarrow,
        "DuckDB, all columns": with_duckdb,
        "DuckDB, grouped by routing key": grouped_with_duckdb,
        "spark.read.parquet, all columns": WithSpark(spark, folder),
    }
    took: dict[str, list[float]] = {name: [] for name in readers}
    for turn in range(rounds + 1):
        for name, reader in readers.items():
            started_s = time.perf_counter()
            found = reader(folder)
            if turn:
                took[name].append(rows / (time.perf_counter() - started_s))
            if found != rows:
                raise ValueError(f"{name}: {found} rows instead of {rows}")
    spark.stop()
    return {name: statistics.median(rates) for name, rates in took.items()}
