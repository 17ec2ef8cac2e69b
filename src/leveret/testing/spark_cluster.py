"""A standalone Spark cluster on this machine: a master and workers of one core each, as processes.

Needs ``leveret[spark]``. An executor is a child of its worker and ends with it; the master replaces executors that are
killed.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark

from leveret.spark.java import java_home, short_lived
from leveret.testing.processes import ServerProcess

SPARK_HOME: Final = Path(pyspark.__file__).parent
PASSED_ON: Final = ("PYTHONPATH", "VIRTUAL_ENV", "SPARK_REMOTE", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
"""Python settings of this process that executors must not inherit."""
WORKERS: Final = 2
EXECUTOR: Final = "CoarseGrainedExecutorBackend"


class SparkProcess(ServerProcess):
    """A Spark daemon. Executors are children of their worker and end with it."""

    start_timeout_s = 180.0

    def __init__(self, daemon: str, arguments: Sequence[str], ready: str) -> None:
        """Prepare a daemon.

        Args:
            daemon: its Java class.
            arguments: of its command line.
            ready: a regular expression of the line that it writes when it is ready.
        """
        self.name = daemon.rpartition(".")[2]
        self.ready_pattern = re.compile(ready)
        super().__init__()
        self._line = [str(SPARK_HOME / "bin" / "spark-class"), daemon, *arguments]

    def command(self) -> Sequence[str | Path]:
        return ["env", *(f"--unset={name}" for name in PASSED_ON), *self._line]

    def environment(self) -> Mapping[str, str]:
        return {
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"-XX:-UsePerfData {short_lived()}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.data_dir),
        }

    def stop(self) -> int:
        """Stop the daemon. Java exits with 143 after SIGTERM; that counts as 0."""
        status = super().stop()
        return 0 if status == 143 else status


@dataclass(frozen=True)
class SparkCluster:
    """A running cluster.

    Attributes:
        master: its URL, ``spark://host:port``.
        workers: the workers' processes.
    """

    master: str
    workers: tuple[SparkProcess, ...]

    def settings(self) -> dict[str, str]:
        """Return the settings for a driver on this machine: one small executor of one core on each worker."""
        return {
            "spark.master": self.master,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": str(len(self.workers)),
            "spark.executor.extraJavaOptions": short_lived(),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }

    def executors(self) -> list[int]:
        """Return the process ids of the executors running now."""
        parents = {worker.pid for worker in self.workers if worker.is_running}
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_executor(pid, parents)]

    def kill_executor(self) -> bool:
        """Kill one executor with SIGKILL. Return False if no executor runs."""
        for pid in self.executors():
            try:
                os.kill(pid, signal.SIGKILL)
                return True
            except ProcessLookupError:
                continue
        return False


@contextmanager
def spark_cluster(directory: Path) -> Iterator[SparkCluster]:
    """Run a master and two workers of one core each, on free ports of 127.0.0.1; executors work in `directory`.

    Raises ``ProcessFailed`` if one does not start, ``RuntimeError`` without Java.
    """
    ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with ExitStack() as stack:
        master = SparkProcess("org.apache.spark.deploy.master.Master", ports, "I have been elected leader")
        stack.enter_context(master)
        found = re.search(r"spark://\S+", master.said("Starting Spark master at"))
        assert found is not None
        workers = []
        for number in range(1, WORKERS + 1):
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"worker{number}")]
            daemon = "org.apache.spark.deploy.worker.Worker"
            workers.append(SparkProcess(daemon, [*ports, *size, found[0]], "Successfully registered with"))
            stack.enter_context(workers[-1])
        yield SparkCluster(found[0], tuple(workers))


def _is_executor(pid: int, parents: set[int]) -> bool:
    """Whether the process is an executor and a descendant of one of `parents`: a worker may start it by a shell."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        if EXECUTOR.encode() not in line or b"java" not in line.partition(b"\0")[0]:
            return False
        while pid > 1 and pid not in parents:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return False  # it has just ended
    return pid in parents
