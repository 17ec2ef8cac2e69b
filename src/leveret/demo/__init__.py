"""The demo: 336,776 flights through broker, Spark, lookup service and delay levels, and an account of every message.

``run`` does it from Python, ``command`` is ``leveret demo``. What needs pyspark, pyarrow or matplotlib is imported only
when a run begins.
"""

from leveret.demo.cli import command, run

__all__ = ["command", "run"]
