"""A Spark session with the settings that the pipeline runs best with."""

from __future__ import annotations

import os
import sys
from typing import Final

from pyspark.sql import SparkSession

from leveret.spark.java import java_home

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

RECOMMENDED: Final[dict[str, str]] = {
    # half of a small micro-batch is spent between the JVM and Python on loopback TCP, and in the checkpoint's files
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    # one state store and one task per shuffle partition and micro-batch: 200 of them cost more than the work
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Our defaults beside Spark's. The checkpoint manager needs a file system that renames atomically: local disks and
HDFS do, plain S3 does not."""


def session(app_name: str, **conf: object) -> SparkSession:
    """The active Spark session, or a new one with the recommended settings and a Java that it finds itself.

    ``conf`` overrides any setting: ``session("job", **{"spark.master": "local[2]", "spark.driver.memory": "1g"})``;
    the master is ``local[*]`` where nothing else is said. Python workers run this interpreter. Raises ``RuntimeError``
    where no Java 17 or later is found.
    """
    # spark-submit has chosen a Java and a master already
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        os.environ["JAVA_HOME"] = str(java_home())
    # otherwise workers run the first python3 of the PATH, which may lack pyarrow or leveret
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = dict(RECOMMENDED) if submitted else {"spark.master": "local[*]", **RECOMMENDED}
    settings.update({name: _text(value) for name, value in conf.items()})
    if settings.get("spark.master", "").startswith("local"):
        # needs no network then, whatever the host's name resolves to
        settings = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", **settings}
    builder = SparkSession.builder.appName(app_name)
    for name, text in settings.items():
        builder = builder.config(name, text)
    spark: SparkSession = builder.getOrCreate()
    return spark


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
