"""Queries that keep state in RocksDB between a queue and another, with the settings of leveret's sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from leveret.client import BlockingConnection

pytestmark = pytest.mark.spark
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def test_messages_are_counted_by_transform_with_state(
    spark: SparkSession, broker: str, tmp_path: Path
) -> None:
    class Counted(StatefulProcessor):  # pickled with its code, since it is local: workers do not know this module
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._count = handle.getValueState("count", "n bigint")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            import pandas as pd

            known = self._count.get()
            count = (known[0] if known else 0) + sum(len(frame) for frame in rows)
            self._count.update((count,))
            yield pd.DataFrame({"body": [f"{key[0]}: {count}"]})

        def close(self) -> None:
            pass

    spark.conf.set(PROVIDER, ROCKSDB)
    try:
        with BlockingConnection(broker, reconnect=False) as connection:
            channel = connection.channel(confirms=True)
            for queue in ("state.words", "state.counts"):
                channel.delete_queue(queue)
                channel.declare_queue(queue)
            for words in (b"a b a", b"b a"):
                for word in words.split():
                    channel.publish(word, "", "state.words")
                channel.wait_for_confirms()
                came = spark.readStream.format("leveret").options(url=broker, queue="state.words").load()
                counts = came.selectExpr("cast(body AS string) AS word").groupBy("word").transformWithStateInPandas(
                    Counted(), "body string", "append", "none"
                )  # fmt: skip
                writer = counts.writeStream.format("leveret").options(url=broker, queue="state.counts")
                query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
                query.awaitTermination()
            found = [channel.get("state.counts", no_ack=True) for _ in range(4)]
            assert channel.get("state.counts", no_ack=True) is None
    finally:
        spark.conf.unset(PROVIDER)
    assert sorted(each.body for each in found[:2] if each) == [b"a: 2", b"b: 1"]
    assert sorted(each.body for each in found[2:] if each) == [b"a: 3", b"b: 2"]
    assert not list(tmp_path.rglob(".*.crc")), "Hadoop keeps checksum files"
