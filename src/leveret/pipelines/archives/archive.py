"""Streams and queues into a lake, each message once: the pipeline ``archive``. docs/ARCHIVE.md."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from pyspark.sql import SparkSession

from leveret.client.url import parse_url
from leveret.pipelines.archives.asked import Asked
from leveret.pipelines.archives.batches import totals
from leveret.pipelines.archives.following import Followed, follow_all
from leveret.pipelines.archives.lake import DELTA, FORMS, ICEBERG, PARQUET, PARTITION_COLUMNS
from leveret.pipelines.archives.merging import MIB, Sizes
from leveret.pipelines.archives.parsing import Parsing
from leveret.pipelines.archives.sources import QUEUE, STREAM, Source
from leveret.pipelines.archives.telling import by_partition, by_source
from leveret.pipelines.errors import PipelineError
from leveret.pipelines.reporter import Reporter
from leveret.pipelines.summary import Summary
from leveret.spark.options import URL_DEFAULT
