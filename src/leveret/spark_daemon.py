"""A Python daemon for Spark whose workers start at once: ``spark.python.daemon.module=leveret.spark_daemon``.

Spark forks the Python workers of its tasks from a daemon, and each of them imports pyarrow, pandas and the data source:
half a second of processor time. Workers of this daemon inherit the modules. It is no part of ``leveret.spark``, which
imports pyarrow.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

MODULES: Final = (
    *("pyspark.worker", "pandas", "pyarrow.compute", "pyarrow.json", "pyarrow.parquet"),
    *("leveret.spark.source", "leveret.spark.rpc"),
)
"""What the workers of tasks need. pyarrow imports pandas, if it is there, when it converts a list."""

WITHOUT_THREADS: Final = {"JE_ARROW_MALLOC_CONF": "background_thread:false", "OPENBLAS_NUM_THREADS": "1"}
"""Variables that keep pyarrow and NumPy from starting threads when they are imported."""


def preload() -> bool:
    """Import the modules; return whether no thread runs now but this one, the only one that a fork copies."""
    added = WITHOUT_THREADS.keys() - os.environ.keys()
    os.environ.update({name: WITHOUT_THREADS[name] for name in added})
    for name in MODULES:
        if find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    for name in added:
        del os.environ[name]
    gc.freeze()  # so that the garbage collector does not write to memory that workers share
    return len(list(Path("/proc/self/task").iterdir())) == 1


def main() -> None:
    """Run the daemon; Spark's own if a fork would lose threads."""
    if sys.platform == "linux" and not preload():
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
