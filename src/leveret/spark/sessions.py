"""Spark sessions with the settings that suit the data source best."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from leveret.spark.java import java_home
from leveret.spark.source import LeveretDataSource

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

RECOMMENDED: Final[dict[str, str]] = {
    # half the time of a small micro-batch goes into loopback TCP between JVM and Python, and into checkpoint files
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    # every micro-batch has a state store and a task per shuffle partition: 200 of them cost more than the work
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""The settings of leveret's sessions. The checkpoint manager needs a file system with atomic renames: local disks and
HDFS have them, plain S3 does not."""

_LOCAL: Final = {
    # works without a network, whatever the host's name resolves to
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # on a cluster, it would have to be installed on all machines
    "spark.python.daemon.module": "leveret.spark_daemon",
}
_STARTUP: Final = Path(__file__).with_name("startup")
_LOG: Final = Path(__file__).with_name("log4j2.properties")
_LOCAL_FILES: Final = "spark.hadoop.fs.file.impl"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"


def session(app_name: str = "leveret", *, remote: str | None = None, **conf: object) -> SparkSession:
    """Return the active Spark session, or create one with the recommended settings and a Java that is found by itself.

    ``conf`` overrides any setting: ``session("job", **{"spark.master": "local[2]", "spark.driver.memory": "1g"})``.
    Under spark-submit, its ``--conf`` overrides the recommended settings, and it has chosen Java and Python already.
    Otherwise Python workers run this interpreter, unless ``spark.pyspark.python`` or ``PYSPARK_PYTHON`` names another,
    and Spark's log has errors without the frames of Java's stacks, unless ``SPARK_HOME`` or ``SPARK_CONF_DIR`` is set.

    Args:
        app_name: the application's name in Spark.
        remote: a Spark Connect server, ``sc://host:port`` (default: the variable ``SPARK_REMOTE``). It has its Java and
            most settings already, so only those of ``spark.sql`` are sent to it.
        conf: Spark settings; ``spark.master`` is ``local[*]`` by default.

    Raises:
        RuntimeError: no Java 17 or later was found.
    """
    given = {name: _text(value) for name, value in conf.items()}
    remote = remote or given.pop("spark.remote", None) or os.environ.get("SPARK_REMOTE")
    builder = SparkSession.builder.appName(app_name)
    path: AbstractContextManager[None] = nullcontext()
    if remote is not None and remote.startswith("sc://"):
        settings = {name: text for name, text in RECOMMENDED.items() if name.startswith("spark.sql.")} | given
        builder = builder.remote(remote)
    elif "PYSPARK_GATEWAY_PORT" in os.environ:
        settings = _not_submitted(RECOMMENDED) | given
    else:
        settings, path = _prepared(given), _startup_path()
        if remote is not None:  # a Connect server that this process starts
            del settings["spark.master"]
            settings["spark.remote"] = remote
    for name, text in settings.items():
        builder = builder.config(name, text)
    is_first = remote is None and SparkSession.getActiveSession() is None
    with path:
        spark: SparkSession = builder.getOrCreate()
    if is_first and _LOCAL_FILES not in given:
        _without_checksums(spark)
    # Spark finds pyspark_leveret only on the JVM's PYTHONPATH, not by --py-files or on a Connect client's path
    spark.dataSource.register(LeveretDataSource)
    return spark


def _without_checksums(spark: SparkSession) -> None:
    """Have the driver write and read local files without a checksum file beside each, which takes time of its own.

    Hadoop's class without checksums is no choice: Spark's state stores in RocksDB need the one with them.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark.sparkContext._jsc.hadoopConfiguration())
    files.setWriteChecksum(False)
    files.setVerifyChecksum(False)


def _prepared(given: dict[str, str]) -> dict[str, str]:
    """Return all settings for a JVM that this process starts, and set the environment that it needs."""
    os.environ["JAVA_HOME"] = str(java_home())
    # otherwise workers run the first python3 on the PATH, which may lack pyarrow or leveret
    os.environ.setdefault("PYSPARK_PYTHON", given.get("spark.pyspark.python", sys.executable))
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = {"spark.master": "local[*]", **RECOMMENDED, **given}
    if _LOG.is_file() and not {"SPARK_HOME", "SPARK_CONF_DIR"} & os.environ.keys():
        settings[_JAVA_OPTIONS] = f"-Dlog4j2.configurationFile={_LOG.as_uri()} {given.get(_JAVA_OPTIONS, '')}".strip()
    if settings["spark.master"].startswith("local"):
        settings = {**_LOCAL, **settings}
    return settings


@contextmanager
def _startup_path() -> Iterator[None]:
    """Put sitecustomize.py on the path of the Python processes of a JVM that starts meanwhile."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_STARTUP), before)))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _not_submitted(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that spark-submit has not set itself."""
    SparkContext._ensure_initialized()  # SparkConf knows the JVM's settings only after this
    submitted = SparkConf()
    return {name: text for name, text in settings.items() if not submitted.contains(name)}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
