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

from pyspark import SparkContext
from pyspark.sql import SparkSession

from leveret.pipelines.errors import PipelineError, cause
from leveret.spark import session


@contextmanager
def started(app_name: str, log: Path, *, remote: str | None = None, **conf: object) -> Iterator[SparkSession]:
    """The session that is active, as it is; else one of our own, which is stopped at the end with its queries.

    Args:
        app_name: how Spark calls it.
        log: file for what Java and Spark's Python workers say; between bars it would be unreadable.
        remote: a Spark Connect server.
        conf: settings.

    Raises:
        PipelineError: no Java, or it does not start, or the server can't be reached.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    try:
        with _stderr_to(log), _interrupts_as_they_are():
            spark = session(app_name, remote=remote, **conf)
    except Exception as error:
        raise PipelineError(f"Spark did not start: {cause(error)}; see {log}") from error
    # The Python side logs interrupted calls, with their tracebacks, by the root logger.
    chatter = logging.FileHandler(log)
    logging.getLogger().addHandler(chatter)
    _quieten_accumulators()
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


def _quieten_accumulators() -> None:
    """Logs what Spark's server of accumulators would print: it takes Java's end for a request that has failed."""
    server = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if server is not None:  # else Spark is elsewhere
        server.handle_error = lambda request, address: logging.getLogger("py4j").debug("accumulators", exc_info=True)


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
