"""The PySpark data source: queues and streams as rows, rows as messages, and enrichment by RPC.

Needs ``leveret[spark]``. Executors need this package, leveret.client, leveret.delay and leveret.wire, but not the
broker. The pages in docs/guides/spark/ list the options and columns.
"""

from leveret.spark.java import java_home
from leveret.spark.reporting import report_queries
from leveret.spark.rpc import rpc
from leveret.spark.sessions import RECOMMENDED, session
from leveret.spark.source import LeveretDataSource

__all__ = ["RECOMMENDED", "LeveretDataSource", "java_home", "report_queries", "rpc", "session"]
