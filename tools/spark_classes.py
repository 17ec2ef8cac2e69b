"""Makes Java write an archive of the classes that Spark loads: with it JVMs of tests and of the demo start in half the
processor time.

    spark_classes.py build/java.options

The file contains the Java options that use the archive, which is next to it; `leveret.spark.java.short_lived` reads it.
If Java cannot write an archive, the file is empty, and JVMs start without one.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame

from leveret.spark import session
from leveret.spark.java import SHORT_LIVED, java_home, java_version

ONE_STEP = 25
"""This Java version and later ones write an archive that has linked classes, too."""
TIMEOUT_S = 300


def main(options: str) -> None:
    """Run a few queries like those of the tests in a JVM that records the classes it loads."""
    begun = time.monotonic()
    file = Path(options)
    file.parent.mkdir(exist_ok=True)
    is_one_step = (java_version(java_home()) or 0) >= ONE_STEP
    archive = file.with_suffix(".aot" if is_one_step else ".jsa").resolve()
    archive.unlink(missing_ok=True)
    record, use = ("AOTCacheOutput", "AOTCache") if is_one_step else ("ArchiveClassesAtExit", "SharedArchiveFile")
    quiet = "-Xlog:all=off" if is_one_step else "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
    print("make: Java archives the classes that Spark loads, about half a minute", flush=True)
    try:
        with tempfile.TemporaryDirectory() as directory:
            use_spark(Path(directory), f"{SHORT_LIVED} {quiet} -XX:{record}={archive}")
    except Exception as error:  # tests need no archive
        print(f"make: Java wrote no archive: {error}", flush=True)
        archive.unlink(missing_ok=True)
    lines = f"-XX:+IgnoreUnrecognizedVMOptions {quiet} -XX:{use}={archive}\n" if archive.exists() else ""
    file.write_text(lines)
    print(f"make: {archive.name if lines else 'no archive'} after {time.monotonic() - begun:.0f} s", flush=True)


def use_spark(directory: Path, options: str) -> None:
    """Pass a few rows through Python, Arrow, JSON and Parquet, in a JVM with these options, and wait for its end."""

    def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    def write(frame: DataFrame, _number: int) -> None:
        frame.write.mode("append").parquet(str(directory / "rows"))

    conf = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": options}
    spark = session("classes", **conf)
    spark.sparkContext.setLogLevel("OFF")
    spark.range(100).selectExpr("id", "to_json(struct(id)) AS body").write.parquet(str(directory / "source"))
    stream = spark.readStream.schema("id BIGINT, body STRING").parquet(str(directory / "source"))
    parsed = stream.selectExpr("id", "from_json(body, 'id BIGINT').id AS twice")
    passed = parsed.mapInArrow(unchanged, "id BIGINT, twice BIGINT")
    query = passed.writeStream.foreachBatch(write).option("checkpointLocation", str(directory / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    spark.read.parquet(str(directory / "rows")).groupBy("twice").count().orderBy("twice").collect()
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.proc.stdin.close()  # makes Java exit, and write
    gateway.proc.wait(TIMEOUT_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
