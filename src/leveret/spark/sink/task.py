"""What a running Spark task knows of itself: which part of which batch of which query it writes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pyspark import TaskContext


@dataclass(frozen=True)
class Task:
    """``query`` and ``batch``: "" and -1 outside of streaming queries. ``attempt``: no other attempt is called so."""

    partition: int
    attempt: str
    query: str
    batch: int

    @staticmethod
    def current() -> Task:
        """The running task. Spark hands neither query nor batch to a writer, but it tells every task of them."""
        context = TaskContext.get()
        if context is None:
            return Task(0, uuid.uuid4().hex, "", -1)
        query = context.getLocalProperty("sql.streaming.queryId") or ""
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        attempt = f"{context.partitionId()}-{context.attemptNumber()}-{uuid.uuid4().hex}"
        return Task(context.partitionId(), attempt, query, batch)
