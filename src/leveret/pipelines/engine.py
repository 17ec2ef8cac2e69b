"""Starts Spark with its log output in a file, and stops it even if an interrupt hit a call into it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from leveret.pipelines.errors import PipelineError, cause
from leveret.spark import session


@contextmanager
def started(app_name: str, log: Path, *, remote: str | None = None, **conf: object) -> Iterator[SparkSession]:
    """Yield the active session unchanged, or a new one, which is stopped at the end with its queries.

    Args:
        app_name: the application's name in Spark.
        log: file for the output of Java and Spark's Python workers, which would disturb progress bars.
        remote: a Spark Connect server.
        conf: Spark settings.

    Raises:
        PipelineError: Java is missing or does not start, or the server is unreachable.
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
    # Spark's Python side logs interrupted calls, with their tracebacks, to the root logger.
    chatter = logging.FileHandler(log)
    logging.getLogger().addHandler(chatter)
    _quieten_accumulators()
    try:
        yield spark
    finally:
        # each thread has its own connection to Java, and an interrupt may have left half an answer on this thread's
        with ThreadPoolExecutor(1) as other_thread:
            other_thread.submit(_stop, spark).result()
        logging.getLogger().removeHandler(chatter)
        chatter.close()


def _stop(spark: SparkSession) -> None:
    """Stop Spark; end Java if it does not answer, as it may after an interrupt that hit a call into it."""
    try:
        for query in spark.streams.active:
            query.stop()
        spark.stop()
    except Py4JNetworkError:
        java = getattr(SparkContext._gateway, "proc", None)
        if java is None:  # Spark runs elsewhere
            raise
        logging.getLogger("py4j").debug("Java does not answer", exc_info=True)
        java.kill()
        java.wait()


def _quieten_accumulators() -> None:
    """Log the error of Spark's accumulator server instead of printing it: it takes Java's end for a failed request."""
    server = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if server is not None:  # otherwise Spark runs elsewhere
        server.handle_error = lambda request, address: logging.getLogger("py4j").debug("accumulators", exc_info=True)


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect stderr to a file, for processes that start meanwhile."""
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
    """Restore the Ctrl-C handler that Spark replaces: Spark's calls Java, and fails if that interrupts another call."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
