"""A Spark session with the settings that the pipeline runs best with."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from leveret.spark.java import java_home
from leveret.spark.source import LeveretDataSource

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

RECOMMENDED: Final[dict[str, str]] = {
    # half of a small micro-batch is spent between the JVM and Python on loopback TCP, and in the checkpoint's files
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    # Hadoop's other one keeps checksums beside local files, and starts a chmod for each of the two
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # one state store and one task per shuffle partition and micro-batch: 200 of them cost more than the work
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Our defaults beside Spark's. The checkpoint manager needs a file system that renames atomically: local disks and
HDFS do, plain S3 does not."""


def session(app_name: str, *, remote: str | None = None, **conf: object) -> SparkSession:
    """The active Spark session, or a new one with the recommended settings and a Java that it finds itself.

    ``conf`` overrides any setting: ``session("job", **{"spark.master": "local[2]", "spark.driver.memory": "1g"})``;
    the master is ``local[*]`` where nothing else is said. ``remote`` (or the variable ``SPARK_REMOTE``) is a Spark
    Connect server, ``sc://host:port``: it has its Java and most of its settings already, so that only those of
    ``spark.sql`` are asked of it. Under spark-submit its ``--conf`` wins over the recommended settings, and it has
    chosen Java and Pythons. Otherwise Python workers run this interpreter, unless ``spark.pyspark.python`` or
    ``PYSPARK_PYTHON`` names another. Raises ``RuntimeError`` where no Java 17 or later is found.
    """
    given = {name: _text(value) for name, value in conf.items()}
    remote = remote or given.pop("spark.remote", None) or os.environ.get("SPARK_REMOTE")
    builder = SparkSession.builder.appName(app_name)
    if remote is not None and remote.startswith("sc://"):
        settings = {name: text for name, text in RECOMMENDED.items() if name.startswith("spark.sql.")} | given
        builder = builder.remote(remote)
    elif "PYSPARK_GATEWAY_PORT" in os.environ:
        settings = _not_submitted(RECOMMENDED) | given
    else:
        settings = _prepared(given)
        if remote is not None:  # a Connect server that is started here and now
            del settings["spark.master"]
            settings["spark.remote"] = remote
    for name, text in settings.items():
        builder = builder.config(name, text)
    spark: SparkSession = builder.getOrCreate()
    # Spark finds pyspark_leveret where the JVM's PYTHONPATH leads, and neither --py-files nor a client's path count
    spark.dataSource.register(LeveretDataSource)
    return spark


def _prepared(given: dict[str, str]) -> dict[str, str]:
    """All settings for a JVM that is started from here, with the environment that it needs."""
    os.environ["JAVA_HOME"] = str(java_home())
    # otherwise workers run the first python3 of the PATH, which may lack pyarrow or leveret
    os.environ.setdefault("PYSPARK_PYTHON", given.get("spark.pyspark.python", sys.executable))
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = {"spark.master": "local[*]", **RECOMMENDED, **given}
    if settings["spark.master"].startswith("local"):
        # needs no network then, whatever the host's name resolves to
        settings = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", **settings}
    return settings


def _not_submitted(settings: Mapping[str, str]) -> dict[str, str]:
    """Those settings that spark-submit was not told otherwise."""
    SparkContext._ensure_initialized()  # it knows the settings of the JVM only then
    submitted = SparkConf()
    return {name: text for name, text in settings.items() if not submitted.contains(name)}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
