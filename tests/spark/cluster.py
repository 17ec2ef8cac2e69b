"""A standalone Spark cluster whose executors run a Python that has pyarrow and nothing else, and a Connect server."""

from __future__ import annotations

import os
import re
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import py4j
import pyarrow
import pyspark

import leveret.spark
from leveret.spark.java import java_home, short_lived
from leveret.testing.processes import ServerProcess
from leveret.testing.spark_cluster import PASSED_ON, SPARK_HOME, SparkCluster, spark_cluster

FASTER = Path(leveret.spark.__file__).parent / "startup"
"""On the path of Python processes, it spares them compiling PySpark, as in leveret's sessions."""


def bare_python(directory: Path) -> Path:
    """Make a Python with only pyarrow and Spark's own packages besides its library: no numpy, pandas or leveret."""
    venv.EnvBuilder(symlinks=True).create(directory)
    [packages] = directory.glob("lib/python*/site-packages")
    for package in (pyarrow, pyspark, py4j):
        place = Path(package.__file__).parent
        (packages / place.name).symlink_to(place)
    program = f"import runpy\nrunpy.run_path({str(FASTER / 'sitecustomize.py')!r})['prefer_bytecode']()\n"
    (packages / "sitecustomize.py").write_text(program)
    return directory / "bin" / "python"


@dataclass(frozen=True)
class Cluster:
    """The processes, the Python of the executors, and leveret's archive for ``--py-files``."""

    spark: SparkCluster
    python: Path
    archive: Path

    @property
    def master(self) -> str:
        return self.spark.master

    def settings(self) -> dict[str, str]:
        """Return a driver's settings for two small executors, one on each worker, that get leveret from the archive."""
        return {
            **self.spark.settings(),
            "spark.submit.pyFiles": str(self.archive),
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": short_lived(),
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
        }

    def submit(self, *arguments: str | Path) -> list[str]:
        conf = [word for name, text in self.settings().items() for word in ("--conf", f"{name}={text}")]
        return [str(SPARK_HOME / "bin" / "spark-submit"), *conf, *map(str, arguments)]

    def environment(self) -> dict[str, str]:
        """Return a driver's environment: Spark, Java, the workers' Python, and where its JVM finds pyspark_leveret."""
        kept = {name: text for name, text in os.environ.items() if name not in PASSED_ON}
        return {
            **kept,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # the search for pyspark_leveret uses the environment, not the settings
            "PYSPARK_PYTHON": str(self.python),
            "PYTHONPATH": f"{self.archive}:{FASTER}",
        }


@contextmanager
def running_cluster(directory: Path, archive: Path) -> Iterator[Cluster]:
    """Run a master and two workers of one core each, on free ports of 127.0.0.1."""
    python = bare_python(directory / "python")
    with spark_cluster(directory) as spark:
        yield Cluster(spark, python, archive)


class ConnectServer(ServerProcess):
    name = "connect"
    ready_pattern = re.compile("Spark Connect server started")
    start_timeout_s = 180.0

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._python = self.data_dir / "python"

    @property
    def remote(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str | Path]:
        port = ["--conf", f"spark.connect.grpc.binding.port={self.port}"]
        where = ["--conf", "spark.connect.grpc.binding.address=127.0.0.1"]
        # code inside foreachBatch does not get the artifacts of the client's session
        executors = ["--conf", f"spark.executorEnv.PYTHONPATH={self._cluster.archive}"]
        server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        return self._cluster.submit(*port, *where, *executors, *server)

    def prepare(self) -> None:
        # the server runs the function of foreachBatch in a client process, which needs pandas and grpc
        self._python.write_text(
            f'#!/bin/sh\ncase "$*" in *foreach_batch_worker*) exec {sys.executable} "$@" ;; esac\n'
            f'exec {self._cluster.python} "$@"\n'
        )
        self._python.chmod(0o755)

    def environment(self) -> Mapping[str, str]:
        return {**self._cluster.environment(), "PYSPARK_PYTHON": str(self._python)}

    def stop(self) -> int:
        """Stop the server; Java exits with 143 on SIGTERM, which counts as success."""
        status = super().stop()
        return 0 if status == 143 else status
