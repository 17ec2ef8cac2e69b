"""The PySpark data source: queues as streams of rows, rows as messages, and enrichment by RPC.

Needs ``leveret[spark]``. Executors need this package, leveret.client, leveret.delay and leveret.wire, and nothing of
the broker. docs/SPARK.md has the options and columns.
"""

from leveret.spark.enrich import rpc
from leveret.spark.java import java_home
from leveret.spark.sessions import session
from leveret.spark.source import LeveretDataSource

__all__ = ["LeveretDataSource", "java_home", "rpc", "session"]
