"""Spark itself: started with its chatter in a file, stopped even if an interruption hit the middle of a call to it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from leveret.demo.errors import DemoError
from leveret.spark import session

SETTINGS: Final[dict[str, str]] = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    # A run is over before the second compiler pays: with it, Java took almost twice the processor time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Tasks of both queries take turns, or the second waits until the first has none left.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


@contextmanager
def spark_session(log: Path) -> Iterator[SparkSession]:
    """A session on two cores of this machine, stopped at the end together with its queries.

    Args:
        log: file for what Java and Spark's Python workers say; between the bars it would be unreadable.

    Raises:
        DemoError: no Java, or it does not start.
    """
    try:
        with _stderr_to(log), _interrupts_as_they_are():
            spark = session("leveret demo", **SETTINGS)
    except RuntimeError as error:
        raise DemoError(f"Spark did not start: {error}; see {log}") from error
    # The Python side logs interrupted calls, with their tracebacks, by the root logger.
    chatter = logging.FileHandler(log)
    logging.getLogger().addHandler(chatter)
    try:
        yield spark
    finally:
        # Each thread has its own line to Java. An interruption may have left this thread's with half an answer on it.
        with ThreadPoolExecutor(1) as other_thread:
            other_thread.submit(_stop, spark).result()
        logging.getLogger().removeHandler(chatter)
        chatter.close()


def _stop(spark: SparkSession) -> None:
    for query in spark.streams.active:
        query.stop()
    spark.stop()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Lets processes that are started meanwhile inherit a file as their standard error."""
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def _interrupts_as_they_are() -> Iterator[None]:
    """Undoes what Spark does to Ctrl-C: its handler calls Java, and fails where that interrupts another such call."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
