"""The demo: 336,776 flights through broker, Spark, lookup service and delay levels, with an account of every message.

``run`` runs it from Python, ``command`` is ``leveret demo``. pyspark, pyarrow and matplotlib are imported only when a
run begins.
"""

from leveret.demo.cli import command, run

__all__ = ["command", "run"]
