"""The jobs of spark_bench.py that read streams."""

import json
import shlex
import subprocess
import time
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from leveret import lake
from leveret.store.disk import RealDisk
from leveret.store.tables import stream_directory, table_files
from run import WORK
from spark_jobs import LEVERET, PIKA, PIKA_STREAM_SHARE, POLL_S, Site, batch_rate, rate, running

SEALED, UNSEALED, LIVE = "spark.bench.sealed", "spark.bench.unsealed", "spark.bench.live"
SEAL_AFTER_MS = {SEALED: 200, UNSEALED: 86_400_000, LIVE: 86_400_000}
PER_TRIGGER_SHARE = 5


def load(site: Site, broker: str, stream: str, count: int) -> None:
    """Publish `count` 100-byte JSON messages to a stream, as fast as it takes them."""
    arguments = "publish-only -durable -qarg x-queue-type=stream -persistent -confirm 1000 -json -keep -no-drain"
    if broker == LEVERET:
        arguments += f" -qarg x-leveret-seal-after-ms={SEAL_AFTER_MS[stream]}"
    where = f"-queue {stream} -count {count} -port {site.brokers[broker].port} -pid {site.brokers[broker].pid}"
    command = [str(WORK / "amqpload"), *shlex.split(f"{arguments} {where}")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode or "error" in json.loads(done.stdout):
        raise RuntimeError(f"amqpload: {done.stdout}{done.stderr}")


def filled(site: Site, broker: str, stream: str) -> None:
    """Fill a stream, once for all rounds."""
    if (broker, stream) in site.filled:
        return
    load(site, broker, stream, site.stream_rows)
    while stream == SEALED and sealed_rows(site) < site.stream_rows:
        time.sleep(POLL_S)
    site.filled.add((broker, stream))


def folder(site: Site) -> Path:
    """Return the directory of the sealed stream's Parquet files."""
    return site.brokers[LEVERET].data_dir / "tables" / stream_directory("", "/", SEALED).lstrip("/")


def sealed_rows(site: Site) -> int:
    return sum(file.last - file.first + 1 for file in table_files(RealDisk(), str(folder(site))))


def read(frame: DataFrame) -> None:
    """Read all columns."""
    frame.write.format("noop").mode("overwrite").save()


def read_parquet(site: Site) -> float:
    """Read the files of the sealed stream with Spark's own reader, all columns."""
    filled(site, LEVERET, SEALED)
    return rate(lambda: read(site.spark.read.parquet(str(folder(site)))), site.stream_rows)


def read_data_frame(site: Site) -> float:
    """Read the same files by leveret.lake, which asks the broker which files and messages there are."""
    filled(site, LEVERET, SEALED)
    return rate(lambda: read(lake.data_frame(site.spark, SEALED, site.url(LEVERET))), site.stream_rows)


def read_stream(site: Site, broker: str, stream: str = UNSEALED) -> float:
    """Read all columns of a stream in a batch query."""
    filled(site, broker, stream)
    reader = site.spark.read.format(LEVERET).options(url=site.url(broker), stream=stream)
    return rate(lambda: read(reader.load()), site.stream_rows)


def read_with_pika(site: Site, broker: str) -> float:
    """Read the same stream with a data source based on pika."""
    filled(site, broker, UNSEALED)
    rows = site.stream_rows // PIKA_STREAM_SHARE
    reader = site.spark.read.format(PIKA).options(url=site.url(broker), stream=UNSEALED, count=str(rows))
    return rate(lambda: read(reader.load()), rows)


def read_micro_batches(site: Site, broker: str, stream: str = UNSEALED) -> float:
    """Read a stream with AvailableNow, in a few micro-batches."""
    filled(site, broker, stream)
    limit = str(-(-site.stream_rows // PER_TRIGGER_SHARE))
    options = {"url": site.url(broker), "stream": stream, "maxRowsPerTrigger": limit}
    return batch_rate(site.spark.readStream.format(LEVERET).options(**options).load(), site.stream_rows)


def live(site: Site, broker: str) -> float:
    """Run a query while a publisher appends as fast as it can, until it has read everything; return rows per second."""
    with site.channel(broker) as channel:
        channel.delete_queue(LIVE)
    load(site, broker, LIVE, 1)
    frame = site.spark.readStream.format(LEVERET).options(url=site.url(broker), stream=LIVE).load()
    with running(frame, available=False) as query:
        seen = Seen(query)
        seen.wait(1)
        return rate(
            lambda: (load(site, broker, LIVE, site.stream_rows), seen.wait(site.stream_rows + 1)), site.stream_rows
        )


class Seen:
    """Counts the rows that a query has read; the query itself keeps the last hundred micro-batches only."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._rows: dict[int, int] = {}

    def wait(self, rows: int) -> None:
        """Wait until the query has read this many rows."""
        while sum(self._rows.values()) < rows:
            if not self._query.isActive:
                raise RuntimeError(f"the query has ended: {self._query.exception()}")
            time.sleep(POLL_S)
            self._rows |= {each["batchId"]: each["numInputRows"] for each in self._query.recentProgress}
